"""What `benchmarks/serve_load.py` makes of what speakers note, and the command at a server with a tiny model."""

import asyncio
import json
import random
import sys
import time
from itertools import cycle

import pytest

from benchmarks import serve_load
from benchmarks.live_clients import Reference, Served, Speaker
from benchmarks.serve_load import latencies
from tests.helpers import SENTENCES
from tests.serving.live_server import tiny_folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tiny_folder(tmp_path_factory.mktemp("run") / "model", "characters")


@pytest.mark.slow
def test_the_command_compares_a_server_with_its_engine_and_each_text_with_that_of_translate_py(
    folder, monkeypatch, capsys
):
    for name, size in {"TURNS": 1, "AT_ONCE_SAID": 60}.items():
        monkeypatch.setattr(serve_load, name, size)
    monkeypatch.setattr(sys, "argv", f"it --model-folder {folder} --quick --active 2 --only throughput".split())
    serve_load.main()
    found = json.loads(capsys.readouterr().out)["throughput"]
    assert found["share_of_same_sentences"] > 0
    assert found | {"speakers": 2, "texts_lost_or_changed": 0, "disturbed": 0} == found


@pytest.mark.slow
def test_what_is_shown_of_one_who_is_misheard_is_known(folder):
    reference = Reference(str(folder), serve_load.TARGET_TOKENS, serve_load.MAX_REPEATS)
    text = "".join(source for source, _ in SENTENCES[:4])
    with Served(str(folder)) as served:
        speaker = Speaker(served.url, text, 10.0, deadline=time.monotonic() + 300, misheard=random.Random(1))
        asyncio.run(speaker.run())
        assert served.taken()["engine"] > (0, 0.0)
    assert speaker.made
    assert (speaker.done, speaker.written) == (True, speaker.expected(reference))


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
    text = serve_load.text_of(cycle(source for source, _ in SENTENCES), 30)
    due = reference.due(text)
    assert due == sorted(due)
    assert due[-1] == len(text)
    assert reference(text).count("\n") == text.count("\n") == 2
    assert due.count(text.index("\n") + 1) >= 2  # the line's end ends a sentence, and is an event itself
