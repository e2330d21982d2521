"""The public API: what people's own programs do with a model, one text or many, on threads or in an event loop."""

import asyncio
import logging
import os
import random
import re
import signal
import subprocess
import sys
import threading
from inspect import signature
from pathlib import Path

import pytest
import yaml

import duplexmt
from duplexmt.data.tokenizer import stream_tokens
from duplexmt.streaming.live_text import LiveText

from ..helpers import tiny_prefix, tiny_tokenizer
from ..model_folder.test_artifact import save
from ..streaming import live_texts
from ..streaming.live_texts import cut_at_random
from .conftest import STREAMS, TEXTS

ROOT = Path(__file__).parents[2]


def fed(stream, pieces):
    with stream:
        return "".join(map(stream.feed, pieces)) + stream.finish()


# --- what comes back ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(2))
def test_a_stream_writes_the_same_however_its_text_was_cut(translator, alone, seed):
    draw = random.Random(seed)
    assert [fed(translator.stream(), [*cut_at_random(text, draw)]) for text in TEXTS] == alone


def test_each_line_has_its_translation_and_each_text_as_many_lines_as_before(translator, alone):
    found = translator.translate(TEXTS)
    for text, translation, streamed in zip(TEXTS, found, alone, strict=True):
        assert translation.count("\n") == text.count("\n")
        assert translation == (streamed if text.endswith("\n") else streamed.removesuffix("\n"))


def test_events_are_told_as_they_come_by_who_waits(translator):
    seen = []
    with translator.stream(on_event=lambda event: seen.append((threading.current_thread(), event))) as stream:
        stream.feed(TEXTS[0])
        assert [event for _, event in seen] == stream.events
        assert {thread for thread, _ in seen} == {threading.current_thread()}


def test_theta_is_the_models_own_a_streams_and_may_change(translator, alone):
    text = TEXTS[4]
    at = {theta: fed(translator.stream(theta), [text]) for theta in (0.0, 0.5, 1.0)}
    assert at[0.0] != at[1.0], "or it shows nothing"
    assert translator.theta == 0.5
    assert at[0.5] == alone[4]
    assert translator.translate([text], theta=1.0) == [at[1.0].removesuffix("\n")]
    with translator.stream(0.0) as stream:
        stream.theta = 1.0
        assert stream.theta == 1.0
        assert stream.feed(text) + stream.finish() == at[1.0]


def test_what_could_not_be_translated_whole_is_logged_with_its_text(translator, caplog):
    translator.translate(["人", "我\u200d们" * 50])
    messages = {record.message for record in caplog.records if record.name == "duplexmt"}
    assert all(message.startswith("text 2: ") for message in messages if "cut at" in message or "invisible" in message)
    assert {"text 2: the translation of a sentence was cut off (max_target_tokens)"} <= messages
    assert any("cut at 24 tokens" in message for message in messages)
    assert "text 2: 50 invisible characters passed over (U+200D)" in messages


# --- many at once -------------------------------------------------------------------------------------------------


@pytest.fixture
def steps(translator, monkeypatch):
    """How many streams went into each step of the engine."""
    sizes, answer = [], type(translator._driver.engine)._answer
    monkeypatch.setattr(
        type(translator._driver.engine),
        "_answer",
        lambda self, asking: (sizes.append(len(asking)), answer(self, asking)),
    )
    return sizes


def test_streams_of_many_threads_share_the_steps_and_none_reads_anothers_text(translator, alone, steps):
    found, many = {}, 4 * len(TEXTS)

    def speak(number):
        pieces = cut_at_random(TEXTS[number % len(TEXTS)], random.Random(number))
        found[number] = fed(translator.stream(), pieces)

    threads = [threading.Thread(target=speak, args=(number,)) for number in range(many)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert [found[number] for number in range(many)] == alone * 4
    assert max(steps) == STREAMS


def test_streams_of_an_event_loop_do_too_and_it_goes_on_meanwhile(translator, alone, steps):
    ticks = []

    async def speak(number):
        async with translator.async_stream() as stream:
            pieces = cut_at_random(TEXTS[number % len(TEXTS)], random.Random(number))
            written = "".join([await stream.feed(piece) for piece in pieces])
            paused = await stream.pause()
            assert paused == "".join(event.text for event in stream.events)
            return written + paused + await stream.finish()

    async def tick():
        while True:
            ticks.append(1)
            await asyncio.sleep(0.001)

    async def all_of_them():
        clock = asyncio.create_task(tick())
        found = await asyncio.gather(*map(speak, range(2 * len(TEXTS))))
        clock.cancel()
        return found

    assert asyncio.run(all_of_them()) == alone * 2
    assert max(steps) == STREAMS
    assert len(ticks) > 10


def test_whole_texts_go_side_by_side_and_no_more_of_them_are_taken_than_keep_the_engine_busy(translator, alone, steps):
    taken = []

    def for_ever():
        while True:
            taken.append(1)
            yield TEXTS[4]

    endless = translator.translate_each(for_ever())
    assert [next(endless) for _ in range(4)] == [alone[4].removesuffix("\n")] * 4
    assert len(taken) <= 3 * STREAMS
    assert max(steps) == STREAMS
    endless.close()
    assert translator.translate(TEXTS * 3) == translator.translate(TEXTS) * 3


@pytest.mark.parametrize("theta", [0.3, 0.5])
def test_a_source_that_changes_its_mind_is_read_anew_and_what_was_written_stays(translator, theta):
    with translator.stream(theta) as stream:
        written = stream.feed("他没有看见。孩子喜")
        events = [*stream.events]
        written += stream.feed("们喜欢那只猫。", replace=8)
        events += stream.events
        replaced = stream.events[0]
        assert isinstance(replaced.event, duplexmt.Replaced)
        assert (replaced.event.stream, replaced.position, replaced.text) == (1, 8, "")
        assert replaced.event.tokens > 0
        written += stream.feed("")
        written += stream.finish()
        events += stream.events
    assert written == "".join(event.text for event in events)
    tokens = [
        event.event.token
        for event in events
        if getattr(getattr(event, "event", None), "stream", 0) == 1 and isinstance(event.event, duplexmt.Read)
    ]
    del tokens[tokens_before(events) - replaced.event.tokens : tokens_before(events)]
    with translator.stream(1.0) as plain:
        plain.feed("他没有看见。孩子们喜欢那只猫。")
        once = [
            event.event.token
            for event in plain.events
            if isinstance(event.event, duplexmt.Read) and event.event.stream == 1
        ]
        assert tokens[: len(once)] == once


def tokens_before(events):
    """Tokens of the second sentence read before the replacement."""
    kinds = [event.event for event in events if isinstance(event, duplexmt.LiveEvent)]
    before = kinds[: [type(kind) for kind in kinds].index(duplexmt.Replaced)]
    return sum(isinstance(kind, duplexmt.Read) and kind.stream == 1 for kind in before)


@pytest.mark.parametrize(
    ("replace", "told"),
    [
        (0, "must be from 6 to 8: what is before 6 has"),
        (9, "ends at 8"),
        (-1, "must be from 6 to 8"),
        (True, "replace=True"),
        ("3", "'3'"),
    ],
)
def test_what_cannot_be_replaced_is_refused_with_what_can_and_the_stream_goes_on(translator, replace, told):
    with translator.stream() as plain:
        expected = plain.feed("他没有看见。我们") + plain.feed("去学校。") + plain.finish()
    with translator.stream() as stream:
        written = stream.feed("他没有看见。我们")
        with pytest.raises(ValueError, match=told):
            stream.feed("你", replace=replace)
        assert written + stream.feed("去学校。") + stream.finish() == expected
        with pytest.raises(ValueError, match="finished"):
            stream.feed("你", replace=0)


def test_nothing_is_lost_of_what_another_threshold_has_written_before_the_next_call(translator):
    text = TEXTS[0]
    alone = translator._join(1.0, print)
    translator._thread.submit(int).result()  # streams of other tests are forgotten; this one is stepped from here
    expected = [*live_texts.feed(alone, text[:4])]
    alone.theta = 0.0
    expected += [*live_texts.feed(alone, text[4:]), *live_texts.finish(alone)]
    with translator.stream(theta=1.0) as stream, translator.stream() as other:
        waited = stream.feed(text[:4])
        stream.theta = 0.0
        other.feed(text)  # and steps the engine, before anybody asks for what the first one writes
        found = waited + stream.feed(text[4:]) + stream.finish()
    assert found.replace("\n", "") == "".join(event.text for event in expected)


def test_a_stream_that_was_left_in_the_midst_holds_nobody_up(translator, alone):
    for _ in range(2 * STREAMS):
        with translator.stream() as stream:
            stream.feed("他没有")
    idle = [translator.stream() for _ in range(2 * STREAMS)]  # and as many that wait for their speakers
    for stream in idle:
        stream.feed("他没有")
    assert fed(translator.stream(), [TEXTS[0]]) == alone[0]
    assert len({stream.feed("看见那个人。") + stream.finish() for stream in idle}) == 1


# --- what goes wrong ----------------------------------------------------------------------------------------------


def test_where_memory_is_short_one_stream_is_told_and_the_others_go_on(translator, alone, monkeypatch):
    with translator.stream() as unlucky, translator.stream() as other:
        unlucky.feed("他没有看见")
        (name,) = (name for name, one in translator._driver.streaming.items() if one is unlucky._live)
        step = translator._driver.engine.step

        def short(streams, once):
            if any(stream.name == name for stream in streams):
                raise ValueError("no room for the states")
            return step(streams, once=once)

        monkeypatch.setattr(translator._driver.engine, "step", short)
        asked = threading.Thread(target=other.feed, args=(TEXTS[0],))
        asked.start()
        with pytest.raises(ValueError, match="no room for the states"):
            unlucky.feed("那个人。")
        asked.join(60)
        monkeypatch.undo()
        assert "".join(event.text for event in other.events) + other.finish() == alone[0]
        with pytest.raises(ValueError, match="finished or closed: open another"):
            unlucky.feed("人")


def test_an_error_of_our_own_reaches_who_waits_and_the_next_text_is_translated(translator, alone, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(LiveText, "_take", lambda self, characters: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            translator.translate(["人"])
        with pytest.raises(ZeroDivisionError):
            asyncio.run(translator.async_stream().feed("人"))
    assert fed(translator.stream(), [TEXTS[0]]) == alone[0]


@pytest.mark.parametrize("events", [0, 20])
def test_what_a_cancelled_call_had_to_return_the_next_one_returns(translator, alone, events):
    async def impatient():
        seen, enough = [], asyncio.Event()
        told = lambda event: [seen.append(event), len(seen) >= events and enough.set()]  # noqa: E731
        async with translator.async_stream(on_event=told) as stream:
            task = asyncio.create_task(stream.feed(TEXTS[5]))
            await (enough.wait() if events else asyncio.sleep(0))
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            return await stream.feed("") + await stream.finish()

    assert asyncio.run(impatient()) == alone[5]


def test_a_cancelled_call_that_failed_is_a_warning_of_the_next_one(translator, alone):
    async def impatient():
        async with translator.async_stream(on_warning=warnings.append) as stream:
            task = asyncio.create_task(stream.feed("人", replace=99))
            await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            return await stream.feed(TEXTS[5]) + await stream.finish()

    warnings = []
    assert asyncio.run(impatient()) == alone[5]
    assert warnings[0].startswith("a call that was cancelled failed: replace=99")
    assert "cancelled" not in "".join(warnings[1:])


def test_a_text_in_another_script_is_a_warning(translator):
    warnings = []
    with translator.stream(on_warning=warnings.append) as stream:
        stream.feed("How are you, my friend? How old are you now?")
        stream.finish()
    assert len(warnings) == 1
    assert warnings[0].startswith("'How are you, my friend?' is not in the script of the model's source language, zh")


def test_an_async_stream_stays_in_its_event_loop(translator, alone):
    stream = translator.async_stream()
    asyncio.run(stream.feed(TEXTS[5]))
    with pytest.raises(ValueError, match="stays in the event loop of its first call: open another one"):
        asyncio.run(stream.finish())
    stream.close()


def test_who_closes_a_stream_frees_who_waits_for_it(translator):
    stream = translator.stream(on_event=lambda event: stream.close())
    thread = threading.Thread(target=stream.feed, args=(TEXTS[5] * 50,))
    thread.start()
    thread.join(60)
    assert not thread.is_alive()
    assert len(stream.events) < 1000


def test_a_stream_that_is_used_twice_at_once_says_so_and_goes_on(translator):
    async def both():
        async with translator.async_stream() as stream:
            calls = stream.feed("他没有"), stream.feed("看见那个人。")
            found = await asyncio.wait_for(asyncio.gather(*calls, return_exceptions=True), 60)
            return found, found[0] + await stream.feed("看见那个人。") + await stream.finish()

    (_, refusal), written = asyncio.run(both())
    assert "one call at a time" in str(refusal)
    assert written == fed(translator.stream(), ["他没有看见那个人。"])


def test_a_stream_that_is_fed_by_its_own_on_event_says_so(translator):
    refusals = []

    def again(event):
        with pytest.raises(ValueError, match="one call at a time: wait for that before, or open another") as refusal:
            stream.feed("人")
        refusals.append(refusal)

    stream = translator.stream(on_event=again)
    thread = threading.Thread(target=stream.feed, args=(TEXTS[0],), daemon=True)
    thread.start()
    thread.join(60)
    assert not thread.is_alive()
    assert len(refusals) == len(stream.events) > 0
    stream.close()


@pytest.mark.filterwarnings("ignore:.*fork")
def test_a_forked_process_which_has_no_thread_for_the_model_is_told(translator):
    out, into = os.pipe()
    if not (child := os.fork()):
        signal.alarm(20)  # it would wait for ever
        try:
            with translator.stream():
                translator.translate(["人"])
        except ValueError as error:
            os.write(into, str(error).encode())
        finally:
            os._exit(0)
    os.close(into)
    with os.fdopen(out) as told:
        message = told.read()
    os.waitpid(child, 0)
    assert "load it in the child process" in message


@pytest.mark.parametrize(
    ("mistake", "message"),
    [
        (lambda one: one.translate("人"), r"texts='人': give a list of texts, such as \['人'\]"),
        (lambda one: one.translate([b"x"]), "b'x': a text is a str; decode bytes first"),
        (lambda one: one.translate(["人", None, "人"]), "None: a text is a str"),
        (lambda one: one.translate(["\ud83d"]), "lone surrogates"),
        (lambda one: one.stream(1.5), "theta=1.5: the EMIT threshold must be a number between 0 and 1"),
        (lambda one: one.translate(["人"], theta="high"), "theta='high': .* between 0 and 1"),
        (lambda one: [stream := one.stream(), stream.finish(), stream.feed("人")], "finished or closed: open another"),
        (lambda one: asyncio.run(one.async_stream().feed(7)), "7: a text is a str"),
    ],
)
def test_a_mistake_is_a_value_error_that_names_value_rule_and_way_out(translator, mistake, message):
    with pytest.raises(ValueError, match=message):
        mistake(translator)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"device": "tpu9"}, "device='tpu9'"),
        ({"device": "meta"}, "device='meta': not to be had on this machine"),
        ({"device": None}, "device=None: not to be had on this machine"),
        ({"quantize": "int3"}, "quantize=int3: must be 'int8' or 'bfloat16'"),
        ({"run_as": "guess"}, "run_as='guess': must be one of grid, waitk"),
        ({"run_as": "waitk", "setting": 3}, "holds a grid model, which cannot be run as that"),
        ({"setting": 3}, "setting=3: of what"),
        ({"model_folder": ""}, "model_folder='': must be a folder"),
        ({"model_folder": None}, "model_folder=None: must be a folder"),
        ({"max_streams": 0}, "max_streams=0: must be a whole number of at least 1"),
        ({"max_streams": "4"}, "max_streams='4': must be a whole"),
        ({"max_streams": True}, "max_streams=True: must be a whole"),
        ({"max_target_tokens": 0}, "^max_target_tokens=0: must be"),
        ({"max_repeats": "x"}, "max_repeats='x': .* at least 2, or null for no guard"),
        ({"max_sentence_tokens": 2.5}, r"max_sentence_tokens=2\.5: must be a whole"),
        ({"max_sentence_tokens": "5"}, "max_sentence_tokens='5': must be a whole"),
        ({"max_sentence_tokens": True}, "max_sentence_tokens=True: must be a whole"),
        ({"cut": "no"}, "cut='no': must be True or False"),
        ({"adaptive": 3}, "adaptive=3: must be an Adaptive"),
        ({"max_sentence_tokens": 10_000}, "max_sentence_tokens=10000: must be a whole number between 1 and"),
    ],
)
def test_a_value_that_breaks_its_rule_is_refused_by_load(folder, given, message):
    with pytest.raises(ValueError, match=message):
        duplexmt.load(**{"model_folder": folder, "device": "cpu"} | given)


def test_other_systems_are_run_by_name_and_have_no_theta(tmp_path):
    model = tiny_prefix("multi", seed=3, anchor=12, vocab_size=len(tiny_tokenizer()))
    saved = save(tmp_path / "model", model, tokens=stream_tokens(tiny_tokenizer()), policy={})
    for run_as, setting in (("confidence", 0.4), ("waitk", 2), ("lsg", 0.3)):
        found = duplexmt.load(saved, device="cpu", run_as=run_as, setting=setting, max_target_tokens=8)
        assert found.theta is None
        assert found.translate(["他没有看见那个人。"]) != [""]
        with pytest.raises(ValueError, match=r"theta=0\.5: only a grid has a θ"):
            found.stream(0.5)
    with pytest.raises(ValueError, match="no grid: say what to run it as"):
        duplexmt.load(saved, device="cpu")


# --- the package --------------------------------------------------------------------------------------------------


def test_nothing_is_printed(folder, capfd):
    logging.getLogger("duplexmt").debug("nobody listens")
    assert duplexmt.load(folder, device="cpu", max_target_tokens=8).translate(["他没有看见那个人。"])
    assert capfd.readouterr() == ("", "")


def test_importing_it_loads_next_to_nothing_and_a_name_what_it_needs():
    code = "import sys, duplexmt\nassert len(duplexmt.__all__) < 15 and {*duplexmt.__all__} <= {*dir(duplexmt)}\n"
    code += "assert not {'torch', 'transformers', 'numpy', 'websockets'} & {*sys.modules}\n"
    code += "duplexmt.Client, duplexmt.Read\nassert 'torch' not in sys.modules"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT).returncode == 0


def test_every_public_name_is_typed_and_there():
    typed = re.findall(r" as (\w+)$", (ROOT / "duplexmt" / "__init__.pyi").read_text(encoding="utf-8"), re.MULTILINE)
    assert sorted(typed) == duplexmt.__all__
    for name in duplexmt.__all__:
        assert getattr(duplexmt, name).__name__ == name
    with pytest.raises(AttributeError, match="no attribute 'lode'"):
        duplexmt.lode  # noqa: B018


def test_its_defaults_are_those_of_the_commands(folder):
    settings = yaml.safe_load((ROOT / "conf" / "translate.yaml").read_text(encoding="utf-8"))
    served = yaml.safe_load((ROOT / "conf" / "serve.yaml").read_text(encoding="utf-8"))["engine"]
    given = {
        name: one.default for name, one in signature(duplexmt.load).parameters.items() if one.default is not one.empty
    }
    assert given.pop("max_streams") == served["max_streams"]
    assert given.pop("adaptive") is None
    assert given == {name: settings[name] for name in given}
    adaptive = yaml.safe_load((ROOT / "conf" / "adaptive" / "default.yaml").read_text(encoding="utf-8"))
    assert vars(duplexmt.translator.translator.ADAPTIVE) == adaptive


def test_the_page_of_the_api_has_every_name_and_parameter():
    page = (ROOT / "docs" / "reference" / "api.md").read_text(encoding="utf-8")
    for name in duplexmt.__all__:
        assert f"`{name}" in page or f".{name}" in page, name
    methods = [getattr(duplexmt.Translator, name) for name in ("translate", "translate_each", "stream", "async_stream")]
    methods += [getattr(duplexmt.Stream, name) for name in ("feed", "pause", "finish", "close")]
    for method in (duplexmt.load, *methods):
        assert f"{method.__name__}(" in page
        for parameter in signature(method).parameters:
            assert parameter == "self" or f"`{parameter}`" in page, (method, parameter)
    for event in (duplexmt.LiveEvent, duplexmt.Read, duplexmt.Write, duplexmt.End, duplexmt.LineEnd):
        for field in event.__dataclass_fields__:
            assert f"`{field}`" in page, (event, field)
