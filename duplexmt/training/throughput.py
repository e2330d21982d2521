"""How fast a run trains, in pairs, cells and operations of matrix products, beside what the device can do."""

import time
from typing import Any

import lightning as L
import torch
from lightning.fabric.utilities.throughput import Throughput
from torch import nn

from ..data.batch import Batch
from ..kernels.products import product
from ..policy.rows import mean_cells

DRAWN_CELLS = 1.7  # of a token, as seen: of two draws some fall into one row (`visits.drawn_cells`)


class ThroughputMonitor(L.Callback):
    """Logs pairs/s, cells/s, model FLOP/s and MFU over the last steps, summed over devices (MFU: their mean).

    Model FLOPs are the module's `step_flops`. MFU is their rate over `matmul_rate`, measured when training starts.

    Args:
        every_n_steps: optimiser steps between two lines of the log, and steps they average over.
    """

    def __init__(self, every_n_steps: int) -> None:
        self.every_n_steps = every_n_steps
        self.begin = self.paused = 0.0

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Measure the device, and start the clock."""
        precision = {"16": torch.float16, "bf": torch.bfloat16}.get(str(trainer.precision)[:2], torch.float32)
        self.throughput = Throughput(
            matmul_rate(pl_module.device, precision),
            trainer.world_size,
            window_size=self.every_n_steps * trainer.accumulate_grad_batches + 1,
        )
        self.begin, self.batches, self.pairs, self.cells = time.perf_counter(), 0, 0, 0

    def on_validation_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Stop the clock."""
        self.paused = time.perf_counter()

    def on_validation_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Let it go on."""
        self.begin += time.perf_counter() - self.paused

    def on_train_batch_end(
        self, trainer: L.Trainer, pl_module: L.LightningModule, outputs: Any, batch: Batch, batch_idx: int
    ) -> None:
        """Count the batch."""
        assert callable(pl_module.step_flops)
        self.batches, self.pairs = self.batches + 1, self.pairs + len(batch.shapes)
        self.cells += cells_of(batch.shapes, getattr(pl_module, "rows", None))
        self.throughput.update(
            time=time.perf_counter() - self.begin,
            batches=self.batches,
            samples=self.pairs,
            lengths=self.cells,
            flops=pl_module.step_flops(batch),
        )
        if self.batches % (self.every_n_steps * trainer.accumulate_grad_batches):
            return
        found, devices = self.throughput.compute(), trainer.world_size
        names = {"samples_per_sec": "pairs_per_second", "items_per_sec": "cells_per_second"}
        names |= {"flops_per_sec": "model_flops_per_second"}
        values = {name: found[f"device/{key}"] * devices for key, name in names.items() if f"device/{key}" in found}
        if "device/mfu" in found:
            values["mfu"] = found["device/mfu"]
        for name, value in values.items():
            pl_module.log(f"speed/{name}", float(value), rank_zero_only=True)


def cells_of(shapes: tuple[tuple[int, int], ...], rows: int | None) -> int:
    """Cells that a step computes of pairs of `shapes` (X, Y): of all rows, or the mean over what is drawn of some."""
    return round(sum(X * Y if rows is None else mean_cells(X, Y, rows) for X, Y in shapes))


def step_flops(model: Any, shapes: tuple[tuple[int, int], ...], N: int, learnt: float) -> int:
    """Operations of the linear layers in one training step, two for a multiplication and its addition.

    Every linear layer counts once forward, once for the gradient of its input, and once for its weight's where that is
    trained; layer 0's projections and I←O off by token; of the last layer's projections what is read (source: keys and
    values; target: queries, and keys and values of row 0 or, where no row reads another, of all). Of a type without
    layers of our own everything counts for every token. Recomputation in the backward pass does not count.

    Args:
        shapes: (X, Y) of each pair.
        N: target states, of all streams.
        learnt: of these, the ones whose loss has a gradient: half the cells of all rows, the cells of some rows, or
            about as many as are drawn of a token (`visits.drawn_cells`).
    """
    S, T = sum(X for X, _ in shapes), sum(Y for _, Y in shapes)
    source = N if model.input_attends_output else S  # states of the source stream after layer 0
    layers = model.decoder.layers
    flops = 0
    for index, layer in enumerate(layers):
        before_I, before_O = (S, T) if index == 0 else (source, N)
        last = index == len(layers) - 1
        keys_O = T if last and model.attention == "approximate" else before_O
        for name, linear in layer.named_modules():
            if not isinstance(linear, nn.Linear):  # LoRA's are
                continue
            if not model.patched:
                positions = source + N
            elif "q_proj" in name:
                positions = before_O if last else before_I + before_O
            elif "k_proj" in name or "v_proj" in name:
                positions = before_I + keys_O
            else:
                positions = N if last else source + N
            flops += 2 * positions * linear.weight.numel() * (3 if linear.weight.requires_grad else 2)
    head = model.text_head
    return flops + 2 * head.weight.numel() * int(N + learnt * (2 if head.weight.requires_grad else 1))


def matmul_rate(device: torch.device, dtype: torch.dtype, seconds: float = 0.2) -> float:
    """Operations a second of one large matrix product, the best of a few tries: what MFU compares with."""
    # On a fast GPU one product is over in 0.2 ms, of which launching it and waiting for it would be a good part.
    size, times = (4096, 10) if device.type == "cuda" else (768, 1)
    a, b = (torch.randn(size, size, device=device, dtype=dtype) for _ in range(2))
    best, end = float("inf"), time.perf_counter() + seconds
    while True:
        begin = time.perf_counter()
        for _ in range(times):
            product(a, b)  # as a step's products are computed
        if a.is_cuda:
            torch.cuda.synchronize(device)
        now = time.perf_counter()
        best = min(best, now - begin)
        if now > end:
            return 2 * size**3 * times / best
