"""Clauses of the synchronous grammar: tenses, predicates, relative clauses, and their assembly with adjuncts.

Chinese puts time and place before the verb (often before the subject), English puts them last; that, the relative
clauses before their noun, 把 and 被 are what makes the two orders differ.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from . import lexicon as lex
from .lexicon import Noun, Verb, Word, cells
from .nominals import Relative, kin, name, noun_phrase, nouns, person, together
from .phrases import Chooser, En, Node, Tense, Zh, en, expand, place, verb_group, word

# Times, marks before the verb, the verb's form, whether 了 goes with it, how its objects are told (`OBJECTS`).
TENSES: dict[str, tuple[Sequence[Word], Sequence[Word], str, bool, str]] = {
    "past": (lex.PAST_TIMES, lex.UNMARKED, "past", True, "event"),
    "le": (lex.UNMARKED, lex.UNMARKED, "past", True, "event"),
    "past-not": (lex.PAST_TIMES, lex.NOT_DONE, "base", False, "negative"),
    "not-done": (lex.UNMARKED, lex.NOT_DONE, "base", False, "negative"),
    "future": (lex.FUTURE_TIMES, lex.FUTURE, "base", False, "event"),
    "progressive": (lex.UNMARKED, lex.DOING, "ing", False, "open"),
    "habit": (lex.HABIT_TIMES, lex.UNMARKED, "present", False, "habit"),
    "frequency": (lex.UNMARKED, lex.FREQUENCIES, "present", False, "habit"),
    "modal": (lex.UNMARKED, lex.MODALS, "base", False, "open"),
    "perfect": (lex.UNMARKED, lex.DONE, "participle", True, "event"),
    "wish": ((*lex.UNMARKED * 9, *lex.FUTURE_TIMES), lex.WANTS, "base", False, "open"),
    "present": (lex.UNMARKED, lex.UNMARKED, "present", False, "liking"),
    "present-not": (lex.UNMARKED, lex.NOT, "base", False, "liking"),
    "then": (lex.UNMARKED, lex.THEN, "base", False, "open"),
    "did": (lex.PAST_TIMES, lex.DID, "base", True, "event"),  # in questions
    "do": (lex.HABIT_TIMES, lex.DO, "base", False, "habit"),
}
KINDS = {"past": 40, "le": 8, "past-not": 9, "future": 14, "progressive": 11, "habit": 9, "frequency": 4, "modal": 5,
         "perfect": 4}  # fmt: skip
COMING = cells("past past-not not-done future then did wish")
# Weight, tenses, verbs, Chinese behind the adjuncts, English behind the verb. A is who does it, D a definite
# thing, G a goal, L a place where a thing lies, O an object, P a person, Y a vehicle.
PREDICATES: dict[str, tuple[float, lex.Classes, Sequence[Verb], str, str]] = {
    "transitive": (44, frozenset(TENSES), lex.TRANSITIVE, "V Le O", "O"),
    "intransitive": (26, frozenset(TENSES) - {"le", "perfect"}, lex.INTRANSITIVE, "V", ""),
    "motion": (10, COMING, lex.MOTION, "V Le G", "G"),
    "ride": (6, COMING, lex.MOTION[:1], "坐 Y V Le G", "G Y<坐>"),
    "benefit": (8, COMING, lex.TRANSITIVE[:2], "给 P V Le O", "O for<给,V> P"),
    "gift": (5, COMING, lex.TRANSFERS[:3], "V Le P O", "O to<V> P"),
    "ba-result": (0, cells(""), lex.RESULTS, "把 D V Le", "D"),
    "ba-person": (0, cells(""), lex.TRANSFERS, "把 D V P Le", "D to<V> P"),
    "ba-place": (0, cells(""), lex.PLACEMENTS, "把 D V L Le", "D L"),
    "bei": (0, cells(""), (*lex.SUFFERED, *lex.ATTACKS, *lex.RESULTS), "被 A V Le", "by<被> A"),
    "stative": (0, cells(""), lex.STATIVE, "V O", "O"),
}
# Weights of the determiners of a thing, by the tense of its clause or its role.
OBJECTS: dict[str, dict[str, float]] = {
    "event": {"one": 30, "number": 14, "这": 8, "那": 10, "那+": 6, "many": 5, "owner": 12, "generic": 4,
              "relative": 12},
    "open": {"one": 30, "这": 10, "那": 10, "owner": 12, "generic": 20, "relative": 6},
    "negative": {"这": 10, "那": 14, "owner": 14, "generic": 8, "那些": 4, "relative": 12},
    "habit": {"generic": 9, "owner": 1},
    "liking": {"generic": 6, "这": 2, "那": 2, "owner": 1, "这些": 1, "relative": 2},
    "having": {"one": 4, "number": 3, "many": 1},
    "subject": {"这": 10, "那": 14, "owner": 16, "那+": 5, "这些": 4, "relative": 10},
    "definite": {"这": 10, "那": 14, "owner": 16, "那+": 5, "这些": 4, "the": 8, "relative": 10},
}  # fmt: skip


@dataclass
class Predicate:
    """A verb with what follows it in English, and its Chinese from the adjuncts on."""

    verb: Verb
    at: Zh
    node: Node
    passive: tuple[Zh, ...]


def tense(ch: Chooser, kind: str) -> Tense:
    """A tense, a key of `TENSES`; where Chinese has a mark or a time, that is what tells it."""
    times, marks, form, done, _ = TENSES[kind]
    entry, time = ch.pick(marks), ch.pick(times)
    when, le = word(time.zh, time.en), [Zh("了")] if done else []
    mark = word(entry.zh, entry.en)
    mark.en = en(entry.en, *(mark.zh or when.zh))
    return Tense(kind, form, mark, when, tuple(mark.zh or when.zh or le), le)


@cache
def places(tags: lex.Classes) -> tuple[Word, ...]:
    return tuple(entry for entry in lex.PLACES if entry.tags & tags)


def in_place(entry: Word) -> Node:
    at = Zh("在")
    node = place(entry, at)
    return Node([at, *node.zh], node.en, (at, *node.cues))


def surface(ch: Chooser, noun: Noun) -> Word:
    """Where a thing lies: a big one not inside something."""
    return ch.pick([p for p in lex.SURFACES if p.more == "上" or noun.tags & cells("book mail")])


# ------------------------------------------------------------------------------------------------- noun phrases


def thing(ch: Chooser, noun: Noun, told: str, verb: str = "") -> Node:
    """A thing or an animal, its determiner drawn by `told`, a key of `OBJECTS`; `verb` is one not to repeat."""
    det, relative = ch.weigh(OBJECTS[told]), None
    if det == "relative":  # 那个老师买的书包 could be read as that teacher's doing; 那本老师买的书 cannot.
        done = [v for v in lex.TRANSITIVE if v.tags & noun.tags & lex.MADE and v.zh != verb]
        relative = object_relative(ch, ch.pick(done)) if done and (told != "subject" or noun.measure != "个") else None
        det = "the" if relative and noun.measure == "个" else "那"
    if det == "generic" and not noun.tags & lex.GENERIC:
        det = "那"
    return noun_phrase(ch, noun, det, relative, plain=relative is not None)


def object_relative(ch: Chooser, verb: Verb) -> Relative:
    """妈妈上周买的 N: the N my mother bought last week."""
    time = ch.pick(lex.PAST_TIMES if ch.chance(0.6) else lex.UNMARKED)
    past, when = word(verb.zh, f"{verb.past} {verb.tail}"), word(time.zh, time.en)
    return lambda head: expand("S T V 的", "S V<T,的> T", S=person(ch), T=when, V=past)


def posture_relative(verb: Verb, where: Word) -> Relative:
    """站在那边的 N: N standing there."""
    return lambda head: expand("V P 的", "V<的> P", V=word(verb.zh, verb.ing), P=in_place(where))


def subject_relative(ch: Chooser) -> Relative:
    """A relative clause about a person who stands somewhere, wears something, or does or suffers something."""
    kind = ch.weigh({"posture": 22, "durative": 16, "past": 30, "progressive": 12, "habit": 8, "stative": 8, "bei": 7})

    def build(head: Node) -> Node:
        gap = Node([], [], head.cues, head.agreement)
        if kind == "posture":
            verb = ch.pick(lex.POSTURES)
            return posture_relative(verb, ch.pick(places(verb.places)))(head)
        if kind == "durative":
            verb = ch.pick(lex.DURATIVE)
            what = noun_phrase(ch, ch.pick(nouns(verb.tags)), "generic" if head.agreement == "pl" else "one")
            return expand("V O 的", "V<的> O", V=word(verb.zh, verb.ing), O=what)
        if kind in ("bei", "stative"):
            when = tense(ch, "past" if kind == "bei" else "present")
            done = predicate(ch, kind, when, classes=cells("person") if kind == "bei" else cells(""), brief=True)
        else:
            when = tense(ch, kind)
            done = action(ch, when, brief=True)
        return expand("C 的", "who<的,N> C", C=clause(ch, gap, done, when), N=head)

    return build


def people(ch: Chooser, noun: Noun | None = None, relative: float = 0.5) -> Node:
    """A person by common noun: the, this, those three ...; with a relative clause as likely as `relative`."""
    noun = noun or ch.pick((*lex.PEOPLE, *lex.PROFESSIONS))
    if ch.chance(relative):
        det = ch.weigh({"the": 12, "那": 4, "们": 3, "那+": 2})
        return noun_phrase(ch, noun, det, subject_relative(ch), plain=ch.chance(0.7))
    return noun_phrase(ch, noun, ch.weigh({"the": 4, "们": 4, "这": 2, "那": 3, "那+": 2, "那些": 1}))


def subject(ch: Chooser) -> Node:
    """Who acts."""
    kind = ch.weigh({"person": 42, "people": 46, "and": 8})
    if kind == "and":
        return together(kin(ch) if ch.chance(0.6) else name(ch), name(ch))
    return person(ch) if kind == "person" else people(ch)


# -------------------------------------------------------------------------------------------------- predicates


def predicate(
    ch: Chooser, kind: str, when: Tense, verbs: Sequence[Verb] = (), classes: lex.Classes = frozenset(),
    brief: bool = False,
) -> Predicate:  # fmt: skip
    """A predicate, a key of `PREDICATES`, with one of these verbs, else of its own.

    `classes` are those of the subject of a passive; `brief` keeps what stands in a relative clause short.
    """
    _, _, usual, zh, english = PREDICATES[kind]
    verb = ch.pick([v for v in verbs or usual if not classes or v.tags & classes])
    at, parts = Zh(verb.zh), {"Le": Node(when.le)}
    parts["V"] = Node([at], [], (at,))
    fitting = nouns(verb.tags)
    if "D" in zh:
        noun = ch.pick(fitting)
        parts["D"], parts["L"] = thing(ch, noun, "definite", verb.zh), place(surface(ch, noun), at)
    if "O" in zh:
        parts["O"] = _object(ch, verb, TENSES[when.kind][-1], brief)
    if "P" in zh:
        parts["P"] = person(ch, "object")
    if "A" in zh:
        if verb in lex.ATTACKS:
            parts["A"] = noun_phrase(ch, ch.pick(nouns(cells("pet wild"))), ch.weigh({"one": 3, "那": 2}))
        else:
            parts["A"] = person(ch, "object") if brief or ch.chance(0.75) else people(ch, relative=0.4)
    if "G" in zh:
        goal = ch.pick(places(verb.tags))
        vehicle = ch.pick([y for y in lex.TRANSPORT if ("far" if "city" in goal.tags else "near") in y.tags])
        parts["G"], parts["Y"] = word(goal.zh, goal.en.partition(" ")[2]), word(vehicle.zh, vehicle.en)
    node = expand(zh, english, **parts)
    return Predicate(verb, at, node, (node.zh[0],) if kind == "bei" else ())


def _object(ch: Chooser, verb: Verb, told: str, brief: bool) -> Node:
    options = nouns(verb.tags)
    if told in ("habit", "liking"):
        options = tuple(n for n in options if n.tags & lex.GENERIC) or options
    noun = ch.pick(options)
    if "person" not in noun.tags:
        return thing(ch, noun, "having" if verb.zh == "有" else told, verb.zh)
    if not brief and told == "event" and noun not in lex.KIN and ch.chance(0.2):
        return noun_phrase(ch, noun, ch.pick(("one", "number")))
    return person(ch, "object") if brief or ch.chance(0.5) else people(ch, relative=0.45)


def action(ch: Chooser, when: Tense, brief: bool = False) -> Predicate:
    """What somebody does, of any make that goes with the tense."""
    makes = {make: row[0] for make, row in PREDICATES.items() if when.kind in row[1] and not (brief and row[0] < 10)}
    make = ch.weigh(makes)
    past = when.kind in ("past", "le", "past-not", "not-done", "perfect", "did")
    often = when.kind in ("habit", "frequency", "do")
    verbs = [v for v in PREDICATES[make][2] if past or v.zh not in lex.PUNCTUAL]
    return predicate(ch, make, when, [v for v in verbs if not often or v.zh not in lex.OCCASIONAL], brief=brief)


def ba(ch: Chooser, when: Tense) -> Predicate:
    """把 + a definite thing + a verb with its result, recipient or place."""
    return predicate(ch, ch.weigh({"ba-result": 5, "ba-person": 3, "ba-place": 4}), when)


# ---------------------------------------------------------------------------------------------------- assembly


def clause(ch: Chooser, who: Node, done: Predicate, when: Tense, *, asks: bool = False, front: float = 0.7) -> Node:
    """Subject, predicate and tense with the adjuncts that fit: 昨天在公园里，S高兴地V ... all go last in English.

    Without a subject it is the inside of a relative clause. `asks` puts the English auxiliary first, `front` is how
    often the time comes before the subject.
    """
    verb = done.verb
    bare = when.kind == "past" and bool(who.zh) and len(done.node.zh) == 1  # 昨天他锻炼 alone sounds unfinished
    first = not who.leads and ch.chance(front)
    early, middle = (when.time.zh, []) if first else ([], when.time.zh)
    late, extras = when.mark.zh, list[En]()
    if who.zh and verb.places and ch.chance(1.0 if bare else 0.5):
        entry = ch.pick(places(verb.places))
        where = place(entry, late[0]) if when.kind == "progressive" else in_place(entry)  # 正在 is 正 + 在
        fronted = first and when.time.zh and when.kind != "progressive" and ch.chance(0.4)
        early, late = ([*early, *where.zh, Zh("，")], late) if fronted else (early, [*late, *where.zh])
        extras = where.en
    fitting = [m for m in lex.MANNERS if verb.places and m.tags & verb.tags]
    if who.zh and fitting and when.form in ("past", "present", "ing") and ch.chance(0.25):
        manner = ch.pick(fitting)
        how = word(manner.zh, manner.en)
        late, extras = [*late, *how.zh], [*how.en, *extras]
    auxiliary, rest = verb_group(verb, done.at, when, who, done.passive)
    zh = [*early, *who.zh, *middle, *late, *done.node.zh]
    head = [*auxiliary, *who.en] if asks else [*who.en, *auxiliary]
    return Node(zh, [*head, *rest, *done.node.en, *extras, *when.time.en], tuple(zh))
