"""What an evaluation's folder shows in the end: scores of all its hypotheses, tables, comparisons and the figure.

Latency is in model tokens, as in the paper; columns marked `c/w` are in the field's units (characters in and words out
for Chinese → English; the languages decide).
"""

import logging
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from ..drawing.claims import check_claims
from ..drawing.latex import HIGHER, LOWER, to_latex
from ..drawing.pareto import latencies_figure, pareto_figure
from ..drawing.table import summary, to_markdown, write_tables
from ..metrics.bootstrap import interval, resample_weights, resampled_mean
from ..metrics.latency import COMPUTATION_AWARE_METRICS, SENTENCE_METRICS, in_tokens, in_units, real_time_factor
from ..metrics.neural import Translation, neural_scores
from ..metrics.quality import corpus_statistics
from ..metrics.units import text_unit
from .aligned import aligned_rates
from .alike import read_likeness, relatives_rows, scored_apart
from .alike import shown as shown_apart
from .comparing import by_latencies, comparisons, curve_means, curves, verdicts
from .decoding import (
    DECODING,
    SCORED,
    TOLD_LENGTH,
    TRAINED_AS,
    TRAINED_K,
    Decoding,
    Point,
    check_models,
    data_of_models,
)
from .export import clear, export
from .scores import QUALITY, Scores, in_order, name_points
from .seeds import mean_over_seeds
from .translation import Record

log = logging.getLogger("evaluate")
NEURAL = ("COMET", "BLEURT")
ALIGNED = ("AR", "HR")  # where an aligner was asked
COLUMNS = (  # of the main table, after quality
    *("AL", "AL_all", "YAAL", "YAAL %", "SWF", "AP", "FRL", *ALIGNED, "RTF"),
    *("tokens", "reference", "source", "empty", "cut off", "calls", "sentences"),
)
KINDS = ("md", "csv", "json")
LENGTHS = {
    True: "told lengths (told_length=true): the anchor is each source's true length, which nobody live can know",
    False: "untold lengths, as live: anchor source_length took each source to be as long as is typical in training",
}
OTHER_TOKENS = (
    "sources are other tokens to some models than to others (column source): their latencies in model tokens cannot be "
    "compared, so there is no comparison at equal AL between them"
)
NOT_KNOWN = "which sentences are new to it is not known, as not all it was trained on could be read"
IN_FILES = ("chrF ±", "AP", "RTF", "tokens", "reference", "source", "calls", "sentences")  # for want of room
FAULTS = ("empty", "cut off")  # shown there where there are any
HEADINGS = {
    "comparisons": "Systems at equal AL, paired bootstrap: difference in quality, its 95 % interval and p-value",
    "latencies": "The same at equal AL, YAAL and SWF (words written before the source ends), in model tokens and c/w",
    "relatives": "Sentences apart by their likeness to the most alike training pair (0.5 and more: a relative)",
    "curves": "Mean quality of each curve's upper envelope over the AL that all share, against the best of the others",
}
FIGURES = tuple(f"{name}.{kind}" for name in ("pareto", "latencies") for kind in ("pdf", "svg", "png"))
BETTER = dict.fromkeys(QUALITY, HIGHER) | dict.fromkeys(("AL", "AL_all", "AP", "FRL"), LOWER)


def write_results(
    folders: Sequence[Path],
    into: Path,
    *,
    checkpoints: Mapping[str, str | None],
    environment: str,
    neural_batch_size: int,
    device: str,
    source_rate: float,
    resamples: int,
    alignment: str | None = None,
    claims: bool = False,
    over_seeds: bool = False,
    logs: bool = False,
) -> tuple[list[Scores], str, list[str]]:
    """Score the hypotheses of one or several evaluations of one test set, and write all tables and figures.

    Args:
        into: where results go; neural scores are kept in `scores/` there.
        checkpoints: of `COMET` and `BLEURT`; None leaves one out.
        environment, neural_batch_size, device: see `metrics.neural.neural_scores`.
        source_rate: units of the source a second, for computation-aware latency.
        alignment: what the aligner learns from, see `aligned.aligned_rates`.
        claims: whether to check the claims of Section VI-B.
        over_seeds: whether models of one name, trained with several seeds, are one system (`seeds`).
        logs: whether to write hypotheses for SimulEval and OmniSTEval, too, into `logs/` there.

    Returns:
        Scores in the order of the table, what to show on the terminal, and what could not be scored and why: all else
        is written nevertheless.

    Raises:
        ValueError: for evaluations that are not finished, stale, of different test sets, or damaged.
    """
    evaluations = of_one_test_set(folders)
    test = evaluations[0].test
    points = {point.digest: point for evaluation in evaluations for point in evaluation.points.values()}
    records = {key: evaluation.sorted(key) for evaluation in evaluations for key in evaluation.points}
    log.info("scoring %s translations", f"{sum(map(len, records.values())):,}")

    kept = [into / "scores", *(folder / "scores" for folder in folders)]
    neural, notes, troubles = scored_by_networks(
        records, checkpoints, kept, environment=environment, batch_size=neural_batch_size, device=device
    )
    languages = test["source_language"], test["target_language"]
    aligned, *told = aligned_rates(records, *languages, alignment, environment, data_of_models(points.values()))
    notes, troubles = notes + told[0], troubles + told[1]
    likeness: dict[str, list[float] | None] = {}
    for folder in folders:
        for model, values in read_likeness(folder, test["sentences"]).items():
            likeness[model] = values or likeness.get(model)
    how: dict[str, Any] = {"source_rate": source_rate, "resamples": resamples}
    scores = [
        score(
            records[key],
            *languages,
            point=point,
            neural=neural[key],
            aligned=aligned[key],
            likeness=likeness.get(point.model_folder),
            **how,
        )
        for key, point in points.items()
    ]
    if over_seeds:
        scores = mean_over_seeds(scores)
    give_names(scores, evaluations)
    scores = in_order(scores)

    drawn = "sentences and of the trainings" if over_seeds else "sentences"
    notes = [*notes, *scores[0].notes]
    if any(entry.samples for entry in scores):
        notes.append(f"±: half the 95 % interval of {resamples} bootstrap resamples of the {drawn}")
    if over_seeds:
        notes.append("sd: standard deviation over trainings; scores and latencies are their means")
        notes += dict.fromkeys(f"{entry.system}: {', '.join(entry.models)}" for entry in scores)
    notes += dict.fromkeys(LENGTHS[e.point.options[TOLD_LENGTH]] for e in scores if TOLD_LENGTH in e.point.options)
    notes += [f"{os.path.relpath(model)}: {NOT_KNOWN}" for model, values in likeness.items() if values is None]
    clear(into / "logs")
    if logs:
        commands = export(points, records, *languages, source_rate, into / "logs")
        notes += [f"What is c/w is given, here in this folder, also by {command}" for command in commands]
    caption = f"{test['name']}, {test['sentences']} sentences"
    unlike = told_unlike(scores) if claims else []
    return scores, write_all(scores, into, caption, notes, claims and not unlike), [*troubles, *unlike]


def score(
    records: Sequence[Record],
    source_language: str,
    target_language: str,
    *,
    source_rate: float,
    neural: Mapping[str, Sequence[float]] | None = None,
    aligned: Mapping[str, float | None] | None = None,
    likeness: Sequence[float] | None = None,
    resamples: int = 0,
    point: Point | None = None,
) -> Scores:
    """Quality and latency of one system at one setting on one test set.

    Args:
        records: as `evaluation.translate` makes them, in the order of the test set.
        source_rate: characters (or words) of the source a second, for computation-aware latency.
        neural: scores by sentence, 0..100, of metrics from another environment.
        aligned: AR and HR, where an aligner was asked (`aligned.aligned_rates`).
        likeness: of each sentence to the model's training pairs, where that is known (`alike.scored_apart`).
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
        **scored_apart(likeness, statistics["BLEU"], tokens["AL"]),
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
    """Calls of the model for a token written; None where none was."""
    tokens = sum(len(record["tokens"]) for record in records)
    return sum(record["calls"] for record in records) / tokens if tokens else None


def of_one_test_set(folders: Sequence[Path]) -> list[Decoding]:
    """The evaluations in these folders.

    Raises:
        ValueError: if they are not finished, stale, of different test sets, or damaged.
    """
    evaluations = [Decoding.read(folder) for folder in folders]
    if len({evaluation.test["digest"] for evaluation in evaluations}) > 1:
        names = ", ".join(
            f"{evaluation.folder}: {evaluation.test['name']}, {evaluation.test['sentences']} sentences"
            for evaluation in evaluations
        )
        raise ValueError(f"systems are compared on one test set, got several ({names})")
    for evaluation in evaluations:
        evaluation.check_complete()
        check_models(evaluation)
    return evaluations


def scored_by_networks(
    records: Mapping[str, Sequence[Record]], checkpoints: Mapping[str, str | None], kept: Sequence[Path], **how: Any
) -> tuple[dict[str, dict[str, list[float]]], list[str], list[str]]:
    """COMET and BLEURT of all hypotheses at once, as far as checkpoints are given.

    Args:
        kept: folder where scores are kept, and further ones where they may be.
        how: `environment`, `batch_size` and `device`, see `metrics.neural.neural_scores`.

    Returns:
        Scores of each point by metric, notes, and what could not be scored and why.
    """
    found: dict[str, dict[str, list[float]]] = {key: {} for key in records}
    notes, troubles = [], []
    translations = [Translation(r["source"], r["text"], r["references"]) for lines in records.values() for r in lines]
    for metric in NEURAL:
        if (checkpoint := checkpoints.get(metric)) is None:
            continue
        try:
            scored = neural_scores(metric, checkpoint, translations, kept[0], also_kept=kept[1:], **how)
        except (ValueError, OSError) as error:
            which = f"quality.environment={how['environment']}: " if isinstance(error, OSError) else ""
            troubles.append(f"{which}{error}")
            notes.append(f"{metric} {checkpoint}: not scored")
            continue
        values = iter(scored.scores)
        for key, lines in records.items():
            found[key][metric] = [next(values) for _ in lines]
        notes.append(f"{metric} {checkpoint} ({scored.version}), × 100, mean over references")
    return found, notes, troubles


def give_names(scores: Sequence[Scores], evaluations: Sequence[Decoding] = ()) -> None:
    """Name systems and settings so that they are told apart.

    Raises:
        ValueError: two were run unlike in what no name tells; `evaluations` are those that scores are of.
    """
    named: dict[tuple[str, str], Point] = {}
    for entry, name in zip(scores, name_points([entry.point for entry in scores]), strict=True):
        entry.system, entry.setting = name
        one, other = named.setdefault(name, entry.point), entry.point
        if one is not other:
            found = [str(each.folder) for each in evaluations if {one.digest, other.digest} & each.points.keys()]
            raise ValueError(
                f"{' '.join(name)} of {other.model_folder} was decoded twice, with settings or weights that differ "
                f"({', '.join(found)}): score one of these evaluations alone"
            )


def write_all(scores: Sequence[Scores], into: Path, caption: str, notes: Sequence[str], claims: bool) -> str:
    """Write tables, comparisons, figure and claims; what to show of them."""
    names = ("relatives", "comparisons", "latencies", "curves", "claims")
    tables = [f"{table}.{kind}" for table in names for kind in KINDS]
    for name in (*tables, *FIGURES, SCORED):
        (into / name).unlink(missing_ok=True)  # of an earlier scoring, which may not be written again
    rows, alike = result_rows(scores), by_tokenisation(scores)
    notes = [*notes, *[OTHER_TOKENS] * (len(alike) > 1)]
    means = [row for group in alike for row in curve_means(group)]
    write_tables(rows, into, "results", caption, notes)
    write_tables(latency_rows(scores), into, "latency", caption, notes)
    metrics = [name for name in QUALITY if any(name in entry.row for entry in scores)]
    better = {name: which for name, which in BETTER.items() if name in rows[0]}
    latex = to_latex(rows, better, caption=f"Translation quality and latency on {caption}.", label="tab:results")
    (into / "results.tex").write_text(latex, encoding="utf-8", newline="\n")
    fitting = [c for c in rows[0] if c not in IN_FILES and (c not in FAULTS or any(row[c] for row in rows))]
    shown = [f"{caption}\n{summary([{column: row[column] for column in fitting} for row in rows])}"]
    if apart := relatives_rows(scores):
        write_tables(apart, into, "relatives", f"{HEADINGS['relatives']}; {caption}", notes)
        shown.append(f"{HEADINGS['relatives']}\n{summary(shown_apart(apart))}")
    compared = [row for group in alike for row in comparisons(group)]
    for name, table in (("comparisons", compared), ("curves", means)):
        if table:
            write_tables(table, into, name, f"{HEADINGS[name]}; {caption}", notes)
            shown.append(f"{HEADINGS[name]}\n{summary(table)}")
    found = [*((group, by_latencies(group)) for group in alike), (scores, by_latencies(scores, " c/w"))]
    if by_all := [row for _, rows_at in found for row in rows_at]:
        told = [sentence for group, rows_at in found for sentence in verdicts(group, rows_at)]
        write_tables(by_all, into, "latencies", f"{HEADINGS['latencies']}; {caption}", [*told, *notes])
        shown.append("\n".join(told))
    if lines := curves(scores):
        pareto_figure(lines, metrics, into)
        latencies_figure(lines, metrics[0], into)
    if claims:
        checked = check_claims([_with_kind(entry) for entry in scores], metrics)
        write_tables(checked, into, "claims", f"Claims of Section VI-B; {caption}")
        shown.append(to_markdown(checked, "Claims of Section VI-B"))
    return "\n\n".join([*shown, "\n".join(notes)])


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


def told_unlike(scores: Sequence[Scores]) -> list[str]:
    """Why claims are not checked, where some grids and wait-k models were told lengths, and others were not."""
    told = {bool(e.point.options.get(TOLD_LENGTH)): e.system for e in scores if e.point.system in ("grid", "waitk")}
    if len(told) < 2:
        return []
    return [
        f"claims=true: {told[True]} was told its sources' lengths, {told[False]} was not: evaluate both with "
        "told_length=false, or leave claims out"
    ]


def by_tokenisation(scores: Sequence[Scores]) -> list[list[Scores]]:
    """Entries in groups whose sources are the same tokens, by how many there are: others' AL counts something else."""
    groups: dict[float, list[Scores]] = {}
    for entry in scores:
        groups.setdefault(round(entry.row["source"], 6), []).append(entry)
    return list(groups.values())


def _with_kind(entry: Scores) -> dict[str, Any]:
    point, kind = entry.point, entry.point.system
    # The claims are of wait-k models run at the k they were trained with.
    untrained = point.options.get(TRAINED_AS) == "offline"
    if kind == "waitk" and (untrained or point.options.get(TRAINED_K, point.setting) != point.setting):
        kind = "waitk, not trained for it"
    return entry.row | {"system": entry.system, "kind": kind, "value": point.setting}


def evaluations_in(folders: Sequence[Path], setting: str = "rescore=") -> list[Path]:
    """The evaluations in folders: each its own, or those below it (a sweep's).

    Raises:
        ValueError: for a folder without any, as the setting has it.
    """
    found: list[Path] = []
    for folder in folders:
        own = (folder / DECODING).is_file()
        inside = [folder] if own else sorted(path.parent for path in folder.glob(f"*/{DECODING}"))
        if not inside:
            raise ValueError(
                f"{setting}{folder}: no evaluation there (no {DECODING}); give a folder of evaluate.py (of a scoring "
                "of other folders, those)"
            )
        found += [path for path in inside if path not in found]
    return found
