"""The grammar's constructions with their weights, and the derivation of a sentence."""

from collections.abc import Callable
from dataclasses import dataclass

from . import compound, simple
from . import lexicon as lex
from .nominals import posture_relative
from .nounphrases import noun_phrase
from .phrases import NP, Chooser, En, Zh, en
from .simple import Sides


@dataclass(frozen=True)
class Derivation:
    """A sentence as the grammar derives it: source words, target words, and the name of its construction."""

    zh: tuple[Zh, ...]
    en: tuple[En, ...]
    construction: str


# Weight in percent, and whether it ends in a question mark.
CONSTRUCTIONS: dict[str, tuple[float, Callable[[Chooser], Sides], bool]] = {
    "statement": (27, simple.statement, False),
    "wish": (4, simple.wish, False),
    "stative": (5, simple.stative, False),
    "animals": (3, simple.animals, False),
    "ba": (9, simple.ba_sentence, False),
    "bei": (8, simple.bei_sentence, False),
    "identity": (4, simple.identity, False),
    "formerly": (3, simple.formerly, False),
    "quality": (5, simple.quality, False),
    "comparison": (4, simple.comparison, False),
    "existence": (3.5, simple.existence, False),
    "location": (2, simple.location, False),
    "weather": (0.5, simple.weather, False),
    "because": (4, compound.because, False),
    "although": (2, compound.although, False),
    "but": (3, compound.but, False),
    "condition": (2, compound.condition, False),
    "opinion": (4, compound.opinion, False),
    "who": (3, compound.who_question, True),
    "why": (2, compound.why_question, True),
    "polite": (1, compound.polite_question, True),
    "yes-no": (1, compound.yes_no_question, True),
    "what": (1, compound.what_question, True),
    "request": (2, compound.request, False),
}
WEIGHTS = {key: weight for key, (weight, _, _) in CONSTRUCTIONS.items()}


def finish(sides: Sides, construction: str) -> Derivation:
    """Adds the final mark and the capital."""
    asks = CONSTRUCTIONS[construction][2]
    mark = Zh("？" if asks else "。")
    zh, english = [*sides[0], mark], [*sides[1], *en("?" if asks else ".", mark)]
    first = english[0]
    english[0] = En(first.text[0].upper() + first.text[1:], first.links, first.content)
    return Derivation(tuple(zh), tuple(english), construction)


def derive(ch: Chooser, construction: str = "") -> Derivation:
    """One sentence, of the named construction or of one drawn by weight."""
    construction = construction or ch.weigh(WEIGHTS)
    return finish(CONSTRUCTIONS[construction][1](ch), construction)


def case_study() -> Derivation:
    """The paper's example, by the rules that everything else is made of."""
    ch = Chooser(0)
    there = next(p for p in lex.PLACES if p.zh == "那边")
    standing = posture_relative(lex.POSTURES[0], there)
    man = noun_phrase(ch, lex.PEOPLE[0], "the", relative=standing, plain=True)
    player = next(n for n in lex.PROFESSIONS if n.zh == "棒球手")
    word = Zh(player.zh)
    predicate = NP([word], en("a", word) + en(player.en, word), "3sg", (word,))
    inner = simple.copula(man, predicate, "曾")
    return finish((inner.zh, inner.statement), "formerly")
