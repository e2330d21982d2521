"""A few faults of the campaign, at `serve.py` as a user starts it: `benchmarks/serve_load.py` has 300 of them."""

import asyncio

import pytest

from benchmarks import serve_faults, serve_load
from benchmarks.live_clients import Reference, Speaker
from benchmarks.serve_load import latencies


@pytest.mark.slow
def test_faults_lose_and_change_no_shown_text_and_disturb_nobody_else(folder, monkeypatch):
    monkeypatch.setattr(serve_faults, "JOINERS", 2000)
    reference = Reference(str(folder), serve_load.TARGET_TOKENS, serve_load.MAX_REPEATS)
    make = serve_load.Texts(seed=1)
    campaign = serve_faults.Campaign(str(folder), reference, [make(30) for _ in range(4)], seed=1)
    left_out = {"terminated", "engine_hung", "storm"}  # for their time
    kinds = [kind for kind in serve_faults.KINDS if kind not in left_out]
    found = asyncio.run(campaign.run(kinds))
    assert found["first_failures"] == []
    assert found["faults"] == len(kinds)
    assert found["bystanders"] >= serve_faults.BYSTANDERS
    assert found["engines_started"] == 2
    assert [found[name] for name in ("texts_lost_or_changed", "bystanders_affected", "sessions_left")] == [0, 0, 0]


def test_the_whole_campaign_has_all_kinds_of_faults_in_their_proportions():
    kinds = serve_faults.faults_of(300, serve_load.random.Random(1))
    assert len(kinds) == 300
    assert {kind: kinds.count(kind) for kind in kinds} == {kind: n for kind, (_, n) in serve_faults.KINDS.items()}


def test_a_changed_text_is_found():
    campaign = serve_faults.Campaign("none", str, ["ab"], seed=1)
    for written, well, changed in (("A", True, 1), ("A", False, 0), ("AX", False, 1), ("AB", False, 0)):
        campaign.counts["texts_lost_or_changed"] = 0
        with pytest.raises(serve_faults.FaultError, match="was shown"):
            campaign.compare(written, "AB", well=well)
        assert campaign.counts["texts_lost_or_changed"] == changed
    campaign.compare("AB", "AB")
    campaign.compare("A", "AB", whole=False)
    assert (campaign.counts["texts_compared"], campaign.counts["texts_lost_or_changed"]) == (6, 0)


def test_latencies_leave_out_waits_of_the_policy_and_keep_those_for_the_server():
    # characters 1, 2, 3, 4 are there at 0.0, 0.2, 0.4 and 0.6 s; a step takes 0.01 s
    speaker = Speaker("", "abcd", pace=5.0, begin=0.0)
    assert [speaker.spoken_at(position) for position in (1, 2, 4, 9)] == pytest.approx([0.0, 0.2, 0.6, 0.6])
    assert [speaker.there(now) for now in (-0.1, 0.0, 0.3, 9.0)] == [0, 1, 2, 4]
    told = [
        (0.01, "read", 1),
        (0.21, "read", 2),  # that the policy has read on is none of the server's doing
        (0.22, "write", 2),  # 0.02 after its source
        (0.24, "write", 2),  # 0.02 after its turn had come, at 0.22
        (0.65, "read", 4),  # the end of the source, which the next character has told, at 0.6
        (0.67, "write", 4),  # 0.07 after that
        (0.67, "end", 4),
        (0.67, "line", 4),
    ]
    due = [characters for *_, characters in told]
    speaker.events = [(received, {"event": kind}) for received, kind, _ in told]
    assert latencies(speaker, due, 0.01) == pytest.approx([0.02, 0.02, 0.07])
    late = [(received + 5.0, one) for received, one in speaker.events]
    speaker.events = late  # a server that is behind stays behind, also for writes that follow each other
    assert latencies(speaker, due, 0.01) == pytest.approx([5.02, 5.02, 5.07])
    with pytest.raises(ValueError, match="shorter"):
        latencies(speaker, due[:-1], 0.01)


def test_the_reference_says_how_many_characters_each_event_takes(folder):
    reference = Reference(str(folder), serve_load.TARGET_TOKENS, serve_load.MAX_REPEATS)
    text = serve_load.Texts(seed=1)(60)
    due = reference.due(text)
    assert due == sorted(due)
    assert due[-1] == len(text)
    assert reference(text).count("\n") == text.count("\n") == 2
    assert due.count(text.index("\n") + 1) >= 2  # the line's end ends a sentence, and is an event itself
