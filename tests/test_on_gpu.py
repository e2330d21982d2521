"""What waits for a GPU: the command that measures it all, and its parts as far as a CPU goes."""

import importlib
import json
import os
import subprocess
import sys

import pytest
import torch

from duplexmt.training.optimizers import may_skip, optimizer_of
from tests.test_accelerator import PLANNED, planned_step
from tests.test_imports import ROOT

SCAN = {"float32": {"error": 1e-6}, "bfloat16": {"error": 0.03, "ms": 2.0, "plain_ms": 5.0}}
ROWS = {"mfu": 0.36, "minutes": 4.5, "launches": 900, "step_ms": 50.0, "idle": 0.25, "kinds": {"products": 30.0}}
SPEEDS = {"rows_bfloat16": 300.0, "generate": 100.0}
HERE = {"seconds": 3, "device": "H200"}
MEASURED = {
    "step": {"rows": ROWS, "hugging_face": {"ratio_padded": 1.3, "ratio_packed": 1.1}, "seconds": 9, "cut": "too slow"},
    "decoding": {"ratio_vs_generate": {"rows_bfloat16": 0.7}, "tokens_per_second": {"8": SPEEDS}, **HERE},
    "grid": {"grid": {"minutes": None}, "seconds": 4, "commit": "abc"},
    "kernels": {"scan": SCAN, "seconds": 1},
    "paper-decoding": {"speedup_vs_recompute": {"grid": 9, "grid_io_off": 7}, "seconds": 2},
}


@pytest.fixture
def script(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    return importlib.import_module("on_gpu")


@pytest.fixture
def measured(script, monkeypatch, tmp_path, capsys):
    """Runs it with measurements that are Python programs; its exit status, and what it printed."""

    def run(programs, *arguments, limit=60):
        monkeypatch.setattr(script, "LEAST", 1)
        monkeypatch.setattr(script, "MEASUREMENTS", dict.fromkeys(programs, (limit, "")))
        commands = {name: ["-S", "-c", program] for name, program in programs.items()}
        monkeypatch.setattr(script, "commands", lambda out: commands)
        monkeypatch.setattr("sys.argv", ["on_gpu.py", "--out", str(tmp_path / "gpu"), "--more", *arguments])
        return script.main(), capsys.readouterr().out

    return run


def test_all_is_measured_once_and_what_fails_is_told(measured, tmp_path):
    count = f"open({str(tmp_path / 'count')!r}, 'a').write('x')"
    programs = {
        "paper-decoding": f"{count}; print('progress'); print({json.dumps(MEASURED['paper-decoding'])!r})",
        "broken": "import sys; print('why', file=sys.stderr); sys.exit(3)",
        "silent": "print('no object')",
        "endless": "import time; time.sleep(60)",
        "slow": 'import time; print(\'{"device": "half"}\', flush=True); time.sleep(60)',
    }
    status, out = measured(programs, limit=2)
    assert status == 1
    assert "| the paper's decoding: speed | recomputing all at each step | ≥ 8 | 9 | met |" in out
    assert "| … with I←O off | recomputing all at each step | ≥ 8 | 7 | **missed** |" in out
    for failed in (
        "| broken, ended with exit status 3: ",
        "| silent, it printed no result: ",
        "| endless, not done after 2 s | ",
        "| slow, not done after",
    ):
        assert failed in out
    assert "| half | – |" in out
    assert (tmp_path / "gpu" / "broken.log").read_text() == "why\n"
    assert (tmp_path / "gpu" / "summary.md").read_text(encoding="utf-8") == out
    whole = 'print(\'{"device": "here"}\')'
    programs = {"paper-decoding": programs["paper-decoding"], "broken": whole, "slow": whole}
    status, out = measured(programs, "--only", "paper-decoding,broken,slow")
    assert out.count("| here | – |") == 2, "what had failed, and what had been cut, is measured anew"
    assert (status, (tmp_path / "count").read_text()) == (0, "x")
    (tmp_path / "gpu" / "paper-decoding.json").unlink()
    measured(programs)
    assert (tmp_path / "count").read_text() == "xx"


def test_the_default_measurements_take_eight_minutes_at_most(script):
    usual = {name: limit for name, (limit, _) in script.MEASUREMENTS.items() if name not in script.MORE}
    assert sum(usual.values()) <= 60 * script.MINUTES
    assert next(iter(usual)) == "step"


def test_figures_stand_beside_their_aims_and_anchors(script):
    rows = script.summary(MEASURED).splitlines()
    assert "| rows (R = 4): MFU | a large matrix product here | ≥ 0.35 | 0.36 | met |" in rows
    assert "| wait-k: MFU | a large matrix product here | ≥ 0.35 | – |  |" in rows
    assert "| rows: positions/s | Hugging Face + PEFT, padded | ≥ 1.25 | 1.3 | met |" in rows
    assert "| rows: positions/s | Hugging Face + PEFT, packed | – | 1.1 |  |" in rows
    assert "| rows: minutes of 100,000 pairs of 18 + 25 tokens, extrapolated | – | ≤ 4 | 4.5 | **missed** |" in rows
    assert "| rows: launches of a step | – | ≤ 1500 | 900 | met |" in rows
    assert "| exact rows: time of a sentence | `generate`, offline | ≤ 0.6 | 0.7 | **missed** |" in rows
    assert "| … tokens/s of 8 streams | `generate` | – | 3 |  |" in rows
    assert "| … tokens/s of 8 streams | – | – | 300 |  |" in rows
    assert not any("256 streams" in row for row in rows), "without an aim and not measured"
    assert "| the paper's grid: minutes of 100,000 pairs | – | ≤ 20 | – |  |" in rows
    assert "| rows | 50 | 900 | 0.25 | products 30 |" in rows
    assert "| kernels: relative error of scan, bfloat16 | – | ≤ 0.02 | 0.03 | **missed** |" in rows
    assert "| kernels: speed of scan, bfloat16 | PyTorch's operations | ≥ 1 | 2.5 | met |" in rows
    assert "| step, too slow | 9 | – | – |" in rows
    assert "| decoding | 3 | H200 | – |" in rows
    assert "| grid | 4 | – | abc |" in rows


def test_every_aim_is_of_something_measured_by_a_script_that_is_there(script, tmp_path):
    commands = script.commands(tmp_path)
    assert all((ROOT / command[0]).is_file() for command in commands.values())
    assert {aim.place.split(".")[0] for aim in script.aims()} == {name for name in commands if "smoke" not in name}
    assert commands["smoke-16-mixed"][-1] == f"hydra.run.dir='{tmp_path}/smoke-16-mixed'"


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


@pytest.fixture
def tiny(monkeypatch, capsys):
    """Runs a script on its toy shape; its last object, all that it needs being small."""

    def run(name, *arguments, **sizes):
        monkeypatch.syspath_prepend(ROOT)
        script = importlib.import_module(f"benchmarks.{name}")
        for size, value in sizes.items():
            monkeypatch.setattr(script, size, value)
        script.main(["--seconds", "1", *arguments])
        return json.loads(capsys.readouterr().out.splitlines()[-1])

    return run


@pytest.mark.skipif(torch.cuda.is_available(), reason="the toy shape is for a CPU")
@pytest.mark.parametrize("parts", ["rows,hugging_face", pytest.param("waitk,grid", marks=pytest.mark.slow)])
def test_training_is_measured_by_train_py_itself(tiny, parts, monkeypatch):
    monkeypatch.setattr("duplexmt.kernels.allocator.keep_freed_memory", lambda: True)  # not in other tests' process
    given = "data.batch_size=4", "trainer.precision=32", "training.warmup_steps=1"
    found = tiny("training_speed", "--shape", "tiny", "--parts", parts, *given, PAIRS=120, WARM=2)
    for part in parts.split(","):
        if part == "hugging_face":
            before = found["rows"]["positions_per_second"]
            for kind in ("padded", "packed"):
                theirs = found[part][f"{kind}_positions_per_second"]
                assert found[part][f"ratio_{kind}"] == pytest.approx(before / theirs)
            continue
        assert found[part]["pairs"] == 4
        assert found[part]["minutes"] == pytest.approx(100_000 / 60 / found[part]["pairs_per_second"])
        assert found[part]["step_ms"] * found[part]["pairs_per_second"] == pytest.approx(4000)
        assert found[part]["launches"] > 100
        assert found[part]["kinds"]["products"] > 0
        assert 0 < found[part]["mfu"] < 1
    assert found["pair"] == "18 + 25 tokens"


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU; test_accelerator has a stand-in")
@pytest.mark.parametrize("optimizer", ["adam", "muon"])
@PLANNED
def test_no_planned_step_waits_for_a_gpu(training, optimizer):
    """Loss, gradients, their norm, and the optimiser's step; PyTorch raises an error where something waits."""
    loss, module = planned_step(training, "cuda", move=lambda model: model.cuda())
    steps = optimizer_of(optimizer, module, 1e-3, (0.9, 0.98))

    def step():
        loss().backward()
        norm = torch.nn.utils.clip_grad_norm_(list(module.parameters()), 1.0)
        assert may_skip(steps, torch.isfinite(norm))
        steps.step()
        steps.zero_grad()

    for _ in range(2):  # kernels prove themselves, and copies are made that stay
        step()
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        step()
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.skipif(torch.cuda.is_available(), reason="the toy shape is for a CPU")
def test_decoding_is_measured_beside_generate(tiny):
    kinds = "grid,grid_io_off,rows,rows_bfloat16"
    given = "--shape", "tiny", "--streams", "1,2", "--seconds", "300", "--kinds", kinds
    found = tiny("decode_latency", *given, "--beside", "recompute,generate,generate_static,reencode", TURNS=1, LENGTH=8)
    assert set(found["tokens_per_second"]) == {"1", "2"}
    assert set(found["tokens_per_second"]["2"]) == {*kinds.split(","), "generate", "generate_static"}
    for name in ("generate", "generate_static", "reencode", "rows"):
        for kind, ratio in found[f"ratio_vs_{name}"].items():
            assert ratio == pytest.approx(found["seconds"][kind] / found["seconds"][name], rel=2e-3)
    for kind in kinds.split(","):
        again = found["seconds"][f"recompute {kind}"] / found["seconds"][kind]
        assert found["speedup_vs_recompute"][kind] == pytest.approx(again, rel=2e-3)
    assert found["megabytes"]["rows"] == found["megabytes"]["grid"]
    assert found["cache_bytes"]["rows"] < found["cache_bytes"]["grid"]


def test_four_rows_are_measured_beside_wait_k_and_all_rows(monkeypatch, capsys):
    script = importlib.import_module("benchmarks.row_cost")
    monkeypatch.setattr(script, "keep_freed_memory", lambda: True)
    monkeypatch.setattr(script, "HELD", 1)
    monkeypatch.setitem(script.SHAPES, "small", script.SHAPES["tiny"])
    monkeypatch.setitem(script.PAIRS, "small", {5: 2})
    monkeypatch.setattr("sys.argv", ["row_cost.py", "--steps", "1"])
    script.main()
    found = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert found["ratio_vs_waitk"]["5"].keys() == {"waitk", "four rows", "all rows"}
    assert found["ratio_vs_waitk"]["5"]["waitk"] == 1
    assert found["ratio_vs_all_rows"]["5"] > 0
