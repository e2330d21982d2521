"""The tutorial runs as it stands: its blocks of Python and bash, in order, in a folder of its own."""

import re
import shlex
from pathlib import Path

import pytest

from .commands import run, succeeded

BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", flags=re.MULTILINE | re.DOTALL)


def shell(block, folder):
    """What the commands of a block say, each started by `python`, its input perhaps echoed to it."""
    for line in block.replace("\\\n", " ").splitlines():
        echoed, _, command = line.rpartition("|")
        text = " ".join(shlex.split(echoed)[1:]) + "\n" if echoed else ""
        python, program, *arguments = shlex.split(command)
        assert python == "python"
        program, arguments = (arguments[0], arguments[1:]) if program == "-m" else (program, arguments)
        if program == "train.py":
            arguments += ["data.train_size=120", "probes.count=0"]  # for the time: a fifth, and no figures
        done = succeeded(run(program, *arguments, stdin=text.encode(), cwd=folder))
        assert "Traceback" not in done.stderr
        yield done.stdout


@pytest.mark.slow
def test_every_block_of_the_tutorial_runs(tmp_path, monkeypatch, capsys):
    """All of it as one program, so that names are shared as the tutorial says; its commands see the same folder."""
    blocks = BLOCK.findall((Path(__file__).parents[1] / "docs" / "tutorial.md").read_text(encoding="utf-8"))
    assert len(blocks) > 14
    assert {language for language, _ in blocks} == {"python", "bash"}
    monkeypatch.chdir(tmp_path)
    names, said = {}, []
    for language, block in blocks:
        if language == "bash":
            said += shell(block, tmp_path)
        else:
            exec(block, names)
    said = "".join(said)
    assert said.count("站在那边的男人曾是棒球手。\n") == 3  # each training ends with the paper's example
    assert said.count("reference: The man standing there was a baseball player.") == 3
    assert said.count("reference: ") == 3 * 5
    assert "θ = 1.0: AL" in capsys.readouterr().out
    assert (tmp_path / "runs" / "tutorial" / "report.html").is_file()
    assert (tmp_path / "runs" / "tutorial-rows" / "model" / "duplexmt.json").is_file()
