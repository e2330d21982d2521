"""The LightningDataModule: tokenised batches of a prepared corpus."""

import json
from hashlib import blake2b
from pathlib import Path
from statistics import fmean
from typing import Any

import lightning as L
from torch.utils.data import DataLoader

from ..corpus.prepared import PreparedCorpus, announce
from ..data.batch import Example, collate
from ..data.copying import target_ids
from ..data.loader import StepLoader
from ..data.tokenizer import StreamTokens, save_tokenizer
from ..policy.plan import Planner

AHEAD = 2  # batches made while a GPU computes others
VALIDATION_CELLS = 2**16  # in a batch, at most: 32 pairs of 45 + 45 tokens


class GridDataModule(L.LightningDataModule):
    """Batches of a prepared corpus.

    Args:
        batch_size: pairs a batch, on each device.
        batch_tokens: length of the list into which a batch is packed, on each device, in place of `batch_size` pairs.
    """

    def __init__(
        self,
        prepared: PreparedCorpus,
        tokens: StreamTokens,
        *,
        batch_size: int,
        seed: int,
        batch_tokens: int | None = None,
        planner: Planner | None = None,
    ) -> None:
        super().__init__()
        self.prepared, self.tokens, self.batch_size, self.seed = prepared, tokens, batch_size, seed
        self.batch_tokens, self.planner = batch_tokens, planner
        self.loader: StepLoader | None = None
        self.position: dict[str, Any] | None = None  # of a run that goes on
        self._examples: dict[str, list[Example]] = {}

    def examples(self, split: str) -> list[Example]:
        """Tokenised pairs of a split; tokenised once."""
        if split not in self._examples:
            pairs, sources = self.prepared.splits[split], self.prepared.sources
            announce("tokenising", pairs)
            texts = [pair.source for pair in pairs]
            targets = target_ids(
                self.prepared.tokenizer, [pair.target for pair in pairs], texts, self.tokens.copy_tokens
            )
            befores = sources.ids([pair.before for pair in pairs])
            parts = zip(sources.ids(texts), targets, befores, strict=True)
            self._examples[split] = [self.tokens.example(*part) for part in parts]
        return self._examples[split]

    @property
    def typical_source_length(self) -> int:
        """Mean length of a training source, prefix and end token included: what a live source is taken for."""
        return round(fmean(len(example.source) for example in self.examples("train")))

    def epochs(self, steps: int) -> int:
        """Passes over the training pairs that so many optimiser steps have begun."""
        loader = self.loader or self.train_dataloader()
        return -(-steps // loader.steps_per_epoch)

    def check_validation(self, trainer: Any) -> None:
        """Refuse an interval between validations that is longer than an epoch.

        Raises:
            ValueError: naming the interval, the number of batches and what to give; those of `StepLoader`.
        """
        self.trainer = trainer
        batches = len(self.train_dataloader())
        interval = getattr(trainer, "val_check_interval", None)  # where it is no time
        if isinstance(interval, int) and interval > batches and trainer.check_val_every_n_epoch is not None:
            raise ValueError(
                f"trainer.val_check_interval={interval}: an epoch has {batches} batches on each device: give at most "
                f"{batches}, or a share of an epoch such as 0.5, or trainer.check_val_every_n_epoch=null to count "
                "batches over epochs"
            )

    def train_dataloader(self) -> StepLoader:
        """Shuffled batches of this device, from where a resumed run goes on."""
        trainer = self.trainer
        assert trainer is not None
        self.loader = StepLoader(
            self.examples("train"),
            self.batch_size,
            self.seed,
            accumulate=trainer.accumulate_grad_batches,
            rank=trainer.global_rank,
            world_size=trainer.world_size,
            batch_tokens=self.batch_tokens,
            planner=self.planner,
            ahead=AHEAD if self.batch_tokens and trainer.strategy.root_device.type == "cuda" else 0,
        )
        if self.position is not None:
            self.loader.load_state_dict(self.position)
        return self.loader

    def state_dict(self) -> dict[str, Any]:
        """Where training stands in its epoch."""
        assert self.loader is not None
        return self.loader.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on there. Lightning itself gives a loader its state back only if nothing has asked for the loader before,
        as a linear schedule does for the number of steps; this comes first."""
        self.position = state_dict

    def val_dataloader(self) -> DataLoader:
        """This device's share of the validation pairs, in batches of similar length; all of their grids is computed."""
        trainer = self.trainer
        assert trainer is not None
        examples = sorted(self.examples("validation"), key=lambda example: example.cells)
        if len(examples) < trainer.world_size:
            raise ValueError(
                f"{len(examples)} validation pairs cannot be shared out to {trainer.world_size} devices: "
                "raise data.validation_size, give more pairs, or fewer trainer.devices"
            )
        rank, devices = trainer.global_rank, trainer.world_size
        left = len(examples) % devices  # the smallest, which only some devices have
        batches, size = [examples[:left][rank : rank + 1]], min(left, 1)
        for first in range(left, len(examples), devices):  # a pair for each device, so that all have as many batches
            too_large = (size + 1) * examples[first + devices - 1].cells > VALIDATION_CELLS
            if first >= devices and (size >= self.batch_size or too_large):
                batches.append([])
                size = 0
            batches[-1].append(examples[first + rank])
            size += 1
        collated = [collate(batch) for batch in batches]
        return DataLoader(collated, batch_size=None)  # type: ignore[arg-type]  # a list is a map-style data set

    def write_report(self, folder: Path, resumed: bool = False) -> None:
        """Write the tokenizer, and `corpus.json`: what was read, cleaned, dropped and kept.

        Raises:
            ValueError: if a resumed run finds another corpus than it was started with.
        """
        hasher = blake2b(json.dumps(self.prepared.splits).encode(), digest_size=16)
        for split in ("train", "validation"):
            for example in self.examples(split):  # as the tokenizer has them
                hasher.update(repr((example.source, example.target)).encode())
        digest = hasher.hexdigest()
        path = folder / "corpus.json"
        if resumed and path.is_file():
            if json.loads(path.read_text(encoding="utf-8"))["digest"] != digest:
                raise ValueError(
                    f"the corpus or the tokenizer is not the one {folder} was started with (see its corpus.json): "
                    "bring the files back as they were, or start a new run"
                )
            return
        folder.mkdir(parents=True, exist_ok=True)
        save_tokenizer(self.prepared.tokenizer, folder / "tokenizer")
        sizes = {name: len(pairs) for name, pairs in self.prepared.splits.items()}
        content = {"pairs": sizes, "digest": digest, "report": vars(self.prepared.report)}
        path.write_text(json.dumps(content, ensure_ascii=False, indent=2), encoding="utf-8")
