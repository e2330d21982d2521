"""The scores of a system at a setting, and its name and place among others in tables."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..decoder.decoder_options import MULTI_PATH
from ..metrics.bootstrap import Array
from .decoding import TOLD_LENGTH, TRAINED_AS, TRAINED_K, Point

QUALITY = ("COMET", "BLEURT", "BLEU", "chrF")  # the order of columns
SHOWN = {  # name and knob of each system, in the order of rows (tab:duplex-results)
    "offline": ("offline", ""),
    "waitk": ("wait-k", "k"),
    "local_agreement": ("local agreement", "n"),
    "hold": ("hold-n", "n"),
    "alignatt": ("AlignAtt", "f"),
    "lsg": ("LSG", "δ"),
    "confidence": ("confidence", "ρ"),
    "grid": ("grid", "θ"),
}


@dataclass
class Scores:
    """Of one system at one setting."""

    system: str  # as shown
    setting: str
    row: dict[str, Any]  # everything measured, by column
    samples: dict[str, Array] = field(default_factory=dict)  # resampled corpus scores `[B]`, by column
    notes: list[str] = field(default_factory=list)
    point: Any = None  # its `Point`; None for records alone, which are neither compared nor named
    spread: dict[str, float] = field(default_factory=dict)  # standard deviation over trainings, by column (`seeds`)
    models: list[str] = field(default_factory=list)  # folders of these trainings


SHORT = {("words", True): "by words", ("heads", "all"): "all heads", ("heads", "found"): "alignment heads"}
GUARD = "max_target_tokens"
# Options that a name tells where they differ.
RUN_WITH = (
    TRAINED_AS,
    "quantize",
    "certainty",
    "k_min",
    "words",
    "k_max",
    "beam",
    "lookahead",
    "alpha",
    "divergence",
    "heads",
    GUARD,
)


def differing_options(point: Point, points: Sequence[Point]) -> list[str]:
    """The options of a point that others of its system do not share, in words."""
    options = [(name, point.options[name]) for name in RUN_WITH if name in point.options]
    siblings = [other.options for other in points if other.system == point.system]
    return [
        SHORT.get((name, value), f"{name} {value}")
        for name, value in options
        if any(other.get(name) != value for other in siblings)
        and (name != TRAINED_AS or point.system == "waitk")  # multi-path or not is told anyway
    ]


def name_points(points: Sequence[Point]) -> list[tuple[str, str]]:
    """System and setting of each point as shown; options in which models of one system are run differently become part
    of it, and their names where there are several models. What was told lengths always says so, and where anything was,
    what was not.
    """
    shown = []
    lengths = {
        True: ["told lengths"],
        False: ["untold lengths"] if any(p.options.get(TOLD_LENGTH) for p in points) else [],
    }
    for point in points:
        system, knob = SHOWN[point.system]
        if point.options.get(TRAINED_K) == MULTI_PATH:
            system = f"multi-path {system}"
        setting = "—" if point.setting is None else f"{knob}={point.setting:g}"
        told = lengths[point.options[TOLD_LENGTH]] if TOLD_LENGTH in point.options else []
        shown.append((" ".join([system, *differing_options(point, points), *told]), setting))
    # Several models: their names tell them apart; those of one name, their folders. A curve is one model's, but for
    # wait-k.
    named: dict[Any, dict[str, str]] = {}
    keys = [name if point.own_model else name[0] for name, point in zip(shown, points, strict=True)]
    for key, point in zip(keys, points, strict=True):
        named.setdefault(key, {})[point.model_folder] = point.name
    for index, (key, point) in enumerate(zip(keys, points, strict=True)):
        if len(named[key]) > 1:
            alone = [*named[key].values()].count(point.name) == 1
            name = point.name if alone else run_of(point.model_folder, named[key])
            shown[index] = (f"{shown[index][0]} ({name})", shown[index][1])
    return shown


def in_order(scores: Sequence[Scores]) -> list[Scores]:
    """As in `tab:duplex-results`: offline first, the grid last, each system's settings from fast to slow."""

    def place(entry: Scores) -> tuple[Any, ...]:
        setting = entry.point.setting
        return list(SHOWN).index(entry.point.system), entry.system, -1 if setting is None else setting

    return sorted(scores, key=place)


def run_of(folder: str, among: Collection[str]) -> str:
    """A run's name from its model folder, `runs/NAME/model`, with folders before it where others have the same name."""
    parts = {each: each.rstrip("/").removesuffix("/model").split("/") for each in among}
    own = parts[folder]
    for count in range(1, len(own)):
        if [other[-count:] for other in parts.values()].count(own[-count:]) == 1:
            return "/".join(own[-count:])
    return "/".join(own)
