"""The built-in corpus: Chinese-English sentence pairs from a synchronous grammar of our own, with gold alignments.

`lexicon` holds the words, `phrases` the two-sided nodes, `nominals` noun phrases, `clauses` clauses, `rules` the
constructions. The English of a sentence is a function of its Chinese, so a model can in principle reach BLEU 100 on it,
and each target word knows the source words that determine it, so one can say how early it could have been written.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

from .phrases import Chooser, Node
from .rules import case_study, derive

SHORTEST, LONGEST = 4, 20  # source words, the final mark included
MOST = 1_000_000  # sentences asked for at once
PATIENCE = 10_000  # draws in a row that may bring nothing new
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


def _pair(sentence: Node) -> AlignedPair:
    """Writes a sentence down as strings, spans and indices."""
    at = {id(word): index for index, word in enumerate(sentence.zh)}
    target, spans, links = "", [], []
    for index, word in enumerate(sentence.en):
        if target and word.text not in GLUED:
            target += " "
        spans.append((len(target), len(target) + len(word.text)))
        target += word.text
        links += sorted({(index, at[id(source)]) for source in word.links})
    words = tuple(word.text for word in sentence.zh)
    return AlignedPair(
        source="".join(words),
        target=target,
        source_words=words,
        target_words=tuple(word.text for word in sentence.en),
        target_spans=tuple(spans),
        links=tuple(links),
        content=tuple(word.content for word in sentence.en),
    )


CASE_STUDY = _pair(case_study())


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


def derivations(seed: int) -> Iterator[tuple[AlignedPair, str]]:
    """Endless draws of a pair of admissible length and the name of its construction; repeats occur."""
    ch = Chooser(seed)
    while True:
        sentence, construction = derive(ch)
        if SHORTEST <= len(sentence.zh) <= LONGEST:
            yield _pair(sentence), construction


def builtin_corpus(train: int, validation: int, test: int, seed: int) -> dict[str, list[AlignedPair]]:
    """Splits "train", "validation", "test" of these sizes, disjoint by source and by target, without the case study.

    The same seed gives the same pairs in every process and on every platform. Test comes first from the stream, then
    validation: a larger training split leaves the other two as they were.

    Raises:
        ValueError: a size is negative, or their sum above `MOST` or more than the grammar yields.
    """
    for key, size in (("train", train), ("validation", validation), ("test", test)):
        if size < 0:
            raise ValueError(f"{key} is {size}; a split's size must not be negative: use 0 for an empty split")
    count = train + validation + test
    if count > MOST:
        raise ValueError(f"train + validation + test is {count}; it must not exceed {MOST}: ask for fewer sentences")
    sources, targets = {CASE_STUDY.source}, {CASE_STUDY.target}
    pairs: list[AlignedPair] = []
    stream, stale = derivations(seed), 0
    while len(pairs) < count:
        pair, _ = next(stream)
        if pair.source not in sources and pair.target not in targets:
            sources.add(pair.source)
            targets.add(pair.target)
            pairs.append(pair)
            stale = 0
        elif (stale := stale + 1) >= PATIENCE:
            raise ValueError(
                f"train + validation + test is {count}, but {PATIENCE} draws in a row brought nothing new after "
                f"{len(pairs)} distinct sentences: ask for at most {len(pairs)}"
            )
    return {"train": pairs[test + validation :], "validation": pairs[test : test + validation], "test": pairs[:test]}
