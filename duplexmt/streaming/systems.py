"""All systems by name: what a trained model can be run as."""

import logging
from typing import Any, Protocol

from ..data.tokenizer import StreamTokens
from ..decoder.knobs import MULTI_PATH, check_k
from ..policy.knobs import SYSTEMS, Adaptive, can_run, trained_by
from .drafting import AlignAtt, Hold, LocalAgreement, WholeLsg
from .engine import Engine
from .policies import Confidence, Lsg, Policy, Theta, WaitK

log = logging.getLogger(__name__)

KINDS: dict[str, type[Policy[Any]]] = {  # on a prefix model
    "waitk": WaitK,
    "offline": WaitK,
    "local_agreement": LocalAgreement,
    "hold": Hold,
    "alignatt": AlignAtt,
    "lsg": Lsg,
    "confidence": Confidence,
}
AGREEMENT = 2  # LA-2, where no n is given


class Trained(Protocol):
    """A model and the tokens it was trained with: a loaded model folder, or a module in training."""

    model: Any  # GridModel or DecoderModel
    tokens: StreamTokens


def build_system(
    loaded: Trained,
    name: str,
    setting: float | int | None,
    *,
    batch_size: int = 64,
    adaptive: Adaptive | None = None,
    **limits: Any,
) -> Engine:
    """The engine of a trained model run as the system of that name: for live streams, and whole sentences
    (`Engine.translate`).

    Args:
        loaded: the model, on its device and in evaluation mode, with its stream tokens.
        name: one of `SYSTEMS`.
        setting: θ of the grid; k of wait-k (a model trained with another k, or for offline translation, will do);
            n of local agreement, 2 where it is None; ρ, δ, f and n of confidence, LSG, AlignAtt and hold-n; None for
            offline.
        batch_size: streams decoded side by side.
        adaptive: what confidence and LSG have beside their knob.
        limits: `max_target_tokens`, and more of `Engine`'s.

    Raises:
        ValueError: for an unknown name, a setting the system cannot take, or a model that cannot be run as it.
    """
    if name not in SYSTEMS:
        raise ValueError(f"system={name!r}: must be one of {', '.join(SYSTEMS)}")
    model = loaded.model
    if not can_run(name, model.system, model.k):
        raise ValueError(
            f"system={name!r} cannot be run on a {model.system} model: give a model folder trained by python train.py "
            f"{trained_by(name)}"
        )
    limits = {
        "typical_source_length": getattr(loaded, "typical_source_length", None),
        "max_streams": batch_size,
    } | limits
    if name == "grid":
        if isinstance(setting, bool) or not isinstance(setting, int | float):
            raise ValueError(f"θ={setting!r}: the grid system needs its EMIT threshold, a number between 0 and 1")
        return Engine(model, loaded.tokens, policy=Theta(), theta=setting, **limits)
    if name in ("confidence", "lsg"):
        if adaptive is None:
            raise ValueError(f"system={name!r} needs the bounds of its lag: give adaptive")
    else:
        adaptive = None
        if isinstance(setting, float) and setting.is_integer():
            setting = int(setting)  # as settings arrive that may be fractions, too
    if name == "offline" and setting is not None:
        raise ValueError(f"setting={setting!r}: the offline system reads the whole source and has no setting")
    if name == "local_agreement" and setting is None:
        setting = AGREEMENT
    if name == "waitk":
        setting = check_k(setting, "k")
        if model.k not in (setting, MULTI_PATH):
            trained = "the whole source" if model.k is None else f"k = {model.k}"
            log.info("wait-%d by a model trained with %s", setting, trained)
    kind = WholeLsg if name == "lsg" and model.k != MULTI_PATH else KINDS[name]
    return Engine(model, loaded.tokens, policy=kind(setting, adaptive), **limits)
