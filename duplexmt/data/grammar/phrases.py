"""Phrases of the synchronous grammar: every rule builds the Chinese and the English side of one node together.

A source word is a `Zh` object, compared by identity; an English word is an `En` that carries the `Zh` words which
determine it. However the two sides are then ordered, the gold word alignment is the union of what the words carry.
"""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import TypeVar

from . import lexicon as lex
from .lexicon import Noun, Place, Verb

T = TypeVar("T")

FUNCTION_WORDS = lex.cells(
    """a an the this that these those of to in on at by for from with and but because although if than as not no
    i you he she it we they me him her us them my your his its our their who what why am is are was were be been
    do does did has have had will can cannot should must please excuse , . ? 's every"""
)


class Zh:
    """One occurrence of a source word."""

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text


@dataclass(frozen=True, slots=True)
class En:
    """One target word, the source words that determine it, and whether it is a content word."""

    text: str
    links: tuple[Zh, ...]
    content: bool


class Chooser:
    """The grammar's only source of chance: draws from `random()` alone, which every platform repeats alike."""

    def __init__(self, seed: int) -> None:
        self._rng = random.Random(seed)

    def pick(self, options: Sequence[T]) -> T:
        """One option, each as likely as any other."""
        return options[int(self._rng.random() * len(options))]

    def chance(self, probability: float) -> bool:
        return self._rng.random() < probability

    def weigh(self, weights: Mapping[str, float]) -> str:
        """One key, as likely as its weight (the weights need not sum to 1)."""
        point = self._rng.random() * sum(weights.values())
        for key, weight in weights.items():
            point -= weight
            if point < 0:
                return key
        return key


def en(text: str, *links: Zh, content: bool | None = None) -> list[En]:
    """English words that share their links; content words are those not in `FUNCTION_WORDS` unless it is said."""
    known = content is not None
    return [En(w, links, bool(content) if known else w.lower() not in FUNCTION_WORDS) for w in text.split()]


@dataclass
class NP:
    """A noun phrase: both sides, its agreement (1sg, 3sg, pl) and the source words that tell it.

    `leads` says that it opens with a relative clause, before which no time or place can be fronted unambiguously.
    """

    zh: list[Zh]
    en: list[En]
    agreement: str
    cues: tuple[Zh, ...]
    gender: str = ""
    leads: bool = False
    relative: bool = False


@dataclass(frozen=True)
class Marking:
    """Tense, aspect and polarity of a clause: `zh` stands before the verb, `cues` determine the English form."""

    kind: str
    zh: tuple[Zh, ...] = ()
    cues: tuple[Zh, ...] = ()
    modal: str = ""


@dataclass
class VP:
    """A verb phrase: source words before and after the verb, English complement, and what adjuncts fit it."""

    verb: Verb
    word: Zh
    pre: list[Zh] = field(default_factory=list)
    post: list[Zh] = field(default_factory=list)
    complement: list[En] = field(default_factory=list)
    le: str = ""
    passive: tuple[Zh, ...] = ()
    places: frozenset[str] = frozenset()
    manners: frozenset[str] = frozenset()
    tags: tuple[str, ...] = ()


@cache
def nouns(tags: frozenset[str]) -> tuple[Noun, ...]:
    return tuple(noun for noun in lex.NOUNS if noun.tags & tags)


@cache
def places(tags: frozenset[str]) -> tuple[Place, ...]:
    return tuple(place for place in (*lex.PLACES, *lex.SURFACES) if place.tags & tags)


def place_words(place: Place, at: Zh | None) -> tuple[list[Zh], list[En]]:
    """A place's noun and localizer (without `at`, the 在 before them) and the English phrase."""
    noun = Zh(place.zh)
    zh = [noun, Zh(place.localizer)] if place.localizer else [noun]
    links = zh if at is None else [at, *zh]
    return zh, en(place.preposition, *links) + en(place.en, noun)


def in_place(place: Place) -> tuple[list[Zh], list[En]]:
    at = Zh("在")
    zh, english = place_words(place, at)
    return [at, *zh], english


def to_place(place: Place, motion: Zh) -> tuple[list[Zh], list[En]]:
    """The place as goal of a motion verb, whose own tail is the preposition."""
    noun = Zh(place.zh)
    return [noun], en(place.en, noun)


BE = {"1sg": ("am", "was"), "3sg": ("is", "was"), "pl": ("are", "were")}


def be(subject: NP, past: bool, *links: Zh) -> list[En]:
    return en(BE[subject.agreement][past], *subject.cues, *links)


def verb_group(
    verb: Verb, word: Zh, marking: Marking, subject: NP, passive: tuple[Zh, ...] = (), invert: bool = False
) -> tuple[list[En], list[En]]:
    """The auxiliary (what a question moves before its subject; may be empty) and the rest of the verb."""
    kind, cues, who = marking.kind, marking.cues, subject.cues
    singular = subject.agreement == "3sg"
    tail = en(verb.tail, word)

    def form(text: str, *links: Zh) -> list[En]:
        return [*en(text, word, *passive, *links, content=True), *tail]

    negation = en("not", *cues) if kind.endswith("not") else []
    if kind == "modal":
        first, *rest = en(marking.modal, *cues)
        if passive:
            return [first], [*rest, *en("be", *passive), *form(verb.participle)]
        return [first], [*rest, *form(verb.base)]
    if kind == "perfect":
        already = en("already", *cues) + (en("been", *passive) if passive else [])
        return en("has" if singular else "have", *who, *cues), [*already, *form(verb.participle)]
    if kind == "progressive":
        return be(subject, False, *cues), form(verb.ing, *cues)
    if passive:
        return be(subject, True, *passive, *cues), [*negation, *form(verb.participle)]
    if kind == "past" and not invert:
        return [], form(verb.past, *cues)
    if kind == "once":
        return [], [*en("once", *cues, word), *form(verb.past, *cues)]
    if kind in ("past", "past-not"):
        return en("did", *cues), [*negation, *form(verb.base)]
    if kind == "present" and not invert:
        return [], form(verb.third if singular else verb.base, *who, *cues)
    return en("does" if singular else "do", *who, *cues, *([word] if negation else [])), [*negation, *form(verb.base)]


Relative = Callable[[Zh, str], tuple[list[Zh], list[En]]]
