"""Looks at fixed sentences during training: chosen how, written where, and that training does not notice."""

import csv
import hashlib
import logging

import lightning as L
import pytest
import torch
from lightning.pytorch.utilities import rank_zero_only

from duplexmt.common.pair import Pair
from duplexmt.corpus.prepared import PreparedCorpus
from duplexmt.data.tokenizer import stream_tokens
from duplexmt.decoder.backbone import add_lora
from duplexmt.grid.model import GridModel
from duplexmt.training import probes as probes_module
from duplexmt.training import sample as sample_module
from duplexmt.training.loggers import close_loggers, log_model
from duplexmt.training.probes import ProbeCallback, choose_probes, undisturbed, visible
from duplexmt.training.sample import whole_precision
from tests.helpers import SENTENCES, as_pairs, spoken_grid, tiny_backbone, tiny_tokenizer, trained
from tests.wandb_runs import finished_run

from .small_run import built_trainer, small_data, small_module, small_prefix_module, small_sample, small_trainer

PREPARED = PreparedCorpus({"train": [], "validation": as_pairs(SENTENCES), "test": []}, tiny_tokenizer(), None)
SHORT = [["喝茶", "tea"], ["书", "a book"]]


def choose(prepared=PREPARED, **values):
    return choose_probes(prepared, **({"count": 2, "pairs": None, "max_tokens": 60, "seed": 1} | values))


def callback(folder, probes, **values):
    settings = {"system": "grid", "settings": [0.3, 1.0], "max_target_tokens": 6, "lam": 0.1, "every_n_steps": 2}
    return ProbeCallback(probes, folder, tiny_tokenizer(), **(settings | values))


def steps_of(folder):
    return sorted(path.name for path in (folder / "probes").iterdir())


# --- which sentences ---------------------------------------------------------------------------------------------


def test_probes_are_drawn_from_the_validation_pairs_by_a_seed():
    texts = [probe.source for probe in choose(count=4)]
    assert texts == [probe.source for probe in choose(count=4)]
    assert len(set(texts)) == 4
    assert set(texts) <= {source for source, _ in SENTENCES}
    assert texts != [probe.source for probe in choose(count=4, seed=2)]
    assert len(choose(count=100)) == len(SENTENCES)
    assert choose(count=0) == choose(count=0, pairs=SHORT) == []


def test_long_validation_pairs_are_never_drawn_and_where_all_are_long_a_warning_says_so(caplog):
    lengths = sorted(max(len(p.source_tokens), len(p.target_tokens)) for p in choose(count=100))
    few = choose(count=100, max_tokens=lengths[2])
    assert 3 <= len(few) < len(SENTENCES)
    assert all(len(probe.target_tokens) <= lengths[2] for probe in few)
    assert not caplog.records
    assert choose(max_tokens=1) == []
    assert "none of the 12 validation pairs has at most probes.max_tokens=1" in caplog.text


def test_given_pairs_are_taken_in_order_and_refused_where_they_do_not_fit():
    assert [(p.source, p.reference) for p in choose(pairs=SHORT)] == [tuple(pair) for pair in SHORT]
    with pytest.raises(ValueError, match=r"'喝茶' → 'tea' has 2 source and 3 target tokens; each .*max_tokens=2"):
        choose(pairs=SHORT, max_tokens=2)


# --- what training notices: nothing ------------------------------------------------------------------------------


def dropout_module():
    """A module whose training draws random numbers."""
    backbone = tiny_backbone(vocab_size=len(tiny_tokenizer()), seed=3)
    model = GridModel(add_lora(backbone, rank=2, alpha=4, dropout=0.5, target_modules=["q_proj", "up_proj"]))
    return small_module(model.double())


class Modes(L.Callback):
    """Parts of the module that are in training mode, after each step."""

    def __init__(self):
        self.seen = []

    def on_train_batch_end(self, trainer, pl_module, *_):
        self.seen.append(all(part.training for part in pl_module.modules()))


def test_training_with_probes_ends_with_the_very_same_weights(tmp_path):
    found = []
    for name in ("without", "with"):
        torch.manual_seed(1)
        module, modes = dropout_module(), Modes()
        looking = callback(tmp_path / name, choose(pairs=SHORT[:1]) if name == "with" else [], every_n_steps=1)
        trainer = small_trainer(max_steps=2, callbacks=[looking, modes], accumulate_grad_batches=2)
        trainer.fit(module, small_data(2))
        assert modes.seen
        assert all(modes.seen)
        found.append(module.state_dict())
    assert steps_of(tmp_path / "with") == [f"step-{n:06d}" for n in range(3)]
    assert not (tmp_path / "without").exists()
    for name, weight in found[0].items():
        assert torch.equal(weight, found[1][name]), name


# --- what is written ---------------------------------------------------------------------------------------------


def test_looks_are_taken_at_the_start_every_few_steps_and_at_the_end(tmp_path, caplog):
    caplog.set_level(logging.INFO, "train")
    looking = callback(tmp_path, choose(pairs=SHORT))
    small_trainer(max_steps=3, callbacks=[looking]).fit(small_module(), small_data(4))
    assert steps_of(tmp_path) == ["step-000000", "step-000002", "step-000003"]
    figures = {"1-heatmap.png", "1-grid-output.png", "2-heatmap.png", "2-grid-output.png"}
    for step in steps_of(tmp_path):
        assert {path.name for path in (tmp_path / "probes" / step).iterdir()} == {
            *figures, "translations.csv", "translations.md"
        }  # fmt: skip
    assert "probes: 3 looks took" in caplog.text
    rows = list(csv.DictReader((tmp_path / "probes" / "step-000003" / "translations.csv").open(encoding="utf-8")))
    assert [(row["probe"], row["setting"]) for row in rows] == [("1", "0.3"), ("1", "1"), ("2", "0.3"), ("2", "1")]
    offline = rows[1]
    assert set(offline["source tokens read before each token"].split()) <= {"2"}, "at θ = 1 all is read first"
    assert (offline["source"], offline["reference"]) == tuple(SHORT[0])


def test_a_system_without_grid_has_its_translations_and_no_figures(tmp_path):
    looking = callback(tmp_path, choose(pairs=SHORT), system="waitk", settings=[2])
    small_trainer(max_steps=1, callbacks=[looking]).fit(small_prefix_module(k=2), small_data(4))
    assert {path.name for path in tmp_path.rglob("step-000001/*")} == {"translations.csv", "translations.md"}


def test_html_and_control_characters_are_written_out_and_do_nothing(tmp_path):
    pairs = [["<script>\u202e人</script>", "<b>a\x1b[31m | cat</b>"]]
    looking, folder = callback(tmp_path, choose(pairs=pairs)), tmp_path / "probes" / "step-000001"
    module = small_module(spoken_grid(seed=5, anchor=20).double())
    with undisturbed(module):
        looking.draw(module, folder, 1)
        looking.translate(module, folder, 1)
    assert (folder / "1-grid-output.png").is_file()
    text = (folder / "translations.md").read_text(encoding="utf-8")
    assert "&lt;script&gt;⟨202E⟩人&lt;/script&gt; | &lt;b&gt;a⟨1B⟩[31m \\| cat&lt;/b&gt;" in text
    assert visible("a\x00b 茶\n") == "a⟨0⟩b 茶⟨A⟩"


# --- trouble -----------------------------------------------------------------------------------------------------


def test_where_nothing_can_be_written_training_goes_on(tmp_path, caplog):
    (tmp_path / "probes").write_text("a file in the folder's place")
    trainer = small_trainer(max_steps=1, callbacks=[callback(tmp_path, choose(pairs=SHORT))])
    trainer.fit(small_module(), small_data(4))
    assert trainer.global_step == 1
    assert "probe 1 at step 0: left out (NotADirectoryError" in caplog.text
    assert "translations of the probes at step 1: left out (NotADirectoryError" in caplog.text


def test_where_there_is_no_memory_for_a_look_training_goes_on(tmp_path, caplog, monkeypatch):
    def no_memory(_):
        raise torch.OutOfMemoryError

    for room in (probes_module, sample_module):
        monkeypatch.setattr(room, "whole_precision", no_memory)
    looks = [small_sample(2, "grid", 0.5), callback(tmp_path, choose(pairs=SHORT))]
    trainer = small_trainer(max_steps=2, callbacks=looks, limit_val_batches=1, val_check_interval=1)
    trainer.fit(small_module(), small_data(4))
    assert trainer.global_step == 2
    for look in ("probes at step 0", "training.sample_size=2 translations"):
        assert f"{look}: left out (OutOfMemoryError" in caplog.text


def test_a_look_that_ends_half_way_leaves_weights_in_the_precision_they_had(monkeypatch):
    module, ended = torch.nn.Linear(2, 2).bfloat16(), iter((False, True))
    monkeypatch.setattr(torch.Tensor, "float", lambda own: 1 / 0 if next(ended) else own.to(torch.float32))
    with pytest.raises(ZeroDivisionError), whole_precision(module):
        pytest.fail("it is not looked at")
    assert {weight.dtype for weight in module.parameters()} == {torch.bfloat16}


# --- W&B ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def offline_run(tmp_path_factory):
    """The folder of a short run that logged to W&B offline, and what its run file holds."""
    folder = tmp_path_factory.mktemp("offline")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WANDB_SILENT", "true")
        named = {"wandb": True, "name": "0 policy.lam=0.1", "group": "lambda-sweep"}
        trainer = built_trainer(folder, callback(folder, choose(pairs=SHORT)), every=100, **named, max_epochs=1)
        trainer.fit(small_module(), small_data(4))
        (folder / "model").mkdir()
        (folder / "model" / "model.safetensors").write_bytes(b"weights")
        log_model(trainer, folder / "model", "λ test/model", {"validation/BLEU": 12.5})
        close_loggers(trainer)
    return folder, finished_run(folder)


def test_only_the_first_process_of_a_run_has_a_wandb_run_to_end(tmp_path, monkeypatch):
    monkeypatch.setattr(rank_zero_only, "rank", 1)
    close_loggers(built_trainer(tmp_path, wandb=True))
    assert not list(tmp_path.glob("wandb"))


def test_an_offline_run_names_its_project_group_and_settings(offline_run):
    _, run = offline_run
    assert (run.project, run.group, run.job_type, run.name) == ("test", "lambda-sweep", "train", "0 policy.lam=0.1")
    assert run.config["policy"] == {"lam": 0.1}
    assert run.finished


def test_an_offline_run_holds_the_metrics_that_go_to_csv(offline_run):
    folder, run = offline_run
    with (folder / "metrics" / "version_0" / "metrics.csv").open() as file:
        lines = list(csv.DictReader(file))
    for name in (
        "train/lm_loss",
        "train/emit_loss",
        "train/area",
        "train/emit_accuracy",
        "validation/emit_calibration",
    ):
        written = [(int(line["step"]), float(line[name])) for line in lines if line[name]]
        assert written
        assert [step for step, _ in run.curve(name)] == [step for step, _ in written]
        assert [value for _, value in run.curve(name)] == pytest.approx([value for _, value in written], rel=1e-6)
    assert (folder / "checkpoints" / "last.ckpt").is_file()


def test_an_offline_run_holds_the_very_images_and_tables_that_lie_on_disk(offline_run):
    folder, run = offline_run
    for name in ("1-heatmap", "1-grid-output", "2-heatmap", "2-grid-output"):
        logged = run.curve(f"probes/{name}")
        assert [step for step, _ in logged] == [0, 2, 3]
        for step, value in logged:
            on_disk = (folder / "probes" / f"step-{step:06d}" / f"{name}.png").read_bytes()
            assert hashlib.sha256(run.file(value).read_bytes()).digest() == hashlib.sha256(on_disk).digest()
            assert value["caption"] == " → ".join(SHORT[int(name[0]) - 1])
    assert [step for step, _ in run.curve("probes/translations")] == [0, 2, 3]
    with (folder / "probes" / "step-000003" / "translations.csv").open(encoding="utf-8") as file:
        written = list(csv.DictReader(file))
    rows = run.rows("probes/translations")
    for name in ("source", "reference", "setting", "translation", "source tokens read before each token", "ended by"):
        assert [row[name] for row in rows] == [row[name] for row in written]
    assert rows[0].keys() == written[0].keys()


def test_an_offline_run_holds_the_model_as_an_artifact(offline_run):
    folder, run = offline_run
    (model,) = [artifact for artifact in run.artifacts if artifact["type"] == "model"]
    assert model["name"] == "test-model"
    assert model["metadata"] == {"validation/BLEU": 12.5}
    assert model["files"] == {"model.safetensors": str(folder / "model" / "model.safetensors")}


def test_stream_tokens_of_a_context_reach_the_probe():
    tokens = stream_tokens(tiny_tokenizer(), context_tokens=2)
    prepared = PreparedCorpus(
        {"train": [], "validation": [Pair("茶", "tea", "书")], "test": []}, tiny_tokenizer(), None
    )
    (probe,) = choose(prepared)
    assert len(probe.context) == len(probe.source_tokens) == 1
    grids = [
        probes_module.sentence_grid(
            *(trained(spoken_grid(), tokens), tiny_tokenizer(), probe.source_tokens, probe.target_tokens, 0.1),
            context=context,
        )
        for context in (probe.context, ())
    ]
    assert grids[0].heatmap != grids[1].heatmap
