"""Small training runs; as a script, several of them one after the other, a case given again going on in a copy.

torchrun --nproc-per-node DEVICES -m tests.training.sharded_run DEVICES FOLDER CASE …

What each has trained is in FOLDER/CASE/trained.pt, and FOLDER/CASE again/trained.pt: losses by step, trained weights
by name.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import lightning as L
import torch

from duplexmt.decoder.backbone import add_lora, freeze_in
from duplexmt.decoder.model import DecoderModel
from duplexmt.decoder.quantised import quantise
from duplexmt.grid.model import build_grid
from duplexmt.training.sharded import trained_model, whole_model
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
    "rows": (lambda: grid(backbone()), 1),
    "tied": (lambda: grid(backbone(tie_word_embeddings=True)), 1),
    "lora": (lambda: grid(backbone("auto")), 1),
    "half": (lambda: grid(backbone("auto", half=True), dtype=None), 1),
    "int8": (lambda: grid(backbone("int8"), dtype=None), 1),
    "int4": (lambda: grid(backbone("int4"), dtype=None), 1),
    "int4 recomputed": (lambda: grid(backbone("int4"), dtype=None), 1),
    "paper": (lambda: grid(backbone(), {"anchor": 16}), 1),
    "waitk": (lambda: prefix(backbone(), "multi"), 2),
    "gemma": (lambda: grid(backbone(model_type="gemma3_text")), 1),
    "smollm": (lambda: prefix(backbone(model_type="smollm3"), None), 1),
    "head's own rate": (lambda: grid(backbone("auto"), emit_learning_rate=0.01), 2),
    "elementwise": (lambda: grid(backbone()), 1),
    "layers": (lambda: grid(backbone("auto")), 2),
}
RECOMPUTED = {"elementwise": "elementwise", "layers": "layers", "int4 recomputed": "layers"}


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
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(devices)]
    command = [*torchrun, "-m", "tests.training.sharded_run", str(devices), str(folder), *cases]
    done = subprocess.run(command, cwd=Path(__file__).parents[2], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr


if __name__ == "__main__":
    devices, folder, *cases = sys.argv[1:]
    for number, case in enumerate(cases):
        if case not in cases[:number]:
            train(Path(folder) / case, case, int(devices), "fsdp")
            continue
        again = Path(folder) / f"{case} again"
        if os.environ["RANK"] == "0":
            shutil.copytree(Path(folder) / case, again)
        torch.distributed.barrier()
        train(again, case, int(devices), "fsdp", 5, resume=True)
