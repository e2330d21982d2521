"""Systems against each other: at equal latency, as curves, and a number for each curve."""

from collections.abc import Mapping, Sequence
from itertools import combinations, product
from typing import Any

import numpy as np

from ..metrics.bootstrap import (
    ROUNDING,
    Array,
    envelope_mean,
    interval,
    paired_p_value,
    quality_at_latency,
    shared_range,
)
from .scores import QUALITY, Scores

LATENCIES = ("AL", "YAAL", "SWF")  # by all of which one is ahead, or is not
AHEAD, LEVEL, BEHIND, OPEN = "ahead", "level", "behind", "open"


def comparisons(scores: Sequence[Scores], latency: str = "AL") -> list[dict[str, Any]]:
    """Systems against each other at matched AL, or another latency: paired bootstrap over the sentences.

    For each point of the system with fewer points, the other system's quality is interpolated between its own points
    at that point's latency, in every resample (`bootstrap.quality_at_latency`). Where the other system is slower even
    at its fastest, there is nothing to compare; where it is so in some resamples only, it has its fastest point's
    quality in these. Where it is faster even at its slowest it has that point's quality, and the row says `beyond`: a
    slower setting of it, which nobody measured, might be better.
    """
    systems = _by_system(scores)
    names = sorted(systems, key=lambda name: -len(systems[name]))
    rows = []
    for first, second in combinations(names, 2):
        for other, metric in product(systems[second], QUALITY):
            if all({metric, latency} <= entry.samples.keys() for entry in [*systems[first], other]):
                rows.append(_compare(systems[first], other, metric, latency))
    return [row for row in rows if row is not None]


def _compare(curve: Sequence[Scores], other: Scores, metric: str, latency: str) -> dict[str, Any] | None:
    curve, at = [entry for entry in curve if _is_known(entry, latency)], other.row[latency]
    if not curve or at is None:
        return None
    # More words written before the source ends is less latency.
    slower = -1.0 if latency.startswith("SWF") else 1.0
    latencies = slower * _resampled(curve, latency)
    wanted = np.maximum(slower * other.samples[latency], latencies.min(1))
    found = quality_at_latency(latencies, _resampled(curve, metric), wanted)
    chance = _chance(found - other.samples[metric])
    value = quality_at_latency(slower * _measured(curve, latency), _measured(curve, metric), np.array([slower * at]))
    if chance["p"] is None or np.isnan(value[0]):  # out of reach, or without a latency in some resample
        return None
    return {
        "system": curve[0].system,
        "against": f"{other.system} {other.setting}".removesuffix(" —"),
        latency: at,
        "metric": metric,
        "score": float(value[0]),
        "other": other.row[metric],
        "difference": float(value[0]) - other.row[metric],
        **chance,
        "beyond": "yes" if slower * at > (slower * _measured(curve, latency)).max() + ROUNDING else "",
    }


def by_latencies(scores: Sequence[Scores], unit: str = "") -> list[dict[str, Any]]:
    """`comparisons` at each of `LATENCIES`, in model tokens or, with unit " c/w", in the field's units.

    Returns:
        A row for each comparison and latency; `which` is ahead or behind where the interval lies on one side of 0, else
        level. It is open, if not ahead, where `beyond` says that the system was not measured so slow. Beside YAAL it
        says of how many of the sentences the point compared with has one.
    """
    rows, point = [], _by_name(scores)
    for name in LATENCIES:
        for row in comparisons(scores, name + unit):
            which = AHEAD if row["low"] > 0 else OPEN if row["beyond"] else BEHIND if row["high"] < 0 else LEVEL
            told = {"system": row["system"], "against": row["against"], "metric": row["metric"]}
            kept = {name: row[name] for name in ("difference", "low", "high", "p", "beyond")}
            known = point[row["against"]].row.get(f"YAAL %{unit}") if name == "YAAL" else None
            at = {"latency": name + unit, "at": row[name + unit], "% of sentences": known}
            rows.append(told | at | kept | {"which": which})
    return rows


def _by_name(scores: Sequence[Scores]) -> dict[str, Scores]:
    """Entries as the column `against` names them."""
    return {f"{entry.system} {entry.setting}".removesuffix(" —"): entry for entry in scores}


def verdicts(scores: Sequence[Scores], rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """One sentence for each pair of systems: where one is ahead of the other by all of `LATENCIES`, where it is behind
    by all, and where neither, by the first of `QUALITY` there is. Of a grid and another system, the grid's.

    Args:
        scores: of systems whose latencies can be compared.
        rows: of these, by `by_latencies`.
    """
    metric = next((name for name in QUALITY if all(name in entry.samples for entry in scores)), None)
    systems, of_point = _by_system(scores), _by_name(scores)
    found: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        if row["metric"] == metric:
            found.setdefault((row["system"], row["against"]), []).append(row["which"])
    sentences: dict[tuple[str, str], dict[str, list[str]]] = {}
    for (curve, against), which in found.items():
        other = of_point[against]
        flipped = _is_grid(other) and not _is_grid(systems[curve][0])
        is_open = len(which) < len(LATENCIES) or OPEN in which
        one = OPEN if is_open else which[0] if len(set(which)) == 1 else LEVEL
        one = {AHEAD: BEHIND, BEHIND: AHEAD}.get(one, one) if flipped else one
        pair = (other.system, curve) if flipped else (curve, other.system)
        sentences.setdefault(pair, {}).setdefault(one, []).append(other.setting)
    unit = " c/w" if any(row["latency"].endswith(" c/w") for row in rows) else ""
    return [_sentence(*pair, where, metric, unit) for pair, where in sentences.items()]


def _is_grid(entry: Scores) -> bool:
    return entry.point is not None and entry.point.system == "grid"


def _sentence(system: str, other: str, where: Mapping[str, Sequence[str]], metric: str | None, unit: str) -> str:
    """Such as "grid against wait-k, BLEU at equal AL, YAAL, SWF: ahead by all three at k=1, k=3; behind …"."""
    words = {
        AHEAD: "ahead by all three",
        LEVEL: "neither ahead nor behind by all three",
        BEHIND: "behind by all three",
        OPEN: "not to be compared by all three",
    }
    places = [f"{words[which]} at {', '.join(where[which])}".removesuffix(" at —") for which in words if which in where]
    return f"{system} against {other}, {metric} at equal {', '.join(LATENCIES)}{unit}: {'; '.join(places)}"


def _chance(differences: Array) -> dict[str, Any]:
    """95 % interval and p-value of paired resampled differences `[B]`; None where a resample has no difference."""
    bounds = interval(differences)
    if bounds is None:
        return {"low": None, "high": None, "p": None}
    return {"low": bounds[0], "high": bounds[1], "p": f"{paired_p_value(differences):.3f}"}


def curve_means(scores: Sequence[Scores]) -> list[dict[str, Any]]:
    """One number for each system's curve: the mean quality of its upper envelope over the AL that all curves share.

    A curve is a system with several settings of different AL; others (offline) have none. Each system is compared
    with the best of the others by a paired bootstrap, in which the shared range is that of the resample.

    Returns:
        Rows by metric and mean, the highest first; none where fewer than two curves share a range of AL.
    """
    systems = _by_system(scores)
    curved = {name: found for name, found in systems.items() if len({entry.row["AL"] for entry in found}) > 1}
    if len(curved) < 2:
        return []
    rows = []
    ranges = [shared_range([take(curve, "AL") for curve in curved.values()]) for take in (_measured, _resampled)]
    for metric in QUALITY:
        if any(metric not in entry.samples for curve in curved.values() for entry in curve):
            continue
        means, samples = (
            {name: envelope_mean(take(curve, "AL"), take(curve, metric), *shared) for name, curve in curved.items()}
            for take, shared in zip((_measured, _resampled), ranges, strict=True)
        )
        values = {name: float(mean[0]) for name, mean in means.items()}
        if any(np.isnan(value) for value in values.values()):  # no AL is shared
            return []
        order = sorted(values, key=lambda name: -values[name])
        for name in order:
            best = order[0] if name != order[0] else order[1]
            own = interval(samples[name])
            rows.append(
                {
                    "system": name,
                    "metric": metric,
                    "AL from": float(ranges[0][0][0]),
                    "AL to": float(ranges[0][1][0]),
                    "mean": values[name],
                    "±": None if own is None else (own[1] - own[0]) / 2,
                    "against": best,
                    "difference": values[name] - values[best],
                    **_chance(samples[name] - samples[best]),
                }
            )
    return rows


def _by_system(scores: Sequence[Scores]) -> dict[str, list[Scores]]:
    systems: dict[str, list[Scores]] = {}
    for entry in scores:
        if _is_known(entry, "AL"):  # not nothing but empty hypotheses
            systems.setdefault(entry.system, []).append(entry)
    return systems


def _is_known(entry: Scores, latency: str) -> bool:
    """Whether every resample has a latency: some have none of the sentences with one, where these are few."""
    return entry.row[latency] is not None and not np.isnan(entry.samples.get(latency, np.nan)).any()


def _measured(curve: Sequence[Scores], column: str) -> Array:
    """A column of a curve's points, `[1, P]`."""
    return np.array([[entry.row[column] for entry in curve]], dtype=np.float64)


def _resampled(curve: Sequence[Scores], column: str) -> Array:
    """The same in every resample, `[B, P]`."""
    return np.stack([entry.samples[column] for entry in curve], 1)


def curves(scores: Sequence[Scores]) -> dict[str, list[dict[str, Any]]]:
    """For the figure: each system's points with quality, latencies and their 95 % intervals, by name."""
    found: dict[str, list[dict[str, Any]]] = {}
    for entry in scores:
        if entry.row["AL"] is None:
            continue  # nothing but empty hypotheses
        point: dict[str, Any] = {"setting": entry.setting}
        for name in (*LATENCIES, *(f"{name} c/w" for name in LATENCIES), *QUALITY):
            if entry.row.get(name) is not None:
                point[name] = (entry.row[name], interval(entry.samples[name]) if name in entry.samples else None)
        found.setdefault(entry.system, []).append(point)
    return found
