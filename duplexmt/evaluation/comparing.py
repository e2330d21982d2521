"""Systems against each other: at equal latency, as curves, and a number for each curve."""

from collections.abc import Sequence
from itertools import combinations, product
from typing import Any

import numpy as np

from ..metrics.bootstrap import Array, envelope_mean, interval, paired_p_value, quality_at_latency, shared_range
from .scoring import QUALITY, Scores


def comparisons(scores: Sequence[Scores]) -> list[dict[str, Any]]:
    """Systems against each other at matched AL: paired bootstrap over the sentences.

    For each point of the system with fewer points, the other system's quality is interpolated between its own points
    at that point's AL, in every resample (`bootstrap.quality_at_latency`). Where the other system is slower even
    at its fastest, there is nothing to compare.
    """
    systems = _by_system(scores)
    names = sorted(systems, key=lambda name: -len(systems[name]))
    rows = []
    for first, second in combinations(names, 2):
        for other, metric in product(systems[second], QUALITY):
            if all({metric, "AL"} <= entry.samples.keys() for entry in [*systems[first], other]):
                rows.append(_compare(systems[first], other, metric))
    return [row for row in rows if row is not None]


def _compare(curve: Sequence[Scores], other: Scores, metric: str) -> dict[str, Any] | None:
    wanted = other.samples["AL"]
    found = quality_at_latency(_resampled(curve, "AL"), _resampled(curve, metric), wanted)
    chance = _chance(found - other.samples[metric])
    at = other.row["AL"]
    value = quality_at_latency(_measured(curve, "AL"), _measured(curve, metric), np.array([at]))
    if chance["p"] is None or np.isnan(value[0]):  # out of reach, or without an AL in some resample
        return None
    return {
        "system": curve[0].system,
        "against": f"{other.system} {other.setting}".removesuffix(" —"),
        "AL": at,
        "metric": metric,
        "score": float(value[0]),
        "other": other.row[metric],
        "difference": float(value[0]) - other.row[metric],
        **chance,
    }


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
        if entry.row["AL"] is not None:  # not nothing but empty hypotheses
            systems.setdefault(entry.system, []).append(entry)
    return systems


def _measured(curve: Sequence[Scores], column: str) -> Array:
    """A column of a curve's points, `[1, P]`."""
    return np.array([[entry.row[column] for entry in curve]], dtype=np.float64)


def _resampled(curve: Sequence[Scores], column: str) -> Array:
    """The same in every resample, `[B, P]`."""
    return np.stack([entry.samples[column] for entry in curve], 1)


def curves(scores: Sequence[Scores]) -> dict[str, list[dict[str, Any]]]:
    """For the figure: each system's points with quality, AL and their 95 % intervals, by name."""
    found: dict[str, list[dict[str, Any]]] = {}
    for entry in scores:
        if entry.row["AL"] is None:
            continue  # nothing but empty hypotheses
        point: dict[str, Any] = {"setting": entry.setting}
        for name in ("AL", *QUALITY):
            if name in entry.row:
                point[name] = (entry.row[name], interval(entry.samples[name]) if name in entry.samples else None)
        found.setdefault(entry.system, []).append(point)
    return found
