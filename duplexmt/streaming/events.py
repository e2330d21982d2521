"""What a simultaneous system does, event by event."""

from collections.abc import Iterator
from dataclasses import dataclass, field


@dataclass(slots=True)
class Read:
    """A WAIT: one more source token becomes visible."""

    stream: int  # index of the sentence
    token: int  # id of the token read; the end token last
    emit_probability: float | None = None  # p(EMIT) of the state left; None where there was or is none
    elapsed: float = field(default=0.0, compare=False)  # seconds of computation since the stream began


@dataclass(slots=True)
class Write:
    """An EMIT: one more target token is written."""

    stream: int
    token: int
    delay: int  # source text tokens read so far: neither prefix nor end token count
    emit_probability: float | None  # None for a system without EMIT head
    elapsed: float = field(default=0.0, compare=False)
    text: str = ""  # that has become certain, where the system knows a tokenizer


@dataclass(slots=True)
class End:
    """The translation is over."""

    stream: int
    reason: str  # "end_token", or the guard that stopped it: "max_target_tokens", "repetition"
    elapsed: float = field(default=0.0, compare=False)
    text: str = ""  # that was still held back
    calls: int = field(default=0, compare=False)  # of the model, for this translation


@dataclass(slots=True)
class Replaced:
    """The source of a live text is another one from a position on; what was written stays."""

    stream: int  # the sentence at hand, or the next one
    tokens: int  # that it had read last, its end token among them, and that are taken back; `Read`s follow anew


Event = Read | Write | End


@dataclass
class Hypothesis:
    """One finished translation: its text, and target text tokens with delay and EMIT probability of each."""

    tokens: list[int] = field(default_factory=list)
    delays: list[int] = field(default_factory=list)
    emit_probabilities: list[float | None] = field(default_factory=list)
    text: str = ""  # where the system knows a tokenizer
    stopped: str = ""


def collect(events: Iterator[Event], count: int) -> list[Hypothesis]:
    """Gather the events of `count` streams into hypotheses, in the order of the sources."""
    hypotheses = [Hypothesis() for _ in range(count)]
    for event in events:
        hypothesis = hypotheses[event.stream]
        if isinstance(event, Write):
            hypothesis.tokens.append(event.token)
            hypothesis.text += event.text
            hypothesis.delays.append(event.delay)
            hypothesis.emit_probabilities.append(event.emit_probability)
        elif isinstance(event, End):
            hypothesis.stopped = event.reason
            hypothesis.text += event.text
    return hypotheses
