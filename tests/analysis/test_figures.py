"""The command that draws figures of a trained model."""

import pytest
import torch

from duplexmt.analysis import figures
from duplexmt.analysis.figures import main, sentence, training
from duplexmt.analysis.sentence_grid import sentence_grid, token_text
from duplexmt.data.batch import collate
from duplexmt.data.tokenizer import StreamTokens, stream_tokens, token_ids
from duplexmt.policy.path import best_path

from ..helpers import SENTENCES, byte_level_tokenizer, spoken_grid, tiny_prefix, tiny_tokenizer
from ..model_folder.test_artifact import DATA, save

TOKENS = stream_tokens(tiny_tokenizer())
SOURCE, TARGET = SENTENCES[1]


def ids(text):
    return token_ids(tiny_tokenizer(), [text])[0]


def test_the_probe_shows_the_models_own_numbers_cell_by_cell():
    model, source, target = spoken_grid(seed=4), ids(SOURCE), ids(TARGET)
    grid = sentence_grid(model, TOKENS, tiny_tokenizer(), source, target, lam=0.05)
    batch = collate([TOKENS.example(source, target)])
    with torch.no_grad():
        hidden = model(batch.source, batch.target)[0]
        losses = -model.text_logits(hidden).log_softmax(-1)
    labels = [*target, TOKENS.end]
    heatmap = torch.stack([losses[:, y, label] for y, label in enumerate(labels)], 1)
    torch.testing.assert_close(torch.tensor(grid.heatmap), heatmap)
    torch.testing.assert_close(torch.tensor(grid.emit), model.emit_logits(hidden).softmax(-1)[..., 1])
    y_at = best_path(heatmap[None], batch.source_lengths, batch.target_lengths, 0.05)
    assert list(grid.y_at) == y_at[0].tolist()
    top = losses.argmin(-1)
    assert grid.top[2][3] == token_text(tiny_tokenizer(), int(top[2, 3]), TOKENS.end)
    assert grid.source[-1] == grid.target[-1] == "■"


def test_p_emit_is_shown_as_decoding_compares_it_with_a_threshold():
    model, source, target = spoken_grid(seed=4), ids(SOURCE), ids(TARGET)
    model.certainty = 0.5
    grid = sentence_grid(model, TOKENS, tiny_tokenizer(), source, target, lam=0.05)
    batch = collate([TOKENS.example(source, target)])
    with torch.no_grad():
        decided = [model.decide(row)[0] for row in model(batch.source, batch.target)[0]]
    torch.testing.assert_close(torch.tensor(grid.emit), torch.stack(decided))


def test_p_emit_is_0_where_decoding_reads_whatever_the_threshold():
    model, source, target = spoken_grid(seed=4), ids(SOURCE), ids(TARGET)
    without = sentence_grid(model, TOKENS, tiny_tokenizer(), source, target, lam=0.05).emit
    model.k_min = 2
    found = sentence_grid(model, TOKENS, tiny_tokenizer(), source, target, lam=0.05).emit
    for x, (row, usual) in enumerate(zip(found, without, strict=True)):
        for y, (p, before) in enumerate(zip(row, usual, strict=True)):
            assert p == (0.0 if x + 1 - y < 2 and x < len(found) - 1 else before)


def test_rows_and_columns_of_prefixes_are_left_out():
    tokens = StreamTokens(TOKENS.end, TOKENS.seed, source_prefix=(5, 6), target_prefix=(7,))
    grid = sentence_grid(spoken_grid(), tokens, tiny_tokenizer(), ids("我好"), ids("a cat"), lam=0.0)
    assert len(grid.source) == len(ids("我好")) + 1
    assert "".join(grid.target) == "a cat■"


def test_a_part_of_a_character_is_named_rather_than_shown_broken():
    tokenizer = byte_level_tokenizer()
    (token, *_) = token_ids(tokenizer, ["龘"])[0]
    assert "�" not in token_text(tokenizer, token, end=0)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return save(tmp_path_factory.mktemp("run") / "model", spoken_grid(seed=4), tokens=TOKENS)


def test_all_figures_of_a_sentence_are_written(folder, tmp_path):
    waitk = save(tmp_path / "wait2" / "model", tiny_prefix(2, vocab_size=len(tiny_tokenizer())), tokens=TOKENS)
    multi = save(tmp_path / "multi" / "model", tiny_prefix("multi", vocab_size=len(tiny_tokenizer())), tokens=TOKENS)
    paths = sentence(
        folder, SOURCE, TARGET, tmp_path / "out", thetas=(0.3, 0.7), beside=[folder, waitk, multi], max_target_tokens=12
    )
    assert {path.name for path in paths} == {
        *(f"{name}.{kind}" for name in ("heatmap", "grid-output", "emission", "staircase") for kind in ("svg", "png")),
        "emission.md",
    }
    assert all(path.stat().st_size > 100 for path in paths)
    assert (tmp_path / "out" / "emission.md").read_text().count("\n") == 4


def test_models_beside_have_names_of_their_own(folder, tmp_path, monkeypatch):
    drawn = []
    monkeypatch.setattr(figures, "staircase_figure", lambda names, delays, out: drawn.extend(delays) or [])
    beside = [save(tmp_path / name, spoken_grid(seed=4), tokens=TOKENS) for name in ("one", "two")]
    sentence(folder, SOURCE, TARGET, tmp_path, thetas=(0.5, 1.0), beside=beside, max_target_tokens=2)
    assert drawn == [f"grid, θ = {rest}" for rest in ("0.5", "1", "0.5 (one)", "1 (one)", "0.5 (two)", "1 (two)")]


def test_a_source_is_drawn_as_the_models_training_cleaned_its_own(tmp_path):
    data = DATA | {"corpus": "pairs_folder", "cleaning": "strict"}
    simplifying = save(tmp_path / "model", spoken_grid(seed=4), tokens=TOKENS, data=data)
    drawn = []
    for source in ("我 們&#26159;人", "我们是人"):
        sentence(simplifying, source, TARGET, tmp_path / source, thetas=(0.5,), max_target_tokens=4)
        drawn.append((tmp_path / source / "emission.md").read_text())
    assert drawn[0] == drawn[1]


def test_what_cannot_be_drawn_is_refused(folder, tmp_path):
    with pytest.raises(ValueError, match="--source: has no text"):
        sentence(folder, "", TARGET, tmp_path)
    with pytest.raises(ValueError, match="at least one EMIT threshold"):
        sentence(folder, SOURCE, TARGET, tmp_path, thetas=())
    for lam in (-1.0, float("nan")):
        with pytest.raises(ValueError, match="λ must be a finite number of at least 0"):
            sentence(folder, SOURCE, TARGET, tmp_path, lam=lam)
    waitk = save(tmp_path / "model", tiny_prefix(2, vocab_size=len(tiny_tokenizer())), tokens=TOKENS)
    with pytest.raises(ValueError, match="holds a waitk model, which has no grid"):
        sentence(waitk, SOURCE, TARGET, tmp_path)
    with pytest.raises(ValueError, match=r"metrics\.csv: give the folder of a run"):
        training(tmp_path, tmp_path)


def test_the_command_draws_a_resumed_run_and_answers_a_mistake_in_one_line(tmp_path, monkeypatch, capsys):
    for version, step in (("version_0", 50), ("version_1", 100)):
        path = tmp_path / "metrics" / version / "metrics.csv"
        path.parent.mkdir(parents=True)
        path.write_text(f"epoch,step,train/area\n0,{step},0.5\n")
    monkeypatch.setattr("sys.argv", ["figures", "training", str(tmp_path), "--out", str(tmp_path)])
    main()
    assert capsys.readouterr().out.split() == [str(tmp_path / f"training.{kind}") for kind in ("svg", "png")]
    monkeypatch.setattr("sys.argv", ["figures", "training", str(tmp_path / "none"), "--out", str(tmp_path)])
    with pytest.raises(SystemExit, match="2"):
        main()
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: ")
    assert str(tmp_path / "none") in line
