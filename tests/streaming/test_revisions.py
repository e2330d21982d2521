"""A source that changes its mind: what follows is what a stream would write that had stood there from the beginning."""

from collections import Counter

import pytest

from duplexmt.streaming.events import Read, Replaced, Write
from duplexmt.streaming.live import LiveEvent
from duplexmt.streaming.live_text import LineEnd, LiveSource

from .live_texts import feed, finish
from .revisions import POLICIES, Script
from .test_live import CHINESE, fed, translator_of

SCRIPTS = 4, 30  # of each policy at least, and until all is shown; for more: python -m tests.streaming.revisions 1000


@pytest.mark.parametrize("name", POLICIES)
def test_what_follows_is_what_a_stream_writes_that_stood_there_with_the_corrected_source(name):
    done, wanted = Counter(), ("replaced", "tokens", "moves")
    for seed in range(SCRIPTS[1]):
        if seed >= SCRIPTS[0] and all(done[kind] for kind in wanted):
            break
        script = Script(name, seed).run()
        script.check()
        done.update(script.done)
    for kind in wanted:
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


def test_a_position_whose_translation_is_over_is_refused_with_the_earliest_and_nothing_changes():
    translator = translator_of()
    before = list(feed(translator, "我们走。\n你昨天去"))
    for position in (0, 3, 4, 10):
        assert translator.replace(position, "x") == range(5, 10)
    assert translator.replace(-1, "x") == range(5, 10)
    assert told(translator) == []
    rest = list(feed(translator, "哪儿了？")) + list(finish(translator))
    assert before + rest == fed(translator_of(), ["我们走。\n你昨天去哪儿了？"])


def test_a_sentence_that_a_guard_stopped_is_not_gone_on_with():
    translator = translator_of(theta=0.0)
    before = list(feed(translator, CHINESE[0][:10]))
    assert before[-1].event.reason == "max_target_tokens"
    after = replaced(translator, 2, CHINESE[1])
    assert after[0].event == Replaced(0, 0)
    assert "Write" not in kinds(after)[: kinds(after).index("Read") if "Read" in kinds(after) else None]
    assert translator.sentences <= 2
    after += replaced(translator, 0, "\n" + CHINESE[1])
    assert [one.event.stream for one in before + after if kinds([one]) == ["End"]] == [0, 1]


def test_a_sentence_is_taken_anew_in_slices_and_a_second_replacement_meanwhile_follows_the_first(monkeypatch):
    taken, settle = [], LiveSource.settle
    monkeypatch.setattr(LiveSource, "settle", lambda source, whole=False: (taken.append(1), settle(source, whole)))
    translator = translator_of(theta=1.0)
    read = tokens(feed(translator, CHINESE[0][:8]))
    translator.driver.text_seconds, before = 0.0, len(taken)
    assert translator.replace(7, "我") is None
    for step in range(3):
        assert len(taken) <= before + step
        assert translator.driver.step() == []
    after = replaced(translator, 1, CHINESE[0][1:]) + list(finish(translator))
    assert [one.position for one in after if kinds([one]) == ["Replaced"]] == [7, 1]
    kept = len(read) - sum(one.event.tokens for one in after[:2])
    assert 0 <= kept < len(read)
    assert read[:kept] + tokens(after) == tokens(fed(translator_of(theta=1.0), [CHINESE[0]]))
