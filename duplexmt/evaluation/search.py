"""The θ that meets a wanted latency."""

from collections.abc import Callable
from typing import NamedTuple

TOLERANCE = 0.05  # model tokens below the wanted AL that are good enough
STEPS = 8  # halvings of the interval: θ to 1/256


class OperatingPoint(NamedTuple):
    """A threshold and the AL it has."""

    theta: float
    al: float


def find_theta(al_at: Callable[[float], float], target: float) -> OperatingPoint:
    """The θ with the highest AL that is not above the target, by bisection.

    AL need not rise at every step of θ (a different hypothesis may be shorter), so the best θ of all tried is returned,
    not the last.

    Args:
        al_at: AL of the validation pairs at a θ; called with the same values in the same order each time.
        target: wanted AL, in model tokens.

    Raises:
        ValueError: if AL is above the target even at θ = 0.
    """
    tried: list[OperatingPoint] = []

    def al_of(theta: float) -> float:
        tried.append(OperatingPoint(theta, al_at(theta)))
        return tried[-1].al

    low, high = 0.0, 1.0
    for _ in range(STEPS):
        theta = (low + high) / 2
        if (al := al_of(theta)) > target:
            high = theta
        elif al >= target - TOLERANCE:
            return tried[-1]
        else:
            low = theta
    if low == 0.0:  # all of these are too late
        al_of(0.0)
    if high == 1.0:  # the whole source may be read, and AL still be below the target
        al_of(1.0)
    fitting = [found for found in tried if found.al <= target]
    if not fitting:
        raise ValueError(
            f"target_al={target:g}: at θ = 0 AL is {tried[-1].al:.2f} already, and no θ writes earlier; a model "
            "trained with a larger policy.lam does"
        )
    return max(fitting, key=lambda found: found.al)
