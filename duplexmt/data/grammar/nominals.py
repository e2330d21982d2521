"""Tenses and noun phrases that need no full clause: people in a word or two, and things with their determiners."""

from dataclasses import dataclass, field

from . import lexicon as lex
from .lexicon import Noun, Place, Verb
from .nounphrases import kin, name, noun_phrase, possessor, pronoun
from .phrases import NP, Chooser, En, Marking, Relative, Zh, en, in_place, places, verb_group


@dataclass
class Setting:
    """Tense of a clause with its time expression, frequency adverb and the 了 that will mark a past."""

    marking: Marking
    time_zh: list[Zh] = field(default_factory=list)
    time_en: list[En] = field(default_factory=list)
    adverb: list[En] = field(default_factory=list)
    le: Zh = field(default_factory=lambda: Zh("了"))


# Weights of the tenses.
KINDS = {"past": 36, "le": 7, "past-not": 8, "future": 14, "progressive": 11, "habit": 10, "frequency": 5, "modal": 6,
         "perfect": 4, "once": 2}  # fmt: skip


def marked(kind: str, zh: str, modal: str = "") -> Marking:
    """A marking by one source word before the verb."""
    word = Zh(zh)
    return Marking(kind, (word,), (word,), modal)


def setting(ch: Chooser, kind: str, long: bool = False, negated: bool = True) -> Setting:
    """A tense by its name in `KINDS`; where Chinese has a time word or a marker, that word is the tense's cue.

    `long` admits times such as last summer; `negated` admits 不会 in the future.
    """
    times = {"past": lex.PAST_TIMES, "past-not": lex.PAST_TIMES, "future": lex.FUTURE_TIMES, "habit": lex.HABIT_TIMES}
    if kind in times:
        entry = ch.pick([t for t in times[kind] if long or "long" not in t.tags])
        time = Zh(entry.zh)
        when = [time], en(entry.en, time)
        if kind == "past-not":
            return Setting(marked(kind, "没"), *when)
        if kind == "future":
            will, wont = lex.MODALS[:2]
            modal = wont if negated and ch.chance(0.25) else will
            return Setting(marked("modal", modal.zh, modal.en), *when)
        return Setting(Marking("present" if kind == "habit" else kind, (), (time,)), *when)
    if kind == "le":
        le = Zh("了")
        return Setting(Marking("past", (), (le,)), le=le)
    if kind == "modal":
        modal = ch.pick(lex.MODALS[2:])
        return Setting(marked(kind, modal.zh, modal.en))
    if kind == "frequency":
        entry = ch.pick(lex.FREQUENCIES)
        marking = marked("present", entry.zh)
        return Setting(marking, adverb=en(entry.en, *marking.zh))
    return Setting(marked(kind, {"progressive": "正在", "perfect": "已经", "once": "曾"}[kind]))


def posture_relative(verb: Verb, place: Place) -> Relative:
    """站在那边的 N: N standing there."""

    def build(head: Zh, agreement: str) -> tuple[list[Zh], list[En]]:
        word, of = Zh(verb.zh), Zh("的")
        zh, english = in_place(place)
        return [word, *zh, of], en(verb.ing, word, of, content=True) + english

    return build


def posture_place(ch: Chooser, verb: Verb) -> Place:
    """Where one stands, lies or lives."""
    if verb.zh in ("躺", "睡"):
        return ch.pick([p for p in lex.SURFACES if p.zh in ("床", "沙发", "地板")])
    if ch.chance(0.4):
        return ch.pick(places(frozenset({"near"})))
    if verb.zh == "住":
        return ch.pick(places(frozenset({"city"})))
    return ch.pick([p for p in places(frozenset({"out", "public", "water"})) if "city" not in p.tags])


def surface(ch: Chooser, noun: Noun, inside: bool = False) -> Place:
    """Where a thing lies; a bulky one in no bag, and with `inside` (to hide it) on no open surface."""
    options = [p for p in lex.SURFACES if noun.zh not in lex.BULKY or p.localizer == "上" or p.zh == "车"]
    return ch.pick([p for p in options if not inside or p.localizer == "里" or p.zh == "书架"])


def simple_person(ch: Chooser, role: str = "subject", exclude: NP | None = None) -> NP:
    """A person in one or two words; `exclude` is a phrase that must not be named again."""
    said = {word.text for word in exclude.zh} if exclude else set()
    while True:
        kind = ch.weigh({"pronoun": 3, "name": 3, "kin": 4, "owned": 1, "the": 4})
        if kind == "pronoun":
            return pronoun(ch, role, said)
        if kind == "the":
            phrase = noun_phrase(ch, ch.pick(lex.PROFESSIONS), "the", plain=True)
        else:
            phrase = name(ch) if kind == "name" else kin(ch, owned=kind == "owned")
        if not said & {word.text for word in phrase.zh}:
            return phrase


def simple_other(ch: Chooser, first: NP) -> NP:
    """Another relative or name than `first`."""
    while True:
        other = kin(ch) if ch.chance(0.6) else name(ch)
        if other.zh[0].text != first.zh[0].text:
            return other


def object_relative(ch: Chooser, noun: Noun, exclude: str = "") -> Relative | None:
    """妈妈上周买的 N: the N my mother bought last week. None if nobody does anything with an N."""
    verbs = [v for v in lex.TRANSITIVE if v.objects & noun.tags and not v.objects & {"view", "farm", "carry"}]
    verbs = [v for v in verbs if v.zh not in ("吃", "喝", exclude)]
    if not verbs:
        return None
    verb = ch.pick(verbs)

    def build(head: Zh, agreement: str) -> tuple[list[Zh], list[En]]:
        subject, word, of = simple_person(ch), Zh(verb.zh), Zh("的")
        when = Setting(Marking("past", (), (of,)))
        if ch.chance(0.6):
            entry = ch.pick([t for t in lex.PAST_TIMES if "ago" in t.tags])
            time = Zh(entry.zh)
            when = Setting(Marking("past", (), (time,)), [time], en(entry.en, time))
        _, rest = verb_group(verb, word, when.marking, subject)
        return [*subject.zh, *when.time_zh, word, of], subject.en + rest + when.time_en

    return build


# Weights of the determiners of a thing, by the mode of its clause.
OBJECTS = {
    "event": {"one": 30, "number": 14, "这": 8, "那": 10, "那+": 4, "这些": 3, "那些": 2, "many": 5, "owner": 12,
              "generic": 4, "relative": 12},
    "ongoing": {"one": 30, "这": 10, "那": 10, "owner": 12, "generic": 20, "relative": 6},
    "negative": {"这": 10, "那": 14, "owner": 14, "generic": 8, "那些": 4, "relative": 12},
    "habit": {"generic": 9, "owner": 1},
    "liking": {"generic": 6, "这": 2, "那": 2, "owner": 1, "这些": 1, "relative": 2},
    "having": {"one": 4, "number": 3, "many": 1},
    "definite": {"这": 10, "那": 14, "owner": 16, "那+": 5, "这些": 4, "the": 8, "relative": 10},
    "one": {"one": 1},
    "new": {"one": 4, "number": 2},
    "bare": {"generic": 1},
}  # fmt: skip


def thing_phrase(ch: Chooser, noun: Noun, mode: str, verb: str = "") -> NP:
    """A thing or an animal, its determiner drawn by `mode`, a key of `OBJECTS`; `verb` is one not to repeat."""
    det = ch.weigh(OBJECTS[mode])
    if det == "relative":
        relative = object_relative(ch, noun, verb)
        # 那个老师买的书包 could be read as that teacher's doing; 那本老师买的书 cannot.
        det = "那" if relative is None or (noun.measure not in "个位名" and ch.chance(0.5)) else "the"
        return noun_phrase(ch, noun, det, relative=relative, plain=True)
    if noun.mass and det in ("这些", "那些"):
        det = det[0]
    if det == "generic" and mode != "bare" and not noun.tags & lex.GENERIC:
        det = "那"
    return noun_phrase(ch, noun, det, owner=possessor(ch) if det == "owner" else None)


def described_thing(ch: Chooser, noun: Noun) -> NP:
    """A thing as subject; a relative clause about its maker or buyer goes after 那本, never first."""
    relative = object_relative(ch, noun) if noun.measure not in "个位名" and ch.chance(0.4) else None
    if relative:
        return noun_phrase(ch, noun, "那", relative=relative, plain=True)
    subject = thing_phrase(ch, noun, "definite")
    surfaces = {place.zh for place in lex.SURFACES}  # 箱子 first would promise 箱子里有 ...
    return noun_phrase(ch, noun, "这", plain=True) if subject.leads or subject.zh[0].text in surfaces else subject
