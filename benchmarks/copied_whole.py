"""What a translation has to copy, kept whole: numbers, URLs, e-mail addresses and Latin names in 200 Chinese sentences.

    python benchmarks/copied_whole.py models/zh-en
    python benchmarks/copied_whole.py models/zh-en --theta 0.3 --show

A sentence counts where all it has to copy stands in the translation, letter by letter, and not as a part of more. The
sentences, in copied_whole.tsv, are 40, written apart from those that `data.copies` trains on, each with five fillers.
The last line is one JSON object.
"""

import json
import re
import sys
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1]))  # works without an installed package, too

import duplexmt
from duplexmt.common.command import command_parser
from duplexmt.data.copying import LATIN

SIGNS = f"{LATIN}0-9_@/"


class Sentence(NamedTuple):
    """A sentence, its kind, and what of it has to be copied."""

    kind: str
    text: str
    copied: list[str]


def sentences() -> list[Sentence]:
    """All 200: fifty each with numbers, URLs, e-mail addresses and Latin names."""
    lines = Path(__file__).with_suffix(".tsv").read_text(encoding="utf-8").splitlines()
    return [Sentence(kind, text, copied) for kind, text, *copied in (line.split("\t") for line in lines)]


def kept(translation: str, copied: str) -> bool:
    """Whether a translation has it whole; "15" is not in "2015", nor "a.com" in "a.community"."""
    alone = rf"(?<![{SIGNS}.,:-]){re.escape(copied)}(?![{SIGNS}]|[.,:-][{LATIN}0-9])"
    return re.search(alone, translation) is not None


def kept_whole(found: list[Sentence], translations: list[str]) -> dict[str, float]:
    """Share of the sentences that keep all they have to, in %: by kind, and of all."""
    whole: dict[str, list[bool]] = {}
    for each, translation in zip(found, translations, strict=True):
        for kind in (each.kind, "all"):
            whole.setdefault(kind, []).append(all(kept(translation, copied) for copied in each.copied))
    return {kind: 100 * sum(own) / len(own) for kind, own in whole.items()}


def main() -> None:
    """Translate and count."""
    parser = command_parser(__doc__)
    parser.add_argument("model_folder", nargs="?", default="models/zh-en", help="of a Chinese–English model")
    parser.add_argument("--theta", type=float, help="EMIT threshold (default: the model folder's own)")
    parser.add_argument("--show", action="store_true", help="also print what is lost, with its translation")
    asked = parser.parse_args()
    found = sentences()
    try:
        translator = duplexmt.load(asked.model_folder)
        translations = translator.translate([each.text for each in found], asked.theta)
    except (ValueError, OSError) as error:
        parser.error(str(error))
    for each, translation in zip(found, translations, strict=True):
        if asked.show and not all(kept(translation, copied) for copied in each.copied):
            print(f"{each.text}\t{translation}")
    shares = kept_whole(found, translations)
    for kind, share in shares.items():
        print(f"{kind:8} {share:5.1f} %")
    theta = translator.theta if asked.theta is None else asked.theta
    print(json.dumps({"model_folder": asked.model_folder, "theta": theta, **shares}))


if __name__ == "__main__":
    main()
