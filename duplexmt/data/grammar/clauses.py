"""Clauses of the synchronous grammar: relatives, subjects, objects, verb phrases, and their assembly with adjuncts.

Chinese puts time and place before the verb (often before the subject), English puts them last; that, the relative
clauses before their noun, 把 and 被 are what makes the two orders differ.
"""

from dataclasses import dataclass

from . import lexicon as lex
from .lexicon import Noun, Verb
from .nominals import (
    Setting,
    posture_place,
    posture_relative,
    setting,
    simple_other,
    simple_person,
    surface,
    thing_phrase,
)
from .nounphrases import kin, name, noun_phrase, together
from .phrases import (
    NP,
    VP,
    Chooser,
    En,
    Marking,
    Relative,
    Zh,
    en,
    in_place,
    nouns,
    place_words,
    places,
    to_place,
    verb_group,
)


@dataclass
class Clause:
    """Both sides of a clause; the English auxiliary stands apart so that a question can invert it."""

    zh: list[Zh]
    subject: list[En]
    auxiliary: list[En]
    rest: list[En]

    @property
    def statement(self) -> list[En]:
        return [*self.subject, *self.auxiliary, *self.rest]

    @property
    def question(self) -> list[En]:
        return [*self.auxiliary, *self.subject, *self.rest]


def subject_relative(ch: Chooser, animal: bool) -> Relative:
    """A relative clause whose gap is its subject, for a person or an animal."""
    weights = {
        "posture": 22,
        "past": 30,
        "le": 6,
        "durative": 16,
        "progressive": 16,
        "habit": 8,
        "stative": 8,
        "bei": 7,
    }
    kind = ch.weigh({"posture": 3, "progressive": 2} if animal else weights)
    if kind == "posture":
        verb = ch.pick([v for v in lex.POSTURES if not (animal and v.zh in "站住")])
        return posture_relative(verb, posture_place(ch, verb))

    def build(head: Zh, agreement: str) -> tuple[list[Zh], list[En]]:
        of = Zh("的")
        gap = NP([], [], agreement, (head,))
        if kind == "durative":
            vp = transitive(ch, ch.pick(lex.DURATIVE), "bare" if agreement == "pl" else "one", gap)
            return [vp.word, *vp.post, of], en(vp.verb.ing, vp.word, of, content=True) + vp.complement
        if kind == "bei":
            inner = passive_clause(ch, setting(ch, "past"), gap, frozenset({"person"}))
        elif kind == "stative":
            vp = transitive(ch, ch.pick(lex.STATIVE[:3]), "liking", gap)
            inner = clause(ch, gap, vp, Setting(Marking("present")), plain=True)
        else:
            vp, when = (rest_of_animal(ch), setting(ch, kind)) if animal else action(ch, kind, gap)
            inner = clause(ch, gap, vp, when, plain=kind == "le")
        if kind == "progressive":
            return [*inner.zh, of], inner.rest
        who = en("that" if animal else "who", of, head, content=False)
        return [*inner.zh, of], who + inner.statement

    return build


def people_phrase(ch: Chooser, noun: Noun | None = None, relative: float = 0.5) -> NP:
    """A person by common noun: the, this, those three ...; with a relative clause as likely as `relative`."""
    if ch.chance(relative):
        det = ch.weigh({"the": 12, "那": 4, "们": 3, "那+": 2})
        noun = noun or ch.pick(lex.PEOPLE if ch.chance(0.6) else lex.PROFESSIONS)
        return noun_phrase(ch, noun, det, relative=subject_relative(ch, animal=False), plain=ch.chance(0.7))
    noun = noun or ch.pick((*lex.PEOPLE, *lex.PROFESSIONS))
    return noun_phrase(ch, noun, ch.weigh({"the": 4, "们": 4, "这": 2, "那": 3, "那+": 1, "这+": 1, "那些": 1}))


def subject_phrase(ch: Chooser) -> NP:
    """Who acts."""
    kind = ch.weigh({"simple": 42, "people": 46, "and": 8})
    if kind == "simple":
        return simple_person(ch)
    if kind == "and":
        first = kin(ch) if ch.chance(0.6) else name(ch)
        return together(first, simple_other(ch, first))
    return people_phrase(ch)


def object_phrase(ch: Chooser, tags: frozenset[str], mode: str, subject: NP, verb: str = "") -> NP:
    """The object of a verb that takes nouns of these classes."""
    options = nouns(tags)
    if mode == "habit":
        options = tuple(n for n in options if n.tags & lex.GENERIC) or options
    noun = ch.pick(options)
    if "person" not in noun.tags:
        return thing_phrase(ch, noun, mode, verb)
    if not subject.zh:  # inside a relative clause: keep it short
        return simple_person(ch, "object", subject)
    if mode in ("event", "ongoing") and ch.chance(0.2):
        return noun_phrase(ch, ch.pick((*lex.PEOPLE, *lex.PROFESSIONS)), ch.weigh({"one": 3, "number": 2}))
    return simple_person(ch, "object", subject) if ch.chance(0.5) else people_phrase(ch, relative=0.45)


# -------------------------------------------------------------------------------------------------- verb phrases


def transitive(ch: Chooser, verb: Verb, mode: str, subject: NP) -> VP:
    thing = object_phrase(ch, verb.objects, mode, subject, verb.zh)
    manners = {"read": "study", "write": "study", "food": "eat", "drink": "eat", "song": "fun"}
    fitting = frozenset(manners[tag] for tag in manners if tag in verb.objects)
    if mode == "event" and subject.zh and not thing.relative and ch.chance(0.06) and "person" not in verb.objects:
        thing = together(thing, thing_phrase(ch, ch.pick(nouns(verb.objects)), "new"))
    # In a relative clause 了 only goes with a counted object: 昨天买书的女孩, 昨天买了三本书的女孩.
    counted = bool(subject.zh) or thing.zh[0].text in {"一", "很多", *(n.zh for n in lex.NUMBERS)}
    return VP(verb, Zh(verb.zh), [], thing.zh, thing.en, "verb" if counted else "", (), verb.places, fitting)


def intransitive(ch: Chooser, verbs: list[Verb], where: str = "") -> VP:
    verb = ch.pick(verbs)
    places_, manners = (frozenset(where.split()), frozenset[str]()) if where else (verb.places, verb.objects)
    return VP(verb, Zh(verb.zh), places=places_, manners=manners)


def motion(ch: Chooser, past: bool) -> VP:
    """去北京, 坐火车去北京, 离开 and 参观."""
    verb = ch.pick([v for v in lex.MOTION if past or v.zh not in lex.PUNCTUAL])
    city = ch.chance(0.6)
    options = places(frozenset({"city"} if city else verb.objects))
    word = Zh(verb.zh)
    zh, english = to_place(ch.pick([p for p in options if city or "city" not in p.tags]), word)
    if verb.zh != "去" or ch.chance(0.3):
        return VP(verb, word, [], zh, english, "verb")
    vehicle = ch.pick([t for t in lex.TRANSPORT if ("far" if city else "near") in t.tags])
    by = [Zh("坐"), Zh(vehicle.zh)]
    return VP(verb, word, by, zh, english + en(vehicle.en, *by), "verb" if ch.chance(0.7) else "")


def errand(ch: Chooser, setting_: Setting, subject: NP, invert: bool) -> VP:
    """去图书馆借书: go there to do it; in the past, went and did."""
    verb = ch.pick([v for v in lex.TRANSITIVE if v.places & {"shop", "eat"} or v.zh == "借"])
    go, word = lex.MOTION[0], Zh(verb.zh)
    going = Zh(go.zh)
    there = places(verb.places)
    zh, english = to_place(ch.pick([p for p in there if "go" in p.tags and p.zh not in ("学校", "教室")]), going)
    past = setting_.marking.kind == "past"
    thing = object_phrase(ch, verb.objects, "new" if past else "ongoing", subject)
    le = [setting_.le] if past else []
    links = (word, *setting_.marking.cues) if past else (word,)
    purpose = (
        en("and", *links) + en(verb.base if invert else verb.past, *links)
        if past
        else en("to", word) + en(verb.base, word)
    )
    return VP(go, going, [], [*zh, word, *le, *thing.zh], english + purpose + thing.en)


def benefit(ch: Chooser, subject: NP) -> VP:
    """给妈妈买一件外套: buy a coat for my mother."""
    verb = ch.pick([v for v in lex.TRANSITIVE if v.zh in ("买", "挑选", "做", "准备", "写", "画", "唱")])
    to, word = Zh("给"), Zh(verb.zh)
    who = simple_person(ch, "object", subject)
    thing = object_phrase(ch, verb.objects, "new", subject)
    return VP(verb, word, [to, *who.zh], thing.zh, thing.en + en("for", to, word) + who.en, "verb")


def gift(ch: Chooser, subject: NP) -> VP:
    """送给妈妈一份礼物: give a gift to my mother."""
    verb = ch.pick(lex.TRANSFERS[:3])
    word, who = Zh(verb.zh), simple_person(ch, "object", subject)
    giving = Verb(verb.zh, verb.base, verb.third, verb.past, verb.participle, verb.ing)
    thing = thing_phrase(ch, ch.pick(nouns(verb.objects)), "new")
    return VP(giving, word, [], [*who.zh, *thing.zh], thing.en + en("to", word) + who.en, "verb")


def ba(ch: Chooser, subject: NP) -> VP:
    """把 + a definite thing + a verb with its result, recipient or place."""
    kind = ch.weigh({"result": 5, "transfer": 3, "placement": 4})
    verb = ch.pick({"result": lex.RESULTS, "transfer": lex.TRANSFERS, "placement": lex.PLACEMENTS}[kind])
    marker, word = Zh("把"), Zh(verb.zh)
    noun = ch.pick(nouns(verb.objects))
    thing = thing_phrase(ch, noun, "definite", verb.zh)
    pre, plain = [marker, *thing.zh], Verb(verb.zh, verb.base, verb.third, verb.past, verb.participle, verb.ing)
    if kind == "result":
        particle = en(verb.tail, word)
        return VP(plain, word, pre, [], particle + thing.en, "verb")
    if kind == "transfer":
        who = simple_person(ch, "object", subject)
        return VP(plain, word, pre, who.zh, thing.en + en("to", word) + who.en, "end")
    zh, english = place_words(surface(ch, noun, inside=verb.zh == "藏在"), word)
    return VP(plain, word, pre, zh, thing.en + english, "end")


def passive_clause(ch: Chooser, setting_: Setting, theme: NP, tags: frozenset[str]) -> Clause:
    """那个杯子被弟弟打碎了: that cup was broken by my younger brother. `tags` are the theme's classes."""
    marker = Zh("被")
    attack = "person" in tags and ch.chance(0.3)
    table = lex.ATTACKS if attack else (*lex.SUFFERED, *(lex.RESULTS if "person" not in tags else ()))
    verb = ch.pick([v for v in table if v.objects & tags])
    if attack:
        agent = noun_phrase(ch, ch.pick(nouns(frozenset({"pet", "wild"}))), ch.weigh({"one": 3, "那": 2}))
    else:
        agent = simple_person(ch, "object", theme) if ch.chance(0.75) else people_phrase(ch, relative=0.4)
    word = Zh(verb.zh)
    by = en("by", marker)
    vp = VP(verb, word, [marker, *agent.zh], [], by + agent.en, "end" if theme.zh else "", passive=(marker,))
    return clause(ch, theme, vp, setting_)


def action(ch: Chooser, kind: str, subject: NP, invert: bool = False) -> tuple[VP, Setting]:
    """A verb phrase of any make that goes with the tense `kind`, and that tense; `invert` for a question's."""
    long = ch.chance(0.3)
    when = setting(ch, kind, long)
    past = kind in ("past", "le", "past-not", "perfect", "once")
    mode = {
        "progressive": "ongoing",
        "past-not": "negative",
        "habit": "habit",
        "frequency": "habit",
        "modal": "ongoing",
    }
    weights = {"transitive": 44.0}
    if kind not in ("le", "perfect", "once"):
        weights |= {"intransitive": 26}
    if kind in ("past", "future", "past-not"):
        weights |= {"motion": 20}
    if subject.zh and kind in ("past", "future", "modal"):
        weights |= {"errand": 6, "benefit": 6, "gift": 4}
    make = ch.weigh(weights)
    if make == "intransitive":
        return intransitive(ch, [v for v in lex.INTRANSITIVE if not long or v.zh not in lex.DAILY]), when
    if make == "motion":
        return motion(ch, kind == "past"), when
    if make == "errand":
        return errand(ch, when, subject, invert), when
    if make in ("benefit", "gift"):
        return (benefit if make == "benefit" else gift)(ch, subject), when
    verbs = [v for v in lex.TRANSITIVE if (past or v.zh not in lex.PUNCTUAL) and not (long and v.zh in lex.DAILY)]
    if mode.get(kind) == "habit":
        verbs = [v for v in verbs if v.zh not in lex.OCCASIONAL]
    bare = not subject.zh and kind == "past" and ch.chance(0.7)
    vp = transitive(ch, ch.pick(verbs), "habit" if bare else mode.get(kind, "event"), subject)
    if kind == "le":
        vp.le = "verb"  # nothing else would tell the past
    return vp, when


def rest_of_animal(ch: Chooser) -> VP:
    """What an animal does all day."""
    return intransitive(ch, [v for v in lex.INTRANSITIVE if v.zh in ("睡觉", "休息", "玩耍")], "out near garden")


# ------------------------------------------------------------------------------------------------------ assembly


def clause(
    ch: Chooser,
    subject: NP,
    vp: VP,
    when: Setting,
    *,
    invert: bool = False,
    plain: bool = False,
    placed: bool = False,
    front: float = 0.7,
) -> Clause:
    """Subject, verb phrase and tense with the adjuncts that fit: 昨天在公园里，S高兴地V ... all go last in English.

    `plain` leaves out place, manner and company, `placed` asks for a place, `front` is how often the time comes first.
    """
    kind = when.marking.kind
    bare = kind == "past" and bool(subject.zh) and not vp.le and not vp.post  # 昨天他锻炼 alone sounds unfinished
    early: list[Zh] = []
    middle: list[Zh] = []
    preverbal = list(when.marking.zh)
    time_first = bool(when.time_zh) and not subject.leads and ch.chance(front)
    (early if time_first else middle).extend(when.time_zh)
    extras: list[En] = []
    company: list[Zh] = []
    if not plain and subject.zh and vp.places and ch.chance(0.1):
        other = simple_person(ch, "object", subject)
        company = [Zh("跟"), *other.zh, Zh("一起")]
        extras = en("with", company[0], company[-1]) + other.en
    manner: list[Zh] = []
    fitting = [m for m in lex.MANNERS if m.tags & vp.manners and not (company and m.zh == "独自")]
    if fitting and vp.places and not plain and kind in ("past", "present", "progressive") and ch.chance(0.25):
        entry = ch.pick(fitting)
        manner = [Zh(entry.zh)]
        extras = en(entry.en, *manner) + extras
    if not plain and vp.places and ch.chance(1.0 if placed or bare else 0.5):
        place = ch.pick(places(vp.places))
        if kind == "progressive":
            zh, english = place_words(place, preverbal[0])
            preverbal += zh
        else:
            zh, english = in_place(place)
            fronted = subject.zh and not subject.leads and bool(when.time_zh) == time_first and ch.chance(0.4)
            if fronted:
                early += [*zh, Zh("，")]
            else:
                preverbal += zh
        extras += english
    preverbal += company + manner
    done = kind == "past" or kind == "perfect"
    after_verb = [when.le] if done and vp.le == "verb" else []
    final = [when.le] if done and vp.le == "end" else []
    aux, rest = verb_group(vp.verb, vp.word, when.marking, subject, vp.passive, invert)
    zh = [*early, *subject.zh, *middle, *preverbal, *vp.pre, vp.word, *after_verb, *vp.post, *final]
    return Clause(zh, subject.en, aux, [*when.adverb, *rest, *vp.complement, *extras, *when.time_en])
