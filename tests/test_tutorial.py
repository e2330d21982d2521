"""Pages run as they stand: their blocks of Python and bash, in order, in a folder of their own."""

import re
import shlex
from pathlib import Path

import pytest

import duplexmt
from duplexmt.model_folder.artifact import load_model_folder
from duplexmt.policy import decoding_options
from duplexmt.streaming import systems

from .commands import run, succeeded

ROOT = Path(__file__).parents[1]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", flags=re.MULTILINE | re.DOTALL)
TEXTS = ["站在那边的男人曾是棒球手。", "我昨天买了一本书。", "她的老师会说中文。"]
SMALLER = ["data.train_size=120", "probes.count=0"]  # for the time: a fifth, and no figures


def shell(block, folder, smaller):
    """What the commands of a block say, each started by `python`, its input perhaps echoed to it."""
    for line in block.replace("\\\n", " ").splitlines():
        echoed, _, command = line.rpartition("|")
        text = " ".join(shlex.split(echoed)[1:]) + "\n" if echoed else ""
        python, program, *arguments = shlex.split(command)
        assert python == "python"
        program, arguments = (arguments[0], arguments[1:]) if program == "-m" else (program, arguments)
        if program == "train.py":
            arguments += [*SMALLER, *smaller]
        done = succeeded(run(program, *arguments, stdin=text.encode(), cwd=folder))
        assert "Traceback" not in done.stderr
        yield done.stdout


def run_blocks(page, folder, *smaller):
    """All of a page as one program, so that names are shared; its commands see the same folder. What they say."""
    names, said = {}, []
    for language, block in BLOCK.findall((ROOT / page).read_text(encoding="utf-8")):
        if language == "bash":
            said += shell(block, folder, smaller)
        else:
            exec(block, names)
    return "".join(said)


@pytest.mark.slow
def test_every_block_of_the_tutorial_runs(tmp_path, monkeypatch, capsys):
    blocks = BLOCK.findall((ROOT / "docs" / "explanation" / "grid.md").read_text(encoding="utf-8"))
    assert len(blocks) > 14
    assert {language for language, _ in blocks} == {"python", "bash"}
    monkeypatch.chdir(tmp_path)
    said = run_blocks("docs/explanation/grid.md", tmp_path, "data.validation_size=6", "data.test_size=8")
    assert said.count("站在那边的男人曾是棒球手。\n") == 3  # each training ends with the paper's example
    assert said.count("reference: The man standing there was a baseball player.") == 3
    assert said.count("reference: ") == 3 * 5
    assert "θ = 1.0: AL" in capsys.readouterr().out
    assert (tmp_path / "runs" / "tutorial" / "report.html").is_file()
    assert (tmp_path / "runs" / "tutorial-rows" / "model" / "duplexmt.json").is_file()


@pytest.mark.slow
def test_the_policy_of_the_page_is_a_system_like_any_other(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(systems, "KINDS", systems.KINDS)
    monkeypatch.setitem(systems.KINDS, "margin", None)  # as before afterwards, whatever the page puts there
    monkeypatch.setitem(decoding_options.SYSTEMS, "margin", ())
    run_blocks("docs/how-to/policy.md", tmp_path)
    *_, late = margins = [line.split() for line in capsys.readouterr().out.splitlines() if re.match(r"[01]\.\d ", line)]
    assert [float(margin) for margin, _ in margins] == [0.0, 0.1, 0.5, 1.0]
    delays = [float(delay) for _, delay in margins]
    assert delays == sorted(delays), "the larger the margin, the later it writes"
    assert delays[0] < delays[-1]
    assert late[0] == "1.0"
    loaded = load_model_folder("runs/policy/model")
    sources = loaded.sources.ids(TEXTS)
    greedy, searching = (
        [*systems.build_system(loaded.deciding(beam=beam), "margin", 0.2, max_target_tokens=20).translate(sources)]
        for beam in (1, 4)
    )
    assert greedy != searching, "where policy.beam asks for it, its endings are searched"
    with pytest.raises(ValueError, match="margin=2: must be a probability"):
        duplexmt.load("runs/policy/model", run_as="margin", setting=2)


@pytest.mark.slow
@pytest.mark.parametrize("page", ["README.md", "docs/quickstart.md", "docs/how-to/python.md"])
def test_programs_of_a_page_translate_as_it_says(page, capsys):
    names = {}
    for language, block in BLOCK.findall((ROOT / page).read_text(encoding="utf-8")):
        if language == "python":
            exec(block, names)
    assert "She invited us to her birthday party." in capsys.readouterr().out


def test_examples_of_latency_are_as_the_page_says():
    blocks = BLOCK.findall((ROOT / "docs" / "explanation" / "latency.md").read_text(encoding="utf-8"))
    names = {}
    for _, block in blocks:
        exec(block, names)
    assert sum(block.count("assert ") for _, block in blocks) == 5
