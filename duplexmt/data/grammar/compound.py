"""Constructions of two clauses (因为, 虽然, 但是, 如果, what people say), questions and requests."""

from . import lexicon as lex
from .clauses import Clause, action, ba, clause, people_phrase, subject_phrase, transitive
from .nominals import Setting, marked, setting, simple_other, simple_person
from .nounphrases import kin, name, noun_phrase, together
from .phrases import NP, VP, Chooser, En, Marking, Zh, en, in_place, nouns, places, verb_group
from .simple import (
    STATES,
    Sides,
    ba_sentence,
    bei_sentence,
    identity,
    qualified,
    quality,
    rain,
    statement,
    weather,
    wishing,
)


def _he(subject: NP) -> NP:
    """The pronoun that takes up a subject whose gender or number is known."""
    if subject.agreement == "pl":
        text, english = ("她们" if subject.gender == "f" else "他们"), "they"
    else:
        text, english = ("她", "she") if subject.gender == "f" else ("他", "he")
    word = Zh(text)
    return NP([word], en(english, word), subject.agreement, (word,), subject.gender)


def _known_person(ch: Chooser) -> NP:
    """A third person whose gender is known, or several."""
    kind = ch.weigh({"kin": 4, "owned": 1, "name": 3, "们": 2, "and": 1, "people": 3})
    if kind == "and":
        first = kin(ch)
        return together(first, simple_other(ch, first))
    if kind == "们":
        return noun_phrase(ch, ch.pick((*lex.PEOPLE, *lex.PROFESSIONS)), "们", plain=True)
    if kind == "people":
        return people_phrase(ch, ch.pick([n for n in lex.PEOPLE if n.gender]))
    return name(ch) if kind == "name" else kin(ch, owned=kind == "owned")


def _join(first: str, first_en: str, left: Clause, second: str, second_en: str, right: Clause) -> Sides:
    """Two clauses with their conjunctions, a comma between them on both sides."""
    opening, comma, link = [Zh(first)] if first else [], Zh("，"), [Zh(second)] if second else []
    zh = [*opening, *left.zh, comma, *link, *right.zh]
    english = [*en(first_en, *opening), *left.statement, *en(",", comma), *en(second_en, *link), *right.statement]
    return zh, english


def _consequence(ch: Chooser, subject: NP, kind: str, then: bool = False) -> Clause:
    """Stayed at home, did not go to the park, or did not (will, will not) do something else.

    `kind` is past or future; `then` puts 就 after the subject.
    """
    make = ch.weigh({"stay": 1, "skip": 1, "other": 3})
    marking = marked("past-not", "没") if kind == "past" else marked("modal", "不会", "will not")
    if make == "stay":
        zh, english = in_place(next(p for p in lex.PLACES if p.zh == "家"))
        vp = VP(lex.STAY[0], Zh(lex.STAY[0].zh), [], zh, english)
        marking = Marking("past", (), (vp.word,)) if kind == "past" else marked("modal", "会", "will")
    elif make == "skip":
        going, place = lex.MOTION[0], ch.pick(places(frozenset({"go"})))
        goal = Zh(place.zh)
        vp = VP(going, Zh(going.zh), [], [goal], en(place.en, goal))
    else:
        vp, _ = action(ch, "past-not" if kind == "past" else "future", subject)
        if kind == "future" and ch.chance(0.6):
            marking = marked("modal", "会", "will")
    if then:
        marking = Marking(marking.kind, (Zh("就"), *marking.zh), marking.cues, marking.modal)
    return clause(ch, subject, vp, Setting(marking), plain=make == "other")


def because(ch: Chooser) -> Sides:
    """因为 (weather, a state or a price) 所以 (somebody stayed, did not go, did not buy, …)."""
    kind = ch.weigh({"weather": 4, "state": 4, "price": 1})
    if kind == "weather":
        time = ch.weigh({"past": 2, "future": 1})
        left, right = rain(ch, time), _consequence(ch, subject_phrase(ch), time)
    elif kind == "state":
        who = _known_person(ch)
        left = qualified(ch, who, ch.pick(STATES), setting(ch, "past"), linked=True)
        right = _consequence(ch, _he(who), "past")
    else:
        noun = ch.pick([n for n in nouns(lex.cells("book clothes vehicle device furniture")) if not n.unit])
        thing = noun_phrase(ch, noun, ch.weigh({"这": 1, "那": 1}))
        left = qualified(ch, thing, next(a for a in lex.ADJECTIVES if a.zh == "贵"), None, linked=True)
        word = Zh("买")
        vp = VP(lex.TRANSITIVE[0], word, complement=en("it", word, *thing.cues))
        right = clause(ch, simple_person(ch), vp, Setting(marked("past-not", "没")), plain=True)
    return _join("因为", "because", left, "所以", "", right)


def although(ch: Chooser) -> Sides:
    """虽然 S 很累，但是 S 正在 (or 必须) ..."""
    who, kind = _known_person(ch), ch.weigh({"modal": 1, "progressive": 1})
    he = _he(who)
    vp, when = action(ch, kind, he)
    if kind == "modal":
        when = Setting(marked("modal", "必须", "must"))
    left = qualified(ch, who, ch.pick(STATES), None, linked=True)
    return _join("虽然", "although", left, "但是", "", clause(ch, he, vp, when))


def but(ch: Chooser) -> Sides:
    """A contrast of two likings, or a wish that meets an obstacle."""
    if ch.chance(0.5):
        verb, first = ch.pick(lex.STATIVE[:3]), simple_person(ch)
        both = (first, simple_person(ch, exclude=first))
        sides = [clause(ch, s, transitive(ch, verb, "habit", s), Setting(Marking("present"))) for s in both]
        return _join("", "", sides[0], "但是", "but", sides[1])
    who = _known_person(ch)
    he, lacking = _he(who), Zh("没有")
    if ch.chance(0.5):
        right = qualified(ch, he, ch.pick(STATES), None, linked=True)
    else:
        lack = ch.pick(lex.LACKS)
        what = Zh(lack.zh)
        has = en("has" if he.agreement == "3sg" else "have", *he.cues, lacking, content=True)
        right = Clause([*he.zh, lacking, what], he.en, has, en("no", lacking) + en(lack.en, what))
    return _join("", "", wishing(ch, who), "但是", "but", right)


def condition(ch: Chooser) -> Sides:
    """如果明天下雨，S 就会待在家里."""
    left, right = rain(ch, "present"), _consequence(ch, subject_phrase(ch), "future", then=True)
    return _join("如果", "if", left, "", "", right)


def opinion(ch: Chooser) -> Sides:
    """S 觉得 + clause: thinks that ..."""
    who, verb = subject_phrase(ch), ch.pick(lex.OPINIONS)
    word = Zh(verb.zh)
    _, said = verb_group(verb, word, Marking("present"), who)
    names = {word.text for word in who.zh if word.text != "的"}
    while True:
        zh, english = ch.pick((statement, statement, weather, quality, identity, bei_sentence, ba_sentence))(ch)
        if not names & {word.text for word in zh}:
            return [*who.zh, word, *zh], [*who.en, *said, *en("that", word), *english]


def who_question(ch: Chooser) -> Sides:
    """谁昨天在公园里看见了那只猫？"""
    who = Zh("谁")
    subject = NP([who], en("who", who), "3sg", (who,))
    kind = ch.weigh({"past": 5, "le": 1, "future": 3, "progressive": 2, "habit": 1})
    vp, when = action(ch, kind, subject)
    if kind in ("past", "le", "future") and ch.chance(0.3):
        vp, when = ba(ch, subject), setting(ch, kind)
    inner = clause(ch, subject, vp, when, front=0.0)
    return inner.zh, inner.statement


def _inverted(ch: Chooser, kinds: dict[str, float], negated: bool = False) -> Clause:
    """A clause in question order whose time is fronted, so that the auxiliary is known before the subject."""
    me = NP([Zh("我")], [], "1sg", ())  # one does not ask about oneself
    kind, subject = ch.weigh(kinds), simple_person(ch, exclude=me)
    vp, when = action(ch, kind, subject, invert=True)
    if kind == "past" and ch.chance(0.3):
        vp, when = ba(ch, subject), setting(ch, kind)
    if kind == "future":
        when = setting(ch, kind, negated=negated)
    return clause(ch, subject, vp, when, invert=True, front=1.0)


def why_question(ch: Chooser) -> Sides:
    """为什么 + a time + ...: why did, why will."""
    why = Zh("为什么")
    inner = _inverted(ch, {"past": 3, "past-not": 3, "future": 2, "habit": 1}, negated=True)
    return [why, *inner.zh], [*en("why", why), *inner.question]


def polite_question(ch: Chooser) -> Sides:
    """请问，...吗？ is known for a question from its first word."""
    ask, comma, ma = Zh("请问"), Zh("，"), Zh("吗")
    inner = _inverted(ch, {"past": 4, "future": 5, "habit": 1})
    return [ask, comma, *inner.zh, ma], [*en("excuse me", ask), *en(",", comma), *inner.question]


def yes_no_question(ch: Chooser) -> Sides:
    """...吗？ is known for a question only from its last."""
    ma = Zh("吗")
    inner = _inverted(ch, {"past": 4, "future": 5, "habit": 1})
    first = [En(w.text, (*w.links, ma), w.content) for w in inner.auxiliary]
    return [*inner.zh, ma], [*first, *inner.question[len(first) :]]


def what_question(ch: Chooser) -> Sides:
    """昨天妈妈买了什么？"""
    what, subject = Zh("什么"), simple_person(ch)
    verb = ch.pick([v for v in lex.TRANSITIVE if v.zh in ("买", "读", "吃", "喝", "写", "画", "做", "找到", "收到")])
    vp = VP(verb, Zh(verb.zh), [], [what], [], "verb", (), verb.places)
    kind = "past" if verb.zh in lex.PUNCTUAL else ch.weigh({"past": 3, "future": 2, "habit": 1})
    inner = clause(ch, subject, vp, setting(ch, kind, negated=False), invert=True, front=1.0)
    first = [En(w.text, (*w.links, what), w.content) for w in inner.auxiliary]
    return inner.zh, [*en("what", what), *first, *inner.question[len(first) :]]


def request(ch: Chooser) -> Sides:
    """请把那本书放在桌子上: please put that book on the table."""
    please, nobody = Zh("请"), NP([], [], "pl", ())
    vp = ba(ch, nobody)
    while vp.word.text in ("打碎", "弄坏", "偷走", "忘在"):
        vp = ba(ch, nobody)
    english = en("please", please) + en(vp.verb.base, vp.word, content=True) + vp.complement
    return [please, *vp.pre, vp.word, *vp.post], english
