"""Noun phrases of the synchronous grammar: nouns with determiner and adjective, pronouns, kin, names, owners."""

from collections.abc import Callable
from functools import cache

from . import lexicon as lex
from .phrases import Chooser, Node, en, expand, word

Relative = Callable[[Node], Node]  # from the noun it modifies

# Chinese before the noun, English before it, what else than the noun tells its number, agreement. M is the measure
# word, X a number, W an owner.
DETERMINERS = {
    "the": ("", "the<N>", "", "3sg"),
    "们": ("", "the<N>", "", "pl"),
    "generic": ("", "", "", "pl"),
    "one": ("一 M", "a<一>", "一", "3sg"),
    "number": ("X M", "X", "X", "pl"),
    "many": ("很多", "many<很多>", "很多", "pl"),
    "这": ("这 M", "this<这,M>", "", "3sg"),
    "那": ("那 M", "that<那,M>", "", "3sg"),
    "这些": ("这些", "these<这些>", "这些", "pl"),
    "那些": ("那些", "those<那些>", "那些", "pl"),
    "那+": ("那 X M", "those<那,X> X", "那,X", "pl"),
    "owner": ("W", "W", "", "3sg"),
}
MASS = {"many": "number", "这些": "这", "那些": "那", "那+": "那"}  # what tea and rice take instead


@cache
def nouns(tags: lex.Classes) -> tuple[lex.Noun, ...]:
    return tuple(noun for noun in lex.NOUNS if noun.tags & tags)


@cache
def adjectives(noun: lex.Noun) -> tuple[lex.Word, ...]:
    """Adjectives that may modify the noun; 大象 and its like take no second 大 or 小."""
    sized = noun.zh[0] in "大小"
    return tuple(a for a in lex.ADJECTIVES if a.tags & noun.tags and not (sized and a.zh in "大小"))


def noun_phrase(ch: Chooser, noun: lex.Noun, det: str, relative: Relative | None = None, plain: bool = False) -> Node:
    """A noun with a determiner, a key of `DETERMINERS`, and now and then, unless `plain`, an adjective that fits.

    A relative clause stands after 那个 or before the bare noun; the English one always follows the noun.
    """
    det = MASS.get(det, det) if noun.unit else det
    before, english, counted, agreement = DETERMINERS[det]
    plural = agreement == "pl"
    agreement = "3sg" if noun.unit and det == "generic" else agreement
    head = word(noun.zh + ("们" if det == "们" else ""), noun.plural if plural else noun.en, agreement=agreement)
    parts = {"N": head, "M": word(noun.measure, ""), "X": Node(), "W": Node()}
    unit, number = "", counted
    if "M" in before and noun.unit:
        parts["U"] = Node([], en(lex.s_form(noun.unit) if plural else noun.unit, *parts["M"].cues))
        unit, number = f"U<N{number and ','}{number}> of<M>", ""
    if "X" in before:
        entry = ch.pick(lex.NUMBERS[:-1] if det == "那+" else lex.NUMBERS)  # no "those several"
        parts["X"] = word(entry.zh, entry.en)
    if det == "owner":
        parts["W"] = possessor(ch)
    parts["J"] = Node()
    if not plain and adjectives(noun) and ch.chance(0.3):
        adjective = ch.pick(adjectives(noun))
        parts["J"] = expand("J" if "bare" in adjective.tags else "J 的", "J", J=word(adjective.zh, adjective.en))
    parts["R"] = relative(head) if relative else Node()
    phrase = expand(f"{before} R J N", f"{english} {unit} J N<{number}> R", **parts)
    counting = [w for w, text in zip(phrase.zh, before.split(), strict=False) if text in counted.split(",")]
    phrase.cues = (*counting, *head.cues)
    phrase.agreement, phrase.leads = agreement, bool(relative) and not before
    return phrase


def pronoun(ch: Chooser, role: str) -> Node:
    """A personal pronoun as subject or object, or, with 的 inside the word, as owner."""
    entry = ch.pick(lex.PRONOUNS)
    english = entry.en.split()[("subject", "object", "owner").index(role)]
    agreement = next(a for a in ("1sg", "3sg", "pl") if a in entry.tags)
    return word(entry.zh + ("的" if role == "owner" else ""), english, agreement=agreement)


def kin(ch: Chooser) -> Node:
    """爸爸 is one's own father."""
    noun = ch.pick(lex.KIN)
    return word(noun.zh, f"my {noun.en}")


def name(ch: Chooser) -> Node:
    entry = ch.pick(lex.NAMES)
    return word(entry.zh, entry.en)


def person(ch: Chooser, role: str = "subject") -> Node:
    """A person in one or two words."""
    kind = ch.weigh({"pronoun": 3, "name": 3, "kin": 4, "noun": 4})
    if kind == "pronoun":
        return pronoun(ch, role)
    if kind == "noun":
        return noun_phrase(ch, ch.pick(lex.PROFESSIONS), "the", plain=True)
    return name(ch) if kind == "name" else kin(ch)


def possessor(ch: Chooser) -> Node:
    """我的 / my, or a person with 的 / 's."""
    if ch.chance(0.6):
        return pronoun(ch, "owner")
    return expand("W 的", "W 's<的>", W=name(ch) if ch.chance(0.4) else kin(ch))


def together(first: Node, second: Node) -> Node:
    """Two noun phrases joined by 和."""
    both = expand("A 和 B", "A and<和> B", A=first, B=second)
    both.cues = (*first.cues, both.zh[len(first.zh)], *second.cues)
    both.agreement = "pl"
    return both
