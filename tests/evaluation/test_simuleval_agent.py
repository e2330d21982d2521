"""SimulEval runs a model folder through our agent, and reports the delays and scores that an evaluation does."""

import csv
import json
import os
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest

from duplexmt.data.tokenizer import SourceTokens, stream_tokens, token_ids
from duplexmt.evaluation.decoding import Decoding, Point, TestSet
from duplexmt.evaluation.scoring import score
from duplexmt.evaluation.simuleval import LiveAnswers, Units, export, shown
from duplexmt.evaluation.translation import tokenise, translate
from duplexmt.metrics.units import last_tokens
from duplexmt.model_folder.artifact import load_model_folder
from duplexmt.policy.knobs import Adaptive
from duplexmt.streaming.events import End, Read, Write, collect
from duplexmt.streaming.systems import build_system

from ..commands import run
from ..helpers import (
    METRICS_PYTHON,
    SENTENCES,
    byte_level_tokenizer,
    needs_metrics_environment,
    spoken_grid,
    tiny_prefix,
    tiny_tokenizer,
)
from ..model_folder.test_artifact import save

ROOT = Path(__file__).parents[2]
LIMIT = 12
# Fifty sentences of 1 to 12 tokens, some with characters of three bytes.
SOURCES = [*[source[begin:] for source, _ in SENTENCES for begin in range(len(source))][:48], "你好", "a 😀好"]
REFERENCES = [SENTENCES[i % len(SENTENCES)][1] for i in range(len(SOURCES))]


def model_folder(folder, **options):
    """A random grid that reads and writes by turns, saved as a trained one is."""
    return save(folder, spoken_grid(seed=5, **options), tokens=stream_tokens(tiny_tokenizer()))


def grid(options):
    """The engine of a random grid; where the anchor asks for lengths, each source is taken to have nine tokens."""
    loaded = SimpleNamespace(model=spoken_grid(seed=5, **options), tokens=stream_tokens(tiny_tokenizer()))
    loaded.typical_source_length = 9
    return build_system(loaded, "grid", 0.5, max_target_tokens=LIMIT)


def multi_path():
    """A random model of all k."""
    return tiny_prefix("multi", seed=5, vocab_size=len(tiny_tokenizer()))


def written(system, known, finished, filler):
    """What a system has written once it has read some source tokens, and whether it has ended, decoded anew.

    What follows is a token that no decision depends on: the events are taken up to its read, so this holds for every
    system that does not look ahead.
    """
    source = [*known] if finished else [*known, filler]
    writes, reads = [], 0
    for event in system.translate([source]):
        if isinstance(event, Read):
            reads += 1
            if reads > len(known) and not finished:
                return writes, False
        elif isinstance(event, Write):
            writes.append(event)
        elif isinstance(event, End):
            return writes, True
    return writes, finished


def answers(live, system, number, source, filler):
    """What a stream that goes on has written after each token: what a system has that is run anew."""
    for read in range(1, len(source) + 1):
        finished = read == len(source)
        found, ended = live(number, source[:read], finished)
        expected, expected_end = written(system, source[:read], finished, filler)
        assert [(w.token, w.delay) for w in found] == [(w.token, w.delay) for w in expected]
        assert ended == expected_end
        yield found


def evaluation(folder, model, theta):
    """Decode the fifty sentences as evaluate.py does; the records in order."""
    loaded = load_model_folder(model)
    test = TestSet("fifty sentences", SOURCES, [[text] for text in REFERENCES], "zh", "en")
    decoding = Decoding.start(folder, test)
    point = Point.of("grid", theta, model, loaded.info, [test.digest, LIMIT])
    decoding.add(point)
    system = build_system(loaded, "grid", theta, max_target_tokens=LIMIT)
    sentences = tokenise(test.sources, test.references, loaded.tokenizer)
    list(decoding.decode(point, translate(system, sentences, loaded.tokenizer)))
    decoding.finish()
    return decoding.sorted(point.digest)


@pytest.mark.parametrize("options", [{}, {"anchor": 0}, {"attention": "exact"}], ids=["length", "constant", "exact"])
def test_what_is_written_before_the_next_read_depends_on_nothing_unread(options):
    system, tokens = grid(options), stream_tokens(tiny_tokenizer())
    for source in token_ids(tiny_tokenizer(), [SOURCES[6], SOURCES[9]]):
        (whole,) = collect(system.translate([source]), 1)
        for read in range(1, len(source) + 1):
            finished = read == len(source)
            writes, ended = written(system, source[:read], finished, filler=tokens.seed)
            expected = [token for token, delay in zip(whole.tokens, whole.delays, strict=True) if delay <= read]
            assert [write.token for write in writes] == expected
            assert ended == finished or len(writes) == LIMIT


@pytest.mark.parametrize("options", [{}, {"anchor": 0}, {"attention": "exact"}], ids=["length", "constant", "exact"])
def test_a_stream_that_goes_on_answers_as_one_decoded_again_at_each_unit(options, monkeypatch):
    system, live, tokens = grid(options), LiveAnswers(grid(options)), stream_tokens(tiny_tokenizer())
    for number, source in enumerate(token_ids(tiny_tokenizer(), [SOURCES[6], SOURCES[9]])):
        steps = []
        monkeypatch.setattr(live.engine, "states", Counted(live.engine.states, steps))
        assert live(number, [], False) == ([], False)
        found = list(answers(live, system, number, source, tokens.seed))
        assert len(steps) <= len(found) + 2 + LIMIT, "each state is computed once"
        monkeypatch.undo()
    for number in (8, 9):  # an unfinished sentence is left for the next
        live(number, source[:1], False)
        assert len(live.engine.streams) == 1


PREFIX_SYSTEMS = [("waitk", 2), ("hold", 1), ("alignatt", 1), ("lsg", 0.3), ("confidence", 0.4)]


@pytest.mark.parametrize(("name", "setting"), PREFIX_SYSTEMS)
def test_streams_of_other_systems_answer_as_ones_decoded_again_at_each_unit(name, setting):
    model, tokens = multi_path(), stream_tokens(tiny_tokenizer())
    loaded = SimpleNamespace(model=model, tokens=tokens, typical_source_length=9)
    how = {"max_target_tokens": LIMIT, "adaptive": Adaptive(1, 4, 0.9, "paper")}
    system, engine = (build_system(loaded, name, setting, **how) for _ in range(2))
    live, early = LiveAnswers(engine), 0
    for number, source in enumerate(token_ids(tiny_tokenizer(), [SOURCES[6], SOURCES[9]])):
        *before, _ = answers(live, system, number, source, tokens.seed)
        early += sum(map(len, before))
    assert early


@pytest.mark.slow
def test_the_agents_other_half_serves_a_policy_by_its_command(tmp_path):
    folder = save(tmp_path / "model", multi_path(), tokens=stream_tokens(tiny_tokenizer()))
    units = [*"站在那边"]
    requests = [{"sentence": 0, "units": units[:read], "finished": read == len(units)} for read in range(1, 5)]
    command = ["duplexmt.evaluation.simuleval", "serve", str(folder), "--max-target-tokens", "8"]
    given = "".join(json.dumps(request) + "\n" for request in requests).encode()

    def served(*arguments):
        return run(*command, *arguments, stdin=given)

    done = served("--run-as", "confidence", "--setting", "0.4", "--adaptive", "1,3,0.9,paper")
    ready, *answers = map(json.loads, done.stdout.splitlines())
    assert ready == {"ready": True}
    assert [answer["finished"] for answer in answers] == [False, False, False, True]
    lengths = [len(answer["tokens"]) for answer in answers]
    assert lengths == sorted(lengths)
    assert lengths[-1] > 0
    done = served("--run-as", "confidence", "--setting", "0.4")
    assert (done.returncode, done.stdout) == (2, "")
    assert "system='confidence' needs the bounds of its lag" in done.stderr


class Counted:
    """The states of an engine, and a list that grows with every computation."""

    def __init__(self, states, steps):
        self.states, self.steps = states, steps
        self.forget = states.forget

    def __call__(self, states):
        self.steps.append(len(states))
        return self.states(states)


def test_units_are_tokens_where_they_can_be_and_texts_otherwise():
    tokenizer = tiny_tokenizer()
    units = Units(tokenizer)
    ids = token_ids(tokenizer, ["人好 the"])[0]
    assert [token for unit in map(shown, tokenizer.convert_ids_to_tokens(ids)) for token in units.ids(unit)] == ids
    assert units.ids("我们是人") == token_ids(tokenizer, ["我们是人"])[0]


@pytest.mark.parametrize("tokenizer", [tiny_tokenizer(420), byte_level_tokenizer()], ids=["merged", "bytes"])
def test_units_of_any_file_become_what_a_model_of_characters_was_trained_with(tokenizer):
    how, units = SourceTokens(tokenizer, "characters"), Units(tokenizer, "characters")
    for words in (["the", "man", "喜欢", "😀"], ["我们", "学校"]):
        assert [token for unit in words for token in units.ids(unit)] == how.ids(["".join(words)])[0]
    ids = how.ids(["the 我们 好😀"])[0]  # and units as they are exported are the tokens they were
    assert [token for unit in map(shown, tokenizer.convert_ids_to_tokens(ids)) for token in units.ids(unit)] == ids


def test_the_exported_files_have_a_line_a_sentence_and_a_unit_a_token(tmp_path):
    records = evaluation(tmp_path / "run", model_folder(tmp_path / "model"), 0.5)
    export(tmp_path / "run", tmp_path / "out")
    lines = {name: (tmp_path / "out" / name).read_text(encoding="utf-8").split("\n")[:-1] for name in FILES}
    assert [len(line.split()) for line in lines["source.txt"]] == [len(record["source_tokens"]) for record in records]
    assert [len(line.split()) for line in lines["target.txt"]] == [record["reference_lengths"][0] for record in records]
    assert lines["words.txt"] == REFERENCES


FILES = ("source.txt", "target.txt", "words.txt")


def simuleval(model, out, theta, *arguments):
    """Run the command a user runs, offline; instances and scores."""
    environment = os.environ | {"HF_HUB_OFFLINE": "1", "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
    command = [
        METRICS_PYTHON.parent / "simuleval", "--agent", ROOT / "metrics_env" / "simuleval_agent.py",
        "--model-folder", model, "--setting", str(theta), "--max-target-tokens", str(LIMIT), "--source",
        out / "source.txt", "--latency-metrics", "AL", "LAAL", "AP", "DAL", "StartOffset", "--output", out / "log",
        "--no-progress-bar", *arguments,
    ]  # fmt: skip
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    instances = [json.loads(line) for line in (out / "log" / "instances.log").read_text().splitlines()]
    with open(out / "log" / "scores.tsv") as file:
        (scores,) = csv.DictReader(file, delimiter="\t")
    return instances, {name: float(value) for name, value in scores.items()}


@needs_metrics_environment
@pytest.mark.slow
@pytest.mark.parametrize("anchor", ["source_length", 0])
def test_simuleval_reports_the_delays_and_latencies_of_the_evaluation(tmp_path, anchor):
    model = model_folder(tmp_path / "model", anchor=anchor)
    records = evaluation(tmp_path / "run", model, 0.5)
    export(tmp_path / "run", tmp_path / "out")
    instances, theirs = simuleval(model, tmp_path / "out", 0.5, "--target", tmp_path / "out" / "target.txt")
    assert len(instances) == len(records) == 50
    assert [instance["delays"] for instance in instances] == [record["delays"] for record in records]
    assert [instance["source_length"] for instance in instances] == [len(r["source_tokens"]) for r in records]
    assert len({delay for record in records for delay in record["delays"]}) > 5, "reads and writes by turns"
    ours = score(records, "zh", "en", source_rate=4.0).row
    for name, value in theirs.items():
        if name != "BLEU":  # of tokens
            assert value == pytest.approx(ours["FRL" if name == "StartOffset" else name], abs=6e-4), name


@needs_metrics_environment
@pytest.mark.slow
def test_simuleval_reports_the_delays_of_a_policy(tmp_path):
    folder = save(tmp_path / "model", multi_path(), tokens=stream_tokens(tiny_tokenizer()))
    evaluation(tmp_path / "run", model_folder(tmp_path / "grid"), 0.5)
    export(tmp_path / "run", tmp_path / "out")
    given = ["--run-as", "confidence", "--adaptive", "1,4,0.9,paper", "--target", tmp_path / "out" / "target.txt"]
    instances, _ = simuleval(folder, tmp_path / "out", 0.4, *given)
    system = build_system(
        load_model_folder(folder), "confidence", 0.4, max_target_tokens=LIMIT, adaptive=Adaptive(1, 4, 0.9, "paper")
    )
    ours = collect(system.translate(token_ids(tiny_tokenizer(), SOURCES)), len(SOURCES))
    assert [instance["delays"] for instance in instances] == [hypothesis.delays for hypothesis in ours]


@needs_metrics_environment
@pytest.mark.slow
def test_simuleval_with_words_reports_bleu_and_words_once_they_are_over(tmp_path):
    model = model_folder(tmp_path / "model")
    records = evaluation(tmp_path / "run", model, 0.5)
    export(tmp_path / "run", tmp_path / "out")
    instances, theirs = simuleval(
        model, tmp_path / "out", 0.5, "--unit", "word", "--target", tmp_path / "out" / "words.txt", "--end-index", "20"
    )
    for instance, record in zip(instances, records := records[:20], strict=True):
        assert instance["prediction"].split() == record["text"].split()
        last = last_tokens(record["text"], record["token_ends"], "word")
        written_at = [record["delays"][index] for index in last]
        assert all(theirs >= ours for theirs, ours in zip(instance["delays"], written_at, strict=True))
    assert theirs["BLEU"] == pytest.approx(score(records, "zh", "en", source_rate=4.0).row["BLEU"], abs=0.01)
