"""Phrases of the synchronous grammar: a pattern builds the Chinese and the English side of one node together.

A source word is a `Zh` object, compared by identity; an English word is an `En` that carries the `Zh` words which
determine it. However the two sides are then ordered, the gold word alignment is the union of what the words carry.
"""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import TypeVar

from . import lexicon as lex

T = TypeVar("T")

FUNCTION_WORDS = lex.cells(
    """a an the this that these those of to in on at by for from with and but because although if than as not no
    i you he she it we they me him her us them my your his its our their who what why am is are was were be been
    do does did has have had will can cannot should must please excuse , . ? 's every"""
)
BE, WAS = {"1sg": "am", "3sg": "is", "pl": "are"}, {"1sg": "was", "3sg": "was", "pl": "were"}


@dataclass(eq=False, slots=True)
class Zh:
    """One occurrence of a source word."""

    text: str


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


@dataclass
class Node:
    """Both sides of a phrase; of a noun phrase also its agreement (1sg, 3sg, pl).

    `cues` are the source words that tell what the phrase is, for what agrees with it or stands for it; `leads` says
    that it opens with a relative clause, before which no time or place can be fronted unambiguously.
    """

    zh: list[Zh] = field(default_factory=list)
    en: list[En] = field(default_factory=list)
    cues: tuple[Zh, ...] = ()
    agreement: str = "3sg"
    leads: bool = False


def en(text: str, *links: Zh, content: bool | None = None) -> list[En]:
    """English words that share their links; content words are those not in `FUNCTION_WORDS` unless it is said."""
    known = content is not None
    return [En(w, links, bool(content) if known else w.lower() not in FUNCTION_WORDS) for w in text.split()]


def word(zh: str, english: str, agreement: str = "3sg") -> Node:
    """A node of one source word (of none, where it is empty)."""
    words = [Zh(zh)] if zh else []
    return Node(words, en(english, *words), tuple(words), agreement)


def expand(zh: str, english: str, **parts: Node) -> Node:
    """A node by a pattern for each side, words with blanks between them.

    A word of a pattern is a part's name, which begins with a capital, or stands for itself. `<a,b>` behind an English
    word links it to these parts or source words; words of a part keep their own links, too. `a` becomes `an` where it
    must, and so depends on what the next word depends on. The node's cues are its source words.
    """
    words: list[Zh] = []
    cues = {name: part.cues for name, part in parts.items()}
    for text in zh.split():
        if text not in parts:
            cues[text] = (Zh(text),)
        words += parts[text].zh if text in parts else cues[text]
    target: list[En] = []
    for token in english.split():
        text, _, names = token.rstrip(">").partition("<")
        links = tuple(link for name in names.split(",") if name for link in cues[name])
        if text in parts:
            target += [En(w.text, (*w.links, *links), w.content) for w in parts[text].en]
        else:
            target += en(text, *links)
    for index, (first, second) in enumerate(pairwise(target)):
        if first.text == "a":
            text = "an" if second.text[0] in "aeiou" else "a"
            target[index] = En(text, (*first.links, *second.links), content=False)
    return Node(words, target, tuple(words))


def place(entry: lex.Word, at: Zh | None) -> Node:
    """A place's noun and localizer and the English phrase, whose preposition is also due to `at` (在) before them."""
    zh = [Zh(text) for text in (entry.zh, entry.more) if text]
    preposition, _, noun = entry.en.partition(" ")
    return Node(zh, en(preposition, *(zh if at is None else [at, *zh])) + en(noun, zh[0]), tuple(zh))


def be(subject: Node, past: bool, *links: Zh) -> list[En]:
    return en((WAS if past else BE)[subject.agreement], *subject.cues, *links)


@dataclass
class Tense:
    """Tense, aspect and polarity: `mark` holds the source words before the verb and the English auxiliary and adverb.

    `form` is the verb's (past, present, base, participle, ing), `cues` determine it, `le` is the 了 that goes with it.
    """

    kind: str
    form: str
    mark: Node
    time: Node
    cues: tuple[Zh, ...]
    le: list[Zh]


def verb_group(
    verb: lex.Verb, at: Zh, tense: Tense, subject: Node, passive: tuple[Zh, ...]
) -> tuple[list[En], list[En]]:
    """The auxiliary (what a question moves before its subject; may be empty) and the rest of the verb."""
    who, singular = subject.cues, subject.agreement == "3sg"
    marks = tense.mark.en
    auxiliary: list[En] = []
    if marks and marks[0].text in ("be", "have", "do", "want", "plan", "hope"):
        text = BE[subject.agreement] if marks[0].text == "be" else marks[0].text
        first = replace(marks[0], text=lex.s_form(text) if singular and text != "is" else text)
        marks = [replace(first, links=(*who, *first.links)), *marks[1:]]
    if marks and marks[0].text in lex.AUXILIARIES:
        auxiliary, marks = marks[:1], marks[1:]
    finite = () if passive or auxiliary or tense.form in ("base", "participle", "ing") else tense.cues
    if passive and (tense.form == "past" or auxiliary[0].text == "did"):
        cues = () if tense.kind == "le" else tense.cues  # 被 tells the past by itself
        auxiliary = en(WAS[subject.agreement], *who, *passive, *cues)
    elif passive:
        marks = marks + en({"base": "be", "participle": "been", "ing": "being"}[tense.form], *passive)
    forms = {"past": verb.past, "present": lex.s_form(verb.en) if singular else verb.en, "base": verb.en,
             "participle": verb.participle, "ing": verb.ing}  # fmt: skip
    links = (at, *passive, *finite, *(who if tense.form == "present" else ()))
    form = en(verb.participle if passive else forms[tense.form], *links, content=True)
    return auxiliary, [*marks, *form, *en(verb.tail, at)]
