"""A training run small enough for tests; as a script, some by `build_trainer` that keep their first gradients in files.

python -m tests.training.small_run DEVICES FOLDER BATCH_SIZE,ACCUMULATE[,K] …

With K it is wait-k or `rows`, else the grid. A batch size of 128 and more is the length of a packed list. The gradients
of the first run are in FOLDER/0/gradients.pt, its loss in FOLDER/0/loss.pt.
"""

import sys
from functools import partial
from pathlib import Path

import lightning as L
import torch
from lightning.pytorch.strategies import DDPStrategy

from duplexmt.corpus.prepared import PreparedCorpus
from duplexmt.data.loader import ROUND
from duplexmt.data.tokenizer import stream_tokens
from duplexmt.decoder.schedules import shown_delay
from duplexmt.training import run
from duplexmt.training.data import GridDataModule
from duplexmt.training.module import GridTranslation
from duplexmt.training.prefix_module import PrefixTranslation
from duplexmt.training.probes import ProbeCallback, choose_probes
from duplexmt.training.sample import SimultaneousSample
from tests.commands import run as run_module
from tests.commands import succeeded
from tests.helpers import SENTENCES, as_pairs, spoken_grid, tiny_prefix, tiny_tokenizer

# Settings of a quiet run, for `build_trainer`.
PLAIN = {
    "accelerator": "cpu", "devices": 1, "num_nodes": 1, "strategy": "auto", "precision": "32", "log_every_n_steps": 1,
    "accumulate_grad_batches": 1, "enable_progress_bar": False, "num_sanity_val_steps": 0,
}  # fmt: skip


class KeepGradients(L.Callback):
    """Writes the gradients of the first optimiser step, as they stand before it, and the loss of all its pairs."""

    def __init__(self, path):
        self.path, self.losses = path, []

    def on_train_batch_end(self, trainer, pl_module, outputs, *_):
        self.losses.append(trainer.strategy.reduce(outputs["loss"].detach().clone(), reduce_op="mean"))
        if trainer.is_global_zero and len(self.losses) == trainer.accumulate_grad_batches:
            torch.save(torch.stack(self.losses).sum(), self.path.with_name("loss.pt"))

    def on_before_optimizer_step(self, trainer, pl_module, optimizer):
        if trainer.is_global_zero and trainer.global_step == 0:
            torch.save({n: w.grad.clone() for n, w in pl_module.named_parameters() if w.grad is not None}, self.path)


def small_module(model=None, **values):
    """A module around a tiny float64 grid model."""
    settings = {"lam": 0.1, "learning_rate": 1e-3, "warmup_steps": 2} | values
    return GridTranslation(model or spoken_grid(seed=5).double(), stream_tokens(tiny_tokenizer()), **settings)


def small_prefix_module(model=None, k=2, **values):
    """A module around a tiny float64 prefix model."""
    model = model or tiny_prefix(k, vocab_size=len(tiny_tokenizer()), seed=5).double()
    return PrefixTranslation(
        model, stream_tokens(tiny_tokenizer()), **{"learning_rate": 1e-3, "warmup_steps": 2} | values
    )


def small_row_module(**values):
    """A module around a tiny float64 grid whose rows stand alone."""
    grid = spoken_grid(seed=5, attention="exact", input_attends_output=False).double()
    return small_module(grid, rows=2, emit_loss="regret", lm_cells="drawn_visits", **values)


def first_gradients(tmp_path, batch_size, accumulate=1, made=small_module, **values):
    """Gradients of the one optimiser step of a run of all pairs, by name; see the module for the batch size."""
    path = tmp_path / f"{batch_size}-{accumulate}.pt"
    trainer = small_trainer(accumulate_grad_batches=accumulate, max_steps=1, callbacks=[KeepGradients(path)])
    module, data = made(**values), small_data(min(batch_size, len(HALVES)))
    if batch_size >= ROUND:
        data.batch_tokens, data.planner = batch_size, module.planner
    trainer.fit(module, data)
    assert len(data.loader) == accumulate, "one step of all pairs"
    return torch.load(path, weights_only=True)


def assert_same(one, other, tolerance=1e-12):
    """Gradients by name are the same, and not all zero."""
    assert one.keys() == other.keys()
    assert any((gradient != 0).any() for gradient in one.values())
    for name in one:
        torch.testing.assert_close(one[name], other[name], rtol=0, atol=tolerance, msg=lambda m, n=name: f"{n}: {m}")


def small_sample(size, system, setting):
    """The callback that translates the first sentences after each validation."""
    prepared = PreparedCorpus({"validation": as_pairs(SENTENCES)}, tiny_tokenizer(), None)
    return SimultaneousSample(prepared, size, "en", system, setting, max_target_tokens=8)


# The first half of each sentence: pairs of as different lengths, with a quarter of the cells.
HALVES = [(source[: len(source) // 2], target[: len(target) // 2]) for source, target in SENTENCES]


def small_data(batch_size, pairs=HALVES, seed=3):
    """A dozen pairs as training and validation data."""
    prepared = PreparedCorpus(
        {"train": as_pairs(pairs), "validation": as_pairs(pairs[:4]), "test": []}, tiny_tokenizer(), None
    )
    return GridDataModule(prepared, stream_tokens(tiny_tokenizer()), batch_size=batch_size, seed=seed)


def small_trainer(folder=None, **values):
    """A quiet trainer on CPU."""
    settings = {
        "accelerator": "cpu", "devices": 1, "logger": False, "enable_progress_bar": False, "num_sanity_val_steps": 0,
        "enable_checkpointing": False, "enable_model_summary": False, "use_distributed_sampler": False,
        "default_root_dir": folder, "limit_val_batches": 0, "max_epochs": 1,
    }  # fmt: skip
    return L.Trainer(**(settings | values))


def built_trainer(folder, *callbacks, every=1, resumed=False, wandb=False, name="test", group=None, **settings):
    """A quiet one by `build_trainer`, with a checkpoint every so many steps."""
    return run.build_trainer(
        folder,
        trainer=PLAIN | settings,
        logger={"wandb": wandb, "offline": True, "project": "test"},
        name=name,
        group=group,
        settings={"policy": {"lam": 0.1}},
        checkpoint_every_n_steps=every,
        callbacks=callbacks,
        resumed=resumed,
    )


def small_probes(folder, system="grid", setting=0.5):
    """A callback that looks at one sentence, at the start and at the end of a run."""
    prepared = small_data(1).prepared
    probes = choose_probes(prepared, count=1, pairs=None, max_tokens=60, seed=1)
    return ProbeCallback(
        probes, folder, prepared.tokenizer, system=system, settings=[setting], max_target_tokens=8, lam=0.1,
        every_n_steps=100,
    )  # fmt: skip


def gradients_of_two_processes(folder, *runs):
    """Folders in which two processes left the gradients of their first step: `BATCH_SIZE,ACCUMULATE[,K]` each."""
    succeeded(run_module("tests.training.small_run", "2", str(folder), *runs))
    return [folder / str(number) for number in range(len(runs))]


def keep_first_gradients(folder, devices, batch_size, accumulate, k=None):
    """A run of one step, where its batches are no packed lists with a probe before it and after."""
    shown = ("waitk", shown_delay(k)) if k not in (None, "rows") else ()
    trainer = built_trainer(
        folder,
        *([] if batch_size >= ROUND else [small_probes(folder, *shown)]),
        KeepGradients(folder / "gradients.pt"),
        devices=devices,
        accumulate_grad_batches=accumulate,
        max_steps=1,
        limit_val_batches=0,
    )
    module = small_row_module() if k == "rows" else small_prefix_module(k=k) if k else small_module()
    data = small_data(batch_size)
    if batch_size >= ROUND:
        data.batch_tokens, data.planner = batch_size, module.planner
    trainer.fit(module, data)
    assert len(data.loader) == accumulate, "one step of all pairs"


if __name__ == "__main__":
    run.DDPStrategy = partial(DDPStrategy, start_method="fork")  # a process need not import everything again
    for number, values in enumerate(sys.argv[3:]):
        batch_size, accumulate, *k = (int(value) if value.isdigit() else value for value in values.split(","))
        keep_first_gradients(Path(sys.argv[2]) / str(number), int(sys.argv[1]), batch_size, accumulate, *k)
