"""Power laws: does an error fall like `n^(−p)` with the number of keys `n`, and with which `p`?"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from duplexmt.metrics.bootstrap import interval, resample_weights

LEAST_SPAN = 4  # last over first number of keys: two octaves


@dataclass(frozen=True)
class Decay:
    """A fitted power law, `error ≈ size · n^(−exponent)`."""

    exponent: float  # above 0: the error falls
    low: float  # middle 95 % of a bootstrap over documents
    high: float
    size: float
    r2: float  # share of the variance of log error that the line explains
    first: int  # numbers of keys fitted
    last: int
    documents: int


def fit_decay(squares: NDArray[Any], first: int, last: int | None = None, resamples: int = 1000) -> Decay:
    """Fit the root mean square error over documents to a power law.

    A weighted line through log error over log n, every octave with the same weight; documents are resampled as wholes,
    as errors within one depend on each other.

    Args:
        squares: mean squared error of each document at `n = 1, 2, …` keys, `[documents, most keys]`.
        first, last: numbers of keys to fit, both included; to the end where `last` is not given.
        resamples: of the bootstrap.

    Raises:
        ValueError: where there is too little to fit: one document, less than two octaves, or an error that is zero or
            not finite.
    """
    squares = np.asarray(squares, dtype=np.float64)
    documents, most = squares.shape
    last = most if last is None else last
    if not 1 <= first <= last <= most or last < LEAST_SPAN * first:
        raise ValueError(
            f"a power law from {first} to {min(last, most)} keys spans less than two octaves and says nothing: give "
            f"longer sequences (at least {LEAST_SPAN * first} tokens), or let the fit begin earlier"
        )
    if documents < 2:
        raise ValueError(f"a fit over {documents} document has no interval: give at least 2")
    part = squares[:, first - 1 : last]
    if not np.isfinite(part).all() or not (part.mean(0) > 0).all():
        raise ValueError("an error that is zero or not finite has no exponent: it is exact there, or has diverged")
    n = np.arange(first, last + 1)
    exponent, size, r2 = _line(n, part.mean(0)[None])
    drawn, _, _ = _line(n, np.maximum(resample_weights(documents, resamples) @ part / documents, 1e-300))
    low, high = interval(drawn) or (float("nan"), float("nan"))
    return Decay(float(exponent[0]), low, high, float(size[0]), float(r2[0]), first, last, documents)


def _line(n: NDArray[Any], squares: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Exponents, sizes and R² of lines through `[curves, keys]`."""
    x, y, weight = np.log(n), 0.5 * np.log(squares), 1 / n / (1 / n).sum()
    dx, dy = x - x @ weight, y - (y @ weight)[:, None]
    slope = (dy * dx) @ weight / (dx**2 @ weight)
    rest = ((dy - slope[:, None] * dx) ** 2) @ weight
    spread = dy**2 @ weight
    r2 = 1 - np.divide(rest, spread, out=np.zeros_like(rest), where=spread > 0)
    return -slope, np.exp(y @ weight - slope * (x @ weight)), r2
