"""Makes docs/reference/settings.md from the schema and the values of conf/: python docs/settings.py

A setting's meaning is the comment beside it in `duplexmt/config.py`, else the one beside its value in `conf/`.
"""

import ast
import inspect
import re
import sys
import textwrap
import tokenize
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from io import StringIO
from pathlib import Path
from typing import Any, get_type_hints

import yaml
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

sys.path.insert(0, str(Path(__file__).parents[1]))  # works without an installed package, too

from duplexmt.config import SCHEMAS, register_schemas

ROOT = Path(__file__).resolve().parents[1]
CONF, PAGE = ROOT / "conf", ROOT / "docs" / "reference" / "settings.md"
GIVEN = {"train": ["data=pairs"]}
BAR = r"\|"  # within a table
TOP = """# Settings

Made by `python docs/settings.py` from the schema (`duplexmt/config.py`, which has the rule of each setting) and the
values of `conf/`; a test checks that it is up to date. Give settings as `name=value` behind a command. A misspelt name
or a forbidden value is refused before anything is written. `--help` lists what a command has after your settings. A
group that several commands have stands under the first of them: `adaptive` is evaluate.py's, translate.py's and
serve.py's. The values of train.py are those with `data=pairs`; without it the built-in corpus and sizes of
`conf/data/builtin.yaml` hold.
"""


def meanings(schema: type) -> dict[str, str]:
    """The comment beside each field of a dataclass and of those it is made from."""
    found: dict[str, str] = {}
    for kind in reversed(schema.__mro__[:-1]):
        source = textwrap.dedent(inspect.getsource(kind))
        tokens = tokenize.generate_tokens(StringIO(source).readline)
        comments = {token.start[0]: token.string.lstrip("# ") for token in tokens if token.type == tokenize.COMMENT}
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                lines = range(node.lineno, (node.end_lineno or node.lineno) + 1)
                found[node.target.id] = " ".join(comments[line] for line in lines if line in comments)
    return found


def beside_values(path: Path) -> dict[str, str]:
    """The comment beside each key of a YAML file."""
    return dict(re.findall(r"^ *(\w+): .*?  # (.*)$", path.read_text(encoding="utf-8"), flags=re.MULTILINE))


def shown(value: Any) -> str:
    """As one gives it on a command line."""
    text = yaml.safe_dump(value, default_flow_style=True, allow_unicode=True, width=1000)
    return text.removesuffix("\n").removesuffix("\n...")


def rows(name: str, schema: type, values: dict[str, Any], beside: dict[str, str]) -> Iterator[str]:
    """A line of a table for each setting; those within a setting follow it."""
    kinds, told = get_type_hints(schema), meanings(schema)
    for entry in fields(schema):
        place, value = f"{name}{entry.name}", values[entry.name]
        if is_dataclass(kinds[entry.name]):
            yield from rows(f"{place}.", kinds[entry.name], value, beside)
        else:
            meaning = told[entry.name] or beside.get(entry.name, "")
            cells = (f"`{place}`", f"`{shown(value)}`", meaning)
            yield "| " + " | ".join(cell.replace("|", BAR) for cell in cells) + " |"


def table(lines: list[str]) -> str:
    return "\n".join(["| setting | value | meaning |", "| --- | --- | --- |", *lines]) + "\n"


def files_of(group: str) -> str:
    """The files of a group of settings, each with the first sentence of its comment."""
    lines = []
    for path in sorted((CONF / group).glob("*.yaml")):
        text = " ".join(re.findall(r"^# (?!@)(.*)$", path.read_text(encoding="utf-8"), flags=re.MULTILINE))
        first = re.split(r"\. |\.$| python ", text)[0]
        lines.append(f"| `{group}={path.stem}` | {first.replace('|', BAR)} |")
    return "\n".join(["| | |", "| --- | --- |", *lines]) + "\n"


def page() -> str:
    """The whole of it."""
    register_schemas()
    parts, known = [TOP], dict[str, list[str]]()
    for program, schema in SCHEMAS.items():
        with initialize_config_dir(version_base="1.3", config_dir=str(CONF)):
            composed = compose(program, overrides=GIVEN.get(program, []))
        values: Any = OmegaConf.to_container(composed)
        kinds, beside = get_type_hints(schema), beside_values(CONF / f"{program}.yaml")
        groups = [name for name in kinds if is_dataclass(kinds[name])]
        own = [line for line in rows("", schema, values, beside) if "." not in line.split("`")[1]]
        sections = []
        for group in groups:
            file = CONF / group / "default.yaml"
            near = beside_values(file) if file.exists() else beside
            lines = list(rows(f"{group}.", kinds[group], values[group], near))
            if group in known:
                own += [line for line in lines if line not in known[group]]
            else:
                known[group] = lines
                said = (inspect.getdoc(kinds[group]) or "").partition("\n\n")[0]
                sections.append(f"### {group}\n{said}\n\n{table(lines)}")
        parts += [f"## {program}.py\n" + table(own), *sections]
    parts.append("## Choices\nA group of settings is chosen by its name; several experiments by `experiment=[A,B]`.\n")
    chosen = ["experiment", "data", "model", "system", "quality", "logger"]
    return "\n".join([*parts, *(f"### {group}=…\n" + files_of(group) for group in chosen)])


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    print(PAGE.relative_to(ROOT))
