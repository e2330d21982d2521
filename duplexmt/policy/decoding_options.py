"""The numbers of decoding and their rules: θ, what goes with it, and its rivals' knobs; no torch."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from numbers import Real
from typing import Any

from ..decoder.decoder_options import MULTI_PATH
from ..metrics.units import text_unit

TARGET_TOKENS = 64  # at which a translation is cut off where nothing else is said, as in conf/
DIVERGENCES = ("paper", "code")
SYSTEMS = {  # name: which trained models can be run as it; multi: wait-k trained at every k
    "grid": ("grid",),
    "waitk": ("waitk", "offline"),
    "offline": ("offline",),
    "local_agreement": ("multi", "offline"),
    "hold": ("multi", "offline"),
    "alignatt": ("multi", "offline"),
    "lsg": ("multi", "offline"),
    "confidence": ("multi",),
}


def _is_number(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def check_whole(setting: str, value: Any, least: int = 1) -> None:
    """Raise `ValueError` for what is no whole number of at least so much."""
    if not _is_whole(value) or value < least:
        raise ValueError(f"{setting}={value!r}: must be a whole number of at least {least}")


@dataclass(frozen=True)
class EmitRule:
    """What a grid's decisions depend on beside p(EMIT) and θ, and how any system searches for its tokens; in the paper
    nothing does, and none is searched for. A lag is source tokens read minus target tokens written.

    Raises:
        ValueError: for a k_max below k_min, and for a lookahead where the beam is 1.
    """

    certainty: float = 0.0  # weight of the next token's certainty (`TwoHeads.decide`)
    k_min: int = 0  # lag below which it reads (`bound_lag`)
    k_max: int = 0  # lag from which on it writes; 0: none
    words: Any = None  # which tokens go on with a word [vocabulary], where it decides by words; None: by tokens
    beam: int = 1  # endings that are weighed once the source has ended (`streaming.beam`); 1: none, all is greedy
    lookahead: int = 0  # tokens that are weighed behind each before it is written, sooner than that; 0: none

    def __post_init__(self) -> None:
        check_whole("policy.beam", self.beam)
        check_whole("policy.lookahead", self.lookahead, least=0)
        if self.lookahead and self.beam == 1:
            raise ValueError(
                f"policy.lookahead={self.lookahead}: with policy.beam=1 there is nothing to weigh; set policy.beam=4, "
                "or policy.lookahead=0"
            )
        if 0 < self.k_max < self.k_min:
            raise ValueError(
                f"policy.k_min={self.k_min}, policy.k_max={self.k_max}: the lag lies between them, so k_max must be at "
                "least k_min, or 0 for no bound"
            )

    def recorded(self) -> dict[str, Any]:
        """Its settings by name, as a manifest has them."""
        words = self.words is not None
        return {
            "certainty": self.certainty,
            "k_min": self.k_min,
            "k_max": self.k_max,
            "words": words,
            "beam": self.beam,
            "lookahead": self.lookahead,
        }

    def unusual(self) -> dict[str, Any]:
        """Those that are not the paper's."""
        return unusual_in(self.recorded())


PAPER_RULE = EmitRule()


@dataclass
class Adaptive:
    """What the adaptive policies have beside their knob; k is the lag, source tokens read minus target tokens written.

    Raises:
        ValueError: for a value that breaks its rule.
    """

    k_min: int  # confidence and LSG: a smaller lag reads
    k_max: int  # from this lag on it writes
    alpha: float  # LSG: a next token of a larger probability is written; 1: none is
    divergence: str  # LSG: paper, KL(now ‖ wait-1), or code, KL(wait-1 ‖ now)

    def __post_init__(self) -> None:
        if self.k_min < 1 or self.k_max < self.k_min:
            raise ValueError(
                f"adaptive.k_min={self.k_min}, adaptive.k_max={self.k_max}: the lag lies between these whole numbers: "
                "k_min must be at least 1, k_max at least k_min"
            )
        if not 0 <= self.alpha <= 1:
            raise ValueError(f"adaptive.alpha={self.alpha}: a probability between 0 and 1 (1: no token is so certain)")
        if self.divergence not in DIVERGENCES:
            raise ValueError(f"adaptive.divergence={self.divergence!r}: must be one of {', '.join(DIVERGENCES)}")


# By system, what its knob must be and whether it is.
ADAPTIVE_KNOBS: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "confidence": (
        "ρ, the threshold of a probability, must be a number between 0 and 1",
        lambda rho: _is_number(rho) and 0 <= rho <= 1,
    ),
    "lsg": (
        "δ, the threshold of a divergence in nats, must be a finite number above 0",
        lambda delta: _is_number(delta) and 0 < delta < float("inf"),
    ),
    "alignatt": (
        "f, the last source tokens that a token written must not rest on, must be a whole number of at least 0",
        _is_whole,
    ),
    "hold": ("n, the last tokens of a draft that are held back, must be a whole number ≥ 0", _is_whole),
}


def check_knob(system: str, value: Any) -> Any:
    """Return a value of a system's knob if it keeps its rule, else raise `ValueError`."""
    rule, holds = ADAPTIVE_KNOBS[system]
    if not holds(value):
        raise ValueError(f"{system}={value}: {rule}")
    return value


def check_run_as(name: str | None, setting: Any) -> None:
    """Raise ValueError for a system that is none (None: the grid), and a setting that it cannot take."""
    if name in (None, "grid") and setting is not None:
        raise ValueError(f"setting={setting}: of what? give run_as=confidence, say; a grid has theta")
    if name is not None and name not in SYSTEMS:
        raise ValueError(f"run_as={name!r}: must be one of {', '.join(SYSTEMS)}")
    if name in ADAPTIVE_KNOBS:
        check_knob(name, setting)


def check_theta(theta: Any, setting: str = "policy.theta") -> float:
    """Return θ if it is a number in [0, 1], else raise `ValueError` that names the setting it was given by."""
    if not _is_number(theta) or not 0 <= theta <= 1:
        raise ValueError(f"{setting}={theta!r}: the EMIT threshold must be a number between 0 and 1")
    return theta if isinstance(theta, int | float) else float(theta)


def check_words(language: str) -> None:
    """Raise `ValueError` for decisions by words in a language whose words no spaces part."""
    if text_unit(language) != "word":
        raise ValueError(
            f"policy.words=true: no spaces part the words of {language!r}, so that no token says where one ends; leave "
            "it out, and each token has a decision of its own"
        )


def recorded_theta(info: Mapping[str, Any]) -> float:
    """The θ a grid model is run at where none is given: what `evaluate.py target_al=…` has found, else that of its
    training.

    Args:
        info: the manifest of its model folder.
    """
    return float(_recorded(info)["theta"])


def recorded_rule(info: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of the `EmitRule` that goes with `recorded_theta`: the paper's where none were recorded."""
    return rule_in(_recorded(info))


def rule_in(record: Mapping[str, Any]) -> dict[str, Any]:
    """An `EmitRule`'s settings in a record of what decided, which leaves out those that are the paper's."""
    return {name: record.get(name, usual) for name, usual in PAPER_RULE.recorded().items()}


def unusual_in(record: Mapping[str, Any]) -> dict[str, Any]:
    """Those of them that are not the paper's."""
    usual = PAPER_RULE.recorded()
    return {name: value for name, value in rule_in(record).items() if value != usual[name]}


def _recorded(info: Mapping[str, Any]) -> Mapping[str, Any]:
    return info.get("operating_point", info["policy"])


def can_run(name: str, system: str, k: int | str | None) -> bool:
    """Whether a model can be run as the system of a name.

    Args:
        name: one of `SYSTEMS`.
        system: the model was trained as: `grid`, `waitk` or `offline`.
    """
    return system in SYSTEMS[name] or (k == MULTI_PATH and "multi" in SYSTEMS[name])


def a_model(system: str) -> str:
    """Of a system: "an offline model"."""
    return f"{'an' if system[0] in 'aeiou' else 'a'} {system} model"


def trained_by(name: str) -> str:
    """The arguments of `train.py` that models which can be run as a system are trained by."""
    return " or ".join(f"system={'waitk system.k=multi' if held == 'multi' else held}" for held in SYSTEMS[name])
