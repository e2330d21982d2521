"""The claims of Section VI-B beside what an evaluation found.

The paper's AL is taken as AL_all (docs/reference/deviations.md). A claim that cannot be checked, because a system or a
metric is missing, says so; none is passed over.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

Row = Mapping[str, Any]  # of the result table, with its `system`, `kind` (grid, waitk, offline) and `value` (θ, k)

HELD, NOT_HELD, UNKNOWN = "yes", "no", "not checked"
# tab:duplex-results: gains of the grid over wait-k at comparable FRL.
GAINS = {3: {"BLEURT": 5.66, "COMET": 10.36}, 5: {"BLEURT": 5.54, "COMET": 9.80}}
RISES = {"COMET": "59.59 → 64.73", "BLEURT": "47.01 → 50.74"}


def check_claims(rows: Sequence[Row], metrics: Sequence[str]) -> list[dict[str, str]]:
    """Each claim with the paper's figures, those found, and whether it holds: `yes`, `no` or `not checked`.

    Args:
        rows: every system at every setting; quality columns that were not measured may be missing. Of several grids,
            told apart by `system`, each is checked by itself.
        metrics: of quality.
    """
    grids = list(dict.fromkeys(row["system"] for row in rows if row["kind"] == "grid"))
    if len(grids) < 2:
        return _claims_of_one(rows, metrics)
    return [
        claim | {"claim": f"{name}: {claim['claim']}"}
        for name in grids
        for claim in _claims_of_one([row for row in rows if row["kind"] != "grid" or row["system"] == name], metrics)
    ]


def _claims_of_one(rows: Sequence[Row], metrics: Sequence[str]) -> list[dict[str, str]]:
    grid = sorted((row for row in rows if row["kind"] == "grid"), key=lambda row: row["value"])
    waits = sorted((row for row in rows if row["kind"] == "waitk"), key=lambda row: row["value"])
    offline = [row for row in rows if row["kind"] == "offline"]
    claims = [_rises(grid, metric, RISES.get(metric, "—")) for metric in metrics]
    claims += [_rises(grid, "AL_all", "0.23 → 4.39"), _rises(grid, "FRL", "2.76 → 6.09")]
    claims += [_gain(grid, waits, k, metric) for k in (3, 5) for metric in metrics]
    claims += [_beats_offline(grid, offline, metric) for metric in metrics]
    claims += [_below_waitk(grid, waits, "AL_all", "4.39 < 4.98"), _below_waitk(grid, waits, "AP", "0.65 < 0.79")]
    claims += [_dominates(grid, waits, metric) for metric in metrics]
    return claims


def _claim(claim: str, paper: str, found: str, holds: bool | None) -> dict[str, str]:
    verdict = UNKNOWN if holds is None else HELD if holds else NOT_HELD
    return {"claim": claim, "paper": paper, "found": found, "holds": verdict}


def _missing(claim: str, paper: str, what: str) -> dict[str, str]:
    return _claim(claim, paper, f"{what} not evaluated", None)


def _with(rows: Sequence[Row], *columns: str) -> list[Row]:
    """The rows that have numbers in these columns."""
    return [row for row in rows if all(row.get(column) is not None for column in columns)]


def _best(rows: Iterable[Row], metric: str) -> Row | None:
    """Of several models of one system the best, whatever their order."""
    return max(rows, key=lambda row: row[metric], default=None)


def _rises(grid: Sequence[Row], column: str, paper: str) -> dict[str, str]:
    claim = f"{column} rises with θ at every step"
    values = [row[column] for row in _with(grid, column)]
    if len(values) < 2:
        return _missing(claim, paper, "the grid at two θ or more")
    found = " → ".join(f"{value:.2f}" for value in values)
    return _claim(claim, paper, found, all(before < after for before, after in pairwise(values)))


def _gain(grid: Sequence[Row], waits: Sequence[Row], k: int, metric: str) -> dict[str, str]:
    claim = f"at the FRL of wait-{k} the grid has the higher {metric}"
    paper = f"+{GAINS[k][metric]:.2f}" if metric in GAINS[k] else "—"
    wait = _best((row for row in _with(waits, metric, "FRL") if row["value"] == k), metric)
    near = _with(grid, metric, "FRL")
    if wait is None or not near:
        return _missing(claim, paper, f"wait-{k}" if wait is None else "the grid")
    nearest = min(near, key=lambda row: abs(row["FRL"] - wait["FRL"]))
    gain = nearest[metric] - wait[metric]
    found = f"{gain:+.2f} (θ={nearest['value']:g}, FRL {nearest['FRL']:.2f}; wait-{k} {wait['FRL']:.2f})"
    return _claim(claim, paper, found, gain > 0)


def _beats_offline(grid: Sequence[Row], offline: Sequence[Row], metric: str) -> dict[str, str]:
    claim = f"the grid at θ = 0.9 has a higher {metric} than offline, at a fraction of its FRL"
    paper = {"COMET": "64.73 > 63.85, FRL 6.09 of 18.06", "BLEURT": "50.74 < 54.03: not claimed"}.get(metric, "—")
    row = next((row for row in _with(grid, metric, "FRL") if row["value"] == 0.9), None)
    base = _best(_with(offline, metric, "FRL"), metric)
    if row is None or base is None:
        return _missing(claim, paper, "the grid at θ = 0.9" if row is None else "offline")
    found = f"{row[metric]:.2f} and {base[metric]:.2f}, FRL {row['FRL']:.2f} of {base['FRL']:.2f}"
    return _claim(claim, paper, found, row[metric] > base[metric] and row["FRL"] < base["FRL"])


def _below_waitk(grid: Sequence[Row], waits: Sequence[Row], column: str, paper: str) -> dict[str, str]:
    claim = f"{column} of the grid is below that of every wait-k at every θ"
    ours, theirs = ([row[column] for row in _with(rows, column)] for rows in (grid, waits))
    if not ours or not theirs:
        return _missing(claim, paper, "the grid" if not ours else "wait-k")
    found = f"{min(ours):.2f}–{max(ours):.2f} and {min(theirs):.2f}–{max(theirs):.2f}"
    return _claim(claim, paper, found, max(ours) < min(theirs))


def _dominates(grid: Sequence[Row], waits: Sequence[Row], metric: str) -> dict[str, str]:
    claim = f"for every wait-k there is a θ with higher {metric} and lower AL"
    paper = "all (fig:al-bleurt)"
    waits, grid = _with(waits, metric, "AL_all"), _with(grid, metric, "AL_all")
    if not waits or not grid:
        return _missing(claim, paper, "the grid" if not grid else "wait-k")
    beaten = [
        any(ours[metric] > theirs[metric] and ours["AL_all"] < theirs["AL_all"] for ours in grid) for theirs in waits
    ]
    return _claim(claim, paper, f"{sum(beaten)} of {len(beaten)}", all(beaten))
