"""Back-translation (Sennrich et al. 2016): sentences of the target language, each with a source that a model made.

    python -m duplexmt.translator.back_translation runs/reverse/model english.txt back.zh-en.tsv.gz

The model is an offline one of the other direction. The input has a sentence a line; of a TSV the last column counts.
Each sentence is translated once, but for those of `--known` files. The output has two columns, source TAB target; each
source begins with a mark, so that a model tells it from what people write (Caswell et al. 2019). Left out are sources
in which three characters come twice, or one to four three times in a row, as a model writes that is at its wits' end.
Killed, the same command goes on where it was: `OUTPUT.begun` has what is translated.
"""

import argparse
import gzip
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from tqdm import tqdm

from ..common.files import write_whole
from ..common.text import text_key
from .translator import load

AGAIN = re.compile(r"(.{1,4})\1\1")
GRAM = 3


def last_columns(path: Path) -> Iterator[str]:
    """The last column of each line, with single spaces.

    Raises:
        OSError, ValueError: there is no such file, or it is not in UTF-8.
    """
    with gzip.open(path, "rt", encoding="utf-8") if path.suffix == ".gz" else path.open(encoding="utf-8") as lines:
        for line in lines:
            yield " ".join(line.rstrip("\n").rpartition("\t")[2].split())


def plausible(source: str, target: str, ratio: tuple[float, float], most_words: float) -> bool:
    """Whether a source may have been made of a target.

    Args:
        ratio: least and most letters (characters but for marks) of a source for each word of its target.
        most_words: of a target.
    """
    letters, words = re.sub(r"\W", "", source), len(target.split())
    grams = [letters[begin : begin + GRAM] for begin in range(len(letters) - GRAM + 1)]
    if not letters or len({*grams}) < len(grams) or AGAIN.search(letters):
        return False
    return words <= most_words and ratio[0] <= len(letters) / words <= ratio[1]


def translated(model_folder: str, targets: list[str], begun: Path) -> list[str]:
    """A source for each target, those translated before from the file `begun`, which the others are added to.

    Raises:
        ValueError: of `duplexmt.load`; `begun` is not of these targets.
    """
    text = begun.read_text(encoding="utf-8") if begun.is_file() else ""
    done = [line.split("\t") for line in text[: text.rfind("\n") + 1].splitlines()]
    if [line[-1] for line in done] != targets[: len(done)]:
        raise ValueError(f"{begun} was begun with other sentences: give another output, or remove it")
    sources, rest = [line[0] for line in done], targets[len(done) :]
    made: Iterable[str] = load(model_folder, run_as="offline", cut=False).translate_each(rest) if rest else ()
    write_whole(begun, text[: text.rfind("\n") + 1])  # without a line that was cut off
    with begun.open("a", encoding="utf-8", buffering=1) as file:
        for source, target in zip(tqdm(made, total=len(rest), unit="sentence"), rest, strict=True):
            sources.append(" ".join(source.split()))
            file.write(f"{sources[-1]}\t{target}\n")
    return sources


def back_translate(
    model_folder: str,
    targets: Path,
    output: Path,
    known: Iterable[Path] = (),
    mark: str = "※",
    ratio: tuple[float, float] = (0.0, float("inf")),
    most_words: float = float("inf"),
) -> tuple[int, int]:
    """Write the pairs; see the head of this module, and `plausible`.

    Returns:
        How many sentences were translated, and how many pairs there are.

    Raises:
        OSError, ValueError: those of `last_columns` and `translated`.
    """
    seen = {text_key(text) for path in known for text in last_columns(path)} | {""}
    chosen: dict[str, str] = {}
    for text in last_columns(targets):
        if (key := text_key(text)) not in seen:
            chosen.setdefault(key, text)
    begun = output.with_name(f"{output.name}.begun")
    sources = translated(model_folder, [*chosen.values()], begun)
    pairs = zip(sources, chosen.values(), strict=True)
    kept = [f"{mark}{source}\t{target}\n" for source, target in pairs if plausible(source, target, ratio, most_words)]
    written = "".join(kept).encode()
    write_whole(output, gzip.compress(written, mtime=0) if output.suffix == ".gz" else written)
    begun.unlink()
    return len(chosen), len(kept)


def main() -> None:
    """Translate, and say how many pairs there are."""
    parser = argparse.ArgumentParser(
        prog="python -m duplexmt.translator.back_translation",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("model_folder", help="of an offline model from the target language to the source language")
    parser.add_argument("targets", type=Path, help="text or TSV, plain or .gz")
    parser.add_argument("output", type=Path, help="TSV, plain or .gz")
    parser.add_argument("--known", type=Path, nargs="+", default=[], help="files whose targets are left out")
    parser.add_argument("--mark", default="※", help="before each source (%(default)s)")
    parser.add_argument(
        "--ratio", type=float, nargs=2, default=(0.0, float("inf")), help="least and most letters for each word"
    )
    parser.add_argument("--most-words", type=float, default=float("inf"), help="of a target")
    asked = parser.parse_args()
    try:
        sentences, pairs = back_translate(**vars(asked))
    except (ValueError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
    print(f"{asked.output}: {pairs:,} pairs of {sentences:,} sentences")


if __name__ == "__main__":
    main()
