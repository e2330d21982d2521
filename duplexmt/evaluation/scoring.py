"""From hypotheses to scores: rows of tables and their bootstrap.

Latency is in model tokens, as in the paper; columns marked `c/w` are in the field's units (characters in and words out
for Chinese → English; the languages decide).
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

from ..decoder.decoder_options import MULTI_PATH
from ..metrics.bootstrap import Array, interval, resample_weights, resampled_mean
from ..metrics.latency import COMPUTATION_AWARE_METRICS, SENTENCE_METRICS, real_time_factor
from ..metrics.quality import corpus_statistics
from ..metrics.units import text_unit
from .decoding import TOLD_LENGTH, TRAINED_AS, TRAINED_K, Point
from .timed import in_tokens, in_units
from .translation import Record

QUALITY = ("COMET", "BLEURT", "BLEU", "chrF")  # the order of columns
ALIGNED = ("AR", "HR")  # where an aligner was asked
COLUMNS = (  # of the main table, after quality
    *("AL", "AL_all", "YAAL", "YAAL %", "SWF", "AP", "FRL", *ALIGNED, "RTF"),
    *("tokens", "reference", "source", "empty", "cut off", "calls", "sentences"),
)
SHOWN = {  # name and knob of each system, in the order of rows (tab:duplex-results)
    "offline": ("offline", ""),
    "waitk": ("wait-k", "k"),
    "local_agreement": ("local agreement", "n"),
    "hold": ("hold-n", "n"),
    "alignatt": ("AlignAtt", "f"),
    "lsg": ("LSG", "δ"),
    "confidence": ("confidence", "ρ"),
    "grid": ("grid", "θ"),
}


@dataclass
class Scores:
    """Of one system at one setting."""

    system: str  # as shown
    setting: str
    row: dict[str, Any]  # everything measured, by column
    samples: dict[str, Array] = field(default_factory=dict)  # resampled corpus scores `[B]`, by column
    notes: list[str] = field(default_factory=list)
    point: Any = None  # its `Point`; None for records alone, which are neither compared nor named
    spread: dict[str, float] = field(default_factory=dict)  # standard deviation over trainings, by column (`seeds`)
    models: list[str] = field(default_factory=list)  # folders of these trainings


def score(
    records: Sequence[Record],
    source_language: str,
    target_language: str,
    *,
    source_rate: float,
    neural: Mapping[str, Sequence[float]] | None = None,
    aligned: Mapping[str, float | None] | None = None,
    resamples: int = 0,
    point: Point | None = None,
) -> Scores:
    """Quality and latency of one system at one setting on one test set.

    Args:
        records: as `evaluation.translate` makes them, in the order of the test set.
        source_rate: characters (or words) of the source a second, for computation-aware latency.
        neural: scores by sentence, 0..100, of metrics from another environment.
        aligned: AR and HR, where an aligner was asked (`aligned.aligned_rates`).
        resamples: of the bootstrap; 0 for none.

    Returns:
        Scores without names; `notes` to print below the table.

    Raises:
        ValueError: for what the metrics refuse.
    """
    statistics = corpus_statistics(
        [record["text"] for record in records], [record["references"] for record in records], target_language
    )
    timed = in_tokens(records, source_language, source_rate)
    tokens = timed.latency()
    source_unit, target_unit = text_unit(source_language), text_unit(target_language)
    units = in_units(records, source_unit, target_unit, source_rate)
    in_words = units.latency()
    quality = {name: fmean(values) for name, values in (neural or {}).items()}
    quality |= {name: found.score() for name, found in statistics.items()}
    seconds = [record["seconds"] for record in records]
    row: dict[str, Any] = {
        **{name: quality[name] for name in QUALITY if name in quality},
        **timed.columns(tokens),
        **{f"{name} c/w": value for name, value in units.columns(in_words).items()},
        **(aligned or {}),
        "seconds": fmean(seconds),
        "RTF": real_time_factor(seconds, units.source_lengths, source_rate),
        "tokens": fmean(len(record["tokens"]) for record in records),
        "reference": fmean(timed.reference_lengths),
        "source": fmean(timed.source_lengths),
        "empty": sum(not record["delays"] for record in records),
        "cut off": sum(record["stopped"] != "end_token" for record in records),
        "calls": calls_a_token(records),
        "sentences": len(records),
    }
    samples = {}
    if resamples and len(records) > 1:  # one sentence alone says nothing of the spread
        weights = resample_weights(len(records), resamples)
        samples = {name: found.resampled(weights) for name, found in statistics.items()}
        samples |= {name: resampled_mean(values, weights) for name, values in (neural or {}).items()}
        samples |= timed.resampled(tokens, weights)
        samples |= {f"{name} c/w": values for name, values in units.resampled(in_words, weights).items()}
    rate = f"{source_rate:g} {source_unit}s a second"
    notes = [
        "; ".join(f"{name} {found.signature}" for name, found in statistics.items()),
        f"latency in model tokens, c/w in source {source_unit}s and target {target_unit}s; AL, LAAL, AP, DAL and ATD "
        "as in SimulEval, FRL its StartOffset, AL_all the mean lag over all tokens (the paper's AL); by the first "
        "reference; empty hypotheses left out",
        "YAAL, as in OmniSTEval, over what was written before the source had ended: YAAL % of the sentences have such "
        "tokens, SWF % of all tokens are such",
        f"AL_CA, LAAL_CA and YAAL_CA with computing time, RTF seconds of it a second of source, the source arriving at "
        f"{rate}; seconds: computation a sentence (in a batch, the wall clock of the steps it took part in)",
    ]
    return Scores("", "", row, samples, notes, point)


def calls_a_token(records: Sequence[Record]) -> float | None:
    """Calls of the model for a token written; None of hypotheses whose calls nobody counted."""
    tokens = sum(len(record["tokens"]) for record in records)
    if not tokens or any("calls" not in record for record in records):
        return None
    return float(sum(record["calls"] for record in records) / tokens)


SHORT = {("words", True): "by words", ("heads", "all"): "all heads", ("heads", "found"): "alignment heads"}
GUARD = "max_target_tokens"
# Options that a name tells where they differ; older evaluations have options of models, too, whose names tell them.
RUN_WITH = (TRAINED_AS, "quantize", "certainty", "k_min", "words", "k_max", "alpha", "divergence", "heads", GUARD)


def differing_options(point: Point, points: Sequence[Point]) -> list[str]:
    """The options of a point that others of its system do not share, in words."""
    options = [(name, point.options[name]) for name in RUN_WITH if name in point.options]
    siblings = [other.options for other in points if other.system == point.system]
    return [
        SHORT.get((name, value), f"{name} {value}")
        for name, value in options
        if any(other.get(name) != value for other in siblings)
        and (name != TRAINED_AS or point.system == "waitk")  # multi-path or not is told anyway
    ]


def name_points(points: Sequence[Point]) -> list[tuple[str, str]]:
    """System and setting of each point as shown; options in which models of one system are run differently become part
    of it, and their names where there are several models. What was told lengths always says so, and where anything was,
    what was not.

    Raises:
        ValueError: for one model folder twice.
    """
    shown = []
    lengths = {
        True: ["told lengths"],
        False: ["untold lengths"] if any(p.options.get(TOLD_LENGTH) for p in points) else [],
    }
    for point in points:
        system, knob = SHOWN[point.system]
        if point.options.get(TRAINED_K) == MULTI_PATH:
            system = f"multi-path {system}"
        setting = "—" if point.setting is None else f"{knob}={point.setting:g}"
        told = lengths[point.options[TOLD_LENGTH]] if TOLD_LENGTH in point.options else []
        shown.append((" ".join([system, *differing_options(point, points), *told]), setting))
    # Several models: their names tell them apart; those of one name, their folders. A curve is one model's, but for
    # wait-k.
    named: dict[Any, dict[str, str]] = {}
    keys = [name if point.own_model else name[0] for name, point in zip(shown, points, strict=True)]
    for key, point in zip(keys, points, strict=True):
        named.setdefault(key, {})[point.model_folder] = point.name
    for index, (key, point) in enumerate(zip(keys, points, strict=True)):
        if len(named[key]) > 1:
            alone = [*named[key].values()].count(point.name) == 1
            name = point.name if alone else run_of(point.model_folder, named[key])
            shown[index] = (f"{shown[index][0]} ({name})", shown[index][1])
    if len(set(shown)) < len(shown):
        raise ValueError(f"the same system and setting of one model folder is there twice: {sorted(set(shown))}")
    return shown


def in_order(scores: Sequence[Scores]) -> list[Scores]:
    """As in `tab:duplex-results`: offline first, the grid last, each system's settings from fast to slow."""

    def place(entry: Scores) -> tuple[Any, ...]:
        setting = entry.point.setting
        return list(SHOWN).index(entry.point.system), entry.system, -1 if setting is None else setting

    return sorted(scores, key=place)


def result_rows(scores: Sequence[Scores]) -> list[dict[str, Any]]:
    """The main table: quality with half the width of its 95 % interval (of several trainings their standard deviation,
    too), and latency in model tokens."""
    rows = []
    for entry in scores:
        row: dict[str, Any] = {"system": entry.system, "setting": entry.setting} | entry.row
        for name in QUALITY:
            if name in entry.row and name in entry.samples:
                middle = interval(entry.samples[name])
                row[f"{name} ±"] = None if middle is None else (middle[1] - middle[0]) / 2
        row |= {f"{name} sd": deviation for name, deviation in entry.spread.items()}
        rows.append(row | ({"trainings": len(entry.models)} if entry.models else {}))
    quality = [column for name in QUALITY for column in (name, f"{name} ±", f"{name} sd")]
    known = [c for c in (*quality, *COLUMNS, "trainings") if any(c in row for row in rows)]
    return [{column: row.get(column) for column in ("system", "setting", *known)} for row in rows]


def latency_rows(scores: Sequence[Scores]) -> list[dict[str, Any]]:
    """Every latency metric in both units."""
    names = [*SENTENCE_METRICS, *COMPUTATION_AWARE_METRICS, "YAAL %", "SWF"]
    columns = [*names, *[f"{name} c/w" for name in names], "seconds", "RTF"]
    return [
        {"system": entry.system, "setting": entry.setting} | {name: entry.row[name] for name in columns}
        for entry in scores
    ]


def run_of(folder: str, among: Collection[str]) -> str:
    """A run's name from its model folder, `runs/NAME/model`, with folders before it where others have the same name."""
    parts = {each: each.rstrip("/").removesuffix("/model").split("/") for each in among}
    own = parts[folder]
    for count in range(1, len(own)):
        if [other[-count:] for other in parts.values()].count(own[-count:]) == 1:
            return "/".join(own[-count:])
    return "/".join(own)
