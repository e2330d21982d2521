"""Constructions of one clause: statements of every tense, 把 and 被, 是, qualities, 比, places and weather."""

from . import lexicon as lex
from .clauses import (
    Clause,
    action,
    ba,
    clause,
    passive_clause,
    people_phrase,
    rest_of_animal,
    subject_phrase,
    transitive,
)
from .lexicon import Adjective, Noun
from .nominals import KINDS, Setting, described_thing, marked, setting, simple_person, surface, thing_phrase
from .nounphrases import adjectives, kin, noun_phrase
from .phrases import NP, VP, Chooser, En, Marking, Zh, be, en, in_place, nouns, place_words, places

Sides = tuple[list[Zh], list[En]]

STATES = tuple(a for a in lex.ADJECTIVES if "state" in a.tags)
COLOURS = "红蓝黄白黑"
CHILDREN = ("男孩", "女孩", "孩子")


def statement(ch: Chooser) -> Sides:
    """Somebody does something, in any tense."""
    subject = subject_phrase(ch)
    inner = clause(ch, subject, *action(ch, ch.weigh(KINDS), subject))
    return inner.zh, inner.statement


def wish(ch: Chooser) -> Sides:
    """想, 打算, 希望 (or 不想) + verb phrase: wants to ..."""
    inner = wishing(ch, subject_phrase(ch), negative=ch.chance(0.2))
    return inner.zh, inner.statement


def wishing(ch: Chooser, subject: NP, negative: bool = False) -> Clause:
    verb = lex.WANTS[0] if negative else ch.pick(lex.WANTS)
    vp, _ = action(ch, "modal", subject)
    word = Zh(verb.zh)
    inner = en(vp.verb.base, vp.word, content=True) + en(vp.verb.tail, vp.word) + vp.complement
    wanting = VP(verb, word, [], [*vp.pre, vp.word, *vp.post], inner)
    when = Setting(marked("present-not", "不") if negative else Marking("present"))
    if not negative and ch.chance(0.4):
        future = setting(ch, "future")
        when = Setting(when.marking, future.time_zh, future.time_en)
    return clause(ch, subject, wanting, when)


def stative(ch: Chooser) -> Sides:
    """喜欢, 认识, 有 ... in the present, some negated."""
    subject, verb = subject_phrase(ch), ch.pick(lex.STATIVE)
    has = verb.zh == "有"
    vp = transitive(ch, verb, "having" if has else "liking", subject)
    negative = not has and ch.chance(0.25)
    inner = clause(ch, subject, vp, Setting(marked("present-not", "不") if negative else Marking("present")))
    return inner.zh, inner.statement


def animals(ch: Chooser) -> Sides:
    """Those three cats are sleeping in the garden; that dog bit the neighbour."""
    noun = ch.pick(lex.ANIMALS)
    kind = ch.weigh({"progressive": 4, "attack": 3, "habit": 2})
    if kind == "attack":
        noun = ch.pick(nouns(frozenset({"pet", "wild"})))
        subject = noun_phrase(ch, noun, ch.weigh({"one": 2, "那": 3, "这": 1}))
        vp = transitive(ch, ch.pick(lex.ATTACKS), "event", subject)
        inner = clause(ch, subject, vp, setting(ch, "past"))
    else:
        subject = described_thing(ch, noun) if ch.chance(0.6) else thing_phrase(ch, noun, "new")
        inner = clause(ch, subject, rest_of_animal(ch), setting(ch, kind), placed=kind == "habit" or ch.chance(0.6))
    return inner.zh, inner.statement


def ba_sentence(ch: Chooser) -> Sides:
    """S 把 a thing V ..."""
    subject = subject_phrase(ch)
    when = setting(ch, ch.weigh({"past": 55, "le": 20, "past-not": 8, "future": 12, "perfect": 5}))
    inner = clause(ch, subject, ba(ch, subject), when)
    return inner.zh, inner.statement


def bei_sentence(ch: Chooser) -> Sides:
    """A person or a thing 被 somebody V."""
    when = setting(ch, ch.weigh({"past": 65, "le": 20, "past-not": 8, "perfect": 7}))
    if ch.chance(0.45):
        subject = simple_person(ch) if ch.chance(0.4) else people_phrase(ch)
        tags = frozenset({"person"})
    else:
        verb = ch.pick((*lex.RESULTS, *lex.SUFFERED[-4:]))
        noun = ch.pick(nouns(verb.objects - {"person"}))
        subject, tags = described_thing(ch, noun), noun.tags
    if not when.time_zh and when.marking.kind == "past":
        when = Setting(Marking("past"))  # 被 tells the past by itself
    inner = passive_clause(ch, when, subject, tags)
    return inner.zh, inner.statement


def profession(ch: Chooser, subject: NP, noun: Noun) -> NP:
    """棒球手 as predicate: a baseball player, baseball players; or 一位有名的作家."""
    if subject.agreement != "pl" and ch.chance(0.3):
        return noun_phrase(ch, noun, "one")
    word = Zh(noun.zh)
    if subject.agreement == "pl":
        return NP([word], en(noun.plural, word, *subject.cues), "pl", (word,))
    return NP([word], en("an" if noun.en[0] in "aeiou" else "a", word) + en(noun.en, word), "3sg", (word,))


def copula(subject: NP, noun: NP, marker: str) -> Clause:
    """S 是 N with 曾 (was), 不 (is not) or nothing before 是."""
    is_ = Zh("是")
    mark = [Zh(marker)] if marker else []
    verb = be(subject, marker == "曾", *mark, is_)
    negation = en("not", *mark) if marker == "不" else []
    return Clause([*subject.zh, *mark, is_, *noun.zh], subject.en, verb, negation + noun.en)


def _person_to_describe(ch: Chooser, adult: bool) -> NP:
    if ch.chance(0.45):
        return simple_person(ch) if ch.chance(0.5) else kin(ch, owned=True)
    return people_phrase(ch, ch.pick([n for n in lex.PEOPLE if not (adult and n.zh in CHILDREN)]), relative=0.75)


def identity(ch: Chooser, marker: str = "") -> Sides:
    """S (不) 是 N."""
    subject = _person_to_describe(ch, adult=True)
    marker = marker or ("不" if ch.chance(0.15) else "")
    inner = copula(subject, profession(ch, subject, ch.pick(lex.PROFESSIONS)), marker)
    return inner.zh, inner.statement


def formerly(ch: Chooser) -> Sides:
    """S 曾是 N: was."""
    return identity(ch, "曾")


def _telling(noun: Noun) -> tuple[Adjective, ...]:
    return tuple(a for a in adjectives(noun) if a.zh not in COLOURS + "新旧小")


def _unsaid(options: tuple[Adjective, ...], subject: NP) -> tuple[Adjective, ...]:
    """Those not yet said of the subject: no delicious apples that are delicious."""
    said = {word.text for word in subject.zh}
    return tuple(a for a in options if a.zh not in said)


def quality(ch: Chooser) -> Sides:
    """S 很 ADJ, with a time for a passing state."""
    when = None
    if ch.chance(0.5):
        subject, state = _person_to_describe(ch, adult=False), ch.chance(0.6)
        options = STATES if state else tuple(a for a in lex.ADJECTIVES if "person" in a.tags)
        when = setting(ch, "past") if state and ch.chance(0.6) else None
    else:
        noun = ch.pick([n for n in (*lex.THINGS, *lex.ANIMALS) if len(_telling(n)) > 1])
        subject, options = described_thing(ch, noun), _telling(noun)
    inner = qualified(ch, subject, ch.pick(_unsaid(options, subject) or options), when)
    return inner.zh, inner.statement


def qualified(ch: Chooser, subject: NP, adjective: Adjective, when: Setting | None, linked: bool = False) -> Clause:
    """S 很 ADJ, or 不 ADJ; inside a larger sentence (`linked`) without 不, 真 or 太."""
    word, degrees = Zh(adjective.zh), [d for d in lex.DEGREES if adjective in STATES or d.zh != "有点儿"]
    degree = ch.pick([d for d in degrees if not (linked and d.zh in "真太")])
    no = not linked and adjective.zh not in ("有名", "感人", "奇怪", "高") and ch.chance(0.12)
    mark = Zh("不" if no else degree.zh)
    after = [Zh("了")] if mark.text == "太" else []
    time = when.time_zh if when else []
    first = not subject.leads and ch.chance(0.7)
    zh = [*(time if first else []), *subject.zh, *([] if first else time), mark, word, *after]
    rest = en("not" if no else degree.en, mark) + en(adjective.en, word)
    if when:
        rest += when.time_en
    verb = be(subject, when is not None, mark, *([word] if no else []), *time)
    return Clause(zh, subject.en, verb, rest)


def comparison(ch: Chooser) -> Sides:
    """A 比 B ADJ: A is ADJ-er than B."""
    than, much = Zh("比"), [Zh("得多")] if ch.chance(0.35) else []
    if ch.chance(0.5):
        first = simple_person(ch) if ch.chance(0.6) else people_phrase(ch, ch.pick(lex.PEOPLE), relative=0.7)
        second = simple_person(ch, "object", first)
        options = tuple(a for a in lex.ADJECTIVES if a.tags & {"person", "compare"})
    else:
        noun = ch.pick([n for n in lex.THINGS if adjectives(n) and not n.unit])
        first = described_thing(ch, noun)
        options = tuple(a for a in adjectives(noun) if a.zh not in COLOURS)
        alike = [n for n in nouns(noun.tags) if n.zh != noun.zh and not n.unit and set(options) <= set(adjectives(n))]
        second = noun_phrase(ch, ch.pick(alike or [noun]), ch.weigh({"这": 1, "那": 2}), plain=True)
    adjective = ch.pick(_unsaid(options, first) or options)
    word = Zh(adjective.zh)
    comparative = en("much", *much) + en(adjective.comparative, than, word, content=True)
    english = [*first.en, *be(first, False, than), *(comparative if much else comparative[1:])]
    return [*first.zh, than, *second.zh, word, *much], [*english, *en("than", than), *second.en]


def existence(ch: Chooser) -> Sides:
    """桌子上有一本书: there is a book on the table."""
    has, when = Zh("有"), None
    if ch.chance(0.6):
        noun = ch.pick(nouns(frozenset({"carry", "book"})))
        place = surface(ch, noun)
    else:
        place = ch.pick(places(frozenset({"out", "go", "water"}) - {"city"}))
        domestic = nouns(frozenset({"pet", "farm"}))
        noun = ch.pick((*domestic, *lex.PEOPLE) if place.tags & {"out"} else lex.PEOPLE)
        when = setting(ch, "past") if ch.chance(0.4) else None
    what = thing_phrase(ch, noun, "having")
    zh, english = place_words(place, None)
    time = when.time_zh if when else []
    verb = en("There", has, content=False) + be(what, when is not None, has, *time)
    return [*time, *zh, has, *what.zh], [*verb, *what.en, *english, *(when.time_en if when else [])]


def location(ch: Chooser) -> Sides:
    """我的钥匙在桌子上: my key is on the table."""
    noun = ch.pick(nouns(frozenset({"carry", "book"})))
    subject = described_thing(ch, noun)
    zh, english = in_place(surface(ch, noun))
    return [*subject.zh, *zh], [*subject.en, *be(subject, False, zh[0]), *english]


def weather(ch: Chooser) -> Sides:
    """昨天北京下雨了: it rained in Beijing yesterday."""
    inner = rain(ch, ch.weigh({"past": 1, "future": 1}), city=True)
    return inner.zh, inner.statement


def rain(ch: Chooser, kind: str, city: bool = False) -> Clause:
    """It rained ("past"), it will rain ("future"), or, in an if-clause, it rains tomorrow ("present")."""
    when, verb = setting(ch, "future" if kind == "present" else kind, negated=False), ch.pick(lex.WEATHER)
    word, where, english = Zh(verb.zh), [], []
    if city:
        place = ch.pick(places(frozenset({"city"})))
        where = [Zh(place.zh)]
        english = en(place.preposition, *where) + en(place.en, *where)
    marking = when.marking
    auxiliary, tail = [], []
    if kind == "future":
        auxiliary, form = en("will", *marking.cues), en(verb.base, word)
    elif kind == "past":
        tail, form = [when.le], en(verb.past, word, *marking.cues)
    else:
        marking, form = Marking("present"), en(verb.third, word)
    zh = [*when.time_zh, *where, *marking.zh, word, *tail]
    return Clause(zh, en("it", word), auxiliary, [*form, *english, *when.time_en])
