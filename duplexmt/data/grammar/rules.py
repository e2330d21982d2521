"""The grammar's constructions with their weights, and the derivation of a sentence."""

from collections.abc import Callable, Mapping
from functools import partial

from . import lexicon as lex
from .clauses import (
    KINDS,
    Predicate,
    action,
    ba,
    clause,
    people,
    posture_relative,
    predicate,
    subject,
    surface,
    tense,
    thing,
)
from .lexicon import cells
from .nominals import adjectives, noun_phrase, nouns, person
from .phrases import Chooser, En, Node, Tense, Zh, be, en, expand, place, word

Rule = Callable[[Chooser], Node]
STATES = tuple(a for a in lex.ADJECTIVES if "state" in a.tags)
COLOURS = "红蓝黄白黑"
# What may be said of a thing or an animal: more than its colour, size or age.
TELLING = {n: [a for a in adjectives(n) if a.zh not in COLOURS + "新旧小"] for n in (*lex.THINGS, *lex.ANIMALS)}
TOLD = [n for n, options in TELLING.items() if options]


def does(
    who: Rule, kinds: Mapping[str, float], what: Callable[[Chooser, Tense], Predicate] = action, asks: bool = False
) -> Rule:
    """Somebody does something, in a tense drawn by weight; a question has its time first, which tells the auxiliary."""

    def rule(ch: Chooser) -> Node:
        when = tense(ch, ch.weigh(kinds))
        return clause(ch, who(ch), what(ch, when), when, asks=asks, front=1.0 if asks else 0.7)

    return rule


def joined(zh: str, english: str, first: Rule, second: Rule | None = None) -> Rule:
    """A pattern around a clause A, or two of them, A and B."""
    return lambda ch: expand(zh, english, A=first(ch), B=second(ch) if second else Node())


def bei_sentence(ch: Chooser) -> Node:
    """A person or a thing 被 somebody V."""
    when = tense(ch, ch.weigh({"past": 65, "le": 20, "past-not": 8, "perfect": 7}))
    if ch.chance(0.45):
        who, classes = person(ch) if ch.chance(0.4) else people(ch), cells("person")
    else:
        noun = ch.pick(nouns(ch.pick(lex.RESULTS).tags))
        who, classes = thing(ch, noun, "subject"), noun.tags
    return clause(ch, who, predicate(ch, "bei", when, classes=classes), when)


def described(ch: Chooser) -> Node:
    """A person of whom something is said."""
    return people(ch, relative=0.75) if ch.chance(0.6) else person(ch)


def copula(who: Node, what: Node, marker: str) -> Node:
    """S 是 N (is), S 曾是 N (was)."""
    zh = [Zh(text) for text in (marker, "是") if text]
    return expand("S B N", "S B N", S=who, B=Node(zh, be(who, bool(marker), *zh)), N=what)


def profession(who: Node, noun: lex.Noun) -> Node:
    """棒球手 as predicate: a baseball player, baseball players."""
    if who.agreement == "pl":
        return expand("N", "N<S>", N=word(noun.zh, noun.plural), S=who)
    return expand("N", "a<N> N", N=word(noun.zh, noun.en))


def identity(ch: Chooser, marker: str = "") -> Node:
    """S (曾) 是 N."""
    who, noun = described(ch), ch.pick(lex.PROFESSIONS)
    one = who.agreement != "pl" and ch.chance(0.3)
    return copula(who, noun_phrase(ch, noun, "one") if one else profession(who, noun), marker)


def quality(ch: Chooser) -> Node:
    """S 很 ADJ, with a time for a passing state."""
    if ch.chance(0.3):
        return qualified(ch, described(ch), ch.pick(STATES), tense(ch, "past") if ch.chance(0.6) else None)
    if ch.chance(0.3):
        return qualified(ch, described(ch), ch.pick([a for a in lex.ADJECTIVES if "person" in a.tags]), None)
    noun = ch.pick(TOLD)
    return qualified(ch, thing(ch, noun, "subject"), ch.pick(TELLING[noun]), None)


def qualified(ch: Chooser, who: Node, adjective: lex.Word, when: Tense | None) -> Node:
    """S 很 ADJ, was with a time."""
    degree = ch.pick([d for d in lex.DEGREES if adjective in STATES or d.zh != "有点儿"])
    parts = {"S": who, "M": word(degree.zh, degree.en), "A": word(adjective.zh, adjective.en)}
    parts["T"] = when.time if when else Node()
    parts["B"] = Node([], be(who, when is not None, *parts["M"].zh, *parts["T"].zh))
    return expand("S T M A" if who.leads or ch.chance(0.3) else "T S M A", "S B M A T", **parts)


def comparison(ch: Chooser) -> Node:
    """A 比 B ADJ: A is ADJ-er than B."""
    if ch.chance(0.5):
        first, second = described(ch), person(ch, "object")
        options = [a for a in lex.ADJECTIVES if a.tags & cells("person compare")]
    else:
        kind = ch.pick([cells("book"), cells("clothes"), cells("vehicle"), cells("device"), cells("furniture")])
        first = thing(ch, ch.pick(nouns(kind)), "subject")
        second = noun_phrase(ch, ch.pick(nouns(kind)), ch.pick(("这", "那")), plain=True)
        options = [a for a in lex.ADJECTIVES if kind <= a.tags and a.zh not in COLOURS]
    adjective = ch.pick(options)
    more = word(adjective.zh, adjective.more or f"more {adjective.en}")
    much = word("得多", "much") if ch.chance(0.35) else Node()
    parts = {"A": first, "B": Node([], be(first, False)), "C": second, "J": more, "M": much}
    return expand("A 比 C J M", "A B<比> M J<比> than<比> C", **parts)


def existence(ch: Chooser) -> Node:
    """桌子上有一本书: there is a book on the table; 昨天公园里有三个孩子."""
    has, time, noun = Zh("有"), Node(), ch.pick(nouns(cells("carry book")))
    where = place(surface(ch, noun), None)
    if ch.chance(0.4):
        noun, where = ch.pick((*nouns(cells("pet farm")), *lex.PEOPLE)), place(ch.pick(lex.OUTSIDE), None)
        time = tense(ch, "past").time if ch.chance(0.4) else time
    what = thing(ch, noun, "having")
    verb = en("there", has, content=False) + be(what, bool(time.zh), has, *time.zh)
    return expand("T P V N", "V N P T", T=time, P=where, V=Node([has], verb), N=what)


def rain(ch: Chooser, kind: str) -> Node:
    """It rained ("past"), or, in an if-clause, it rains tomorrow ("future")."""
    when, verb = tense(ch, kind), ch.pick(lex.WEATHER)
    falls = word(verb.zh, verb.past if kind == "past" else lex.s_form(verb.en))
    return expand("T V Le", "it<V> V<T> T", T=when.time, V=falls, Le=Node(when.le))


def opinion(ch: Chooser) -> Node:
    """S 觉得 + clause: thinks that ..."""
    who, verb = subject(ch), ch.pick(lex.OPINIONS)
    says = word(verb.zh, f"{lex.s_form(verb.en) if who.agreement == '3sg' else verb.en} {verb.tail}")
    said = derived(ch, ch.weigh({"statement": 2, "quality": 1, "identity": 1, "bei": 1, "ba": 1}))
    return expand("S V C", "S V<S> that<V> C", S=who, V=says, C=said)


def yes_no_question(ch: Chooser) -> Node:
    """...吗？ is known for a question only from its last word."""
    ma, when = Zh("吗"), tense(ch, ch.pick(("did", "future")))
    when.mark.en = [En(w.text, (*w.links, ma), w.content) for w in when.mark.en]
    return expand("A Q", "A", A=clause(ch, person(ch), action(ch, when), when, asks=True, front=1.0), Q=Node([ma]))


def stative(ch: Chooser, when: Tense) -> Predicate:
    """喜欢, 认识, 有, which has a negation of its own."""
    return predicate(ch, "stative", when, lex.STATIVE[: -1 if when.kind == "present-not" else None])


LIKES = does(person, {"present": 1}, stative)
RAINED, RAINS = partial(rain, kind="past"), partial(rain, kind="future")
ASKED = does(person, {"did": 4, "future": 4, "do": 1}, asks=True)
# Weight in percent, and the rule; those of questions end in a question mark.
CONSTRUCTIONS: dict[str, tuple[float, Rule]] = {
    "statement": (34, does(subject, KINDS)),
    "wish": (4, does(subject, {"wish": 1})),
    "stative": (4, does(subject, {"present": 1}, stative)),
    "not stative": (1, does(subject, {"present-not": 1}, stative)),
    "ba": (10, does(subject, {"past": 55, "le": 20, "past-not": 8, "future": 12, "perfect": 5}, ba)),
    "bei": (9, bei_sentence),
    "identity": (4, identity),
    "formerly": (3, partial(identity, marker="曾")),
    "quality": (5, quality),
    "comparison": (4, comparison),
    "existence": (4, existence),
    "opinion": (4, opinion),
    "because": (4, joined("因为 A ， 所以 B", "because<因为> A ,<，> B", RAINED, does(subject, {"not-done": 1}))),
    "but": (4, joined("A ， 但是 B", "A ,<，> but<但是> B", LIKES, LIKES)),
    "condition": (2, joined("如果 A ， B", "if<如果> A ,<，> B", RAINS, does(subject, {"then": 1}))),
    "who?": (3, does(lambda ch: word("谁", "who"), {"past": 5, "le": 1, "future": 3, "progressive": 2})),
    "why?": (1.5, joined("为什么 A", "why<为什么> A", ASKED)),
    "polite?": (1, joined("请问 ， A 吗", "excuse<请问> me<请问> ,<，> A", ASKED)),
    "yes-no?": (0.5, yes_no_question),
}
WEIGHTS = {key: weight for key, (weight, _) in CONSTRUCTIONS.items()}
# Words that a sentence says once: the entries of these tables.
ONCE = frozenset(
    entry.zh
    for table in (lex.NOUNS, lex.NAMES, lex.PLACES, lex.SURFACES, lex.PAST_TIMES, lex.FUTURE_TIMES, lex.ADJECTIVES,
                  lex.TRANSITIVE, lex.STATIVE, lex.INTRANSITIVE, lex.POSTURES, lex.RESULTS, lex.SUFFERED, lex.PRONOUNS)
    for entry in table
)  # fmt: skip


def finish(sentence: Node, asks: bool = False) -> Node:
    """Adds the final mark and the capital."""
    mark = Zh("？" if asks else "。")
    first, *rest = [*sentence.en, *en("?" if asks else ".", mark)]
    capital = En(first.text[0].upper() + first.text[1:], first.links, first.content)
    return Node([*sentence.zh, mark], [capital, *rest])


def derived(ch: Chooser, construction: str) -> Node:
    """A sentence that says no word twice, nor a pronoun beside its plural: nobody sees himself."""
    while True:
        sentence = CONSTRUCTIONS[construction][1](ch)
        said = [w for w in (zh.text.removesuffix("们") for zh in sentence.zh) if w in ONCE]
        if len(said) == len(set(said)):
            return sentence


def derive(ch: Chooser, construction: str = "") -> tuple[Node, str]:
    """One sentence and its construction: the named one, or one drawn by weight."""
    construction = construction or ch.weigh(WEIGHTS)
    return finish(derived(ch, construction), asks=construction.endswith("?")), construction


def case_study() -> Node:
    """The paper's example, by the rules that everything else is made of."""
    there = next(p for p in lex.PLACES if p.zh == "那边")
    player = next(n for n in lex.PROFESSIONS if n.zh == "棒球手")
    relative = posture_relative(lex.POSTURES[0], there)
    man = noun_phrase(Chooser(0), lex.PEOPLE[0], "the", relative, plain=True)
    return finish(copula(man, profession(man, player), "曾"))
