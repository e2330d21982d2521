"""A callback that translates a fixed validation sample simultaneously while training goes on."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import lightning as L
import torch
from torch import nn

from ..corpus.prepared import PreparedCorpus
from ..data.tokenizer import token_ids
from ..metrics.latency import corpus_latency
from ..metrics.quality import corpus_quality
from ..streaming.events import collect
from ..streaming.systems import build_system
from ..streaming.text import decode
from .base import TranslationModule


class SimultaneousSample(L.Callback):
    """After every validation: BLEU, AL and AL_all of a fixed sample, decoded greedily by one system.

    Args:
        source_tokens: source token ids of the sample, without end token.
        references: their translations.
        tokenizer: for the target text.
        target_language: decides how BLEU splits words.
        system, setting: name of the system, and its θ, k or n, as `build_system` takes them.
        max_target_tokens: length guard.
        contexts: token ids of the sentences before, for a model trained with context.
    """

    def __init__(
        self,
        source_tokens: Sequence[Sequence[int]],
        references: Sequence[str],
        tokenizer: Any,
        target_language: str,
        system: str,
        setting: float | int | None,
        max_target_tokens: int,
        contexts: Sequence[Sequence[int]] | None = None,
    ) -> None:
        self.source_tokens, self.references, self.tokenizer = source_tokens, references, tokenizer
        self.contexts = contexts
        self.target_language, self.max_target_tokens = target_language, max_target_tokens
        self.system, self.setting = system, setting

    @torch.no_grad()
    def on_validation_epoch_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Decode on the first device, and log there."""
        if not trainer.is_global_zero or trainer.sanity_checking or not self.source_tokens:
            return
        assert isinstance(pl_module, TranslationModule)
        with whole_precision(pl_module):
            # No CUDA graphs: the weights have changed by the next validation, and training wants the memory.
            system = build_system(
                pl_module, self.system, self.setting, max_target_tokens=self.max_target_tokens, static=False
            )
            hypotheses = collect(system.translate(self.source_tokens, self.contexts), len(self.source_tokens))
        texts = [decode(self.tokenizer, hypothesis.tokens) for hypothesis in hypotheses]
        reference_lengths = [len(ids) for ids in token_ids(self.tokenizer, self.references)]
        latency = corpus_latency(
            [h.delays for h in hypotheses], [len(s) for s in self.source_tokens], reference_lengths
        )
        scores = {"BLEU": corpus_quality(texts, self.references, self.target_language)["bleu"]}
        scores |= {name: value for name in ("AL", "AL_all") if (value := latency[name]) is not None}
        for name, value in scores.items():
            pl_module.log(f"validation/{name}", value, rank_zero_only=True, prog_bar=name == "BLEU")


@contextmanager
def whole_precision(module: nn.Module) -> Iterator[None]:
    """All weights in at least float32 for a while: frozen ones may be in half precision, and callbacks run outside of
    autocast."""
    half = [(weight, weight.data) for weight in module.parameters() if weight.dtype.itemsize < 4]
    for weight, values in half:
        weight.data = values.float()
    try:
        yield
    finally:
        for weight, values in half:
            weight.data = values


def sample_callback(
    prepared: PreparedCorpus,
    size: int,
    target_language: str,
    system: str,
    setting: float | int | None,
    max_target_tokens: int,
) -> SimultaneousSample:
    """The callback that translates the first `size` validation pairs by a system after each validation."""
    sample = prepared.splits["validation"][:size]
    sources = prepared.sources.ids([pair.source for pair in sample])
    contexts = prepared.sources.ids([pair.before for pair in sample])
    references = [pair.target for pair in sample]
    return SimultaneousSample(
        sources, references, prepared.tokenizer, target_language, system, setting, max_target_tokens, contexts
    )
