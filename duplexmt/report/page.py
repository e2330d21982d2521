"""The report: one HTML file that holds everything and asks for nothing, a function of result data.

Texts come from data and from models, so the template escapes all of them; what controls or turns text is spelt out. A
content security policy allows the page's own script, style, pictures and font, by their hashes or as `data:`, and no
request to anywhere.
"""

from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from io import BytesIO
from pathlib import Path
from typing import Any

from ..drawing.style import CHINESE_FONT
from ..drawing.table import Row, shown_cells
from ..drawing.training_figure import PANELS, Curve, training_figure
from .examples import GROUPS, Example
from .legible import legible
from .viewer import MOST_TOKENS, Viewer, ViewerSentence, script_json, viewer_data

WEB = Path(__file__).parent / "web"
SHOWN_THETAS = (0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)  # tab:infer-process
RADICALS = 0x2E80  # what stands before these, readers' own fonts have


@dataclass(frozen=True)
class Figure:
    """A picture, and what it shows in words."""

    picture: bytes  # an SVG file
    alt: str
    caption: str = ""

    @property
    def address(self) -> str:
        """As the address of an image: nothing inside it runs, and its names do not meet those of other figures."""
        return f"data:image/svg+xml;base64,{b64encode(self.picture).decode('ascii')}"


@dataclass(frozen=True)
class Results:
    """What one evaluation has found."""

    name: str
    tables: Sequence[Mapping[str, Any]]  # see `table.read_json`
    figures: Sequence[Figure] = ()
    notes: Sequence[str] = ()


@dataclass(frozen=True)
class Report:
    """All that a report shows; whatever is missing is left empty, and `notes` say why."""

    title: str
    facts: Sequence[tuple[str, str]] = ()
    notes: Sequence[str] = ()
    viewer: Viewer | None = None
    no_viewer: str = ""  # why there is none
    results: Sequence[Results] = ()
    curves: Mapping[str, Curve] = field(default_factory=dict)
    examples: Sequence[Example] = ()
    examples_of: str = ""  # which system, at which setting, on what
    configuration: Sequence[tuple[str, str]] = ()  # heading, YAML
    source_language: str = ""
    target_language: str = ""


def render(report: Report) -> str:
    """The report as one HTML page, the same bytes for the same data.

    Raises:
        ValueError: for tables or curves that cannot be shown.
    """
    viewer = report.viewer
    logged = [metric for metrics in PANELS.values() for metric in metrics if report.curves.get(metric)]
    training = None
    if logged:
        picture = training_figure(report.curves)
        training = Figure(picture, "Curves over the optimiser steps; the table below has their first and last values.")
    helper = _own("dom.js").replace("\nexport ", "\n")
    script = f'"use strict";\n{helper}\n{_own("viewer.js")}' if viewer else ""
    text = _template().render(
        report=report,
        viewer=viewer,
        viewer_json=script_json(viewer_data(viewer)) if viewer else "",
        most_tokens=MOST_TOKENS,
        start=_nearest(viewer.thetas, viewer.theta) if viewer else 0,
        training=training,
        last_values=_last_values(report.curves, logged),
        examples=[(group, [example for example in report.examples if example.group == group]) for group in GROUPS],
        written=_written(viewer.sentences[0], viewer.thetas) if viewer else {},
        script=script,
    )
    style = _own("report.css")
    if font := embedded_font(text):
        style = f'@font-face{{font-family:"Duplexmt Sans SC";src:url({font}) format("woff")}}\n{style}'
    policy = (
        f"default-src 'none'; script-src {_hashed(script)}; style-src {_hashed(style)}; img-src data:; font-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
    # Both are filled in last, as the font depends on all the text.
    return text.replace(POLICY, policy, 1).replace(STYLE, style, 1)


POLICY, STYLE = "%content-security-policy%", "%style-sheet%"


def _written(sentence: ViewerSentence, thetas: Sequence[float]) -> dict[str, list[str]]:
    """`tab:infer-process`: what is written after each source token, the end token too, at a few thresholds."""
    chosen = dict.fromkeys(_nearest(thetas, theta) for theta in SHOWN_THETAS)
    ways = {f"θ = {thetas[i]:g}": next(way for way in sentence.ways if way.first <= i <= way.last) for i in chosen}
    return {name: ["".join(text for text, _ in at.written) for at in way.visits] for name, way in ways.items()}


def _last_values(curves: Mapping[str, Curve], names: Sequence[str]) -> list[dict[str, Any]]:
    rows = []
    for name in names:
        (first_step, first), (last_step, last) = min(curves[name]), max(curves[name], key=lambda point: point[0])
        row: dict[str, Any] = {"metric": name, "first": f"{first:.4g}", "at step": first_step}
        rows.append(row | {"last": f"{last:.4g}", "at step ": last_step})
    return rows


def _nearest(thetas: Sequence[float], wanted: float) -> int:
    return min(range(len(thetas)), key=lambda i: abs(thetas[i] - wanted))


def _template() -> Any:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(WEB), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["legible"] = legible
    environment.globals.update(cells=_cells, POLICY=POLICY, STYLE=STYLE)
    return environment.get_template("report.html")


def _cells(rows: Sequence[Row]) -> tuple[list[tuple[str, bool]], list[list[tuple[str, bool]]]]:
    """Header and body of a table as texts, each with whether its column holds numbers."""
    lines, numeric = shown_cells(rows)
    header, *body = [list(zip(line, numeric, strict=True)) for line in lines]
    return header, body


def embedded_font(text: str) -> str:
    """A `data:` address of a WOFF font with the Chinese characters of a text; empty where it has none of the font's."""
    from fontTools import subset
    from fontTools.ttLib import TTFont

    font = TTFont(CHINESE_FONT, recalcTimestamp=False)
    wanted = sorted({ord(character) for character in text if ord(character) >= RADICALS} & set(font.getBestCmap()))
    if not wanted:
        return ""
    # Names stay: the font's licence and its copyright are there.
    options = subset.Options(flavor="woff", layout_features=[], name_IDs=["*"], notdef_outline=True)
    subsetter = subset.Subsetter(options)
    subsetter.populate(unicodes=wanted)
    subsetter.subset(font)
    font.flavor = "woff"
    buffer = BytesIO()
    font.save(buffer)
    return f"data:font/woff;base64,{b64encode(buffer.getvalue()).decode('ascii')}"


def _own(name: str) -> str:
    return (WEB / name).read_text(encoding="utf-8")


def _hashed(text: str) -> str:
    """What a policy allows a text by; nothing where there is none."""
    if not text:
        return "'none'"
    return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode('ascii')}'"
