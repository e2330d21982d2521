"""Too early, in time, too late: by hand on small heatmaps, and from an evaluation's files to table and figures."""

import json
import re
from dataclasses import replace

import pytest
import torch

from duplexmt.analysis.timing import (
    EARLY,
    FINE,
    LATE,
    TokenTiming,
    analyse,
    known_rows,
    main,
    page,
    row,
    shown,
    timings,
    token_timings,
)
from duplexmt.analysis.timing import SentenceTiming as Sentence
from duplexmt.data.batch import collate
from duplexmt.data.tokenizer import stream_tokens, token_ids
from duplexmt.evaluation.decoding import Decoding, Point, TestSet
from duplexmt.evaluation.translation import tokenise, translate
from duplexmt.model_folder.artifact import ModelFolder, load_model_folder
from duplexmt.model_folder.manifest import read_manifest
from duplexmt.policy.guide import guide
from duplexmt.streaming.systems import build_system
from duplexmt.streaming.text import GrowingText

from ..helpers import SENTENCES, byte_level_tokenizer, spoken_grid, tiny_prefix, tiny_tokenizer
from ..model_folder.test_artifact import save
from ..scripted import Scripted
from ..scripted import point as scripted_point

TOKENS = stream_tokens(tiny_tokenizer())
# Three source tokens and the end token; the columns are known from row 0, 2 (a relapse at 1), 3 and 1 on.
HEATMAP = torch.tensor([[1.0, 0.9, 5.0, 4.0], [0.9, 3.0, 5.0, 0.4], [0.7, 0.6, 2.0, 0.1], [0.6, 0.5, 0.5, 0.2]])


def test_a_token_is_known_from_the_row_on_from_which_its_loss_stays_near_its_final_value():
    assert known_rows(HEATMAP, 0.5) == [0, 2, 3, 1]
    assert known_rows(HEATMAP, 0.0) == [3, 3, 3, 3]
    assert known_rows(torch.tensor([[0.1], [0.2], [3.0], [3.1]]), 0.5) == [2], "nor while it is thought right, wrongly"
    assert known_rows(HEATMAP, 9.0) == [0, 0, 0, 0]
    for epsilon in (-1.0, float("nan")):
        with pytest.raises(ValueError, match="must be at least 0 nats"):
            known_rows(HEATMAP, epsilon)


def test_what_is_early_or_late_by_hand():
    found = token_timings(HEATMAP, list("abcd"), [1, 1, 3, 3], 0.5)
    assert [token.known for token in found] == [1, 3, 3, 2], "rows of the last token and the end token are one delay"
    assert [token.due for token in found] == [1, 3, 3, 3], "d is known at 2, but c before it only at 3"
    assert [token.verdict for token in found] == [FINE, EARLY, FINE, FINE]
    assert [token.lag for token in found] == [0, -2, 0, 0]
    assert found[1].regret == pytest.approx(-0.4), "a guess, and the right one"
    assert found[2].regret == 0, "all text was read, so the end token is taken for read"
    late = token_timings(HEATMAP[:, :2], list("ab"), [2, 3], 9.0)
    assert [(token.verdict, token.lag) for token in late] == [(LATE, 1), (LATE, 2)]


def test_offline_translation_is_never_early_and_what_is_known_at_once_is_late_by_all_that_was_read():
    heatmap = torch.rand(6, 9, generator=torch.Generator().manual_seed(0)) * 4
    for token in token_timings(heatmap, ["x"] * 9, [5] * 9, 0.5):
        assert token.verdict != EARLY
        assert token.lag == 5 - token.due


def test_the_row_of_the_table_counts_shares_lags_and_costs():
    sentence = Sentence("源", "r", token_timings(HEATMAP, list("abcd"), [1, 1, 3, 3], 0.5))
    other = Sentence("源", "r", token_timings(HEATMAP[:, :2], list("ab"), [2, 3], 9.0))
    found = row("grid", "θ=0.5", [sentence, other])
    assert found["tokens"] == 6
    assert found["too early %"] == pytest.approx(100 / 6)
    assert found["in time %"] == pytest.approx(300 / 6)
    assert found["too late %"] == pytest.approx(200 / 6)
    assert found["early by"] == 2
    assert found["late by"] == 1.5
    assert found["regret of an early token (nats)"] == pytest.approx(-0.4)
    assert shown(sentence) == "ab⟨−2⟩cd"
    assert shown(other) == "a⟨+1⟩b⟨+2⟩"
    assert row("grid", "θ=1", [])["too early %"] is None, "where nothing is written nothing is early"
    text = page({("grid", "θ=0.5"): [sentence, other]}, 0.5, 2)
    assert "| grid" in text
    regretted = Sentence("源", "r", [TokenTiming("x", delay=1, known=2, due=2, regret=3.0)])
    text = page({("grid", "θ=0.5"): [sentence, regretted]}, 0.5, 2)
    assert text.index("x⟨−1⟩") < text.index("ab⟨−2⟩cd"), "the most regretted first"


@pytest.fixture(scope="module")
def evaluated(tmp_path_factory):
    """An evaluation of a grid at two θ, wait-1 and offline, and the grid's folder."""
    folder = tmp_path_factory.mktemp("timing")
    grid = save(folder / "grid", spoken_grid(seed=4), tokens=TOKENS)
    vocabulary = {"vocab_size": len(tiny_tokenizer()), "seed": 4}
    wait = save(folder / "wait1", tiny_prefix(1, **vocabulary), tokens=TOKENS)
    offline = save(folder / "offline", tiny_prefix(None, **vocabulary), tokens=TOKENS)
    sources, references = [source for source, _ in SENTENCES[:4]], [[target] for _, target in SENTENCES[:4]]
    test = TestSet("test", sources, references, "zh", "en")
    decoding = Decoding.start(folder / "evaluation", test)
    for model, system, setting in (
        (grid, "grid", 0.2), (grid, "grid", 0.9), (wait, "waitk", 1), (offline, "offline", None)
    ):  # fmt: skip
        loaded = load_model_folder(model)
        point = Point.of(system, setting, model, read_manifest(model), "test")
        running = build_system(loaded, system, setting, max_target_tokens=8, batch_size=4)
        decoding.add(point)
        sentences = tokenise(sources, references, loaded.tokenizer)
        list(decoding.decode(point, translate(running, sentences, loaded.tokenizer)))
    decoding.finish()
    return folder


def test_timings_are_those_of_the_judges_own_losses(evaluated):
    decoding, judge = Decoding.read(evaluated / "evaluation"), load_model_folder(evaluated / "grid")
    found = timings(decoding, judge, 3, 0.5)
    assert [len(judged) for judged in found.values()] == [3, 3, 3, 3]
    for judged, key in zip(found.values(), decoding.points, strict=True):
        for sentence, record in zip(judged, decoding.sorted(key), strict=False):
            source = judge.sources.ids([record["source"]])[0]
            written = judge.tokenizer.convert_tokens_to_ids(record["tokens"])
            batch = collate([TOKENS.example(source, written)])
            with torch.no_grad():
                losses = -judge.model.text_logits(judge.model(batch.source, batch.target)[0]).log_softmax(-1)
            heatmap = torch.stack([losses[:, y, token] for y, token in enumerate(written)], 1)
            text = GrowingText(judge.tokenizer)
            expected = token_timings(heatmap, [text.add(token) for token in written], record["delays"], 0.5)
            for ours, theirs in zip(sentence.tokens, expected, strict=True):
                assert (ours.token, ours.delay, ours.known, ours.due) == (
                    theirs.token, theirs.delay, theirs.known, theirs.due
                )  # fmt: skip
                assert ours.regret == pytest.approx(theirs.regret, abs=1e-4)


def test_what_was_written_is_shown_as_text_with_a_tokenizer_over_bytes_too(tmp_path):
    tokenizer = byte_level_tokenizer()
    tokens, text = stream_tokens(tokenizer), "the café 龘"
    judge = ModelFolder(
        spoken_grid(tokenizer=tokenizer),
        tokenizer,
        tokens,
        {"system": "grid", "data": {}, "training": {"typical_source_length": 8}},
    )
    decoding = Decoding.start(tmp_path / "evaluation", TestSet("test", ["我好"], [[text]], "zh", "en"))
    decoding.add(point := scripted_point())
    length = len(token_ids(tokenizer, ["我好"])[0])
    system = Scripted(tokenizer, [(text, [length] * len(token_ids(tokenizer, [text])[0]), "end_token")])
    list(decoding.decode(point, translate(system, tokenise(["我好"], [[text]], tokenizer), tokenizer)))
    decoding.finish()
    (judged,) = timings(decoding, judge, 1, 1e9).values()
    assert re.sub(r"⟨.*?⟩", "", shown(judged[0])) == text


def test_a_judge_that_was_trained_with_the_sentence_before_is_given_it(tmp_path):
    """Its losses are those with that sentence in its prefix, so another one gives others."""
    tokenizer, tokens = tiny_tokenizer(), stream_tokens(tiny_tokenizer(), context_tokens=2)
    judge = ModelFolder(
        spoken_grid(seed=5), tokenizer, tokens, {"system": "grid", "data": {}, "training": {"typical_source_length": 8}}
    )
    source, reference = SENTENCES[0]
    system = build_system(judge, "grid", 0.0, max_target_tokens=6, batch_size=1)  # writes once it has read a token
    found = {}
    for before in ("我们", "书"):
        test = TestSet("test", [source], [[reference]], "zh", "en", [before])
        decoding = Decoding.start(tmp_path / before, test)
        decoding.add(point := scripted_point(test=test))
        sentences = tokenise([source], [[reference]], tokenizer, befores=[before])
        (record,) = decoding.decode(point, translate(system, sentences, tokenizer))
        decoding.finish()
        ((judged,),) = timings(decoding, judge, 1, 0.5).values()
        ids, context = (token_ids(tokenizer, [text])[0] for text in (source, before))
        written = tokenizer.convert_tokens_to_ids(record["tokens"])
        batch = collate([tokens.example(ids, written, context)])
        with torch.no_grad():
            guided = guide(judge.model, tokens, batch, lam=0.0)
        heatmap = guided.heatmap.view(guided.cells.shapes[0])[:, : len(written)]
        found[before] = [token.regret for token in judged.tokens]
        assert found[before] == pytest.approx((heatmap[-1] - heatmap[0]).tolist(), abs=1e-5)
    assert found["我们"] != pytest.approx(found["书"], abs=1e-3)


def test_models_of_unlike_trainings_have_the_names_of_the_tables(evaluated):
    decoding, judge = Decoding.read(evaluated / "evaluation"), load_model_folder(evaluated / "grid")
    for number, (key, point) in enumerate(decoding.points.items()):
        decoding.points[key] = replace(point, name=str(number), model_folder=f"runs/{number}/model")
    assert [label for label in timings(decoding, judge, 1, 0.5)] == [
        ("grid told lengths (0)", "θ=0.2"),  # as evaluations that do not say otherwise were
        ("grid told lengths (1)", "θ=0.9"),
        ("wait-k told lengths", "k=1"),
        ("offline", "—"),
    ]


def test_the_command_writes_a_table(evaluated, capsys):
    out = evaluated / "timing"
    command = [str(evaluated / "evaluation"), str(evaluated / "grid"), "--out", str(out)]
    main([*command, "--sentences", "3"])
    assert capsys.readouterr().out == f"{out / 'timing.md'}\n"
    table = (out / "timing.md").read_text(encoding="utf-8")
    for name in ("θ=0.2", "θ=0.9", "k=1", "offline"):
        assert name in table
    assert "3 sentences" in table
    assert SENTENCES[0][0] in table
    with pytest.raises(SystemExit) as ended:
        main([*command, "--epsilon", "-1"])
    assert ended.value.code == 2
    assert capsys.readouterr().err == "error: --epsilon -1.0: must be at least 0 nats\n"


def test_a_judge_without_grid_or_of_another_tokenizer_is_refused(evaluated, tmp_path):
    with pytest.raises(ValueError, match="must be a grid, not offline"):
        analyse(evaluated / "evaluation", evaluated / "offline", tmp_path, 2, 0.5)
    judge = load_model_folder(evaluated / "grid")
    judge.tokenizer = byte_level_tokenizer()
    with pytest.raises(ValueError, match="has other tokens than the model that judges"):
        timings(Decoding.read(evaluated / "evaluation"), judge, 2, 0.5)
    with pytest.raises(ValueError, match="--sentences 0: must be at least 1"):
        analyse(evaluated / "evaluation", evaluated / "grid", tmp_path, 0, 0.5)


def test_an_evaluation_that_is_not_finished_is_refused(evaluated, tmp_path):
    folder = tmp_path / "evaluation"
    folder.mkdir()
    for name in ("decoding.json", "hypotheses.jsonl"):
        (folder / name).write_bytes((evaluated / "evaluation" / name).read_bytes())
    lines = (folder / "hypotheses.jsonl").read_text(encoding="utf-8").splitlines(keepends=True)
    (folder / "hypotheses.jsonl").write_text("".join(lines[:-1]), encoding="utf-8")
    assert json.loads(lines[-1])["id"] == 3
    with pytest.raises(ValueError, match="is not finished: go on with"):
        analyse(folder, evaluated / "grid", tmp_path, 2, 0.5)
