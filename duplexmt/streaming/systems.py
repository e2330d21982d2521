"""All systems by name: what a trained model can be run as."""

import logging
from typing import Any, Protocol

from ..data.tokenizer import StreamTokens
from ..decoder.decoder_options import MULTI_PATH, check_k
from ..policy.decoding_options import SYSTEMS, Adaptive, EmitRule, a_model, can_run, trained_by
from .drafting import AlignAtt, Drafting, Hold, LocalAgreement, WholeLsg
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
    rule: EmitRule  # of any system its beam search, the rest of a grid

    @property
    def typical_source_length(self) -> int:
        """What the anchor `source_length` takes for the length of a source nobody knows."""


def kind_of(name: str, k: int | str | None) -> type[Policy[Any]]:
    """The policy of a system on a prefix model that was trained with a k."""
    return WholeLsg if name == "lsg" and k != MULTI_PATH else KINDS[name]


def asks_length(name: str, anchor: Any, k: int | str | None) -> bool:
    """Whether what a system writes depends on the length its sources are taken for before they have ended: with the
    anchor `source_length`, but for systems that wait for the end, and drafts, which place the target behind what is
    read."""
    waits = name == "offline" or (name != "grid" and issubclass(kind_of(name, k), Drafting))
    return anchor == "source_length" and not waits


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
        limits: `max_target_tokens`, and more of `Engine`'s; `typical_source_length` is the model's.

    Raises:
        ValueError: for an unknown name, a setting the system cannot take, or a model that cannot be run as it.
    """
    if name not in SYSTEMS:
        raise ValueError(f"system={name!r}: must be one of {', '.join(SYSTEMS)}")
    model = loaded.model
    if not can_run(name, model.system, model.k):
        raise ValueError(
            f"system={name!r} cannot be run on {a_model(model.system)}: give a model folder trained by python train.py "
            f"{trained_by(name)}"
        )
    limits |= {"max_streams": batch_size, "beam": loaded.rule.beam, "lookahead": loaded.rule.lookahead}
    if model.anchor == "source_length" and not limits.get("told_length"):
        limits.setdefault("typical_source_length", loaded.typical_source_length)
    if name == "grid":
        return Engine(model, loaded.tokens, policy=Theta(loaded.rule), theta=setting, **limits)
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
    policy = kind_of(name, model.k)(setting, adaptive)
    return Engine(model, loaded.tokens, policy=policy, **limits)
