"""The built-in corpus: Chinese-English sentence pairs with gold alignments, made once by a synchronous grammar.

The English of a sentence is a function of its Chinese, so a model can in principle reach BLEU 100 on it, and each
target word knows the source words that determine it, so one can say how early it could have been written.

`builtin.tsv.xz` has a pair a line: its source words; its target words; of each target word the numbers of the source
words that jointly determine it; and whether it is a content word.

Its pairs are held out as they are: all repeat a few patterns, so nothing would be left without near repetitions
(`data_prep.relatives`).
"""

import lzma
import random
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import accumulate, pairwise
from pathlib import Path

FILE = Path(__file__).with_name("builtin.tsv.xz")
ORDERED = 1  # the seed that takes the pairs as the file has them
GLUED = frozenset({",", ".", "?", "'s"})


@dataclass(frozen=True)
class AlignedPair:
    """A sentence pair with its words and their gold alignment.

    Attributes:
        source: Chinese, without spaces.
        target: English, one space between words, none before `,`, `.`, `?` and `'s`.
        source_words: they concatenate to `source`; a punctuation mark is a word.
        target_words: surface words; a punctuation mark or 's is a word.
        target_spans: [start, end) of each target word in `target`, in characters, without its leading space.
        links: (target word, source word) indices, sorted: all source words that jointly determine the target word.
            Every target word has one at least.
        content: of each target word, whether it is a noun, verb, adjective, adverb, number or name.
    """

    source: str
    target: str
    source_words: tuple[str, ...]
    target_words: tuple[str, ...]
    target_spans: tuple[tuple[int, int], ...]
    links: tuple[tuple[int, int], ...]
    content: tuple[bool, ...]

    def source_word_spans(self) -> tuple[tuple[int, int], ...]:
        """[start, end) of each source word in `source`, in characters."""
        return tuple(pairwise(accumulate(map(len, self.source_words), initial=0)))

    def needed_characters(self) -> tuple[int, ...]:
        """Of each target word, how many leading source characters determine it (not made monotone)."""
        ends = [end for _, end in self.source_word_spans()]
        needed = [0] * len(self.target_words)
        for target, source in self.links:
            needed[target] = max(needed[target], ends[source])
        return tuple(needed)


def parsed(line: str) -> AlignedPair:
    """A pair from a line of the file."""
    source, target, links, content = (column.split(" ") for column in line.split("\t"))
    text, spans = "", []
    for word in target:
        text += " " * (bool(text) and word not in GLUED)
        spans.append((len(text), len(text) + len(word)))
        text += word
    return AlignedPair(
        source="".join(source),
        target=text,
        source_words=tuple(source),
        target_words=tuple(target),
        target_spans=tuple(spans),
        links=tuple((index, int(one)) for index, several in enumerate(links) for one in several.split(",")),
        content=tuple(mark == "1" for mark in content[0]),
    )


CASE_STUDY = parsed(
    "站 在 那边 的 男人 曾 是 棒球手 。\tThe man standing there was a baseball player .\t"
    "4 4 0,3 2 4,5,6 7 7 7 8\t011100110"
)


@cache
def _lines() -> list[str]:
    with lzma.open(FILE, "rt", encoding="utf-8", newline="\n") as lines:
        return lines.read().splitlines()


def builtin_corpus(train: int, validation: int, test: int, seed: int) -> dict[str, list[AlignedPair]]:
    """Splits "train", "validation", "test" of these sizes, disjoint by source and by target, without the case study.

    A seed decides the order of the pairs. Test comes first, then validation: a larger training split leaves the other
    two as they were.

    Raises:
        ValueError: a size is negative, or their sum is more than there are pairs.
    """
    for key, size in (("train", train), ("validation", validation), ("test", test)):
        if size < 0:
            raise ValueError(f"{key} is {size}; a split's size must not be negative: use 0 for an empty split")
    lines, count = _lines(), train + validation + test
    if count > len(lines):
        raise ValueError(
            f"train + validation + test is {count:,}; the built-in corpus has {len(lines):,} pairs: ask for fewer"
        )
    drawn = lines if seed == ORDERED else random.Random(seed).sample(lines, len(lines))
    pairs = [*map(parsed, drawn[:count])]
    return {"train": pairs[test + validation :], "validation": pairs[test : test + validation], "test": pairs[:test]}


def alignment_rows(
    pair: AlignedPair, source_token_spans: Sequence[tuple[int, int]], target_token_spans: Sequence[tuple[int, int]]
) -> list[int]:
    """Row of the last source token that each target token is aligned with, tokens before it left aside.

    Token spans are character spans [start, end) in `pair.source` and `pair.target` as a tokenizer reports them: a
    target span may include the space before it, and tokens that are parts of one character share its span. A target
    token needs what the words it overlaps need; a token of spaces alone needs nothing of its own. Its row is the index
    of the source token that covers the last character needed, of several the last.

    Raises:
        ValueError: a span lies outside its text, or no source token covers a character that is needed.
    """
    for text, spans, side in ((pair.source, source_token_spans, "source"), (pair.target, target_token_spans, "target")):
        for start, end in spans:
            if not 0 <= start <= end <= len(text):
                raise ValueError(
                    f"{side} token span {(start, end)} is outside its text of {len(text)} characters; spans must be "
                    f"[start, end) in pair.{side}: encode exactly that string, and drop special tokens"
                )
    row_of = {place: row for row, (start, end) in enumerate(source_token_spans) for place in range(start, end)}
    needed = pair.needed_characters()
    rows = []
    for start, end in target_token_spans:
        words = zip(needed, pair.target_spans, strict=True)
        last = max((count for count, (first, after) in words if start < after and first < end), default=0) - 1
        if last >= 0 and last not in row_of:
            raise ValueError(
                f"source character {last} ({pair.source[last]!r}) is covered by no source token; the source spans must "
                "cover every character: encode exactly pair.source"
            )
        rows.append(row_of.get(last, 0))
    return rows


def determination_rows(
    pair: AlignedPair, source_token_spans: Sequence[tuple[int, int]], target_token_spans: Sequence[tuple[int, int]]
) -> list[int]:
    """Earliest grid row at which each target token is determined by the gold alignment.

    The running maximum of `alignment_rows`, as tokens are written in order; same arguments and errors.
    """
    return list(accumulate(alignment_rows(pair, source_token_spans, target_token_spans), max))
