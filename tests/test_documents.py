"""The documents keep what they promise: links lead somewhere, names exist, commands compose, lines are short."""

import importlib
import re
import runpy
import shlex
from dataclasses import fields
from functools import cache
from pathlib import Path

import pytest
from PIL import Image, ImageChops, ImageStat

from duplexmt.common.arguments import quote_arguments
from duplexmt.config import SCHEMAS

from .test_config import checked

ROOT = Path(__file__).parents[1]
DOCUMENTS = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")] + sorted(
    (ROOT / "docs").rglob("*.md")
)
BESIDE = sorted(path for name in ("data", "models") for path in (ROOT / name).rglob("*.md"))
LAB = ROOT / "docs" / "lab"
FOR_USERS = [path for path in DOCUMENTS if (ROOT / "docs") in path.parents and LAB not in path.parents]
OF_TODAY = [path for path in DOCUMENTS if LAB not in path.parents]  # the lab book has commands of older commits


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


@pytest.mark.parametrize("path", [*DOCUMENTS, *BESIDE], ids=name_of)
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


def test_results_are_three_figures_and_a_page():
    text = (ROOT / "docs" / "results.md").read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 90
    assert len(re.findall(r"^!\[", text, flags=re.MULTILINE)) == 3


def test_the_figures_of_the_results_are_drawn_from_the_tables(tmp_path):
    drawn = runpy.run_path(str(ROOT / "docs" / "results.py"))["main"](tmp_path)
    text = (ROOT / "docs" / "results.md").read_text(encoding="utf-8")
    assert [f"figures/{path.name}" for path in drawn] == re.findall(r"^!\[.*\]\((.*)\)$", text, flags=re.MULTILINE)
    for path in drawn:
        kept = Image.open(ROOT / "docs" / "figures" / path.name).convert("L").resize((200, 100))
        difference = ImageStat.Stat(ImageChops.difference(kept, Image.open(path).convert("L").resize((200, 100))))
        assert difference.mean[0] < 2, f"{path.name}: python docs/results.py"


def test_the_page_of_settings_is_that_of_the_schema():
    page = runpy.run_path(str(ROOT / "docs" / "settings.py"))["page"]()
    assert (ROOT / "docs" / "reference" / "settings.md").read_text(encoding="utf-8") == page, "python docs/settings.py"
    for schema in SCHEMAS.values():
        for entry in fields(schema):
            assert f"`{entry.name}" in page, entry.name


def test_all_pages_for_users_are_in_the_navigation_and_the_lab_is_not():
    site = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    listed = {name for name in re.findall(r"[\w/-]+\.md", site) if not re.match(r"api/|index|contributing", name)}
    assert listed == {str(path.relative_to(ROOT / "docs")) for path in FOR_USERS}
    assert "docs/lab" not in (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("path", FOR_USERS, ids=name_of)
def test_pages_for_users_are_short_and_have_no_diary(path):
    """Commits and scores in running text belong to the lab; scores to tables and figures."""
    text = without_code(path.read_text(encoding="utf-8"))
    assert len(text.splitlines()) <= (400 if path.name == "settings.md" else 200), "move what few need"
    assert not re.search(r"\b(?=[0-9a-f]*[a-f])(?=[0-9a-f]*\d)[0-9a-f]{7}\b", text), "a commit"
    prose = re.sub(r"^\|.*$", "", text, flags=re.MULTILINE)
    assert not re.search(r"\d\.\d+ at (AL )?\d+\.\d", prose), "BLEU at AL"


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
    lines = (ROOT / "docs" / "reference" / "equations.md").read_text(encoding="utf-8").splitlines()
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
    checked(program, *quote_arguments(overrides))
