"""The package installs from a wheel, and its console scripts train, evaluate and translate outside the repository."""

import os
import shutil
import subprocess
import sys
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest

from .serving.live_server import serving, translated

ROOT = Path(__file__).parents[1]
TEXT = "我看书。\n你喝茶。\n"

IN_ONE_PROCESS = """
import runpy
import sys
from contextlib import redirect_stdout
from importlib.metadata import entry_points

import duplexmt

print(duplexmt.__file__)
address, *names = sys.argv[1:]
programs = {name: entry_points(group="console_scripts")[name].load() for name in names}


def example(name, *arguments):
    sys.argv = [name, *arguments]
    runpy.run_path(f"examples/{name}.py", run_name="__main__")


def refused(name, setting):
    sys.argv = [name, setting]
    try:
        programs[name]()
    except SystemExit as end:
        assert end.code == 2


sys.argv = ["duplexmt-evaluate", "model_folder=run/model", "limit=3", "quality.resamples=100", "policy.theta=0.5"]
sys.argv += ["hydra.run.dir=evaluation"]
with redirect_stdout(sys.stderr):
    programs["duplexmt-evaluate"]()
example("file_to_file", "run/model", "in.txt", "out.txt")
sys.argv = ["duplexmt-translate", "model_folder=run/model"]
programs["duplexmt-translate"]()
sys.argv = ["duplexmt-report", "run", "--results", "evaluation", "--out", "report.html"]
programs["duplexmt-report"]()
refused("duplexmt-train", "data=permissive")
from duplexmt.model_folder.pack import for_others  # as the push does
assert for_others({"path": "mine.tsv"}) == {"path": "mine.tsv"}
refused("duplexmt-translate", "text=我看书。")
example("client", address, "in.txt")
"""


@pytest.mark.slow
def test_console_scripts_and_examples_run_from_an_installed_wheel(tmp_path, monkeypatch):
    """Its dependencies are those of the environment the tests run in: nothing is downloaded."""
    copy = tmp_path / "copy"  # a build leaves its folder
    shutil.copytree(ROOT, copy, ignore=shutil.ignore_patterns(".git", ".venv*", "runs", "site", "tests", "build"))
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]
    subprocess.run([*pip, "wheel", "--no-deps", "--no-build-isolation", "-w", tmp_path, copy], check=True)
    shutil.rmtree(copy)

    home = tmp_path / "environment"
    venv.create(home, with_pip=False)
    (packages,) = home.glob("lib/python*/site-packages")
    wheel = next(tmp_path.glob("*.whl"))
    assert not [name for name in zipfile.ZipFile(wheel).namelist() if name.endswith((".gz", ".safetensors"))]
    subprocess.run([*pip, f"--python={home / 'bin' / 'python'}", "install", "--no-deps", wheel], check=True)
    own = Path(next(path for path in sys.path if path.endswith("site-packages")))
    linked = [path for path in own.iterdir() if not path.name.startswith(("duplexmt", "__editable__"))]
    for path in linked:  # the other packages; a .pth file would bring the repository along
        if path.suffix != ".pth" and not (packages / path.name).exists():
            (packages / path.name).symlink_to(path)

    def run(name, *arguments, text=None):
        around = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        done = subprocess.run(
            [home / "bin" / name, *arguments], cwd=tmp_path, input=text, text=True, capture_output=True,
            env=around | {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done

    small = ["experiment=smoke", "data.train_size=60", "data.validation_size=6", "data.test_size=6"]
    small += ["training.sample_size=2", "probes.count=0", "demonstrate=0", "hydra.run.dir=run"]
    run("duplexmt-train", *small, "trainer.devices=2")

    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    (tmp_path / "in.txt").write_text(TEXT, encoding="utf-8")
    names = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["scripts"]
    assert all((home / "bin" / name).is_file() for name in names)
    with serving(monkeypatch) as server:
        done = run("python", "-c", IN_ONE_PROCESS, server.address, *names, text=TEXT)
    assert (tmp_path / "evaluation" / "results.md").is_file()
    shown = (tmp_path / "out.txt").read_text(encoding="utf-8")
    where, _, rest = done.stdout.partition("\n")
    assert where.startswith(str(packages))
    assert rest == f"{shown}report.html\n{translated(TEXT)}"
    for line in done.stderr.splitlines()[-2:]:  # what is in no wheel
        assert "of duplexmt's repository, which comes with no installed package" in line
