"""Imports point one way: who may import what, read from the source without running it."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
ENTRY_POINTS = ("train.py", "evaluate.py", "translate.py")
FILES = sorted(
    [*(ROOT / name for name in ENTRY_POINTS), *(ROOT / "duplexmt").rglob("*.py"), *(ROOT / "data_prep").rglob("*.py")]
)


def module_name(file):
    parts = file.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported(source, module, is_package):
    """Absolute names of all modules a source file imports, lazily or not; `from a import b` counts as a and a.b."""
    names = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            package = module.split(".") if is_package else module.split(".")[:-1]
            base = package[: len(package) - node.level + 1] if node.level else []
            base = ".".join([*base, *([node.module] if node.module else [])])
            names |= {base} | {f"{base}.{alias.name}" for alias in node.names}
    return names


IMPORTS = {
    module_name(file): imported(file.read_text(encoding="utf-8"), module_name(file), file.name == "__init__.py")
    for file in FILES
}


def within(name, package):
    return name == package or name.startswith(f"{package}.")


def importers(package, *, inside="", but=()):
    """Modules inside a package (all where not given), but for those named, that import another package."""
    return sorted(
        module
        for module, names in IMPORTS.items()
        if (not inside or within(module, inside))
        and not any(within(module, exempt) for exempt in but)
        and any(within(name, package) for name in names)
    )


def test_imports_are_read_as_python_reads_them():
    source = "import a.b\nfrom ..x import y\nfrom . import z\ndef f():\n    from .q import r\n"
    assert imported(source, "p.s.m", is_package=False) == {"a.b", "p.x", "p.x.y", "p.s", "p.s.z", "p.s.q", "p.s.q.r"}
    assert imported("from .q import r", "p.s", is_package=True) == {"p.s.q", "p.s.q.r"}


def test_all_parts_are_looked_at():
    assert {"train", "evaluate", "translate", "duplexmt.config", "duplexmt.grid.model", "data_prep.rules"} <= set(
        IMPORTS
    )
    assert "torch" in IMPORTS["duplexmt.grid.model"]
    assert "duplexmt.grid.model" in IMPORTS["duplexmt.streaming.grid"]


@pytest.mark.parametrize(
    ("package", "forbidden"),
    [
        ("duplexmt.grid", ("streaming", "policy", "training", "report", "metrics", "data", "artifact", "evaluation")),
        ("duplexmt.grid", ("baselines",)),
        ("duplexmt.baselines", ("streaming", "policy", "training", "report", "metrics", "data", "artifact")),
        ("duplexmt.metrics", ("grid", "streaming", "policy", "training", "report", "data", "artifact", "evaluation")),
        ("duplexmt.data", ("grid", "streaming", "policy", "training", "report", "metrics", "artifact", "evaluation")),
        ("duplexmt.streaming", ("training", "report", "metrics", "artifact", "evaluation")),
        ("duplexmt.report", ("grid", "policy", "training", "artifact", "evaluation")),
    ],
)
def test_a_package_does_not_know_those_built_on_it(package, forbidden):
    for name in (*forbidden, "scoring", "results", "simuleval"):
        assert importers(f"duplexmt.{name}", inside=package) == [], f"{package} → {name}"


def test_policy_knows_only_tensors():
    of_tensors = {"torch", "triton", "duplexmt.products", "duplexmt.kernels", "cut_cross_entropy"}
    allowed = {*of_tensors, "duplexmt.policy", *sys.stdlib_module_names}
    for module, names in IMPORTS.items():
        if within(module, "duplexmt.policy") and module != "duplexmt.policy.guide":  # which brings it to a model
            strange = [name for name in names if not any(within(name, package) for package in allowed)]
            assert strange == [], module


def test_metrics_and_configuration_and_grammar_need_no_torch():
    for package in ("duplexmt.metrics", "duplexmt.config", "duplexmt.data.grammar", "duplexmt.report.table"):
        assert importers("torch", inside=package) == []


def test_only_training_and_the_entry_points_import_lightning():
    allowed = ("duplexmt.training", "train", "evaluate", "translate")
    for package in ("lightning", "pytorch_lightning"):
        assert importers(package, but=allowed) == []


def test_only_the_schema_the_command_line_the_entry_points_and_main_files_import_hydra():
    main_files = tuple(module for module in IMPORTS if module.endswith(".__main__"))
    for package in ("hydra", "omegaconf"):
        own = ("duplexmt.config", "duplexmt.command_line", "train", "evaluate", "translate")
        assert importers(package, but=(*own, *main_files)) == []


def test_hypotheses_lead_to_scores_and_scores_to_results():
    assert importers("duplexmt.scoring", inside="duplexmt.evaluation") == []
    for module in ("duplexmt.evaluation", "duplexmt.scoring"):
        assert importers("duplexmt.results", inside=module) == []


def test_only_the_reports_command_gathers_what_it_shows():
    for module in ("duplexmt.overview", "duplexmt.thresholds", "duplexmt.evaluated"):
        gathering = ("duplexmt.overview", "duplexmt.report.__main__")
        assert importers(module, inside="duplexmt", but=gathering) == []


def test_only_the_entry_points_know_the_schema():
    assert importers("duplexmt.config", inside="duplexmt", but=("duplexmt.config",)) == []


def test_data_prep_knows_neither_duplexmt_nor_torch():
    for package in ("duplexmt", "torch", "lightning", "transformers"):
        assert importers(package, inside="data_prep") == []


def test_only_training_and_the_entry_points_import_data_prep():
    assert importers("data_prep", inside="duplexmt", but=("duplexmt.training", "duplexmt.command_line")) == []


# The core and the benchmarks run where there is PyTorch and its kin, but none of the packages for configuring, reading
# Arrow files and logging; of these the entry points need the first alone.
HYDRA, OTHERS = ("hydra", "omegaconf"), ("datasets", "wandb")
KERNELS = [name for name in IMPORTS if name.endswith("_triton")]  # Triton is installed on Linux only
NOT_OF_THE_CORE = ("duplexmt.config", "duplexmt.command_line", *KERNELS)
CORE = [name for name in IMPORTS if within(name, "duplexmt") and name not in NOT_OF_THE_CORE]
BENCHMARKS = [f"benchmarks.{file.stem}" for file in sorted((ROOT / "benchmarks").glob("*.py"))]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("missing", "modules"),
    [((*HYDRA, *OTHERS), [*CORE, *BENCHMARKS]), (OTHERS, [Path(name).stem for name in ENTRY_POINTS])],
)
def test_modules_import_without_packages_they_can_do_without(missing, modules):
    code = f"import importlib, sys; sys.modules |= dict.fromkeys({missing})\n"
    code += f"for name in {modules}: importlib.import_module(name)"
    environment = os.environ | {"PYTHONPATH": str(ROOT / "benchmarks")}  # they find each other there
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_importing_the_schema_loads_no_torch():
    # Through other modules, too: --help and configuration errors must be immediate.
    code = "import duplexmt.config, sys; sys.exit('torch' in sys.modules or 'transformers' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT).returncode == 0
