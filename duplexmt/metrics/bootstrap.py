"""Bootstrap over the sentences of a test set: intervals, and paired comparisons of systems at equal latency.

All systems are resampled alike, sentence by sentence (Koehn 2004), so that differences of two systems' resampled scores
are paired. Shapes: `B` resamples, `n` sentences, `P` points of a system (its settings).
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

ROUNDING = 1e-9  # what two sums of the same latencies in another order may differ by, and more
SEED = 12345  # the same for all systems: their resampled scores are paired


def resample_weights(sentences: int, resamples: int, seed: int = SEED) -> Array:
    """How often each resample of a test set holds each sentence, `[B, n]`.

    Raises:
        ValueError: for fewer than one sentence.
    """
    if sentences < 1:
        raise ValueError(f"a bootstrap needs at least one sentence, got {sentences}")
    draws = np.random.default_rng(seed).integers(0, sentences, size=(resamples, sentences))
    return np.stack([np.bincount(draw, minlength=sentences) for draw in draws]).astype(np.float64)


def resampled_mean(values: Sequence[float | None], weights: Array) -> Array:
    """Mean of the known values of each resample, `[B]`; NaN for a resample that holds none.

    Args:
        values: one a sentence; `None` (an empty hypothesis) is left out.
        weights: `[B, n]`, from `resample_weights`.
    """
    return resampled_share([value or 0.0 for value in values], [value is not None for value in values], weights)


def resampled_share(parts: Sequence[float], wholes: Sequence[float], weights: Array) -> Array:
    """`Σ parts / Σ wholes` of each resample, `[B]`; NaN for a resample of nothing.

    Args:
        parts, wholes: one a sentence.
        weights: `[B, n]`, from `resample_weights`.
    """
    total = weights @ np.array(wholes, dtype=np.float64)
    sums = weights @ np.array(parts, dtype=np.float64)
    return np.divide(sums, total, out=np.full(len(weights), np.nan), where=total > 0)


def interval(samples: Array) -> tuple[float, float] | None:
    """The middle 95 % of resampled scores; `None` where a resample has no score."""
    if np.isnan(samples).any():
        return None
    low, high = np.percentile(samples, [2.5, 97.5])
    return float(low), float(high)


def paired_p_value(differences: Array) -> float:
    """Two-sided p-value of the hypothesis that the difference is zero, from paired resampled differences `[B]`.

    The resample at hand counts as one more, so that no p-value is below `2 / (B + 1)`.
    """
    smaller = min(int((differences <= 0).sum()), int((differences >= 0).sum()))
    return min(1.0, 2 * (smaller + 1) / (len(differences) + 1))


def quality_at_latency(latency: Array, quality: Array, wanted: Array) -> Array:
    """A system's quality at a wanted latency, interpolated between its points, in every resample.

    At or beyond its slowest point a system has that point's quality: it meets the wanted latency with room to spare.

    Args:
        latency, quality: `[B, P]`.
        wanted: `[B]`.

    Returns:
        `[B]`; NaN where the wanted latency is below the system's fastest point, or a latency is not known.
    """
    order = np.argsort(latency, axis=1)
    latency, quality = np.take_along_axis(latency, order, 1), np.take_along_axis(quality, order, 1)
    found = [np.interp(x, xs, ys) for x, xs, ys in zip(wanted, latency, quality, strict=True)]
    reached = (wanted >= latency[:, 0] - ROUNDING) & ~np.isnan(latency).any(1)
    return np.where(reached, np.array(found), np.nan)


def shared_range(latencies: Sequence[Array]) -> tuple[Array, Array]:
    """The latencies `[B, P]` that all systems have: in every resample the slowest start and the fastest end, `[B]`."""
    ends = [(latency.min(1), latency.max(1)) for latency in latencies]
    return np.max([low for low, _ in ends], 0), np.min([high for _, high in ends], 0)


def envelope_mean(latency: Array, quality: Array, low: Array, high: Array) -> Array:
    """Mean height of a system's upper envelope between two latencies: one number for a curve.

    The envelope is the Pareto front: of the settings only those better than every faster one, joined by straight lines,
    level after the best. The mean is exact: the area below the lines over the width.

    Args:
        latency, quality: `[B, P]`.
        low, high: of the range, `[B]`.

    Returns:
        `[B]`; NaN where the range is empty or begins below the system's fastest point.
    """
    means = np.full(len(latency), np.nan)
    for index, (xs, ys, start, end) in enumerate(zip(latency, quality, low, high, strict=True)):
        if not (xs.min() - ROUNDING <= start < end):
            continue
        order = np.lexsort((-ys, xs))
        xs, ys = xs[order], ys[order]
        front = ys > np.concatenate([[-np.inf], np.maximum.accumulate(ys)[:-1]])
        xs, ys = xs[front], ys[front]
        knots = np.concatenate([[start], xs[(xs > start) & (xs < end)], [end]])
        heights = np.interp(knots, xs, ys)
        means[index] = ((heights[1:] + heights[:-1]) / 2 * np.diff(knots)).sum() / (end - start)
    return means
