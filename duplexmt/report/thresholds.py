"""What a grid model makes of a sentence at every threshold θ, for the viewer of the report.

Greedy decoding at θ' does what it does at θ as long as no EMIT on the way had a probability of at most θ': so each
translation says how far it holds, and only where it changes the model is asked again.
"""

from collections.abc import Sequence
from typing import Any

from tqdm import tqdm

from ..analysis.sentence_grid import sentence_grid
from ..data.copying import target_ids
from ..metrics.latency import sentence_latency
from ..model_folder.artifact import ModelFolder
from ..policy.decoding_options import TARGET_TOKENS, recorded_theta
from ..streaming.events import End, Event, Read, Write
from ..streaming.systems import build_system
from .viewer import Viewer, ViewerSentence, Visit, Way

THETAS = (0.0, 0.001, *(step / 100 for step in range(1, 100)), 0.999, 1.0)  # a trained head is often that sure

Translation = tuple[int, int, list[Event]]  # first and last index of the thresholds that make it, and its events


def viewer_of(
    loaded: ModelFolder,
    pairs: Sequence[tuple[str, str, str]],
    *,
    thetas: Sequence[float] = THETAS,
    max_target_tokens: int = TARGET_TOKENS,
) -> Viewer:
    """Translations and grids of sentence pairs at all thresholds, with a progress bar.

    Args:
        loaded: a grid model.
        pairs: label, source and reference of each sentence; the previous sentence of a model with context is left out.
        thetas: thresholds, rising.

    Raises:
        ValueError: for a pair without text, or what the engine and `SentenceGrid` refuse.
    """
    tokenizer, lam = loaded.tokenizer, loaded.info["policy"]["lam"]
    sources = loaded.sources.ids([source for _, source, _ in pairs])
    texts_of = [reference for _, _, reference in pairs], [source for _, source, _ in pairs]
    references = target_ids(tokenizer, *texts_of, loaded.tokens.copy_tokens)
    for (label, _, _), *both in zip(pairs, sources, references, strict=True):
        if not all(both):
            raise ValueError(f"{label}: a sentence of the viewer needs a source and a reference")
    found = translations(loaded, sources, thetas, max_target_tokens)
    sentences = []
    for pair, source, reference, translated in zip(pairs, sources, references, found, strict=True):
        texts = {tuple(reference): 0}
        ways = []
        for translation in translated:
            written = tuple(event.token for event in translation[2] if isinstance(event, Write))
            ways.append(_way(translation, texts.setdefault(written, len(texts)), len(source), len(reference)))
        length = loaded.typical_source_length
        grids = [sentence_grid(loaded, tokenizer, source, text, lam, taken_for=length) for text in texts]
        sentences.append(ViewerSentence(*pair, grids, ways))
    data = loaded.info["data"]
    languages = data["source_language"], data["target_language"]
    return Viewer(thetas, sentences, *languages, theta=recorded_theta(loaded.info))


def translations(
    loaded: ModelFolder,
    sources: Sequence[Sequence[int]],
    thetas: Sequence[float],
    max_target_tokens: int,
    batch_size: int = 16,
) -> list[list[Translation]]:
    """All translations of each source over rising thresholds, every one with the range of thresholds that makes it.

    Args:
        sources: token ids without end token, at least one each.
        thetas: thresholds, rising.
    """
    limits: dict[str, Any] = {"max_target_tokens": max_target_tokens, "batch_size": batch_size}
    engine = build_system(loaded, "grid", thetas[0], tokenizer=loaded.tokenizer, **limits)
    found: list[list[Translation]] = [[] for _ in sources]
    waiting = [(sentence, 0) for sentence in reversed(range(len(sources)))]
    events: dict[int, list[Event]] = {}
    first_of: dict[int, int] = {}
    bar = tqdm(desc="viewer", total=len(sources) * len(thetas))
    while waiting or engine.streams:
        while waiting and len(engine.streams) < engine.max_streams:
            sentence, first = waiting.pop()
            source = sources[sentence]
            stream = engine.open(name=sentence, theta=thetas[first])
            stream.read(source)
            stream.end()
            events[sentence], first_of[sentence] = [], first
        for event in engine.step():
            sentence = event.stream
            events[sentence].append(event)
            if isinstance(event, End):
                first = first_of[sentence]
                last = holds_until(events[sentence], len(sources[sentence]), thetas, first)
                found[sentence].append((first, last, events[sentence]))
                bar.update(last - first + 1)
                if last + 1 < len(thetas):
                    waiting.append((sentence, last + 1))
    bar.close()
    return found


def holds_until(events: Sequence[Event], source_tokens: int, thetas: Sequence[float], first: int) -> int:
    """Index of the highest threshold that makes the same translation as `thetas[first]`.

    Args:
        source_tokens: text tokens of its source.
        thetas: thresholds, rising.
        first: index of the one it was made with.
    """
    reads, least = 0, float("inf")  # least p(EMIT) of an EMIT that θ has decided, not the end of the source
    for event in events:
        if isinstance(event, Read):
            reads += 1
        elif isinstance(event, Write) and reads <= source_tokens:
            assert event.emit_probability is not None
            least = min(least, event.emit_probability)
    if reads <= source_tokens:  # stopped on its way, at a cell whose probability no event tells
        return first
    last = first
    while last + 1 < len(thetas) and thetas[last + 1] < least:
        last += 1
    return last


def _way(translation: Translation, grid: int, source_tokens: int, reference_tokens: int) -> Way:
    first, last, events = translation
    visits: list[Any] = []
    delays = []
    tail = ""
    for event in events:
        if isinstance(event, Read):
            if visits:
                visits[-1][1] = event.emit_probability
            visits.append([[], None])
        elif isinstance(event, Write):
            visits[-1][0].append((event.text, event.emit_probability))
            delays.append(event.delay)
        else:
            tail = event.text
    if tail:  # bytes that make no character were held back to the end: they belong to the last token written
        last_written = next(tokens for tokens, _ in reversed(visits) if tokens)
        text, p_emit = last_written[-1]
        last_written[-1] = (text + tail, p_emit)
    al = sentence_latency([delays], [source_tokens], [reference_tokens])["AL"][0]
    stopped = next(event.reason for event in events if isinstance(event, End))
    return Way(first, last, [Visit(*visit) for visit in visits], stopped, al, grid)
