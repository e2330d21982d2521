"""Random scripts of a live text whose source changes its mind, beside their slow twin.

    python -m tests.streaming.revisions 1000        # so many scripts, and how many differ

What follows each replacement is compared with a stream opened anew: it is given the tokens of the corrected source,
cut anew from where the sentence before ended, and stands at what had been written. So the twin takes nothing back.
"""

import random
import sys
from collections import Counter
from dataclasses import dataclass, field, replace
from functools import cache

import pytest
import torch

from duplexmt.data.tokenizer import stream_tokens
from duplexmt.policy.decoding_options import Adaptive, EmitRule
from duplexmt.serving.open_text import OpenText
from duplexmt.streaming.drafting import AlignAtt, Hold, LocalAgreement, WholeLsg
from duplexmt.streaming.engine import Engine
from duplexmt.streaming.events import End, Read, Replaced, Write
from duplexmt.streaming.live import Boundary, LiveDriver, LiveEvent
from duplexmt.streaming.live_text import LineEnd, SentenceBegin, SentenceEnd, Settled, TextEnd
from duplexmt.streaming.policies import Confidence, Lsg, Theta, WaitK

from ..helpers import SENTENCES, float64, tiny_backbone, tiny_grid, tiny_prefix, tiny_tokenizer
from .live_texts import live_text

TOKENIZER = tiny_tokenizer(460)
TOKENS = [
    stream_tokens(TOKENIZER), stream_tokens(TOKENIZER, context_tokens=4), stream_tokens(TOKENIZER, copy_tokens=3),
]  # fmt: skip
WORDS = EmitRule(words=torch.arange(len(TOKENIZER)) % 2 == 1)
POLICIES = {
    "theta": (Theta, None), "theta, rows": (Theta, None), "theta, words": (Theta, WORDS),
    "wait-1": (WaitK, 1), "wait-3": (WaitK, 3), "offline": (WaitK, None), "confidence": (Confidence, 0.3),
    "lsg": (Lsg, 0.2), "whole lsg": (WholeLsg, 0.2),
    "la-1": (LocalAgreement, 1), "la-2": (LocalAgreement, 2), "la-3": (LocalAgreement, 3), "hold": (Hold, 1),
    "alignatt": (AlignAtt, 1),
}  # fmt: skip
BOUNDS = Adaptive(k_min=1, k_max=4, alpha=0.9, divergence="paper")
PIECES = [
    *(part for source, _ in SENTENCES for part in (source, source[:4], source[4:])),
    "Tea or coffee? ", "R&amp;D", "用x1给Tom Lee", "a.com", " ", "，", "。", "？”", "\n", "\r\n", "",
]  # fmt: skip


@cache
def model_of(name, seed, anchor, copy_tokens):
    """A tiny model that a policy runs on, and that ends its sentences; it likes copy tokens."""
    shape = {"seed": seed, "vocab_size": len(TOKENIZER), "layers": 1}
    rows = {"attention": "exact", "input_attends_output": False} if name == "theta, rows" else {}
    if POLICIES[name][0] is Theta:
        model = float64(tiny_grid(tiny_backbone(**shape), seed=seed, anchor=anchor, **rows))
    else:
        model = float64(tiny_prefix("multi", anchor=anchor, scale=0.5, **shape))
    with torch.no_grad():
        model.causal_lm.lm_head.weight[[TOKENS[0].end, *copy_tokens]] *= 3
    return model


@dataclass
class State:
    """Of the sentence at hand, by what was told."""

    number: int = 0
    boundary: int = 0
    known: dict | None = None  # of the boundary
    read: int = 0
    written: list = field(default_factory=list)
    reads: list = field(default_factory=list)
    over: bool = False
    begun: bool = False

    def take(self, one):
        """Note what was told."""
        event = one.event if isinstance(one, LiveEvent) else one
        if isinstance(event, Boundary):
            self.__init__(self.number, event.position, event.state)
        elif isinstance(event, Read):
            self.read, self.begun = self.read + 1, True
        elif isinstance(event, Write):
            self.written.append(event.token)
            self.reads.append(self.read)
        elif isinstance(event, End):
            self.over, self.number = True, self.number + 1
        elif isinstance(event, Replaced):
            self.read -= event.tokens
            self.reads = [min(read, self.read) for read in self.reads]


@dataclass
class Cut:
    """A sentence of the twin."""

    context: list
    follows_another: bool
    tokens: list = field(default_factory=list)
    arrived: list = field(default_factory=list)
    position: int | None = None  # where it ended
    known: int = 0  # of the tokens, with its end, before the replacement


class Script:
    """A random text with replacements, and all that came of it.

    Args:
        name: of the policy.
        seed: of all that is random.

    Attributes:
        told: what was told, of each part of the script: the first, and one after each replacement.
        given: texts and None for pauses given in each part, those of its beginning from the beginning of the text.
        done: what happened, counted.
    """

    def __init__(self, name, seed):
        self.name, self.draw = name, random.Random(f"{name} {seed}")
        self.tokens, self.limit = self.draw.choice(TOKENS), self.draw.choice([5, 20])
        self.model = model_of(name, self.draw.randrange(2), self.draw.choice([0, 12]), self.tokens.copy_tokens)
        self.streams = self.draw.choice([1, 2, 8])
        self.open_text = OpenText("text", "any", None, None)
        self.told, self.given, self.done = [[]], [([], [])], Counter()
        self.state = State()

    def engine(self):
        """Another one, of the same kind."""
        kind, setting = POLICIES[self.name]
        bounds = BOUNDS if kind in (Confidence, Lsg) or "lsg" in self.name else None
        return Engine(
            self.model, self.tokens, policy=kind(setting, bounds), theta=0.5 if kind is Theta else None,
            max_target_tokens=6, max_streams=self.streams, max_repeats=3, typical_source_length=7, tokenizer=TOKENIZER,
        )  # fmt: skip

    def live_text(self):
        """An empty one."""
        return live_text(TOKENIZER, max_sentence_tokens=self.limit)

    # --- the script --------------------------------------------------------------------------------------------------

    def run(self):
        """Do all of it."""
        draw = self.draw
        self.begin()
        for _ in range(draw.randint(3, 7)):
            act = draw.choices([self.more, self.replace, self.pause, self.move], [4, 5, 1, 1])[0]
            act()
            self.step(draw.choice([0, 2, 4, 8, 16, 100]))
        self.given[-1][1].append("end")
        self.ask(**self.open_text.end())
        self.step(10_000)
        return self

    def begin(self):
        """With an engine, beside another text."""
        self.driver = LiveDriver(self.engine(), park_after=0.0, text_seconds=self.draw.choice([0.0, float("inf")]))
        other = self.driver.join(self.live_text())
        other.give(other.text.take("".join(self.draw.choices(PIECES, k=3))))
        for message in self.open_text.again():
            self.ask(**message)

    def ask(self, do, name, **values):
        """As the server's engine does."""
        if do == "join":
            self.translator = self.driver.join(self.live_text())
            if values["restore"] is not None:
                self.translator.restore(**values["restore"])
        elif do == "replace":
            return self.translator.replace(values["position"], values["text"])
        else:
            text = self.translator.text
            return self.translator.give({"text": text.take, "flush": text.pause, "end": text.end}[do](*values.values()))

    @property
    def text(self):
        return "".join(filter(None, (one for part in self.given[-1] for one in part)))

    def more(self):
        """More text."""
        new = self.draw.choice(PIECES)[: self.draw.choice([1, 3, 100])]
        if new:
            self.given[-1][1].append(new)
            self.ask(**self.open_text.add(new))

    def pause(self):
        """The speaker pauses."""
        self.given[-1][1].append(None)
        self.ask(**self.open_text.flush())

    def move(self):
        """Another engine goes on."""
        self.translator.close()
        self.begin()
        self.done["moves"] += 1

    def replace(self):
        """Replace the text from a position on."""
        draw, text = self.draw, self.text
        least = self.state.boundary if draw.random() < 0.9 else 0
        position = draw.randint(least, len(text) + (draw.random() < 0.1))
        new = draw.choice([draw.choice(PIECES), draw.choice(PIECES), text[position:], text[position + 1 :]])
        before = self.state.boundary
        if places := self.ask(**self.open_text.replace(position, new)):
            self.open_text.note("refused")
            assert position not in places
            assert before <= places.start <= len(text) == places.stop - 1
            self.done["refused"] += 1
            return
        kept, place = [], 0
        for one in [*self.given[-1][0], *self.given[-1][1]]:
            if one is None and place <= position:
                kept.append(None)
            elif one and place < position:
                kept.append(one[: position - place])
            place += len(one or "")
        self.given.append((kept, [new]))
        self.done["replaced"] += 1
        while self.open_text.replacing is not None:  # nothing may follow before it is answered
            self.step(1)

    def step(self, most):
        """Some steps of the engine."""
        for _ in range(most):
            if not self.driver.goes_on:
                break
            for translator, one in self.driver.step():
                if translator is not self.translator:
                    continue
                if isinstance(one, LiveEvent) and isinstance(one.event, Replaced):
                    self.told.append([])
                self.tell(one)

    def tell(self, one):
        """The server's record of what was told, and ours."""
        if isinstance(one, Boundary):
            self.open_text.note("boundary", one.position, one.state)
        elif isinstance(one, LiveEvent):
            event = one.event
            values = {"read": [], "write": [None, getattr(event, "token", None)], "end": []}
            kind = type(event).__name__.lower()
            self.done["copied"] += isinstance(event, Write) and event.token in self.tokens.copy_tokens
            self.open_text.note(kind, *values.get(kind, [{"tokens": getattr(event, "tokens", 0)}]))
        self.told[-1].append(one)
        self.state.take(one)

    # --- the twin ----------------------------------------------------------------------------------------------------

    def check(self):
        """Compare all that was told with what the twin tells."""
        state = State()
        assert len(self.told) == len(self.given)
        for number, (told, (before, after)) in enumerate(zip(self.told, self.given, strict=True)):
            entries = self.cut(before, after, state)
            if number:
                replaced = told[0].event
                back = self.taken_back(entries, state)
                assert replaced == Replaced(state.number - state.over, back)
                assert told[0].position == len("".join(filter(None, before)))
                self.done["tokens"] += back
                self.done["kept"] += bool(state.written)
                state.take(told[0])
            expected = list(self.expected(entries, replace(state)))
            found = [plain(one) for one in told[bool(number) :] if not isinstance(one, Boundary)]
            if number < len(self.told) - 1:
                expected = expected[: len(found)]
            assert [one[:-1] for one in found] == [one[:-1] for one in expected]
            assert [one[-1] for one in found] == pytest.approx([one[-1] for one in expected], abs=1e-9)
            for one in told[bool(number) :]:
                state.take(one)

    def cut(self, before, after, state):
        """The sentences and ends of a text from the last boundary on; what is known of each before the second part."""
        text, entries, on_line, skip = self.live_text(), [], 0, state.boundary
        if state.known is not None:
            text.restore(state.known["text"])
            on_line = int(state.known["line_has_begun"])
        for is_after, given in ((False, before), (True, after)):
            for one in given:
                if one not in (None, "end"):
                    one, skip = one[skip:], max(0, skip - len(one))
                parts = text.pause() if one is None else text.end() if one == "end" else text.take(one)
                for part in parts:
                    if isinstance(part, SentenceBegin):
                        entries.append(Cut(part.context, on_line > 0))
                        on_line += 1
                    elif isinstance(part, Settled):
                        entries[-1].tokens += part.tokens
                        entries[-1].arrived += [(part.characters, part.position)] * len(part.tokens)
                    elif isinstance(part, SentenceEnd):
                        entries[-1].position = part.position
                    elif part is not None:
                        entries.append(part)
                        on_line = 0
            if not is_after:
                for entry in entries:
                    if isinstance(entry, Cut):
                        entry.known = len(entry.tokens) + (entry.position is not None)
        return entries

    @staticmethod
    def taken_back(entries, state):
        """How many tokens a replacement takes back."""
        known = entries[0].known if entries and isinstance(entries[0], Cut) else 0
        return 0 if state.over else max(0, state.read - known)

    def expected(self, entries, state):
        """What is told of the text from where it has come to."""
        number = state.number - state.over
        for entry in entries:
            if not isinstance(entry, Cut):
                if state.begun:
                    if not state.over:
                        yield "End", number, "no_source", None
                    number += 1
                yield plain(entry)
                state = State()
                continue
            if not state.over:
                if not entry.tokens:
                    return
                stream = self.engine().open(context=entry.context if self.tokens.context else ())
                stream.read(entry.tokens)
                if entry.position is not None:
                    stream.end()
                stream.go_on(state.read, state.written, state.reads)
                read = state.read
                for event in stream.write():
                    between = isinstance(event, Read) and not state.begun and entry.follows_another
                    state.begun = True
                    read += isinstance(event, Read)
                    text = " " if between else getattr(event, "text", "")
                    characters, position = entry.arrived[min(read, len(entry.arrived)) - 1]
                    event.stream = number
                    yield plain(LiveEvent(event, characters, position, None, text))
                if not stream.over:
                    return
            if entry.position is None:
                return
            number, state = number + 1, State()


def plain(one):
    """All of an event that is compared; its p(EMIT) last."""
    if isinstance(one, LineEnd):
        return "LineEnd", one.position, None
    if isinstance(one, TextEnd):
        return "TextEnd", None
    event = one.event
    if isinstance(event, End):
        return "End", event.stream, event.reason, None
    delay = getattr(event, "delay", None)
    where = one.characters, one.position
    return type(event).__name__, event.stream, event.token, delay, one.text, where, event.emit_probability


def main():
    """Run as many scripts as are asked for, by all policies in turn."""
    done, names = Counter(), list(POLICIES)
    for number in range(int(sys.argv[1])):
        which = names[number % len(names)], number // len(names)
        script = Script(*which)
        try:
            script.run().check()
        except AssertionError:
            done["differences"] += 1
            print(*which)
        done.update(script.done)
        done["scripts"] += 1
    print({"differences": 0} | done)


if __name__ == "__main__":
    main()
