"""The θ that meets a wanted latency."""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch

from ..model_folder.artifact import ModelFolder, load_model_folder, record_operating_point
from .decoding import Decoding, TestSet
from .points import begun_points, decode_point
from .scoring import score

log = logging.getLogger(__name__)

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


def meet_al(
    target: float,
    folder: Path,
    test: TestSet,
    loaded: ModelFolder,
    model_folder: Path,
    device: torch.device | str,
    *,
    source_rate: float,
    max_target_tokens: int,
    batch_size: int,
) -> Found:
    """Find the θ of a grid model whose AL on a test set meets a target, and record it in the model folder.

    Args:
        target: wanted AL, in model tokens.
        folder: of the evaluation that keeps what was decoded on the way; what was begun there is finished.
        test: usually validation pairs.
        loaded, model_folder, device: the model, where it is, and where it runs.
        source_rate: units of the source a second, see `scoring.score`.
        max_target_tokens, batch_size: see `points.decode_point`.

    Raises:
        ValueError: if AL is above the target even at θ = 0, or a hypothesis set is empty.
    """
    limits: dict[str, Any] = {"max_target_tokens": max_target_tokens, "batch_size": batch_size}
    decoding = Decoding.start(folder, test, [model_folder])

    def al_at(theta: float) -> float:
        point = decode_point(decoding, test, loaded, model_folder, "grid", theta, **limits)
        languages = test.source_language, test.target_language
        al = score(decoding.sorted(point.digest), *languages, source_rate=source_rate).row["AL"]
        if al is None:
            raise ValueError(f"target_al={target:g}: at θ = {theta:g} every hypothesis is empty")
        log.info("θ = %g: AL %.2f", theta, al)
        return al

    found = find_theta(al_at, target)
    for home, begun in begun_points(folder, [model_folder]).items():  # by a search for another AL
        model = loaded if home == model_folder else load_model_folder(home, device)
        for system, setting in begun:
            decode_point(decoding, test, model, home, system, setting, **limits)
    decoding.finish()
    what = {"theta": found.theta, "certainty": loaded.model.certainty, "AL": round(found.al, 4), "target_al": target}
    record_operating_point(model_folder, what | {"validation": test.name, "sentences": len(test.sources)})
    log.info("θ = %g has AL %.2f on %s; recorded in %s", found.theta, found.al, test.name, model_folder)
    if found.al < target - TOLERANCE:
        log.warning("target_al=%g: no θ that was tried has an AL between %.2f and that", target, found.al)
    return found
