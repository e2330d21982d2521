"""Texts that share an engine: each is translated as it is alone, whoever else is there and whatever happens."""

from functools import cache, partial

from hypothesis import given, settings
from hypothesis import strategies as st

from duplexmt.common.text import invisible
from duplexmt.data.tokenizer import stream_tokens
from duplexmt.streaming.engine import Engine
from duplexmt.streaming.events import End, Read, Write
from duplexmt.streaming.live import Boundary, LiveDriver, LiveEvent

from ..helpers import SENTENCES, spoken_grid, tiny_tokenizer
from .live_texts import cut_at_random, live_text

TOKENIZER = tiny_tokenizer(460)
PLAIN, CONTEXT = stream_tokens(TOKENIZER), stream_tokens(TOKENIZER, context_tokens=4)
CHINESE = [source for source, _ in SENTENCES]
PIECES = st.lists(
    st.sampled_from([*CHINESE, "R&amp;D真 好！”", "\n", "\r\n", "Tea or coffee? ", " ", "\u200d"]),
    min_size=1,
    max_size=4,
)
TEXTS = st.lists(PIECES.map("".join), min_size=2, max_size=5)


@cache
def model():
    return spoken_grid(seed=2, tokenizer=TOKENIZER, anchor=0).double()


def driver_of(tokens=PLAIN, max_streams=64, park_after=float("inf"), text_seconds=float("inf")):
    engine = Engine(
        model(), tokens, theta=0.5, max_target_tokens=6, max_streams=max_streams, max_repeats=3, tokenizer=TOKENIZER
    )
    return LiveDriver(engine, park_after=park_after, text_seconds=text_seconds)


def join(driver, limit=20, **values):
    text = live_text(TOKENIZER, max_sentence_tokens=limit, invisible=partial(invisible, language="zh"))
    return driver.join(text, **values)


def stepped(driver, found):
    """Have the driver go on as far as it can; what each text led to is added to `found`."""
    while driver.goes_on:
        for translator, one in driver.step():
            found.setdefault(translator, []).append(one)
    return found


def without_boundaries(found):
    return [one for one in found if not isinstance(one, Boundary)]


def alone(text, tokens=PLAIN, limit=20):
    """What a text leads to in a driver of its own, given as a whole."""
    driver = driver_of(tokens)
    translator = join(driver, limit)
    translator.give(translator.text.take(text))
    translator.give(translator.text.end())
    return without_boundaries(stepped(driver, {}).get(translator, []))


@settings(max_examples=5)
@given(TEXTS, st.sampled_from([PLAIN, CONTEXT]), st.sampled_from([4, 20]), st.randoms(use_true_random=False))
def test_each_text_leads_to_what_it_leads_to_alone_however_they_arrive_and_however_few_the_streams(
    texts, tokens, limit, draw
):
    driver = driver_of(tokens, max_streams=draw.choice([1, 2, 64]), park_after=draw.choice([0.0, float("inf")]))
    found, waiting = {}, {}
    for text in texts:
        waiting[join(driver, limit)] = list(cut_at_random(text, draw))[::-1]
    order = list(waiting)
    while waiting:
        translator = draw.choice(list(waiting))
        if waiting[translator]:
            translator.give(translator.text.take(waiting[translator].pop()))
        else:
            translator.give(translator.text.end())
            del waiting[translator]
        for _ in range(draw.randint(0, 3)):
            for other, one in driver.step():
                found.setdefault(other, []).append(one)
    stepped(driver, found)
    for translator, text in zip(order, texts, strict=True):
        assert without_boundaries(found.get(translator, [])) == alone(text, tokens, limit)
    assert driver.engine.streams == driver.streaming == driver.queue == driver.due == {}


@settings(max_examples=5)
@given(TEXTS, st.randoms(use_true_random=False))
def test_a_change_of_theta_changes_its_own_text_alone(texts, draw):
    """Each is made once all that has arrived is translated, so that alone it comes at the same event."""
    scripts = [[(part, draw.choice([0.0, 0.3, 0.6, 1.0])) for part in cut_at_random(text, draw)] for text in texts]

    def say(driver, translator, found, part, theta):
        translator.give(translator.text.take(part))
        stepped(driver, found)
        translator.theta = theta

    driver, found = driver_of(max_streams=draw.choice([1, 2, 64]), park_after=0.0), {}
    order = [join(driver) for _ in texts]
    left = {translator: list(script)[::-1] for translator, script in zip(order, scripts, strict=True)}
    while left:
        translator = draw.choice(list(left))
        if left[translator]:
            say(driver, translator, found, *left[translator].pop())
        else:
            translator.give(translator.text.end())
            del left[translator]
    stepped(driver, found)
    for translator, script in zip(order, scripts, strict=True):
        single, expected = driver_of(), {}
        other = join(single)
        for part, theta in script:
            say(single, other, expected, part, theta)
        other.give(other.text.end())
        stepped(single, expected)
        assert without_boundaries(found.get(translator, [])) == without_boundaries(expected.get(other, []))
        told = [
            [one.theta for one in some if isinstance(one, LiveEvent)]
            for some in (found.get(translator, []), expected.get(other, []))
        ]
        assert told[0] == told[1]


@settings(max_examples=6)
@given(PIECES.map("".join), st.sampled_from([PLAIN, CONTEXT]), st.sampled_from([4, 20]), st.randoms())
def test_a_text_whose_driver_is_lost_goes_on_in_another_as_if_nothing_had_happened(text, tokens, limit, draw):
    """As the server does it: it knows the last boundary, the text since then, and what was read and written since."""
    state, read, written, reads, over, given_since = None, 0, [], [], False, ""
    parts, found = list(cut_at_random(text, draw))[::-1], []
    while True:
        driver = driver_of(tokens)
        translator = join(driver, limit)
        so_far = {"read": read, "written": [*written], "reads": [*reads], "over": over, "begun": read > 0}
        translator.restore(state, **so_far)
        translator.give(translator.text.take(given_since))
        lost = draw.randint(1, 40)  # steps from now
        while driver.goes_on or parts:
            if parts and draw.random() < 0.5:
                part = parts.pop()
                given_since += part
                translator.give(translator.text.take(part))
            for _, one in driver.step():
                found.append(one)
                if isinstance(one, Boundary):
                    before = 0 if state is None else state["text"]["position"]
                    given_since = given_since[one.position - before :]
                    state, read, written, reads, over = one.state, 0, [], [], False
                elif isinstance(one, LiveEvent):
                    read += isinstance(one.event, Read)
                    written += [one.event.token] if isinstance(one.event, Write) else []
                    reads += [read] if isinstance(one.event, Write) else []
                    over |= isinstance(one.event, End)
            lost -= 1
            if lost < 0:
                break
        else:
            break
    translator.give(translator.text.end())
    found += stepped(driver, {}).get(translator, [])
    assert without_boundaries(found) == alone(text, tokens, limit)


def test_a_stream_that_stalls_is_taken_only_after_its_time_and_taken_up_where_it_was():
    driver = driver_of(max_streams=1, park_after=60.0)
    first, second = join(driver, theta=1.0), join(driver)
    first.give(first.text.take("他没有看见"))
    stepped(driver, {})
    second.give(second.text.take(CHINESE[0]))
    stepped(driver, {})
    assert list(driver.queue) == [second]
    driver.park_after = 0.0
    found = stepped(driver, {})
    assert first.stream is None
    assert found[second]
    first.theta = 0.0  # a parked sentence that may now write wants a stream
    assert any(isinstance(one.event, Write) for one in stepped(driver, {})[first] if isinstance(one, LiveEvent))


def test_a_text_that_leaves_leaves_nothing():
    driver = driver_of(max_streams=1)
    first, second = join(driver), join(driver)
    for translator in (first, second):
        translator.give(translator.text.take(CHINESE[0]))
    driver.step()
    for translator in (first, second):
        translator.close()
    assert driver.engine.streams == driver.streaming == driver.queue == driver.due == {}
    assert not driver.goes_on


def test_long_texts_share_a_step():
    driver = driver_of()
    driver.text_seconds = 0.0
    translators = [join(driver) for _ in range(3)]
    for translator in translators:
        translator.give(translator.text.take(CHINESE[0] * 3))
    for _ in range(30):
        driver.step()
    first, *others = (translator.text.position for translator in translators)
    assert 0 < first < len(CHINESE[0])
    assert others == [first, first]
