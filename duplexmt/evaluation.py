"""From a system and test pairs to records (one a sentence), and from records to a row of scores."""

from collections.abc import Iterator, Sequence
from statistics import fmean
from typing import Any

from tqdm import tqdm

from .data.tokenizer import token_ids, token_spans
from .metrics.latency import corpus_latency
from .metrics.quality import corpus_quality
from .metrics.units import count_units, delays_in_characters_and_words, text_unit
from .streaming.events import End, Event, System, collect
from .streaming.text import GrowingText

Record = dict[str, Any]


def translate_pairs(
    system: System, pairs: Sequence[tuple[str, str]], tokenizer: Any, label: str, progress: bool = True
) -> list[Record]:
    """Translate the sources of test pairs; one record a pair, in order, ready for `hypotheses.jsonl`.

    Args:
        system: a simultaneous system.
        pairs: source and reference texts.
        tokenizer: of the model.
        label: shown beside the progress bar.
        progress: whether to show one.

    Returns:
        Records with `id`, `source`, `source_tokens`, `reference`, `text`, `tokens`, `delays` (model tokens read before
        each token), `emit_probabilities`, `stopped`, and what latency in the field's units needs: `source_token_ends`
        and `token_ends`, in characters.

    Raises:
        ValueError: for a pair with an empty source.
    """
    sources = token_ids(tokenizer, [source for source, _ in pairs])
    events = system.translate(sources)
    hypotheses = collect(_with_progress(events, len(pairs), label) if progress else events, len(pairs))
    records = []
    for index, ((source, reference), ids, hypothesis) in enumerate(zip(pairs, sources, hypotheses, strict=True)):
        text, ends = text_and_token_ends(tokenizer, hypothesis.tokens)
        records.append(
            {
                "id": index,
                "source": source,
                "source_tokens": tokenizer.convert_ids_to_tokens(ids),
                "source_token_ends": complete_ends(token_spans(tokenizer, source)),
                "reference": reference,
                "text": text,
                "tokens": tokenizer.convert_ids_to_tokens(hypothesis.tokens),
                "token_ends": ends,
                "delays": hypothesis.delays,
                "emit_probabilities": [None if p is None else round(p, 6) for p in hypothesis.emit_probabilities],
                "stopped": hypothesis.stopped,
            }
        )
    return records


def score(
    records: Sequence[Record], tokenizer: Any, source_language: str, target_language: str
) -> tuple[dict[str, Any], list[str]]:
    """Quality and latency of one system on one test set.

    Latency is in model tokens; columns marked `c/w` are in the field's units (characters in and words out for
    Chinese → English; the languages decide).

    Returns:
        A row of the result table, and the signatures to print below it.
    """
    quality = corpus_quality(
        [record["text"] for record in records], [record["reference"] for record in records], target_language
    )
    reference_tokens = [len(ids) for ids in token_ids(tokenizer, [record["reference"] for record in records])]
    tokens = corpus_latency(
        [record["delays"] for record in records], [len(r["source_tokens"]) for r in records], reference_tokens
    )
    source_unit, target_unit = text_unit(source_language), text_unit(target_language)
    units = corpus_latency(
        [
            delays_in_characters_and_words(
                record["source"],
                record["source_token_ends"],
                record["text"],
                record["token_ends"],
                record["delays"],
                source_unit,
                target_unit,
            )
            for record in records
        ],
        [count_units(record["source"], source_unit) for record in records],
        [count_units(record["reference"], target_unit) for record in records],
    )
    row = {
        "BLEU": quality["bleu"],
        "chrF": quality["chrf"],
        **{name: tokens[name] for name in ("AL", "AL_all", "AP", "FRL")},
        **{f"{name} c/w": units[name] for name in ("AL", "AP", "FRL")},
        "tokens": fmean(len(record["tokens"]) for record in records),
        "reference": fmean(reference_tokens),
        "source": fmean(len(record["source_tokens"]) for record in records),
        "empty": tokens["empty_hypotheses"],
        "cut off": sum(record["stopped"] != "end_token" for record in records),
        "sentences": len(records),
    }
    notes = [
        f"BLEU {quality['bleu_signature']}; chrF {quality['chrf_signature']}",
        f"AL, AL_all, AP and FRL in model tokens, c/w in source {source_unit}s and target {target_unit}s; AL as in "
        "SimulEval, AL_all the mean lag over all tokens (the paper's AL); lengths in model tokens",
    ]
    return row, notes


def text_and_token_ends(tokenizer: Any, tokens: Sequence[int]) -> tuple[str, list[int]]:
    """Text of target tokens, and the length of the text that is complete after each of them."""
    growing, ends = GrowingText(tokenizer), []
    for token in tokens:
        growing.add(token)
        ends.append(len(growing.text))
    growing.finish()
    if ends:
        ends[-1] = len(growing.text)
    return growing.text, ends


def complete_ends(spans: Sequence[tuple[int, int]]) -> list[int]:
    """End of the text complete after each token; in `spans` the pieces of one character all have its span."""
    starts = [start for start, _ in spans[1:]] + [spans[-1][1]] if spans else []
    return [min(end, following) for (_, end), following in zip(spans, starts, strict=True)]


def _with_progress(events: Iterator[Event], count: int, label: str) -> Iterator[Event]:
    with tqdm(total=count, desc=label, unit="sentence") as bar:
        for event in events:
            yield event
            if isinstance(event, End):
                bar.update()
