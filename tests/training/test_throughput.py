"""What a run reports about its speed, and the choices that make it."""

import csv

import pytest
import torch
from lightning.pytorch.strategies import DDPStrategy
from torch.utils.flop_counter import FlopCounterMode

from duplexmt.data.batch import collate
from duplexmt.decoder.backbone import add_lora
from duplexmt.grid.model import build_grid
from duplexmt.training.precision import half_precision, settled_precision
from duplexmt.training.processes import choose_strategy, share_batches
from duplexmt.training.throughput import step_flops
from tests.helpers import tiny_backbone, tiny_prefix, tiny_tokenizer

from .small_run import built_trainer, small_data, small_module, small_prefix_module
from .test_training import LORA


def counted_flops(module, batch, monkeypatch):
    """Operations of linear layers as PyTorch counts them; attention's own products are left out, LoRA's are PEFT's."""
    monkeypatch.setattr("duplexmt.kernels.lora.plain_adapter", lambda _: None)
    monkeypatch.setattr("duplexmt.kernels.products.has_onednn", lambda _: False)  # whose products are not counted
    with FlopCounterMode(display=False) as counter:
        loss, _ = module.losses(batch)
        loss.total(loss.lm_weights, loss.emit_weights).backward()
    counts = counter.get_flop_counts()["Global"]
    linear = (torch.ops.aten.mm, torch.ops.aten.addmm)
    return sum(value for operation, value in counts.items() if operation in linear), loss


@pytest.mark.parametrize(
    ("attention", "io", "lora"),
    [("approximate", True, False), ("approximate", False, True), ("exact", True, True), ("exact", False, False)],
)
def test_step_flops_are_those_pytorch_counts(attention, io, lora, monkeypatch):
    backbone = tiny_backbone(vocab_size=len(tiny_tokenizer()), tie_word_embeddings=False)
    model = build_grid(add_lora(backbone, **LORA) if lora else backbone, attention=attention, input_attends_output=io)
    batch = collate(small_data(12).examples("train"))
    counted, loss = counted_flops(small_module(model), batch, monkeypatch)
    N = loss.valid_cells.item()
    head = model.text_head.weight.numel()
    expected = step_flops(model, batch.shapes, N, N / 2)
    expected += (2 * loss.lm_weights.item() - N) * 2 * head  # as many masked cells as there really are, not half
    expected += 3 * 2 * N * model.emit_head.weight.numel()  # the EMIT head's two classes are not counted
    # The first layer's input needs a gradient only where the embedding is trained.
    assert counted == pytest.approx(expected, rel=0.04)


@pytest.mark.parametrize("kind", ["qwen2", "gemma"])
def test_a_schedules_step_flops_are_those_pytorch_counts(kind, monkeypatch):
    monkeypatch.setattr("duplexmt.kernels.products.has_onednn", lambda _: False)
    module = small_prefix_module(tiny_prefix(2, model_type=kind, vocab_size=len(tiny_tokenizer())).train())
    batch = collate(small_data(12).examples("train"))
    with FlopCounterMode(display=False) as counter:
        module.lm_sum(batch).backward()
    counts = counter.get_flop_counts()["Global"]
    counted = sum(value for name, value in counts.items() if name in (torch.ops.aten.mm, torch.ops.aten.addmm))
    assert counted == pytest.approx(module.step_flops(batch), rel=0.04)


def test_a_run_logs_pairs_cells_operations_and_mfu(tmp_path):
    trainer = built_trainer(tmp_path, every=100, max_epochs=1, log_every_n_steps=2, limit_val_batches=0)
    trainer.fit(small_module(), small_data(2))
    with open(tmp_path / "metrics" / "version_0" / "metrics.csv") as file:
        rows = [row for row in csv.DictReader(file) if row["speed/pairs_per_second"]]
    assert rows
    for row in rows:
        pairs, cells, flops, mfu = (
            float(row[f"speed/{name}"])
            for name in ("pairs_per_second", "cells_per_second", "model_flops_per_second", "mfu")
        )
        assert cells > 20 * pairs > 0
        assert flops > 1000 * cells
        assert 0 < mfu < 1.5


@pytest.mark.parametrize(
    ("instructions", "time", "expected"),
    [(True, 0.5, "bf16-mixed"), (True, 1.9, "32"), (False, 0.5, "32"), (None, 0.5, "32")],
)
def test_precision_is_bf16_only_where_the_machine_is_faster_in_it_and_only_if_left_open(
    monkeypatch, instructions, time, expected
):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    capabilities = {} if instructions is None else {"avx512_bf16": instructions}
    monkeypatch.setattr("torch.cpu.get_capabilities", lambda: capabilities, raising=False)
    monkeypatch.setattr("duplexmt.kernels.products.time_of_bfloat16", lambda: time)
    assert settled_precision("auto", "cpu") == expected
    assert settled_precision("16-mixed", "cpu") == "16-mixed"
    assert settled_precision("auto", "cpu", num_nodes=2) == "32", "nodes may be unlike"
    assert [half_precision(p) for p in ("16-mixed", "bf16-mixed", "32-true")] == [torch.float16, torch.bfloat16, None]


@pytest.mark.filterwarnings("ignore:.*fp16 is not supported on CPU", "ignore:.*for historical reasons")
@pytest.mark.parametrize("precision", ["16-mixed", "bf16"])
def test_frozen_weights_are_of_the_type_that_a_cpu_computes_in(precision, tmp_path):
    trainer = built_trainer(tmp_path, precision=precision)
    assert half_precision(trainer.precision) == torch.bfloat16


def test_several_devices_run_ddp_with_a_static_graph_unless_batches_are_accumulated():
    for strategy, devices, nodes in (("auto", 4, 1), ("ddp", 1, 1), ("auto", 1, 2), ("auto", "0,1", 1)):
        for accumulate in (1, 2):
            chosen = choose_strategy(strategy, devices, nodes, accumulate)
            assert isinstance(chosen, DDPStrategy)
            assert chosen._ddp_kwargs["static_graph"] == (accumulate == 1)
            assert not chosen._ddp_kwargs["find_unused_parameters"]
    assert choose_strategy("auto", 1, 1, 1) == "auto"
    assert choose_strategy("ddp_fork", 2, 1, 1) == "ddp_fork"


@pytest.mark.parametrize(
    ("cores", "pairs", "processes"), [(2, 16, 2), (1, 16, 1), (16, 16, 4), (3, 16, 2), (8, 4, 1), (8, 3, 1), (5, 20, 5)]
)
def test_the_cores_of_a_cpu_share_a_batch_of_at_least_four_pairs_each(monkeypatch, cores, pairs, processes):
    monkeypatch.setattr("duplexmt.training.processes.usable_cores", lambda: cores)
    trainer = {"devices": "cores", "accelerator": "cpu"}
    shared, batches = share_batches(trainer, {"batch_size": pairs})
    assert shared["devices"] == processes
    assert batches == {"batch_size": pairs // processes}


def test_a_number_of_devices_shares_nothing():
    trainer, batches = {"devices": 2, "accelerator": "cpu"}, {"batch_size": 16}
    assert share_batches(trainer, batches) == (trainer, batches)


def test_a_gpu_trains_alone(monkeypatch):
    monkeypatch.setattr("torch.accelerator.is_available", lambda: True)
    batches = {"batch_size": 16}
    assert share_batches({"devices": "cores", "accelerator": "auto"}, batches) == (
        {"devices": 1, "accelerator": "auto"},
        batches,
    )
    monkeypatch.setattr("duplexmt.training.processes.usable_cores", lambda: 2)
    shared, halves = share_batches({"devices": "cores", "accelerator": "cpu"}, batches)
    assert (shared["devices"], halves) == (2, {"batch_size": 8})


@pytest.mark.parametrize(
    ("setting", "message"), [({"accelerator": "cpu", "devices": "many"}, r"trainer settings: .*devices")]
)
def test_trainer_settings_that_cannot_work_are_refused_by_value_and_rule(tmp_path, setting, message):
    with pytest.raises(ValueError, match=message):
        built_trainer(tmp_path, **setting)


def test_processes_of_torchrun_that_would_each_train_alone_are_refused(tmp_path, monkeypatch):
    launched = {"TORCHELASTIC_RUN_ID": "1", "WORLD_SIZE": "2", "RANK": "1", "LOCAL_RANK": "1"}
    for name, value in launched.items():
        monkeypatch.setenv(name, value)

    def build(devices):
        return built_trainer(tmp_path, devices=devices)

    with pytest.raises(ValueError, match=r"torchrun has started 2 processes, and trainer\.devices=1 wants one"):
        build(1)
    assert build(2).world_size == 2


@pytest.mark.parametrize(("devices", "threads"), [(1, 4), (2, 2), (8, 1)])
def test_processes_on_a_cpu_share_its_cores_instead_of_waiting_for_each_other(tmp_path, monkeypatch, devices, threads):
    monkeypatch.setattr("duplexmt.training.run.usable_cores", lambda: 4)
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(4)
        built_trainer(tmp_path, devices=devices)
        assert torch.get_num_threads() == threads
    finally:
        torch.set_num_threads(before)
