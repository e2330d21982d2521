"""Imports point one way, from a room to those below it: read from the source without running it."""

import ast
import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
ENTRY_POINTS = ("train", "evaluate", "translate", "serve")
# The rooms from bottom to top: each imports only from those above it in this list. All but data_prep are in duplexmt.
ROOMS = (
    "common",  # files, cores, command lines, bytes and text: what any room may use
    "data_prep",  # raw corpora to cleaned pairs
    "metrics",  # latency, quality, bootstrap
    "kernels",  # what makes it fast and is no idea of the paper
    "data",  # pairs in memory
    "corpus",  # where pairs come from
    "decoder",  # any Hugging Face decoder over packed streams, and its cache
    "grid",  # the paper's grid (Sections III and IV) and its cache (Sections V-D and V-E)
    "policy",  # heatmap, path, mask, losses (Sections V-A to V-C)
    "streaming",  # live streams, and all systems behind one protocol
    "model_folder",  # save and load
    "translator",  # the public API
    "drawing",  # figures, tables, texts
    "evaluation",  # hypotheses, scores, comparisons
    "analysis",  # one sentence through the grid
    "tracking",  # W&B
    "training",  # Lightning
    "report",  # the HTML page
    "protocol",  # what server and clients say to one another, and the client
    "serving",  # the live server
)
LOOSE = {"__init__", "config", "command_line"}  # the modules that belong to no room
# The rules of options, and the settings of a server, which the schema has, too; and where a path of a setting leads.
SCHEMA_KNOWS = {
    "duplexmt.corpus.corpus_settings",
    "duplexmt.corpus.repository",
    "duplexmt.decoder.decoder_options",
    "duplexmt.grid.grid_options",
    "duplexmt.policy.decoding_options",
    "duplexmt.serving.settings",
    "duplexmt.training.trainer_options",
}
FILES = sorted(
    [
        *(ROOT / f"{name}.py" for name in ENTRY_POINTS),
        *(ROOT / "duplexmt").rglob("*.py"),
        *(ROOT / "data_prep").rglob("*.py"),
    ]
)


def module_name(file):
    parts = file.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = dict.fromkeys(map(module_name, FILES))  # in order


def imported(source, module, is_package):
    """Absolute names of all modules a source file imports, lazily, for types or not; `from a import b` counts as a.b
    where that is a module, else as a."""
    names = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            package = module.split(".") if is_package else module.split(".")[:-1]
            base = package[: len(package) - node.level + 1] if node.level else []
            base = ".".join([*base, *([node.module] if node.module else [])])
            found = {f"{base}.{alias.name}" for alias in node.names}
            names |= {name if name in MODULES else base for name in found}
    return names


@cache  # for the tests that ask, as each process of the suite loads this file
def imports():
    """Of all modules what they import."""
    return {
        module_name(file): imported(file.read_text(encoding="utf-8"), module_name(file), file.name == "__init__.py")
        for file in FILES
    }


def within(name, package):
    return name == package or name.startswith(f"{package}.")


def importers(package, *, but=()):
    """Modules, but for those named, that import a package."""
    return sorted(
        module
        for module, names in imports().items()
        if not any(within(module, exempt) for exempt in but) and any(within(name, package) for name in names)
    )


def room_of(module):
    parts = module.split(".")
    return parts[1] if parts[0] == "duplexmt" and len(parts) > 1 else parts[0]


def test_a_room_can_be_read_at_a_sitting():
    rooms = [ROOT / ("" if room == "data_prep" else "duplexmt") / room for room in ROOMS] + [ROOT / "benchmarks"]
    lines = {room.name: sum(len(file.read_bytes().splitlines()) for file in room.rglob("*.py")) for room in rooms}
    assert {room: n for room, n in lines.items() if n > 3000} == {}


def test_imports_are_read_as_python_reads_them():
    source = "import a.b\nfrom ..grid import model\nfrom . import z\ndef f():\n    from .q import r\n"
    assert imported(source, "duplexmt.s.m", is_package=False) == {
        "a.b",
        "duplexmt.grid.model",
        "duplexmt.s",
        "duplexmt.s.q",
    }
    assert imported("from .q import r", "p.s", is_package=True) == {"p.s.q"}


def test_duplexmt_has_these_rooms_and_no_loose_module_but_two():
    folders = {path.name for path in (ROOT / "duplexmt").iterdir() if (path / "__init__.py").is_file()}
    assert folders == {*ROOMS} - {"data_prep"}
    assert {path.stem for path in (ROOT / "duplexmt").glob("*.py")} == LOOSE


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_imports_only_from_those_below_it(room):
    below = {*ROOMS[: ROOMS.index(room) + 1], "duplexmt"}
    for module, names in imports().items():
        if room_of(module) == room:
            odd = [name for name in names & MODULES.keys() if room_of(name) not in below]
            assert odd == [], module


def test_no_module_imports_itself_by_way_of_others():
    def reached(module, path):
        for name in imports().get(module, ()) & MODULES.keys():
            assert name not in path, " → ".join([*path, name])
            if name not in done:
                reached(name, [*path, name])
        done.add(module)

    done = set()
    for module in sorted(MODULES):
        reached(module, [module])


def test_schema_and_command_line_know_no_room():
    for module in ("duplexmt.config", "duplexmt.command_line"):
        known = {name for name in imports()[module] if within(name, "duplexmt") and room_of(name) != "common"}
        assert known <= SCHEMA_KNOWS, module


def test_only_what_deals_with_corpora_knows_data_prep():
    known = ("data_prep", "duplexmt.config", "duplexmt.corpus", "duplexmt.evaluation.alike", "duplexmt.model_folder")
    assert importers("data_prep", but=known) == []


def test_no_torch_where_numbers_texts_and_settings_are():
    without = ("duplexmt.metrics", "duplexmt.config", *SCHEMA_KNOWS, "duplexmt.data.builtin")
    for package in (*without, "duplexmt.common", "data_prep", "duplexmt.drawing.table"):
        assert [module for module in importers("torch") if within(module, package)] == []


def test_only_training_and_the_entry_points_import_lightning():
    for package in ("lightning", "pytorch_lightning"):
        assert importers(package, but=("duplexmt.training", *ENTRY_POINTS)) == []


def test_only_the_schema_the_command_lines_the_entry_points_and_main_files_import_hydra():
    main_files = tuple(module for module in imports() if module.endswith(".__main__"))
    known = ("duplexmt.config", "duplexmt.command_line", "duplexmt.common.arguments", *ENTRY_POINTS, *main_files)
    for package in ("hydra", "omegaconf"):
        assert importers(package, but=known) == []


COMMANDS = (
    "duplexmt.evaluation.samples",
    "duplexmt.model_folder.pack",
    "duplexmt.model_folder.push",
    "duplexmt.report.__main__",
    "duplexmt.tracking.dashboard",
    "duplexmt.translator.back_translation",
)


def test_the_live_server_the_schema_and_commands_that_read_their_arguments_load_no_torch():
    # The server's engine is a process of its own, and does; --help and configuration errors must be immediate.
    names = sorted(name for name in imports()["serve"] if within(name, "duplexmt"))
    assert "duplexmt.config" in names
    names += COMMANDS
    code = f"import importlib, sys\nfor name in {names}: importlib.import_module(name)\n"
    code += "sys.exit('torch' in sys.modules or 'transformers' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT).returncode == 0


def test_only_the_entry_points_know_the_schema():
    assert importers("duplexmt.config", but=("duplexmt.config", *ENTRY_POINTS)) == []


# The core and the benchmarks run where there is PyTorch and its kin, but none of the packages for configuring, reading
# Arrow files and logging; of these the entry points need the first alone.
HYDRA, OTHERS = ("hydra", "omegaconf"), ("datasets", "wandb")
TRITON = [name for name in MODULES if name.endswith("_triton")]  # is installed on Linux only
NOT_OF_THE_CORE = ("duplexmt.config", "duplexmt.command_line", "duplexmt.common.arguments", *TRITON)
CORE = [name for name in MODULES if within(name, "duplexmt") and name not in NOT_OF_THE_CORE]
BENCHMARKS = [f"benchmarks.{file.stem}" for file in sorted((ROOT / "benchmarks").glob("*.py"))]


@pytest.mark.slow
def test_modules_import_without_packages_they_can_do_without_and_what_tells_mistakes_without_what_takes_seconds():
    telling = {name for p in ("translate", "evaluate") for name in imports()[p] if within(name, "duplexmt")}
    lines = [
        f"import importlib, sys; sys.modules |= dict.fromkeys({(*HYDRA, *OTHERS)})",
        f"for name in {sorted(telling.difference(NOT_OF_THE_CORE))}: importlib.import_module(name)",
        "assert not sys.modules.keys() & {'lightning', 'torch._dynamo', 'transformers.modeling_utils'}",
        f"for name in {[*CORE, *BENCHMARKS]}: importlib.import_module(name)",
        f"for name in {HYDRA}: del sys.modules[name]",
        f"for name in {[*ENTRY_POINTS]}: importlib.import_module(name)",
    ]
    environment = os.environ | {"PYTHONPATH": str(ROOT / "benchmarks")}  # they find each other there
    command = [sys.executable, "-c", "\n".join(lines)]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
