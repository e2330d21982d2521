"""The documents keep what they promise: links lead somewhere, names exist, commands compose, lines are short."""

import importlib
import re
import shlex
from functools import cache
from pathlib import Path

import pytest
from hydra import compose, initialize_config_dir

from data_prep.arguments import quote_arguments
from duplexmt.config import SCHEMAS, register_schemas, settings

ROOT = Path(__file__).parents[1]
DOCUMENTS = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")] + sorted(
    (ROOT / "docs").rglob("*.md")
)
LAB = ROOT / "docs" / "lab"
OF_TODAY = [path for path in DOCUMENTS if LAB not in path.parents]  # the lab book has commands of older commits
register_schemas()


def name_of(path):
    return str(path.relative_to(ROOT))


def without_code(text):
    return re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)


def code_blocks(path, language):
    return re.findall(rf"^```{language}\n(.*?)^```", path.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)


@cache
def anchors(path):
    """Of all headings, as GitHub and the site make them."""
    headings = re.findall(r"^#+ (.*)$", without_code(path.read_text(encoding="utf-8")), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("path", DOCUMENTS, ids=name_of)
def test_links_within_the_repository_lead_to_files_and_headings(path):
    for target in re.findall(r"\]\(([^)\s]+)\)", without_code(path.read_text(encoding="utf-8"))):
        if not re.match(r"[a-z]+:", target):
            file, _, anchor = target.partition("#")
            found = (path.parent / file).resolve() if file else path
            assert found.exists(), target
            assert not anchor or anchor in anchors(found), target


@pytest.mark.parametrize("path", DOCUMENTS, ids=name_of)
def test_lines_have_at_most_120_characters(path):
    """Tables cannot be broken, and the lab's commands are records; but in the results tables are short, too."""
    text = path.read_text(encoding="utf-8")
    lines = (without_code(text) if LAB in path.parents else text).splitlines()
    long = [line for line in lines if len(line) > 120 and (path.name == "results.md" or not line.startswith("|"))]
    assert long == []


def test_results_have_at_most_200_lines():
    assert len((ROOT / "docs" / "results.md").read_text(encoding="utf-8").splitlines()) <= 200


def exists(name):
    """Whether `room.module.name` is found in `duplexmt`, or under `benchmarks`."""
    parts = name.split(".")
    for package in ("duplexmt", "benchmarks"):
        for length in range(len(parts), 0, -1):
            try:
                found = importlib.import_module(".".join([package, *parts[:length]]))
            except ModuleNotFoundError:
                continue
            for part in parts[length:]:
                found = getattr(found, part, None)
            return found is not None
    return False


def rows_of_equations():
    lines = (ROOT / "docs" / "equations.md").read_text(encoding="utf-8").splitlines()
    rows = [line.strip("|").split("|") for line in lines if line.startswith("|")]
    return [tuple(cell.strip() for cell in row) for row in rows[2:]]


@pytest.mark.parametrize("row", rows_of_equations(), ids=lambda row: row[0][:40])
def test_functions_and_tests_of_the_equations_exist(row):
    _, functions, tests = row
    for name in re.findall(r"`([a-z_]+(?:\.\w+)+)`", functions):
        assert name.endswith((".py", ".yaml")) or exists(name), name
    for path in re.findall(r"`([\w/]+\.py)", tests):
        assert (ROOT / "tests" / path).is_file(), path
    for test in re.findall(r"\b(test_\w+)\b(?!\.py)", tests):
        assert test in names_of_tests(), test


@cache
def names_of_tests():
    sources = (path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("test_*.py"))
    return {name for source in sources for name in re.findall(r"^def (test_\w+)", source, flags=re.MULTILINE)}


def commands():
    """`python train.py …` and its kin in the documents of today, with the text of the command."""
    for path in OF_TODAY:
        for block in code_blocks(path, "bash"):
            for line in block.replace("\\\n", " ").splitlines():
                found = re.match(r"(?:.*\| )?python (train|evaluate|translate)\.py ?(.*)", line)
                if found and "$" not in line and "resume=" not in line and "rescore=" not in line:
                    yield pytest.param(found[1], found[2], id=f"{name_of(path)}: {line[:60]}")


@pytest.mark.parametrize(("program", "arguments"), commands())
def test_commands_of_the_documents_compose(program, arguments):
    sweep = arguments.startswith("-m ")
    overrides = []
    for argument in shlex.split(re.sub(r" [<>|].*", "", arguments), comments=True):
        name, _, value = argument.partition("=")
        if "=" in argument and not name.startswith("hydra"):
            overrides.append(f"{name}={value.split(',')[0] if sweep and '[' not in value else value}")
    with initialize_config_dir(version_base="1.3", config_dir=str(ROOT / "conf")):
        settings(SCHEMAS[program], compose(program, overrides=quote_arguments(overrides)))
