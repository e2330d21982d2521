"""A source that changes its mind: what follows is what a stream would write that had stood there from the beginning."""

from collections import Counter

import pytest

from duplexmt.streaming.events import End, Read, Replaced, Write
from duplexmt.streaming.live import Boundary, LiveEvent
from duplexmt.streaming.live_text import LineEnd

from .live_texts import feed, finish, pause
from .revisions import Script
from .test_go_on import POLICIES
from .test_live import CHINESE, fed, translator_of

SCRIPTS = 12  # of each policy; for more: python -m tests.streaming.revisions 1000


@pytest.mark.parametrize("name", POLICIES)
def test_what_follows_is_what_a_stream_writes_that_stood_there_with_the_corrected_source(name):
    done = Counter()
    for seed in range(SCRIPTS):
        script = Script(name, seed).run()
        script.check()
        done.update(script.done)
    for kind in ("replaced", "tokens"):
        assert done[kind], f"no {kind}, so nothing was shown of that"


def told(translator):
    """All that the driver tells of a text."""
    found = []
    while translator.driver.goes_on:
        found += [one for who, one in translator.driver.step() if who is translator]
    return found


def replaced(translator, position, text):
    """What replacing leads to."""
    assert translator.replace(position, text) is None
    return told(translator)


def text_of(live):
    return "".join(one.text for one in live if isinstance(one, LiveEvent | LineEnd))


def kinds(live):
    return [type(one.event).__name__ for one in live if isinstance(one, LiveEvent)]


def tokens(live, kind=Read):
    return [one.event.token for one in live if isinstance(one, LiveEvent) and isinstance(one.event, kind)]


@pytest.mark.parametrize("theta", [0.0, 0.5, 1.0])
def test_what_was_not_read_is_simply_other_text(theta):
    """Held back, since a token is not settled; or behind a sentence that is still at work."""
    translator = translator_of("en", theta=theta)
    before = list(feed(translator, "The man s"))
    after = replaced(translator, 8, "was there.") + list(finish(translator))
    assert after[0].event == Replaced(0, 0)
    once = fed(translator_of("en", theta=theta), ["The man was there."])
    assert [one.event for one in before + after[1:]] == [one.event for one in once]


def test_text_behind_a_sentence_at_work_is_cut_anew():
    translator = translator_of(theta=1.0)
    translator.give(translator.text.take("我们走。你来。他看见"))
    found = [one for _, one in translator.driver.step()]
    assert tokens(found) != []
    found += replaced(translator, 4, "她的哥哥") + list(finish(translator))
    once = fed(translator_of(theta=1.0), ["我们走。她的哥哥"])
    assert tokens(found) == tokens(once)
    assert text_of(found) == text_of(once)


def test_what_was_read_is_read_anew_and_what_was_written_stays():
    translator = translator_of(theta=0.5)
    before = list(feed(translator, CHINESE[0][:8]))
    read, written = tokens(before), tokens(before, Write)
    assert len(read) > 3
    assert written
    after = replaced(translator, 1, CHINESE[0][1:]) + list(finish(translator))
    event = after[0].event
    assert 0 < event.tokens < len(read)
    assert after[0].position == 1
    kept = read[: len(read) - event.tokens]
    assert kept + tokens(after) == tokens(fed(translator_of(theta=1.0), [CHINESE[0]]))
    assert text_of(before + after).startswith(text_of(before))
    assert kinds(after).count("End") == 1


def test_delays_stay_what_they_were_and_go_on_from_what_is_read_anew():
    translator = translator_of(theta=0.5, segmentation="characters")
    before = list(feed(translator, CHINESE[0][:8]))
    after = replaced(translator, 0, "你") + list(feed(translator, CHINESE[1])) + list(finish(translator))
    read, delays = 0, []
    for one in after:
        if isinstance(one, LiveEvent) and isinstance(one.event, Read):
            read += 1
        elif isinstance(one, LiveEvent) and isinstance(one.event, Write):
            delays.append((one.event.delay, min(read, 1 + len(CHINESE[1]))))
    assert delays
    assert all(delay == read for delay, read in delays)
    assert [one.event.delay for one in before if isinstance(one.event, Write)][-1] > delays[0][0]


def test_the_end_token_is_taken_back_with_an_end_that_is_none():
    translator = translator_of(theta=1.0)
    translator.give(translator.text.take("我们走。他"))
    found = []
    while not any(isinstance(one, LiveEvent) and isinstance(one.event, Write) for one in found):
        found += [one for _, one in translator.driver.step()]
    kept = feed(translator_of(theta=1.0), "我们走")
    back = len(tokens(found)) - len(tokens(kept))
    found = replaced(translator, 3, "了吧。") + list(finish(translator))
    assert found[0].event.tokens == back > 1
    assert kinds(found).count("End") == 1


def test_a_position_whose_translation_is_over_is_refused_with_the_earliest_and_nothing_changes():
    translator = translator_of()
    before = list(feed(translator, "我们走。\n你昨天去"))
    for position in (0, 3, 4, 10):
        assert translator.replace(position, "x") == range(5, 10)
    assert translator.replace(-1, "x") == range(5, 10)
    assert told(translator) == []
    rest = list(feed(translator, "哪儿了？")) + list(finish(translator))
    assert before + rest == fed(translator_of(), ["我们走。\n你昨天去哪儿了？"])


def test_the_sentence_that_a_pause_ended_is_over():
    translator = translator_of()
    list(feed(translator, "我们走。")) + list(pause(translator))
    assert translator.replace(3, "x") == range(4, 5)
    assert translator.replace(4, "你") is None


def test_a_sentence_that_a_guard_stopped_is_not_gone_on_with():
    translator = translator_of(theta=0.0)
    before = list(feed(translator, CHINESE[0][:10]))
    assert before[-1].event.reason == "max_target_tokens"
    after = replaced(translator, 2, CHINESE[1])
    assert after[0].event == Replaced(0, 0)
    assert "Write" not in kinds(after)[: kinds(after).index("Read") if "Read" in kinds(after) else None]
    assert translator.sentences <= 2


@pytest.mark.parametrize("end", ["\n", None])
def test_a_sentence_whose_text_is_all_taken_away_is_over_with_its_line(end):
    translator = translator_of(theta=0.5)
    before = list(feed(translator, CHINESE[0][:6]))
    assert tokens(before, Write)
    found = replaced(translator, 0, "")
    assert kinds(found) == ["Replaced"]
    assert found[0].event.tokens == len(tokens(before))
    translator.give(translator.text.take(end) if end else translator.text.end())
    found = told(translator)
    assert found[0].event == End(0, "no_source")
    if end:
        following = list(feed(translator, CHINESE[1])) + list(finish(translator))
        alone = fed(translator_of(theta=0.5), [CHINESE[1]])
        assert text_of(following) == text_of(alone)
        assert {one.event.stream for one in following} == {1}


def test_a_sentence_whose_text_is_all_taken_away_goes_on_with_what_follows_on_its_line():
    translator = translator_of(theta=0.5)
    before = list(feed(translator, "我们走。" + CHINESE[0][:6]))
    after = replaced(translator, 4, CHINESE[1]) + list(finish(translator))
    begins = [one.text for one in before + after if kinds([one]) == ["Read"] and one.text]
    assert begins == [" "], "one space between two sentences"
    assert {one.event.stream for one in after if isinstance(one, LiveEvent)} == {1}


def test_without_revisions_nothing_is_told_of_any():
    live = fed(translator_of(), ["我们走。你来\n他没有看见。"])
    assert "Replaced" not in kinds(live)


def test_boundaries_hold_after_a_replacement():
    """Another driver goes on from there."""
    translator = translator_of()
    list(feed(translator, "我们走。你来"))
    found = replaced(translator, 4, "他没有看见。\n孩子")
    boundary = [one for one in found if isinstance(one, Boundary)][-1]
    assert boundary.position == 11
    other = translator_of()
    other.restore(boundary.state, read=0, written=[], reads=[], over=False, begun=False)
    rest = list(feed(other, "孩子们")) + list(finish(other))
    whole = list(feed(translator, "们")) + list(finish(translator))
    assert text_of(rest) == text_of(found[found.index(boundary) :]) + text_of(whole)
