"""What waits for a GPU: the command that measures it all, and its parts as far as a CPU goes."""

import importlib
import json
import os
import subprocess
import sys

import pytest

from tests.test_imports import ROOT

SCAN = {"float32": {"error": 1e-6}, "bfloat16": {"error": 0.03, "ms": 2.0, "plain_ms": 5.0}}
SPEEDUPS = {"speedup_vs_recompute": 3, "speedup_vs_recompute_io_off": None}
MEASURED = {
    "kernels": {"scan": SCAN, "seconds": 1},
    "memory": {"peak_memory": {"nothing": 17e9, "layers": 9e9}, "seconds": 2},
    "decoding": SPEEDUPS | {"seconds": 3, "device": "H200", "commit": "abc"},
}


@pytest.fixture
def script(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    return importlib.import_module("on_gpu")


@pytest.fixture
def measured(script, monkeypatch, tmp_path, capsys):
    """Runs it with measurements that are Python programs; its exit status, and what it printed."""

    def run(programs, *arguments):
        every = [
            script.Measurement(name, (sys.executable, "-S", "-c", program), needs=needs)
            for name, (program, *needs) in programs.items()
        ]
        monkeypatch.setattr(script, "measurements", lambda out: every)
        monkeypatch.setattr("sys.argv", ["on_gpu.py", "--out", str(tmp_path / "gpu"), *arguments])
        return script.main(), *capsys.readouterr()

    return run


def test_all_is_measured_once_and_what_fails_is_told(measured, tmp_path):
    count = f"open({str(tmp_path / 'count')!r}, 'a').write('x')"
    programs = {
        "memory": (f"{count}; print('progress'); print({json.dumps(MEASURED['memory'])!r})",),
        "broken": ("import sys; print('why', file=sys.stderr); sys.exit(3)",),
        "silent": ("print('no object')",),
        "endless": ("import time; time.sleep(60)",),
        "elsewhere": ("print('{}')", "no_such_package"),
    }
    status, out, _ = measured(programs, "--limit", "3")
    assert status == 1
    assert "| peak memory, GB | ≤ 18 | 17 | met |" in out
    assert "| … layers recomputed, GB | ≤ 8 | 9 | **missed** |" in out
    for failed in (
        "| broken | – | ended with exit status 3: ",
        "| silent | – | its last line is no JSON object: ",
        "| endless | – | not done after 3 s (--limit) |",
        "| elsewhere | – | needs no_such_package: make setup |",
    ):
        assert failed in out
    assert (tmp_path / "gpu" / "broken.log").read_text() == "why\n"
    assert (tmp_path / "gpu" / "summary.md").read_text(encoding="utf-8") == out
    programs = {"memory": programs["memory"], "broken": ('print(\'{"device": "here"}\')',)}
    status, out, _ = measured(programs)
    assert status == 0
    assert "| here | – |" in out
    assert (tmp_path / "count").read_text() == "x"
    measured(programs, "--only", "memory", "--again", "memory")
    assert (tmp_path / "count").read_text() == "xx"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--only", "memory,gpu"], "--only gpu: no such measurement; there are memory"),
        (["--again", "gpu"], "--again gpu: no such measurement; there are memory"),
        (["--limit", "0"], "--limit 0: must be above 0"),
    ],
)
def test_bad_arguments(measured, capsys, arguments, message):
    with pytest.raises(SystemExit):
        measured({"memory": ("",)}, *arguments)
    assert message in capsys.readouterr().err


def test_figures_stand_beside_their_aims(script):
    rows = script.summary(MEASURED, {}).splitlines()
    assert "| kernels: relative error of scan, float32 | ≤ 0.0001 | 1e-06 | met |" in rows
    assert "| kernels: relative error of scan, bfloat16 | ≤ 0.02 | 0.03 | **missed** |" in rows
    assert "| kernels: scan × as fast as plain, bfloat16 | ≥ 1 | 2.5 | met |" in rows
    assert "| decoding: `speedup_vs_recompute` | ≥ 8 | 3 | **missed** |" in rows
    assert "| … with I←O off | ≥ 8 | – | |" in rows
    assert "| decoding | 3 | H200 | abc |" in rows


def test_every_aim_is_of_something_measured_by_a_script_that_is_there(script, tmp_path):
    every = script.measurements(tmp_path)
    assert all((ROOT / each.command[1]).is_file() for each in every)
    asked = set()

    class Asked(dict):
        def __missing__(self, name):
            asked.add(name)
            raise KeyError(name)

    script.summary(Asked(), {})
    assert asked == {each.name for each in every if each.json}


@pytest.mark.slow
def test_kernels_are_measured_by_emulation_where_there_is_no_gpu():
    pytest.importorskip("triton", reason="Triton is installed on Linux only")
    sizes = ["--pairs=1", "--size=2", "--repeats=1", "--vocabulary=500"]
    command, environment = [sys.executable, "benchmarks/triton_kernels.py", *sizes], {"TRITON_INTERPRET": "1"}
    done = subprocess.run(command, cwd=ROOT, env=os.environ | environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    for kind in ("scan", "head"):
        for name, most in (("float32", 1e-5), ("bfloat16", 0.02), ("float16", 0.005)):
            assert 0 < found[kind][name]["error"] < most
