"""The W&B dashboard of a project: python -m duplexmt.tracking.dashboard --entity ME --project duplexmt"""

from pathlib import Path
from typing import Any

from ..common.command import command_parser, one_line_errors

CHART = "duplexmt-pareto"
CHART_FILE = Path(__file__).parents[1] / "drawing" / "pareto.vl.json"
CHART_FIELDS = {
    "x": "AL", "x_low": "AL low", "x_high": "AL high", "y": "BLEU", "y_low": "BLEU low", "y_high": "BLEU high",
    "system": "system", "setting": "setting",
}  # fmt: skip
CHART_STRINGS = {"title": "Quality against AL, 95 % intervals", "quality": "BLEU"}
CURVES = {  # panel of the training section: its metrics
    "LM loss (nats)": ("train/lm_loss", "validation/lm_loss"),
    "EMIT loss (nats)": ("train/emit_loss", "validation/emit_loss"),
    "path area (share of cells)": ("train/area", "validation/area"),
    "EMIT decisions that agree with the path": ("train/emit_accuracy", "validation/emit_accuracy"),
    "EMIT calibration error": ("validation/emit_calibration",),
    "BLEU of the validation sample": ("validation/BLEU",),
    "AL of the validation sample": ("validation/AL", "validation/AL_all"),
    "pairs a second": ("speed/pairs_per_second",),
    "MFU": ("speed/mfu",),
}
STEP = "trainer/global_step"
PROBES = 4  # shown side by side, if there are as many


def workspace(entity: str, project: str) -> Any:
    """The workspace, not yet sent: sections of training, probes, and quality against latency.

    Raises:
        ValueError: where the package that makes workspaces is not installed.
    """
    try:
        import wandb_workspaces.reports.v2 as reports
        import wandb_workspaces.workspaces as workspaces
    except ImportError as error:
        raise ValueError("the layout needs the package wandb-workspaces: pip install wandb-workspaces") from error
    from .artifacts import PARETO

    curves = [reports.LinePlot(title=title, x=STEP, y=list(metrics)) for title, metrics in CURVES.items()]
    media = [
        reports.MediaBrowser(
            title=title, media_keys=[f"probes/{n}-{name}" for n in range(1, PROBES + 1)], num_columns=2
        )
        for title, name in (("loss heatmap and best path", "heatmap"), ("top token and p(EMIT)", "grid-output"))
    ]
    pareto = reports.CustomChart(
        query={"summaryTable": {"tableKey": f"{PARETO}_table"}},
        chart_name=f"{entity}/{CHART}",
        chart_fields=CHART_FIELDS,
        chart_strings=CHART_STRINGS,
    )
    scatters = [
        reports.ScatterPlot(title=title, x=reports.SummaryMetric(f"{of}/AL"), y=reports.SummaryMetric(f"{of}/BLEU"))
        for title, of in (("test set, a point for each run", "results"), ("after training", "validation"))
    ]
    tables = [reports.WeavePanelSummaryTable(table_name=name) for name in ("results/table", "probes/translations")]
    sections: dict[str, list[Any]] = {
        "Quality and latency": [pareto, *scatters, tables[0]],
        "Probes": [*media, tables[1]],
        "Training": curves,
    }
    return workspaces.Workspace(
        entity=entity,
        project=project,
        name="duplexmt",
        sections=[workspaces.Section(name=name, panels=panels, is_open=True) for name, panels in sections.items()],
        settings=workspaces.WorkspaceSettings(max_runs=50),
    )


def install(entity: str, project: str) -> str:
    """Make the chart and the workspace on a W&B account; returns the workspace's address.

    Raises:
        ValueError: where W&B cannot be reached, or refuses.
    """
    import wandb

    view = workspace(entity, project)
    try:
        wandb.Api().create_custom_chart(
            entity=entity, name=CHART, display_name="duplexmt: quality against latency", spec_type="vega2",
            access="private", spec=CHART_FILE.read_text(encoding="utf-8"),
        )  # fmt: skip
        return view.save().url
    except (wandb.Error, OSError) as error:
        raise ValueError(f"W&B, for {entity}/{project}: {error}; are you logged in (wandb login)?") from error


def main() -> None:
    """Make them."""
    parser = command_parser(__doc__, "python -m duplexmt.tracking.dashboard")
    parser.add_argument("--entity", required=True)
    parser.add_argument("--project", default="duplexmt")
    arguments = parser.parse_args()
    with one_line_errors():
        print(install(arguments.entity, arguments.project))


if __name__ == "__main__":
    main()
