"""The tutorial runs as it stands: its blocks of Python and bash, in order, in a folder of its own."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", flags=re.MULTILINE | re.DOTALL)


@pytest.mark.slow
def test_every_block_of_the_tutorial_runs(tmp_path):
    """All of it as one program, so that names are shared as the tutorial says; its commands see the same folder."""
    program = ["import os, subprocess\n"]
    for language, block in BLOCK.findall((ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8")):
        assert language in ("python", "bash")
        program.append(block if language == "python" else f"subprocess.run({block!r}, shell=True, check=True)\n")
    assert len(program) > 15
    script = tmp_path / "tutorial.py"
    script.write_text("".join(program), encoding="utf-8")
    for name in ("train.py", "evaluate.py", "translate.py", "conf"):  # as from the repository's root
        (tmp_path / name).symlink_to(ROOT / name)
    around = os.environ | {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}", "PYTHONPATH": str(ROOT),
        "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1",
    }  # fmt: skip
    done = subprocess.run([sys.executable, script], cwd=tmp_path, env=around, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert "Traceback" not in done.stderr
    assert done.stdout.count("站在那边的男人曾是棒球手。\n") == 3  # each training ends with the paper's example
    assert done.stdout.count("reference: The man standing there was a baseball player.") == 3
    assert done.stdout.count("reference: ") == 3 * 5
    assert "θ = 1.0: AL" in done.stdout
    assert (tmp_path / "runs" / "tutorial" / "report.html").is_file()
    assert (tmp_path / "runs" / "tutorial-rows" / "model" / "duplexmt.json").is_file()
