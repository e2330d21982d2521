"""A callback that looks at a few fixed sentences while training goes on: figures of their grid, and translations.

Everything goes to `probes/step-…/` in the run's folder; a W&B run gets the same files.
"""

import logging
import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from html import escape
from pathlib import Path
from time import perf_counter
from typing import Any
from unicodedata import category

import lightning as L
import torch
from lightning.pytorch.loggers import WandbLogger
from lightning.pytorch.utilities.seed import isolate_rng
from torch import nn

from ..analysis.sentence_grid import sentence_grid
from ..common.pair import Pair
from ..corpus.prepared import PreparedCorpus
from ..data.copying import target_ids
from ..drawing.grid_figures import heatmap_figure, output_figure
from ..drawing.table import to_csv, to_markdown
from ..metrics.latency import sentence_latency
from ..streaming.events import collect
from ..streaming.systems import Trained, build_system
from .base import TranslationModule
from .sample import spared, whole_precision
from .sharded import whole_model

FOLDER = "probes"
FIGURES = {"heatmap": heatmap_figure, "grid-output": output_figure}
log = logging.getLogger("train")


@dataclass(frozen=True)
class Probe:
    """A sentence pair to look at, tokenised."""

    source: str
    reference: str
    source_tokens: Sequence[int]
    target_tokens: Sequence[int]
    context: Sequence[int]  # tokens of the previous sentence, where the model is trained with it


def choose_probes(
    prepared: PreparedCorpus,
    *,
    count: int,
    pairs: Sequence[Sequence[str]] | None,
    max_tokens: int,
    seed: int,
    copy_tokens: Sequence[int] = (),
) -> list[Probe]:
    """The pairs given, else as many of the validation pairs that are short enough, drawn by a seed.

    Args:
        count: validation pairs to draw; 0 for no probes at all.
        pairs: source and reference of each probe; None to draw them.
        max_tokens: longest text of either side, in tokens.
        copy_tokens: of the model (`data.copying`).

    Raises:
        ValueError: for a given pair without tokens, or with too many.
    """
    if not count:
        return []
    chosen = prepared.splits["validation"] if pairs is None else [Pair(source, target) for source, target in pairs]
    sources = [pair.source for pair in chosen]
    columns = (
        prepared.sources.ids(sources),
        target_ids(prepared.tokenizer, [pair.target for pair in chosen], sources, copy_tokens),
        prepared.sources.ids([pair.before for pair in chosen]),
    )
    probes = [Probe(pair.source, pair.target, *tokens) for pair, *tokens in zip(chosen, *columns, strict=True)]
    fitting = [p for p in probes if 0 < len(p.source_tokens) <= max_tokens and 0 < len(p.target_tokens) <= max_tokens]
    if pairs is None:
        if not fitting:
            log.warning(
                "no probes: none of the %d validation pairs has at most probes.max_tokens=%d tokens on either side",
                len(probes),
                max_tokens,
            )
        return random.Random(seed).sample(fitting, min(count, len(fitting)))
    for probe in probes:
        if probe not in fitting:
            raise ValueError(
                f"probes.pairs: {probe.source[:60]!r} → {probe.reference[:60]!r} has {len(probe.source_tokens)} source "
                f"and {len(probe.target_tokens)} target tokens; each must be between 1 and "
                f"probes.max_tokens={max_tokens}: give shorter sentences, or raise it"
            )
    return probes


class ProbeCallback(L.Callback):
    """Looks at probes before the first optimiser step, every few steps, and after the last.

    Only the first process looks, and nothing of the training changes: its random states, modes, gradients and weights
    are what they were. What cannot be drawn or written is left out with a warning.

    Args:
        system, settings: name of the system, and each θ (or k) to translate with, as `build_system` takes them.
        every_n_steps: optimiser steps between two looks.
    """

    def __init__(
        self,
        probes: Sequence[Probe],
        folder: Path,
        tokenizer: Any,
        *,
        system: str,
        settings: Sequence[float | int | None],
        max_target_tokens: int,
        lam: float,
        every_n_steps: int,
    ) -> None:
        self.probes, self.folder, self.tokenizer = probes, folder, tokenizer
        self.system, self.settings, self.max_target_tokens = system, settings, max_target_tokens
        self.lam, self.every_n_steps = lam, every_n_steps
        self.looked_at = -1  # step of the last look
        self.looks, self.seconds, self.begin = 0, 0.0, 0.0

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Look at the untrained model; a resumed run has done so."""
        self.begin = perf_counter()
        if trainer.global_step == 0:
            self.log_probes(trainer, pl_module)
        self.looked_at = trainer.global_step

    def on_train_batch_end(self, trainer: L.Trainer, pl_module: L.LightningModule, *_: Any) -> None:
        """Look where an optimiser step has just been taken, never inside an accumulated one."""
        step = trainer.global_step
        if step != self.looked_at and step % self.every_n_steps == 0:
            self.log_probes(trainer, pl_module)

    def on_train_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Look at what has come out, and say what all looks took."""
        if trainer.global_step != self.looked_at:
            self.log_probes(trainer, pl_module)
        if self.looks:
            share = 100 * self.seconds / (perf_counter() - self.begin)
            log.info("probes: %d looks took %.1f s, %.1f %% of training", self.looks, self.seconds, share)

    def log_probes(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Draw, translate and log all probes on the first process."""
        self.looked_at = step = trainer.global_step
        if not self.probes:
            return
        assert isinstance(pl_module, TranslationModule)
        begin, folder = perf_counter(), self.folder / FOLDER / f"step-{step:06d}"
        with whole_model(trainer, pl_module) as whole:
            if whole is None:
                return
            with spared(f"probes at step {step}"):
                with undisturbed(whole.model):
                    images = self.draw(whole, folder, step)
                    rows = self.translate(whole, folder, step)
                for logger in trainer.loggers:
                    if isinstance(logger, WandbLogger):
                        with spared(f"probes at step {step} for W&B"):
                            self.send(logger, images, rows, step)
        self.looks, self.seconds = self.looks + 1, self.seconds + perf_counter() - begin

    def draw(self, module: Trained, folder: Path, step: int) -> dict[str, tuple[Path, str]]:
        """Write the figures of every probe; returns file and caption of each."""
        images: dict[str, tuple[Path, str]] = {}
        if module.model.system != "grid":
            return {}
        for number, probe in enumerate(self.probes, start=1):
            with spared(f"probe {number} at step {step}"):
                pair = probe.source_tokens, probe.target_tokens
                grid = sentence_grid(module, self.tokenizer, *pair, self.lam, context=probe.context)
                for name, figure in FIGURES.items():
                    path = figure(grid, folder, f"{number}-{name}")
                    images[f"{number}-{name}"] = path, f"{visible(probe.source)} → {visible(probe.reference)}"
        return images

    def translate(self, module: Trained, folder: Path, step: int) -> list[dict[str, Any]]:
        """Translate every probe with every setting, and write the table; returns its rows."""
        rows: list[dict[str, Any]] = []
        with spared(f"translations of the probes at step {step}"):
            sources = [probe.source_tokens for probe in self.probes]
            contexts = [probe.context for probe in self.probes]
            for setting in self.settings:
                running: Any = build_system(
                    module, self.system, setting, max_target_tokens=self.max_target_tokens, tokenizer=self.tokenizer
                )
                for number, found in enumerate(collect(running.translate(sources, contexts), len(sources)), start=1):
                    probe = self.probes[number - 1]
                    lengths = ([len(probe.source_tokens)], [len(probe.target_tokens)])
                    rows.append(
                        {
                            "probe": number,
                            "source": visible(probe.source),
                            "reference": visible(probe.reference),
                            "setting": "—" if setting is None else f"{setting:g}",
                            "translation": visible(found.text),
                            "source tokens read before each token": " ".join(map(str, found.delays)),
                            "AL": sentence_latency([found.delays], *lengths)["AL"][0],
                            "ended by": found.stopped,
                        }
                    )
            rows.sort(key=lambda row: row["probe"])
            shown = [{name: escape(v, quote=False) if isinstance(v, str) else v for name, v in r.items()} for r in rows]
            folder.mkdir(parents=True, exist_ok=True)
            for suffix, text in (("csv", to_csv(rows)), ("md", to_markdown(shown, f"Step {step}"))):
                (folder / f"translations.{suffix}").write_text(text, encoding="utf-8", newline="\n")
        return rows

    def send(
        self, logger: WandbLogger, images: dict[str, tuple[Path, str]], rows: list[dict[str, Any]], step: int
    ) -> None:
        """Log the files and the table to a W&B run."""
        import wandb

        values: dict[str, Any] = {
            f"probes/{name}": wandb.Image(str(path), caption=caption) for name, (path, caption) in images.items()
        }
        if rows:
            table = wandb.Table(columns=list(rows[0]), data=[list(row.values()) for row in rows])
            values["probes/translations"] = table
        if values:
            logger.experiment.log(values | {"trainer/global_step": step})


def visible(text: str) -> str:
    """A text in which control characters, and those that turn its direction, are spelt out as `⟨HEX⟩`."""
    return "".join(f"⟨{ord(c):X}⟩" if category(c)[0] == "C" else c for c in text)


@contextmanager
def undisturbed(module: nn.Module) -> Iterator[None]:
    """Evaluation mode in whole precision without gradients; afterwards modes and random states are as they were."""
    modes = [(part, part.training) for part in module.modules()]
    module.eval()
    try:
        with isolate_rng(), torch.no_grad(), whole_precision(module):
            yield
    finally:
        for part, mode in modes:
            part.training = mode
