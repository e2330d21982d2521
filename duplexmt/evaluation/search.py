"""The θ that meets a wanted latency."""

from collections.abc import Callable
from typing import NamedTuple

TOLERANCE = 0.05  # model tokens below the wanted AL that are good enough
STEPS = 8  # halvings of the interval: θ to 1/256


class Found(NamedTuple):
    """A threshold and the AL it has."""

    theta: float
    al: float


def find_theta(al_at: Callable[[float], float], target: float) -> Found:
    """The θ with the highest AL that is not above the target, by bisection.

    AL need not rise at every step of θ (a different hypothesis may be shorter), so the best θ of all tried is returned,
    not the last.

    Args:
        al_at: AL of the validation pairs at a θ; called with the same values in the same order each time.
        target: wanted AL, in model tokens.

    Raises:
        ValueError: if AL is above the target even at θ = 0.
    """
    best: Found | None = None

    def tried(theta: float) -> float:
        nonlocal best
        al = al_at(theta)
        if al <= target and (best is None or al > best.al):
            best = Found(theta, al)
        return al

    low, high = 0.0, 1.0
    for _ in range(STEPS):
        theta = (low + high) / 2
        if tried(theta) > target:
            high = theta
        else:
            low = theta
        if best is not None and best.al >= target - TOLERANCE:
            return best
    if best is None and (al := tried(0.0)) > target:
        raise ValueError(
            f"target_al={target:g}: at θ = 0 AL is {al:.2f} already, and no θ writes earlier; a model trained with a "
            "larger policy.lam does"
        )
    if high == 1.0:
        tried(1.0)  # the whole source may be read, and AL still be below the target
    assert best is not None
    return best
