"""Noun phrases without a clause of their own: nouns with determiner and adjective, pronouns, kin, names, owners."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache

from . import lexicon as lex
from .lexicon import Adjective, Noun
from .phrases import NP, Chooser, En, Relative, Zh, en

DEMONSTRATIVES = {"这": ("this", "these"), "那": ("that", "those")}


@cache
def adjectives(noun: Noun) -> tuple[Adjective, ...]:
    """Adjectives that may modify the noun; 大象 and its like take no second 大 or 小."""
    sized = noun.zh[0] in "大小"
    return tuple(a for a in lex.ADJECTIVES if a.tags & noun.tags and not (sized and a.zh in "大小"))


@dataclass(frozen=True)
class Determiner:
    """Both sides of a determiner; `counted` are its words that tell the number, `measure` the measure word if any."""

    zh: tuple[Zh, ...] = ()
    en: tuple[En, ...] = ()
    counted: tuple[Zh, ...] = ()
    plural: bool = False
    measure: Zh | None = None


def determiner(ch: Chooser, noun: Noun, det: str, owner: NP | None) -> Determiner:
    """The words before the noun. Articles come later: a or an needs the word after it, the needs the noun."""
    measure = Zh(noun.measure)
    if det == "one":
        one = Zh("一")
        return Determiner((one, measure), (), (one,), False, measure)
    if det == "number":
        entry = ch.pick(lex.NUMBERS)
        number = Zh(entry.zh)
        return Determiner((number, measure), tuple(en(entry.en, number)), (number,), True, measure)
    if det in ("这些", "那些"):
        those = Zh(det)
        return Determiner((those,), tuple(en(DEMONSTRATIVES[det[0]][1], those)), (those,), True)
    if det in ("这", "那"):
        that = Zh(det)
        both = (that, measure)
        return Determiner(both, tuple(en(DEMONSTRATIVES[det][0], *both)), both, False, measure)
    if det in ("这+", "那+"):
        entry = ch.pick(lex.NUMBERS[:5])
        that, number = Zh(det[0]), Zh(entry.zh)
        english = en(DEMONSTRATIVES[det[0]][1], that, number) + en(entry.en, number)
        return Determiner((that, number, measure), tuple(english), (that, number), True, measure)
    if det == "many":
        many = Zh("很多")
        return Determiner((many,), tuple(en("a lot of" if noun.mass else "many", many)), (many,), not noun.mass)
    if det == "owner":
        assert owner is not None
        return Determiner(tuple(owner.zh), tuple(owner.en))
    return Determiner(plural=det in ("generic", "们") and not noun.mass)


def noun_phrase(
    ch: Chooser, noun: Noun, det: str, *, owner: NP | None = None, relative: Relative | None = None, plain: bool = False
) -> NP:
    """A noun with its determiner: the, generic, one, number, 这, 那, 这+, 那+ (plural), 这些, 那些, many, owner, 们.

    An adjective that fits is added now and then unless `plain`. A relative clause stands after 那个 or before the
    bare noun; the English one always follows the noun.
    """
    head = Zh(noun.zh + ("们" if det == "们" else ""))
    words = determiner(ch, noun, det, owner)
    unit = noun.unit if words.measure else ""
    modifiers, english = _modifier(ch, noun, plain)
    if unit and words.measure:
        container = noun.units if words.plural else unit
        english = en(container, words.measure, head, *words.counted) + en("of", words.measure) + english
    plural = words.plural and not noun.mass and not unit
    english += en(noun.plural if plural else noun.en, head, *(() if unit else words.counted[:1]))
    english = [*words.en, *english]
    if det == "one":
        english = en("an" if english[0].text[0] in "aeiou" else "a", *words.counted, *english[0].links) + english
    if det in ("the", "们"):
        english = en("the", head) + english
    clause_zh: list[Zh] = []
    pair = noun.unit and not noun.mass and not unit
    agreement = "pl" if words.plural or pair else "3sg"
    if relative is not None:
        clause_zh, clause_en = relative(head, agreement)
        english += clause_en
    return NP(
        zh=[*words.zh, *clause_zh, *modifiers, head],
        en=english,
        agreement=agreement,
        cues=(*words.counted, head),
        gender=noun.gender,
        leads=relative is not None and not words.zh,
        relative=relative is not None,
    )


def _modifier(ch: Chooser, noun: Noun, plain: bool) -> tuple[list[Zh], list[En]]:
    options = () if plain else adjectives(noun)
    if not options or not ch.chance(0.3):
        return [], []
    adjective = ch.pick(options)
    word = Zh(adjective.zh)
    return [word] if adjective.bare else [word, Zh("的")], en(adjective.en, word)


def pronoun(ch: Chooser, role: str, exclude: Iterable[str] = ()) -> NP:
    """A personal pronoun as subject or object, or, with 的 inside the word, as owner."""
    firsts = {text[0] for text in exclude if text}
    entry = ch.pick([p for p in lex.PRONOUNS if p.zh[0] not in firsts])
    column = ("subject", "object", "owner").index(role)
    word = Zh(entry.zh + ("的" if role == "owner" else ""))
    agreement = next(a for a in ("1sg", "3sg", "pl") if a in entry.tags)
    gender = next((g for g in "mf" if g in entry.tags), "")
    return NP([word], en(entry.en.split()[column], word), agreement, (word,), gender)


def kin(ch: Chooser, owned: bool = False) -> NP:
    """爸爸 is one's own father; with an owner (他的爸爸) it is the other's."""
    noun = ch.pick(lex.KIN)
    word = Zh(noun.zh)
    if not owned:
        return NP([word], en("my", word) + en(noun.en, word), "3sg", (word,), noun.gender)
    owner = pronoun(ch, "owner", exclude=("我",))
    return NP([*owner.zh, word], owner.en + en(noun.en, word), "3sg", (word,), noun.gender)


def name(ch: Chooser) -> NP:
    entry = ch.pick(lex.NAMES)
    word = Zh(entry.zh)
    return NP([word], en(entry.en, word), "3sg", (word,), "".join(entry.tags))


def possessor(ch: Chooser) -> NP:
    """我的 / my, or a person with 的 / 's."""
    if ch.chance(0.6):
        return pronoun(ch, "owner")
    kind = ch.weigh({"kin": 3, "name": 3, "person": 2})
    owner = kin(ch) if kind == "kin" else name(ch) if kind == "name" else _the_person(ch)
    of = Zh("的")
    return NP([*owner.zh, of], owner.en + en("'s", of), owner.agreement, owner.cues)


def _the_person(ch: Chooser) -> NP:
    return noun_phrase(ch, ch.pick(lex.PROFESSIONS), "the", plain=True)


def together(first: NP, second: NP) -> NP:
    """Two noun phrases joined by 和."""
    conjunction = Zh("和")
    both = (*first.cues, conjunction, *second.cues)
    zh, english = [*first.zh, conjunction, *second.zh], [*first.en, *en("and", conjunction), *second.en]
    return NP(zh, english, "pl", both)
