"""Back-translation (Sennrich et al. 2016): sentences of the target language, each with a source that a model made.

    python -m duplexmt.translator.back_translation runs/reverse/model english.txt back.zh-en.tsv.gz

The model is an offline one of the other direction. The input has a sentence a line; of a TSV the last column counts.
Each sentence is translated once, but for those of `--known` files. The output has two columns, source TAB target; each
source begins with a mark, so that a model tells it from what people write (Caswell et al. 2019). Left out are sources
in which three characters come twice, or one to four three times in a row, as a model writes that is at its wits' end.
Killed, the same command goes on where it was: `OUTPUT.begun` has the model's fingerprint and what is translated.
"""

import gzip
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from tqdm import tqdm

from ..common.command import command_parser, one_line_errors
from ..common.files import write_whole
from ..common.streams import chunks, text
from ..common.text import text_key
from ..model_folder.hugging_face import model_at
from ..model_folder.manifest import checksum, read_manifest

AGAIN = re.compile(r"(.{1,4})\1\1")
GRAM = 3


def last_columns(path: Path) -> Iterator[str]:
    """The last column of each line, with single spaces.

    Raises:
        OSError, ValueError: there is no such file, or it is not in UTF-8.
    """
    lines = (line for piece in text(chunks([path]), str(path)) for line in piece[:-1].split(b"\n"))
    for number, line in enumerate(lines, 1):
        try:
            yield " ".join(line.decode().rpartition("\t")[2].split())
        except UnicodeDecodeError as error:
            raise ValueError(f"{path}, line {number}: not UTF-8 ({error}); correct or remove it") from error


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


def fingerprint(model_folder: str) -> str:
    """Of a model's files. ValueError where it is not whole."""
    info = read_manifest(model_at(model_folder))
    return checksum({name: info.get(name) for name in ("digests", "backbone")})


def translated(model_folder: str, targets: list[str], begun: Path) -> list[str]:
    """A source for each target, those translated before from the file `begun`, which the others are added to.

    Raises:
        ValueError: of `duplexmt.load`; `begun` is not of this model, or not of these targets.
    """
    from .translator import load

    head = f"model {fingerprint(model_folder)}"
    whole, _, _ = begun.read_text(encoding="utf-8").rpartition("\n") if begun.is_file() else ("", "", "")
    first, *rows = whole.split("\n")  # without a line that was cut off
    done = [row.split("\t") for row in rows]
    if first not in ("", head):
        raise ValueError(f"{begun} was begun with another model: give that one, or another output, or remove the file")
    if [row[-1] for row in done] != targets[: len(done)]:
        raise ValueError(f"{begun} was begun with other sentences: give another output, or remove it")
    sources, rest = [row[0] for row in done], targets[len(done) :]
    made: Iterable[str] = load(model_folder, run_as="offline", cut=False).translate_each(rest) if rest else ()
    write_whole(begun, "".join(f"{line}\n" for line in (head, *rows)))
    with begun.open("a", encoding="utf-8", buffering=1) as file:
        for source, target in zip(tqdm(made, total=len(rest), unit="sentence"), rest, strict=True):
            sources.append(" ".join(source.split()))
            file.write(f"{sources[-1]}\t{target}\n")
    return sources


def check(inputs: Iterable[Path], output: Path, begun: Path, ratio: tuple[float, float], most_words: float) -> None:
    """Refuse (ValueError), before anything is translated, what would lose an input or all that is made."""
    if not output.parent.is_dir() or output.is_dir():
        raise ValueError(
            f"{output}: must be a file in a folder that exists; make {output.parent}, or give another name"
        )
    if output.suffix in (".xz", ".zst"):
        raise ValueError(f"{output}: must be a plain file or end in .gz")
    for path in inputs:
        if not path.exists() or path.is_dir():
            raise ValueError(f"{path}: there is no such file")
        if any(made.exists() and path.exists() and made.samefile(path) for made in (output, begun)):
            raise ValueError(f"{output}: writing it would overwrite the input {path}; give another output")
    if not 0 <= ratio[0] <= ratio[1]:
        raise ValueError(f"--ratio {ratio[0]:g} {ratio[1]:g}: must be the least and then the most, from 0 up")
    if not most_words >= 1:
        raise ValueError(f"--most-words {most_words:g}: must be at least 1")


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
        OSError, ValueError: those of `check`, `last_columns` and `translated`; there is nothing to translate, or all
            of it was left out.
    """
    known, begun = [*known], output.with_name(f"{output.name}.begun")
    check([targets, *known], output, begun, ratio, most_words)
    seen = {text_key(line) for path in known for line in last_columns(path)} | {""}
    chosen: dict[str, str] = {}
    for line in last_columns(targets):
        if (key := text_key(line)) not in seen:
            chosen.setdefault(key, line)
    if not chosen:
        raise ValueError(f"{targets}: has no sentence but for those of --known; give one that has")
    sources = translated(model_folder, [*chosen.values()], begun)
    pairs = zip(sources, chosen.values(), strict=True)
    kept = [f"{mark}{source}\t{target}\n" for source, target in pairs if plausible(source, target, ratio, most_words)]
    if not kept:
        raise ValueError(
            f"no pairs: all {len(chosen):,} were left out by their form (repeats, --ratio {ratio[0]:g} {ratio[1]:g}, "
            f"--most-words {most_words:g}); {begun} has them: run again with wider limits, or remove it"
        )
    written = "".join(kept).encode()
    write_whole(output, gzip.compress(written, mtime=0) if output.suffix == ".gz" else written)
    begun.unlink()
    return len(chosen), len(kept)


def main() -> None:
    """Translate, and say how many pairs there are."""
    parser = command_parser(__doc__, "python -m duplexmt.translator.back_translation")
    parser.add_argument("model_folder", help="of an offline model from the target language to the source language")
    parser.add_argument("targets", type=Path, help="text or TSV, plain or .gz, .xz or .zst")
    parser.add_argument("output", type=Path, help="TSV, plain or .gz")
    parser.add_argument("--known", type=Path, nargs="+", default=[], help="files whose targets are left out")
    parser.add_argument("--mark", default="※", help="before each source (%(default)s)")
    parser.add_argument(
        "--ratio", type=float, nargs=2, default=(0.0, float("inf")), help="least and most letters for each word"
    )
    parser.add_argument("--most-words", type=float, default=float("inf"), help="of a target")
    asked = parser.parse_args()
    with one_line_errors():
        sentences, pairs = back_translate(**vars(asked))
    print(f"{asked.output}: {pairs:,} pairs of {sentences:,} sentences")


if __name__ == "__main__":
    main()
