"""Small training runs; as a script, several of them one after the other, a case given again going on in a copy.

python -m tests.training.sharded_run DEVICES FOLDER CASE …

What each has trained is in FOLDER/CASE/trained.pt, and FOLDER/CASE again/trained.pt: losses by step, trained weights
by name.
"""

import os
import shutil
import socket
import sys
from pathlib import Path

import lightning as L
import torch
from torch.multiprocessing import start_processes

from duplexmt.decoder.backbone import add_lora, freeze_in
from duplexmt.decoder.model import DecoderModel
from duplexmt.decoder.quantised import quantise
from duplexmt.grid.model import build_grid
from duplexmt.training.sharded import trained_model, whole_model
from tests.commands import run, succeeded
from tests.helpers import tiny_backbone, tiny_tokenizer

from .small_run import built_trainer, small_data, small_module, small_prefix_module, small_sample

LORA = {"rank": 4, "alpha": 8, "dropout": 0.0, "target_modules": ["q_proj", "v_proj", "down_proj"]}
ROWS = {"attention": "exact", "input_attends_output": False, "anchor": 16}


WIDE = {"hidden_size": 64, "intermediate_size": 128, "head_dim": 16}  # as int4 asks for


def backbone(frozen=None, half=False, **values):
    """A tiny one, trained in full, or by LoRA over weights frozen as asked for."""
    torch.manual_seed(7)
    model = tiny_backbone(vocab_size=len(tiny_tokenizer()), seed=5, **(WIDE if frozen == "int4" else {}) | values)
    if frozen in ("int8", "int4"):
        quantise(model, frozen)
    if frozen:
        model = add_lora(model, **LORA)
    if half:
        freeze_in(torch.bfloat16, model)
    return model


def grid(made, options=ROWS, dtype=torch.float64, **values):
    """A module that trains a grid, with the same random weights each time."""
    torch.manual_seed(8)
    model = build_grid(made, **options)
    return small_module(model if dtype is None else model.to(dtype), **values)


def prefix(made, k):
    """A module that trains a prefix model."""
    return small_prefix_module(DecoderModel(made, k=k, anchor=16).double())


# Modules, and over how many batches each step goes.
CASES = {
    "tied": (lambda: grid(backbone(tie_word_embeddings=True)), 1),
    "half": (lambda: grid(backbone("auto", half=True), dtype=None), 1),
    "int8": (lambda: grid(backbone("int8"), dtype=None), 1),
    "int4": (lambda: grid(backbone("int4"), dtype=None), 1),
    "paper": (lambda: grid(backbone(), {"anchor": 16}), 1),
    "waitk": (lambda: prefix(backbone(), "multi"), 2),
    "gemma": (lambda: grid(backbone(model_type="gemma3_text")), 1),
    "head's own rate": (lambda: grid(backbone("auto"), emit_learning_rate=0.01), 2),
}
RECOMPUTED = {"paper": "elementwise", "head's own rate": "layers", "int4": "layers"}


class Keep(L.Callback):
    """Keeps the losses of each step, and looks at the whole model once on the way."""

    def __init__(self):
        self.losses, self.seen = [], []

    def on_train_batch_end(self, trainer, pl_module, outputs, *_):
        self.losses.append(trainer.strategy.reduce(outputs["loss"].detach().clone(), reduce_op="mean"))
        with whole_model(trainer, pl_module) as whole:
            if whole is not None:
                self.seen.append(sum(weight.double().sum().item() for weight in whole.model.parameters()))

    def on_fit_end(self, trainer, pl_module):
        if trainer.is_global_zero:
            model = trained_model(trainer, pl_module)
            weights = {name: w.detach().clone() for name, w in model.named_parameters() if w.requires_grad}
            kept = {"losses": torch.stack(self.losses), "weights": weights, "seen": self.seen}
            torch.save(kept, Path(trainer.default_root_dir) / "trained.pt")


def train(folder, case, devices, strategy, steps=3, resume=False):
    """A run of a few steps over 4 pairs each, validated and looked at on the way."""
    made, accumulate = CASES[case]
    module = made()
    if case in RECOMPUTED:
        module.model.recompute(RECOMPUTED[case])
    system = module.model.system
    setting = {"grid": 0.5, "waitk": 2, "offline": None}[system]
    trainer = built_trainer(
        folder,
        small_sample(1, system, setting),
        Keep(),
        resumed=resume,
        devices=devices,
        strategy=strategy,
        precision="bf16-mixed" if case == "half" else "32",
        max_steps=steps,
        max_epochs=9,
        accumulate_grad_batches=accumulate,
        gradient_clip_val=1.0,
        val_check_interval=2,
        check_val_every_n_epoch=None,
    )
    last = folder / "checkpoints" / "last.ckpt" if resume else None
    trainer.fit(module, small_data(4 // devices // accumulate), ckpt_path=last, weights_only=True)


def in_processes(folder, devices, *cases):
    """Such runs in processes of their own, sharded."""
    succeeded(run("tests.training.sharded_run", str(devices), str(folder), *cases))


def share(rank, devices, port, folder, cases):
    """One of the processes, with what torchrun tells it; its libraries are there already."""
    ranks = dict.fromkeys(("RANK", "LOCAL_RANK"), rank) | dict.fromkeys(("WORLD_SIZE", "LOCAL_WORLD_SIZE"), devices)
    told = ranks | {"GROUP_RANK": 0, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "TORCHELASTIC_RUN_ID": "test"}
    os.environ |= {name: str(value) for name, value in told.items()}
    for number, case in enumerate(cases):
        if case not in cases[:number]:
            train(folder / case, case, devices, "fsdp")
            continue
        again = folder / f"{case} again"
        if rank == 0:
            shutil.copytree(folder / case, again)
        torch.distributed.barrier()
        train(again, case, devices, "fsdp", 5, resume=True)


if __name__ == "__main__":
    devices, folder, *cases = sys.argv[1:]
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    start_processes(share, (int(devices), port, Path(folder), cases), int(devices), start_method="fork")
