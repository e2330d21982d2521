"""The package installs from a wheel, and its console scripts train, evaluate and translate outside the repository."""

import os
import shutil
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

from .serving.live_server import serving, translated

ROOT = Path(__file__).parents[1]


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

    def run(*command, text=None):
        around = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        return subprocess.run(
            command, cwd=tmp_path, input=text, text=True, capture_output=True,
            env=around | {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}, check=False,
        )  # fmt: skip

    def script(name, *arguments, text=None):
        return run(home / "bin" / f"duplexmt-{name}", *arguments, text=text)

    def example(name, *arguments, text=None):
        done = run(home / "bin" / "python", f"examples/{name}.py", *arguments, text=text)
        assert done.returncode == 0, done.stderr
        return done.stdout

    small = ["experiment=smoke", "data.train_size=60", "data.validation_size=6", "data.test_size=6"]
    small += ["training.sample_size=2", "probes.count=0", "demonstrate=0", "hydra.run.dir=run"]
    done = script("train", *small, "trainer.devices=2")
    assert done.returncode == 0, done.stderr
    where = subprocess.run(
        [home / "bin" / "python", "-c", "import duplexmt; print(duplexmt.__file__)"], cwd=tmp_path, text=True,
        capture_output=True, check=True,
    ).stdout  # fmt: skip
    assert str(packages) in where
    evaluation = ["model_folder=run/model", "limit=3", "quality.resamples=100"]
    done = script("evaluate", "-m", *evaluation, "policy.theta=0.5,0.8", "hydra.sweep.dir=sweep")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "sweep" / "results.md").is_file()  # of both jobs
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    (tmp_path / "in.txt").write_text("我看书。\n你喝茶。\n", encoding="utf-8")
    shown = script("translate", "model_folder=run/model", text="我看书。\n你喝茶。\n").stdout
    assert example("file_to_file", "run/model", "in.txt", "out.txt") == ""
    assert (tmp_path / "out.txt").read_text(encoding="utf-8") == shown
    with serving(monkeypatch) as server:
        assert example("client", server.address, "in.txt") == translated("我看书。\n你喝茶。\n")
    done = script("report", "run", "--results", "sweep/0", "--out", "report.html")
    assert done.returncode == 0, done.stderr
    assert script("data-prep", "--help").returncode == 0
    assert script("push", "--help").returncode == 0
    for name, setting in (("train", "data=permissive"), ("translate", "text=我看书。")):  # what is in no wheel
        done = script(name, setting)
        assert done.returncode == 2
        assert "of duplexmt's repository, which comes with no installed package" in done.stderr
