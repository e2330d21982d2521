"""Which sentences of an evaluation to show: the best, the worst, and some drawn at random."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random

from ..evaluation.translation import Record
from ..metrics.latency import sentence_latency
from ..metrics.quality import bleu_tokenizer
from .legible import pieces

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
    written: Mapping[str, Sequence[str]]  # after each of them, by all systems that read the same ones, by name


def sentence_scores(records: Sequence[Record], target_language: str) -> list[tuple[float, float]]:
    """BLEU and chrF of each sentence by itself, 0..100 (sacreBLEU; BLEU with the orders a short sentence has)."""
    from sacrebleu.metrics import BLEU, CHRF

    metrics = BLEU(tokenize=bleu_tokenizer(target_language), effective_order=True), CHRF()
    texts = [(record["text"], record["references"]) for record in records]
    bleu, chrf = ([metric.sentence_score(*text).score for text in texts] for metric in metrics)
    return list(zip(bleu, chrf, strict=True))


def choose(scores: Sequence[tuple[float, float]], each: int) -> list[tuple[str, int]]:
    """Indices of the best, the worst and of random sentences, by chrF and then BLEU; none is there twice.

    Of fewer than three times as many sentences as asked for, a group gets a third at most, the random ones the rest.

    Args:
        scores: BLEU and chrF of each sentence.
        each: sentences a group, at least 1.
    """
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
        target_language: decides how BLEU splits words.
        each: see `choose`.
        systems: records of all systems at all settings, this one too, by name and sentence.

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
                written={
                    name: written(len(tokens), other["text"], other["token_ends"], other["delays"])
                    for name, other in others.items()
                    if other["source_tokens"] == tokens
                },
            )
        )
    return found


def written(source_tokens: int, text: str, ends: Sequence[int], delays: Sequence[int]) -> list[str]:
    """The part of a text that was written after each source token, before the next was read.

    Args:
        source_tokens: without end token; what was written after that stands at the last one.
        ends: characters complete after each token of it.
        delays: source tokens read before each token of it.

    Raises:
        ValueError: for another number of delays than of ends.
    """
    if len(ends) != len(delays):
        raise ValueError(f"a text of {len(ends)} tokens has {len(delays)} delays: its record is damaged")
    parts, start = [""] * source_tokens, 0
    for delay, end in zip(delays, ends, strict=True):
        parts[max(1, min(delay, source_tokens)) - 1] += text[start:end]
        start = end
    return parts
