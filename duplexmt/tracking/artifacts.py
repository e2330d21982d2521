"""What a W&B run is given beside metrics: the model, an evaluation's results, and the chart of quality and latency.

Everything works without network: an offline run keeps it until `wandb sync`. What an artifact holds is not copied but
read from where it lies, so a run is synchronised before its folder is moved or deleted.
"""

import logging
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..evaluation.comparing import curves
from ..evaluation.results import latency_rows, result_rows
from ..evaluation.scores import QUALITY, Scores

log = logging.getLogger(__name__)
SCATTER = "wandb/scatter/v0"  # W&B's own chart, on every server; `duplexmt.tracking.dashboard` brings a better one
PARETO = "pareto"  # the chart; its table, of which the dashboard's chart is made, is `pareto_table`
LATENCY = ("AL", "AL_all", "AP", "FRL")


def log_artifact(run: Any, paths: Sequence[Path], name: str, kind: str, metadata: Mapping[str, Any]) -> None:
    """Hand a W&B run files, and all files in folders, as an artifact of a kind, such as `model`.

    What W&B does not allow in a name becomes `-`.
    """
    import wandb

    allowed = re.sub(r"[^\w.-]+", "-", name, flags=re.ASCII).strip("-")[:120]
    artifact = wandb.Artifact(allowed, kind, metadata=dict(metadata))
    for path in paths:
        where = str(path.resolve())  # a sync may be started from any folder
        if path.is_dir():
            artifact.add_dir(where, policy="immutable")
        else:
            artifact.add_file(where, name=path.name, policy="immutable")
    run.log_artifact(artifact)


def log_evaluation(
    scores: Sequence[Scores],
    folder: Path,
    test_name: str,
    *,
    logger: Mapping[str, Any],
    name: str,
    group: str | None,
    settings: Mapping[str, Any],
) -> None:
    """A W&B run of an evaluation: scores of each system and setting, tables, the Pareto chart, and all files.

    Args:
        scores: in the order of the table.
        folder: of the evaluation, with its results written.
        logger: `offline`, `project`, `artifacts`.

    Raises:
        ValueError: where W&B cannot start a run.
    """
    import wandb

    os.environ.setdefault("WANDB_SILENT", "true")  # we say where a run is
    try:
        started = wandb.init(
            project=logger["project"], name=name, group=group, job_type="evaluate",
            mode="offline" if logger["offline"] else None, dir=str(folder), config=dict(settings), reinit="create_new",
        )  # fmt: skip
    except wandb.Error as error:
        raise ValueError(
            f"W&B has no run of this evaluation ({error}), all else is written: "
            f"python evaluate.py rescore={folder} logger=wandb logger.offline=true logs it here"
        ) from error
    log.info("W&B: %s", place_of(started))
    with started as run:
        for entry in scores:  # a line of history each, so that a run with several θ is a curve
            values: dict[str, Any] = {f"results/{key}": entry.row.get(key) for key in (*QUALITY, *LATENCY)}
            if entry.point is not None and entry.point.system == "grid":
                values["results/theta"] = entry.point.setting
            run.log({key: value for key, value in values.items() if value is not None})
        tables = {"results/table": result_rows(scores), "results/latency": latency_rows(scores)}
        logged: dict[str, Any] = {key: _table(rows) for key, rows in tables.items()}
        if points := pareto_rows(scores):
            logged[PARETO] = wandb.plot_table(
                SCATTER, _table(points), {"x": "AL", "y": "BLEU"}, {"title": f"Quality against AL, {test_name}"}
            )
        if (folder / "pareto.png").is_file():
            logged["results/pareto"] = wandb.Image(str(folder / "pareto.png"))
        run.log(logged)
        if logger["artifacts"]:
            files = [path for path in sorted(folder.iterdir()) if path.is_file()]
            log_artifact(run, files, f"results-{test_name}", "results", {"sentences": scores[0].row["sentences"]})


def place_of(run: Any) -> str:
    """Where a W&B run can be seen, or what sends it there."""
    return f"wandb sync {os.path.relpath(Path(run.dir).parent)}" if run.offline else run.url


def pareto_rows(scores: Sequence[Scores]) -> list[dict[str, Any]]:
    """A row for each system and setting that has a latency: quality and latency with their 95 % intervals."""
    rows = []
    metrics = ["AL", *[name for name in QUALITY if any(name in entry.row for entry in scores)]]
    for system, points in curves(scores).items():
        for point in points:
            row: dict[str, Any] = {"system": system, "setting": point["setting"]}
            for metric in metrics:
                value, bounds = point.get(metric, (None, None))
                low, high = bounds or (value, value)
                row |= {metric: value, f"{metric} low": low, f"{metric} high": high}
            rows.append(row)
    return rows


def _table(rows: Sequence[Mapping[str, Any]]) -> Any:
    """A W&B table with the columns of the first row."""
    import wandb

    return wandb.Table(columns=list(rows[0]), data=[list(row.values()) for row in rows])
