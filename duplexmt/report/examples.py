"""Which sentences of an evaluation to show: the best, the worst, and some drawn at random."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from random import Random
from typing import Any

from ..metrics.latency import sentence_latency
from ..metrics.quality import bleu_tokenizer
from .legible import pieces

Record = Mapping[str, Any]  # a line of an evaluation's hypotheses.jsonl

GROUPS = ("best", "worst", "random")


@dataclass(frozen=True)
class Example:
    """One translated sentence."""

    group: str  # best | worst | random
    record: Record
    bleu: float  # of the sentence, 0..100
    chrf: float
    al: float | None  # in model tokens; None for an empty translation
    source_tokens: Sequence[str]
    steps: Sequence[tuple[str, str]]  # each source token, and what was written before the next was read
    staircases: Mapping[str, Sequence[int]]  # delays of all systems that read the same source tokens, by name


def sentence_scores(records: Sequence[Record], target_language: str) -> list[tuple[float, float]]:
    """BLEU and chrF of each sentence by itself, 0..100 (sacreBLEU; BLEU with the orders a short sentence has)."""
    from sacrebleu.metrics import BLEU, CHRF

    metrics = BLEU(tokenize=bleu_tokenizer(target_language), effective_order=True), CHRF()
    texts = [(record["text"], record["references"]) for record in records]
    bleu, chrf = ([metric.sentence_score(*text).score for text in texts] for metric in metrics)
    return list(zip(bleu, chrf, strict=True))


def choose(scores: Sequence[tuple[float, float]], each: int) -> list[tuple[str, int]]:
    """Indices of the best, the worst and of random sentences, by chrF and then BLEU; none is there twice.

    Of fewer than three times as many sentences as asked for, every group gets a third.

    Args:
        scores: BLEU and chrF of each sentence.
        each: sentences a group.

    Raises:
        ValueError: for `each` below 1.
    """
    if each < 1:
        raise ValueError(f"examples={each}: each group needs at least 1 sentence")
    by_score = sorted(range(len(scores)), key=lambda i: (-scores[i][1], -scores[i][0], i))
    size = min(each, -(-len(scores) // 3))
    best = by_score[:size]
    worst = by_score[size:][::-1][:size]
    others = by_score[len(best) : len(scores) - len(worst)]
    random = Random(1).sample(others, min(size, len(others)))
    return [(group, i) for group, chosen in zip(GROUPS, (best, worst, random), strict=True) for i in chosen]


def examples(
    records: Sequence[Record], target_language: str, each: int, *, systems: Mapping[str, Mapping[int, Record]]
) -> list[Example]:
    """The best, worst and random translations of one system at one setting, `each` of them.

    Args:
        records: of that system at that setting.
        target_language: decides how BLEU splits words.
        each: see `choose`.
        systems: records of all systems at all settings by name and sentence, for the staircases.

    Raises:
        ValueError: for a damaged record.
    """
    scores = sentence_scores(records, target_language)
    found = []
    for group, i in choose(scores, each):
        record, (bleu, chrf) = records[i], scores[i]
        tokens, delays = record["source_tokens"], record["delays"]
        source = pieces(record["source"], record["source_token_ends"], tokens)
        others = {name: of[record["id"]] for name, of in systems.items() if record["id"] in of}
        found.append(
            Example(
                group=group,
                record=record,
                bleu=bleu,
                chrf=chrf,
                al=sentence_latency([delays], [len(tokens)], [record["reference_lengths"][0]])["AL"][0],
                source_tokens=source,
                steps=steps(source, record["text"], record["token_ends"], delays),
                staircases={name: r["delays"] for name, r in others.items() if r["source_tokens"] == tokens},
            )
        )
    return found


def steps(source: Sequence[str], text: str, ends: Sequence[int], delays: Sequence[int]) -> list[tuple[str, str]]:
    """Each source token, and the part of the text that was written before the next was read.

    Args:
        source: source tokens, without end token.
        text: what was written.
        ends: characters complete after each token of it.
        delays: source tokens read before each token of it.

    Raises:
        ValueError: for another number of delays than of ends.
    """
    if len(ends) != len(delays):
        raise ValueError(f"a text of {len(ends)} tokens has {len(delays)} delays: its record is damaged")
    written = [""] * len(source)
    start = 0
    for delay, group in groupby(zip(delays, ends, strict=True), key=lambda pair: pair[0]):
        end = list(group)[-1][1]
        written[max(1, min(delay, len(source))) - 1] += text[start:end]
        start = end
    return list(zip(source, written, strict=True))
