r"""Sentences to show a model with, chosen by a rule and not by hand, and written into its folder.

    python evaluate.py model_folder=models/zh-en data=tatoeba 'policy.theta=[0.3,0.4,0.5,0.7,0.9]' \
        hydra.run.dir=runs/zh-en
    python -m duplexmt.evaluation.samples runs/zh-en models/zh-en

Of the sentences which an evaluation of the model has translated, those that are right at each of its settings,
word for word as a reference, the longest first; none that begins as another one does, or has many words
of one, and none that has a relative in the model's training, which the evaluation has looked for. The live page has
them typed, and says how they were chosen.
"""

from collections.abc import Iterable
from itertools import compress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..common.command import command_parser, one_line_errors
from ..metrics.units import Unit, split_units, text_unit
from ..model_folder.manifest import read_manifest, write_manifest
from ..model_folder.pack import check_evaluated

if TYPE_CHECKING:
    from .translation import Record

COUNT = 6
SHARED = 1 / 4  # of a sentence's words, at most, that may be in one chosen before


def record_samples(evaluation: Path, model_folder: Path) -> dict[str, Any]:
    """Choose samples by an evaluation, and write them into a model folder's manifest.

    Raises:
        ValueError: for a folder that is none, an evaluation of another model, one that does not know what is new to
            it, and one in which no sentence is right at each setting.
    """
    from .alike import BANDS, SHOWN, read_likeness
    from .results import of_one_test_set
    from .scores import name_points

    info = read_manifest(model_folder)
    check_evaluated(evaluation, model_folder, info)
    (decoding,) = of_one_test_set([evaluation])
    known = read_likeness(evaluation, decoding.test["sentences"]).values()
    if not known or None in known:
        raise ValueError(
            f"{evaluation} does not know which sentences the model was trained on: evaluate it where all its training "
            "pairs are, without check_overlap=false"
        )
    likeness = [max(values) for values in zip(*known, strict=True)]
    records = [decoding.sorted(key) for key in decoding.points]
    fresh = map(BANDS[SHOWN[0]], likeness)  # without a relative
    unseen = [*compress(zip(*records, strict=True), fresh)]
    right = [same for same in unseen if all(map(is_right, same))]
    if not right:
        raise ValueError(f"{evaluation}: no sentence is translated as its reference at each setting: no samples")
    settings = [setting for _, setting in name_points([*decoding.points.values()])]
    unit = text_unit(decoding.test["target_language"])
    samples = {
        "chosen": (
            f"Chosen by a rule: of {len(unseen):,} sentences that the model had not seen, {len(right)} "
            f"come out word for word as a person had translated them, at each of {', '.join(settings)}. These are the "
            "longest. Many others come out wrong."
        ),
        "sentences": [record["source"] for record in varied((same[0] for same in right), unit)],
    }
    write_manifest(model_folder, info | {"samples": samples})
    return samples


def is_right(record: "Record") -> bool:
    """Whether a translation is one of its references."""
    return record["text"] in record["references"]


def varied(records: Iterable["Record"], unit: Unit) -> list["Record"]:
    """The longest ones that have little in common."""
    chosen: list[tuple[Record, list[str]]] = []
    cut = [(record, split_units(record["text"].lower(), unit)) for record in records]
    for record, words in sorted(cut, key=lambda one: (-len(one[1]), one[0]["id"])):
        shared = max((len({*words} & {*other}) for _, other in chosen), default=0)
        if shared <= SHARED * len(words) and words[0] not in {other[0] for _, other in chosen}:
            chosen.append((record, words))
    return [record for record, _ in chosen[:COUNT]]


def main() -> None:
    """Record them."""
    parser = command_parser(__doc__, "python -m duplexmt.evaluation.samples")
    parser.add_argument("evaluation", type=Path, help="folder of a finished evaluation of the model")
    parser.add_argument("model_folder", type=Path, help="where they are written into")
    arguments = parser.parse_args()
    with one_line_errors():
        samples = record_samples(arguments.evaluation, arguments.model_folder)
    print("\n".join([samples["chosen"], *samples["sentences"]]))


if __name__ == "__main__":
    main()
