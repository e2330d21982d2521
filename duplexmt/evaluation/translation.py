"""Test sentences through a system: what it reads and writes when, as records for `hypotheses.jsonl`."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from tqdm import tqdm

from ..common.pair import Pair
from ..data.copying import target_ids
from ..data.tokenizer import SourceTokens, source_spans
from ..streaming.engine import Engine
from ..streaming.events import End, Write

Record = dict[str, Any]


@dataclass(frozen=True)
class Sentence:
    """A test sentence as a model's tokenizer sees it."""

    id: int
    source: str
    before: str  # the sentence before, for a model trained with it
    references: list[str]
    context: list[int]  # the sentence before, for a model trained with it
    ids: list[int]
    tokens: list[str]
    token_ends: list[int]
    reference_lengths: list[int]  # in tokens


def tokenise(
    sources: Sequence[str],
    references: Sequence[Sequence[str]],
    tokenizer: Any,
    ids: Iterable[int] | None = None,
    source_tokens: SourceTokens | None = None,
    befores: Sequence[str] | None = None,
    copy_tokens: Sequence[int] = (),
) -> list[Sentence]:
    """The sentences of a test set for one model.

    Args:
        sources, references: texts; one or several references each.
        ids: of the sentences, by default their numbers.
        source_tokens: how source texts become tokens; by default as the tokenizer has it.
        befores: the sentence before each, or an empty text.
        copy_tokens: of the model (`data.copying`), as which references are counted, too.
    """
    how = source_tokens or SourceTokens(tokenizer)
    befores = [""] * len(sources) if befores is None else befores
    each = [(text, source) for source, texts in zip(sources, references, strict=True) for text in texts]
    flat = target_ids(tokenizer, [text for text, _ in each], [source for _, source in each], copy_tokens)
    lengths = iter([len(tokens) for tokens in flat])
    numbers = range(len(sources)) if ids is None else ids
    return [
        Sentence(
            id=number,
            source=source,
            before=before,
            references=list(texts),
            context=context,
            ids=tokens,
            tokens=tokenizer.convert_ids_to_tokens(tokens),
            token_ends=complete_ends(source_spans(tokenizer, source, how.segmentation)),
            reference_lengths=[next(lengths) for _ in texts],
        )
        for number, source, before, texts, context, tokens in zip(
            numbers, sources, befores, references, how.ids(befores), how.ids(sources), strict=True
        )
    ]


def translate(system: Engine, sentences: Sequence[Sentence], tokenizer: Any) -> Iterator[Record]:
    """Translate sentences; yield a record, ready for `hypotheses.jsonl`, as soon as a translation has ended.

    Records hold `id`, `source`, `source_tokens`, `references`, `reference_lengths` (model tokens), `text`, `tokens`,
    `delays` (model tokens read before each token), `emit_probabilities`, `elapsed` (seconds of computation until each
    token), `stopped`, `seconds` and `calls` of the model, and what latency in the field's units needs:
    `source_token_ends` and `token_ends`, in characters; and `before`, the sentence before, where the test set has one.

    Args:
        system: with a tokenizer, as the texts are those of its events.

    Raises:
        ValueError: for an empty source.
    """
    assert system.tokenizer is not None
    writes: dict[int, list[Write]] = {}
    contexts = [sentence.context for sentence in sentences]
    previous = {"contexts": contexts} if any(contexts) else {}
    for event in system.translate([sentence.ids for sentence in sentences], **previous):
        if isinstance(event, Write):
            writes.setdefault(event.stream, []).append(event)
        elif isinstance(event, End):
            yield record(sentences[event.stream], writes.pop(event.stream, []), event, tokenizer)


def record(sentence: Sentence, writes: Sequence[Write], end: End, tokenizer: Any) -> Record:
    """One finished translation as a line of `hypotheses.jsonl`."""
    ends = list(accumulate(len(write.text) for write in writes))
    text = "".join([*(write.text for write in writes), end.text])
    if ends:
        ends[-1] = len(text)
    return {
        "id": sentence.id,
        "source": sentence.source,
        **({"before": sentence.before} if sentence.before else {}),
        "source_tokens": sentence.tokens,
        "source_token_ends": sentence.token_ends,
        "references": sentence.references,
        "reference_lengths": sentence.reference_lengths,
        "text": text,
        "tokens": tokenizer.convert_ids_to_tokens([write.token for write in writes]),
        "token_ends": ends,
        "delays": [write.delay for write in writes],
        "emit_probabilities": [_rounded(write.emit_probability) for write in writes],
        "elapsed": [_rounded(write.elapsed) for write in writes],
        "stopped": end.reason,
        "seconds": _rounded(end.elapsed),
        "calls": end.calls,
    }


def translate_pairs(
    system: Engine, pairs: Sequence[Pair], tokenizer: Any, source_tokens: SourceTokens | None = None
) -> list[Record]:
    """Translate the sources of test pairs, with a progress bar; one record a pair, in order (see `translate`)."""
    sources, references = [pair.source for pair in pairs], [[pair.target] for pair in pairs]
    befores = [pair.before for pair in pairs]
    how: dict[str, Any] = {"source_tokens": source_tokens, "befores": befores, "copy_tokens": system.tokens.copy_tokens}
    sentences = tokenise(sources, references, tokenizer, **how)
    found = tqdm(translate(system, sentences, tokenizer), desc="translating", total=len(pairs))
    return sorted(found, key=lambda record: record["id"])


def complete_ends(spans: Sequence[tuple[int, int]]) -> list[int]:
    """End of the text complete after each token; in `spans` the pieces of one character all have its span."""
    starts = [start for start, _ in spans[1:]] + [spans[-1][1]] if spans else []
    return [min(end, following) for (_, end), following in zip(spans, starts, strict=True)]


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 6)
