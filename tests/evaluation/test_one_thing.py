"""What is scored is what people get: evaluate.py, translate.py, the API and the live server's driver write the
same for the same sentence, at the same time, whatever the model's anchor; and who was told lengths says so."""

import io
import json
import os
import random
import re
import shutil
import threading

import pytest

import duplexmt
import evaluate
import translate
from duplexmt.config import TranslateSettings
from duplexmt.evaluation.decoding import Decoding
from duplexmt.evaluation.results import write_results
from duplexmt.model_folder.artifact import load_model_folder
from duplexmt.model_folder.live_model import live_engine, live_text
from duplexmt.model_folder.manifest import read_manifest
from duplexmt.policy.decoding_options import Adaptive
from duplexmt.streaming.events import Write
from duplexmt.streaming.live import LiveDriver, LiveEvent
from duplexmt.streaming.systems import asks_length

from ..helpers import CORPUS, SENTENCES, model_folder, spoken_grid, tiny_prefix, tiny_tokenizer, tsv
from ..streaming.live_texts import cut_at_random
from ..test_config import checked

PAIRS = [(source.rstrip("。"), target) for source, target in SENTENCES[:4]]
LIMIT = 12
ADAPTIVE = Adaptive(k_min=1, k_max=4, alpha=0.9, divergence="paper")
BY_WORDS = "by-words"
RUNS = [
    ("grid", 0.4, "source_length"), ("grid", 0.4, 40), ("waitk", 2, "source_length"), ("confidence", 0.2, 40),
    ("lsg", 0.3, "source_length"), ("offline", None, 40), ("hold", 2, "source_length"), ("alignatt", 1, 40),
    ("local_agreement", 2, "source_length"), ("grid", 0.4, BY_WORDS),
]  # fmt: skip


def model_of(system, anchor):
    anchor = 40 if anchor == BY_WORDS else anchor
    if system == "grid":
        return spoken_grid(seed=5, anchor=anchor)
    k = "multi" if system in ("waitk", "confidence", "lsg") else None
    return tiny_prefix(k, seed=5, anchor=anchor, vocab_size=len(tiny_tokenizer()), scale=0.4)


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Model folders by system and anchor, with the pairs that were held out of their corpus."""
    home, found = tmp_path_factory.mktemp("models"), {}
    held_out = tsv(home / "pairs.tsv", PAIRS)
    data = CORPUS | {"path": "gone.tsv", "licence": "CC0", "max_tokens": 60}
    data |= {"test_path": held_out, "validation_path": held_out}
    for system, _, anchor in RUNS:
        policy = {"lam": 0.1, "theta": 0.5} | ({"words": True} if anchor == BY_WORDS else {})
        further = {"data": data, "policy": policy, "training": {"typical_source_length": 7}}
        found[system, anchor] = model_folder(home / f"{system}-{anchor}", model_of(system, anchor), **further)
    return found


def evaluated(into, folder, system, setting, *further):
    """The evaluation of a model folder run as one system at one setting, by what the entry point runs."""
    knob = {"grid": f"policy.theta={setting}", "waitk": f"k={setting}", "offline": "k=null"}
    knob["local_agreement"] = f"agreement=[{setting}]"
    given = [
        f"model_folder={folder}", knob.get(system, f"{system}={setting}"), f"policy.max_target_tokens={LIMIT}",
        "device=cpu", "check_overlap=false", "quality.resamples=100", "batch_size=3", "adaptive.k_min=1",
        "adaptive.k_max=4", "adaptive.alpha=0.9", *further,
    ]  # fmt: skip
    evaluate.job(checked("evaluate", *given), given, into).decode()
    return Decoding.read(into)


def hypotheses(decoding, system, setting):
    """Texts and delays."""
    (key,) = [key for key, point in decoding.points.items() if (point.system, point.setting) == (system, setting)]
    return [(record["text"], record["delays"]) for record in decoding.sorted(key)]


def by_translate(monkeypatch, folder, system, setting, pieces):
    """The same by translate.py, whose standard input arrives in pieces."""
    reader, writer = os.pipe()

    def speak():
        with open(writer, "wb", buffering=0) as pipe:
            for piece in pieces:
                pipe.write(piece.encode())

    speaker, out = threading.Thread(target=speak), io.StringIO()
    default = dict.fromkeys(TranslateSettings.__annotations__)
    default |= {"max_target_tokens": LIMIT, "cut": True, "pause": 9.0, "events": True, "steps": False, "device": "cpu"}
    default |= {"model_folder": str(folder), "adaptive": ADAPTIVE}
    default |= {"theta": setting} if system == "grid" else {"run_as": system, "setting": setting}
    with open(reader) as file, monkeypatch.context() as patch:
        patch.setattr("sys.stdin", file)
        patch.setattr("sys.stdout", out)
        speaker.start()
        translate.translate(TranslateSettings(**default))
        speaker.join()
    found = {}
    for event in map(json.loads, out.getvalue().splitlines()):
        text, delays = found.setdefault(event["line"], ("", []))
        if event["event"] == "write":
            delays = [*delays, event["delay"]]
        found[event["line"]] = text + event.get("text", ""), delays
    return list(found.values())


def by_driver(folder, system, setting, draw):
    """The same by the live server's driver: all sentences at once, as texts of their own, over three streams."""
    loaded = load_model_folder(folder)
    how = {"setting": None, "run_as": None} if system == "grid" else {"setting": setting, "run_as": system}
    engine = live_engine(loaded, LIMIT, None, max_streams=3, adaptive=ADAPTIVE, **how)
    if system == "grid":
        engine.theta = setting
    driver = LiveDriver(engine, park_after=0.0)
    clients = [driver.join(live_text(loaded, engine, None, True)) for _ in PAIRS]
    waiting = {client: list(cut_at_random(text, draw)) for client, (text, _) in zip(clients, PAIRS, strict=True)}
    found = {client: ("", []) for client in clients}
    while waiting or driver.goes_on:
        for client in draw.sample(list(waiting), min(2, len(waiting))):
            client.give(client.text.take(waiting[client].pop(0)))
            if not waiting[client]:
                client.give(client.text.end())
                del waiting[client]
        for client, one in driver.step():
            if isinstance(one, LiveEvent):
                text, delays = found[client]
                event = one.event
                delays = [*delays, event.delay] if isinstance(event, Write) else delays
                found[client] = text + getattr(event, "text", ""), delays
    return list(found.values())


def by_api(folder, system, setting, draw):
    """The same by the public API, whose streams are fed in turns over three streams of the engine."""
    how = {} if system == "grid" else {"run_as": system, "setting": setting, "adaptive": ADAPTIVE}
    translator = duplexmt.load(folder, device="cpu", max_streams=3, max_target_tokens=LIMIT, max_repeats=None, **how)
    streams = [translator.stream(setting if system == "grid" else None) for _ in PAIRS]
    waiting = {stream: list(cut_at_random(text, draw)) for stream, (text, _) in zip(streams, PAIRS, strict=True)}
    found = {stream: ("", []) for stream in streams}
    while waiting:
        stream = draw.choice(list(waiting))
        written = stream.feed(waiting[stream].pop(0)) if waiting[stream] else stream.finish().removesuffix("\n")
        text, delays = found[stream]
        writes = [event.event for event in stream.events if isinstance(event, LiveEvent)]
        found[stream] = text + written, [*delays, *(event.delay for event in writes if isinstance(event, Write))]
        if stream.events and not isinstance(stream.events[-1], LiveEvent):
            del waiting[stream]
    return list(found.values())


@pytest.mark.parametrize(("system", "setting", "anchor"), RUNS)
def test_a_sentence_is_translated_as_it_is_scored_wherever_it_is_translated(
    folders, tmp_path, monkeypatch, system, setting, anchor
):
    folder, text = folders[system, anchor], "".join(source + "\n" for source, _ in PAIRS)
    scored = hypotheses(evaluated(tmp_path / "run", folder, system, setting), system, setting)
    assert len({text for text, _ in scored}) > 1, "or it shows nothing"
    draw = random.Random(3)
    assert by_translate(monkeypatch, folder, system, setting, cut_at_random(text, draw)) == scored
    assert by_driver(folder, system, setting, draw) == scored
    assert by_api(folder, system, setting, draw) == scored
    if anchor == BY_WORDS:
        tokenwise = evaluated(tmp_path / "by tokens", folder, system, setting, "policy.words=false")
        assert hypotheses(tokenwise, system, setting) != scored, "or it shows nothing"


@pytest.mark.parametrize(("system", "setting"), [("grid", 0.4), ("waitk", 2), ("lsg", 0.3), ("hold", 2)])
def test_told_lengths_change_what_asks_for_them_and_nothing_else(folders, tmp_path, system, setting):
    folder = folders[system, "source_length"]
    untold, told = (
        evaluated(tmp_path / str(told), folder, system, setting, f"told_length={str(told).lower()}")
        for told in (False, True)
    )
    (point,) = [point for point in told.points.values() if (point.system, point.setting) == (system, setting)]
    asks = asks_length(system, "source_length", load_model_folder(folder).model.k)
    assert asks == (system != "hold")
    assert point.options.get("told length") == (True if asks else None)
    assert (point.digest in untold.points) != asks
    assert (hypotheses(untold, system, setting) == hypotheses(told, system, setting)) != asks


def scored(into, *folders, **options):
    """Names and all that is shown of evaluations put together."""
    how = {"checkpoints": {}, "environment": "none", "neural_batch_size": 8, "device": "cpu", "source_rate": 4.0}
    scores, shown, troubles = write_results(folders, into, **how, resamples=100, **options)
    return {entry.system for entry in scores}, "\n".join([shown, *troubles])


def test_told_and_untold_have_other_names_and_notes_and_no_claim_compares_them(folders, tmp_path):
    grid, multi = folders["grid", "source_length"], folders["waitk", "source_length"]
    evaluated(tmp_path / "told", grid, "grid", 0.4, "told_length=true")
    evaluated(tmp_path / "untold", grid, "grid", 0.4)
    evaluated(tmp_path / "waitk", multi, "waitk", 2)
    evaluated(tmp_path / "constant", folders["grid", 40], "grid", 0.4)
    told, untold = "told lengths (told_length=true)", "untold lengths, as live"
    names, shown = scored(tmp_path / "told", tmp_path / "told")
    assert (names, told in shown, untold in shown) == ({"grid told lengths"}, True, False)
    names, shown = scored(tmp_path / "untold", tmp_path / "untold")
    assert (names, told in shown, untold in shown) == ({"grid"}, False, True)
    names, shown = scored(tmp_path / "constant", tmp_path / "constant")
    assert (names, told in shown, untold in shown) == ({"grid"}, False, False)
    together = tmp_path / "told", tmp_path / "untold", tmp_path / "waitk"
    names, shown = scored(tmp_path / "all", *together)
    assert names == {"grid told lengths", "grid untold lengths", "multi-path wait-k untold lengths"}
    assert told in shown
    assert untold in shown
    names, _ = scored(tmp_path / "seeds", *together, over_seeds=True)
    assert len(names) == 3, "no mean over both"
    for other in ("waitk", "constant"):
        _, shown = scored(tmp_path / "claims", tmp_path / "told", tmp_path / other, claims=True)
        assert re.search(r"claims=true: grid.* told lengths was told its sources' .* not: .*told_length=false", shown)
        assert not (tmp_path / "claims" / "claims.json").exists()
    scored(tmp_path / "claims", tmp_path / "untold", tmp_path / "waitk", claims=True)
    assert (tmp_path / "claims" / "claims.json").exists()
    scored(tmp_path / "told", tmp_path / "told", logs=True)
    assert (tmp_path / "told" / "logs" / "01-grid-0.4-told-lengths" / "instances.log").is_file()


@pytest.mark.parametrize(("system", "setting"), [("grid", 0.4), ("hold", 2)])
def test_an_evaluation_that_was_told_is_gone_on_with_only_so(folders, tmp_path, system, setting):
    folder, run = folders[system, "source_length"], tmp_path / "run"
    before = evaluated(run, folder, system, setting, "told_length=true")
    asks = system != "hold"
    found = Decoding.read(run)
    assert found.points.keys() == before.points.keys()
    assert [point.options.get("told length") for point in found.points.values() if asks] == [True] * asks
    if asks:
        with pytest.raises(ValueError, match=rf"{system} {setting} in .* told_length=true: give that to go on"):
            evaluated(run, folder, system, setting)
    else:
        evaluated(run, folder, system, setting)
    assert evaluated(run, folder, system, setting, "told_length=true").points.keys() == before.points.keys()


def test_telling_lengths_to_models_that_ask_for_none_is_refused(folders, tmp_path):
    with pytest.raises(ValueError, match=r"told_length=true: makes no difference to models with anchor 40, .*leave it"):
        evaluated(tmp_path / "run", folders["grid", 40], "grid", 0.4, "told_length=true")
    assert not (tmp_path / "run").exists()


def test_a_threshold_found_by_told_lengths_says_so(folders, tmp_path):
    for told in (False, True):
        folder = shutil.copytree(folders["grid", "source_length"], tmp_path / f"model-{told}")
        given = [
            f"model_folder={folder}",
            "target_al=4",
            f"policy.max_target_tokens={LIMIT}",
            "device=cpu",
            f"told_length={str(told).lower()}",
        ]
        evaluate.job(checked("evaluate", *given), given, tmp_path / f"run-{told}").choose_theta()
        assert read_manifest(folder)["operating_point"].get("told_length", False) is told
