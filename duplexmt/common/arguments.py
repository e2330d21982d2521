"""Command-line arguments before Hydra reads them: quotes that its grammar wants, names and types of settings."""

import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import fields, is_dataclass
from difflib import SequenceMatcher
from pathlib import Path
from types import NoneType
from typing import Any, get_args, get_origin, get_type_hints

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Glob, Override
from hydra.errors import HydraException
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

# Types of settings in words.
KINDS = {
    bool: "true or false", int: "a whole number", float: "a number", str: "a text", dict: "{name: value}",
    Path: "a path",
}  # fmt: skip


def last_of(arguments: list[str], name: str) -> str | None:
    """What a setting is given on the command line, the last time; None for nothing, or null."""
    values = [argument.partition("=")[2] for argument in arguments if argument.startswith(f"{name}=")]
    return values[-1] if values and values[-1] not in ("", "null") else None


def quote_arguments(arguments: list[str]) -> list[str]:
    """Command-line arguments with quotes where Hydra's grammar wants them: around `text=…`, which stands for itself
    whatever it holds, and around what the grammar cannot read: other letters than ASCII's, `corpus (1).tsv`; also in
    a list."""
    quoted = []
    for argument in arguments:
        name, equals, value = argument.partition("=")
        if name == "text":
            plain = not value or re.fullmatch(r"""'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*\"""", value, re.DOTALL) is not None
            value = re.sub(r"(\\*)\$\{", r"\1\1\\${", value)  # no interpolation
            value = value if plain else in_quotes(value)
        elif equals and not name.startswith("-"):
            if value.startswith("~/"):  # which dash does not expand here, nor any shell in quotes
                value = str(Path(value).expanduser())
            if not readable(name + equals + value):
                value = readable_value(name, value)
        quoted.append(name + equals + value)
    return quoted


def readable_value(name: str, value: str) -> str:
    """A value that Hydra's grammar cannot read, with quotes around it, or around those of its items that want them."""
    if value.startswith("[[") and value.endswith("]]"):
        return f"[{readable_value(name, value[1:-1])}]"
    if "],[" in value:  # lists in a list, or to sweep over
        lists = [readable_value(name, f"[{one}]") for one in value.removeprefix("[").removesuffix("]").split("],[")]
        return ",".join(lists)
    if value.startswith("[") and value.endswith("]"):
        items = value[1:-1].split(",")
        return f"[{','.join(item if readable(f'{name}={item}') else in_quotes(item.strip()) for item in items)}]"
    return value if value[0] in "'\"[{" else in_quotes(value)


def readable(argument: str) -> bool:
    """Whether Hydra's grammar can read a command-line argument as it stands."""
    try:
        OverridesParser.create().parse_override(argument)
    except HydraException:
        return False
    return True


def in_quotes(value: str) -> str:
    """A text as Hydra's grammar quotes it."""
    escaped = re.sub(r"(\\+)(?='|\Z)", r"\1\1", value).replace("'", "\\'")
    return f"'{escaped}'"


def without_quotes(value: str) -> str:
    """What `in_quotes` was given; another text as it is."""
    return str(OverridesParser.create().parse_override(f"value={value}").value()) if value[:1] == "'" else value


def check_arguments(schema: type, arguments: list[str], conf: Path | None = None) -> list[str]:
    """Command-line arguments as they are; what Hydra's grammar cannot read is left for it to tell.

    Raises:
        ValueError: for an unknown setting, a value (of those to sweep over, too) that is not of a setting's type, or
            another program's experiment.
        FileNotFoundError: the current folder is gone.
    """
    try:
        os.getcwd()
    except FileNotFoundError:
        raise FileNotFoundError("the current folder has been removed: cd into one that is there") from None
    if {"-sc", "--shell-completion"} & {*arguments}:
        return arguments
    check_names(schema, arguments, experiments=conf is not None)
    if conf is not None:
        check_experiments(schema, arguments, conf)
    parser = OverridesParser.create()
    for override in (parser.parse_override(argument) for argument in arguments if readable(argument)):
        values: list[Any] = []
        if is_choice(override):
            values = list(override.sweep_iterator())
        elif not override.is_sweep_override() and not override.is_delete():
            values = [override.value()]
        for value in values:
            check_type(schema, override.key_or_group, value)
    return arguments


def is_choice(override: Override) -> bool:
    """Whether an argument sweeps over values that it names itself: `1,2`, not `glob(*)`, which names files."""
    return override.is_discrete_sweep() and not isinstance(override.value(), Glob)


def check_names(schema: type, arguments: Iterable[str], experiments: bool = True) -> None:
    """Refuse command-line arguments that name no setting, before Hydra does: of an unknown one it would advise
    `+NAME=…`, and of a text without a name it would show its grammar.

    Args:
        schema: a dataclass, its groups dataclasses in it.
        arguments: of the command line.
        experiments: whether the program has `experiment=…`.

    Raises:
        ValueError: for the first of them, with the setting most like it.
    """
    names = dict(_names(schema))
    mappings = tuple(f"{name}." for name, is_group in names.items() if not is_group)
    of_option = False  # whether an argument may be the value of one of Hydra's own: --cfg job
    for argument in arguments:
        name, equals, _ = argument.partition("=")
        if argument.startswith("--") and name.lstrip("-").replace("-", "_") in names:
            setting = name.lstrip("-").replace("-", "_")
            raise ValueError(f"{name}: settings have no dashes before them; write {setting}=…")
        if not equals and not argument.startswith(("-", "~")) and not of_option:
            hint = f"; for a text to translate, text={in_quotes(argument)}, or standard input" * ("text" in names)
            raise ValueError(f"{argument}: every setting is given as name=value{hint}")
        of_option = argument.startswith("-")
        name = name.lstrip("+~")
        known = name in names or name.startswith(mappings)
        own = r"-|hydra\b|experiment\b" if experiments else r"-|hydra\b"
        if not equals or known or re.match(own, name) or re.search("[/@]", name):
            continue
        group = name.rpartition(".")[0]
        likeness, nearest = max((_likeness(name, other), other) for other in names if other != group)
        hint = f"did you mean {nearest}?" if likeness >= 0.7 else "--help shows all"
        if likeness < 0.7 and names.get(group):
            hint = (
                f"{group} has {', '.join(other[len(group) + 1 :] for other in names if other.startswith(f'{group}.'))}"
            )
        raise ValueError(f"{name}: there is no such setting; {hint}")


def check_experiments(schema: type, arguments: list[str], conf: Path) -> None:
    """Refuse experiments that give settings this program does not have.

    Raises:
        ValueError: naming such a setting, and the program that has it.
    """
    known = {"defaults", "hydra", *(entry.name for entry in fields(schema))}
    for name in re.findall(r"[\w-]+", last_of(arguments, "experiment") or ""):
        file = conf / "experiment" / f"{name}.yaml"
        if not file.is_file():
            continue  # Hydra lists those there are
        content = OmegaConf.to_container(OmegaConf.load(file))
        assert isinstance(content, dict)
        chosen = [group for entry in content.get("defaults", []) if isinstance(entry, dict) for group in entry]
        groups = [str(group).removeprefix("override ").strip("/").partition("/")[0] for group in chosen]
        if odd := [key for key in (*content, *groups) if key not in known]:
            program = re.search(r"python (\w+\.py)", file.read_text(encoding="utf-8"))
            by = f": python {program[1]} experiment={name}" if program else ""
            raise ValueError(f"experiment={name} gives {odd[0]}, which this program does not have{by}")


def _names(schema: Any) -> Iterator[tuple[str, bool]]:
    """Of all settings, dotted; and whether each is a group of them."""
    for entry in fields(schema):
        is_group = is_dataclass(entry.type)
        yield entry.name, is_group
        if is_group:
            yield from ((f"{entry.name}.{name}", inner) for name, inner in _names(entry.type))


def _likeness(name: str, known: str) -> float:
    """Of two dotted names, or of their last parts, 0 to 1; of two in one group, of these alone."""
    (group, _, last), (known_group, _, known_last) = name.rpartition("."), known.rpartition(".")
    whole = SequenceMatcher(None, name, known).ratio() if group != known_group else 0.0
    return max(whole, SequenceMatcher(None, last, known_last).ratio())


def check_type(schema: type, name: str, value: Any) -> None:
    """Refuse what no setting can be told, before Hydra does in several lines of its own.

    Args:
        schema: a dataclass, its groups dataclasses in it.
        name: of a setting, such as `data.batch_size`; one that is no field of the schema may be a group's, or Hydra's.
        value: as Hydra's grammar reads it; of a group, the name of its file, or some of its settings.

    Raises:
        ValueError: for a value of another type than the setting's.
    """
    root, (*groups, last) = schema, name.split(".")
    for group in groups:
        schema = get_type_hints(schema).get(group, Any)
        if not is_dataclass(schema):
            return
    kind = get_type_hints(schema).get(last)
    if kind is None:
        return
    if is_dataclass(kind) and isinstance(value, dict):
        for inner, given in value.items():
            check_type(root, f"{name}.{inner}", given)
    elif is_dataclass(kind):
        if not isinstance(value, str | list):
            raise ValueError(f"{name}={value}: must be the name of a file in conf/{name}")
    elif "${" not in str(value):  # what that stands for is known later
        try:
            OmegaConf.update(OmegaConf.structured(schema), last, value)
        except OmegaConfBaseException as error:
            shown = "null" if value is None else value
            raise ValueError(f"{name}={shown}: must be {_kind_in_words(kind)}") from error


def _kind_in_words(kind: Any) -> str:
    """A setting's type: `int | None` is "a whole number, or null"."""
    if NoneType in get_args(kind):
        return f"{_kind_in_words(get_args(kind)[0])}, or null"
    if get_origin(kind) is list:
        return f"a list in which each is {_kind_in_words(get_args(kind)[0])}"
    return KINDS[get_origin(kind) or kind]
