"""A callback that translates a fixed validation sample simultaneously while training goes on."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

import lightning as L
import torch
from torch import nn

from ..corpus.prepared import PreparedCorpus
from ..data.copying import target_ids
from ..metrics.latency import mean_of_known, sentence_latency
from ..metrics.quality import corpus_statistics
from ..streaming.events import collect
from ..streaming.systems import build_system
from .base import TranslationModule
from .sharded import whole_model

log = logging.getLogger("train")


class SimultaneousSample(L.Callback):
    """After every validation: BLEU, AL and AL_all of the first validation pairs, decoded greedily by one system.

    Args:
        size: pairs of the sample; 0 for none.
        target_language: decides how BLEU splits words.
        system, setting: name of the system, and its θ or k, as `build_system` takes them.
    """

    def __init__(
        self,
        prepared: PreparedCorpus,
        size: int,
        target_language: str,
        system: str,
        setting: float | int | None,
        max_target_tokens: int,
    ) -> None:
        sample = prepared.splits["validation"][:size]
        self.sources = prepared.sources.ids([pair.source for pair in sample])
        self.contexts = prepared.sources.ids([pair.before for pair in sample])
        self.references, self.tokenizer = [pair.target for pair in sample], prepared.tokenizer
        self.texts = [pair.source for pair in sample]
        self.target_language, self.max_target_tokens = target_language, max_target_tokens
        self.system, self.setting = system, setting

    @torch.no_grad()
    def on_validation_epoch_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Decode on the first device, and log there."""
        if trainer.sanity_checking or not self.sources:
            return
        assert isinstance(pl_module, TranslationModule)
        hypotheses = None
        with whole_model(trainer, pl_module) as whole:
            if whole is None:
                return
            with spared(f"training.sample_size={len(self.sources)} translations"), whole_precision(whole.model):
                system = build_system(
                    whole,
                    self.system,
                    self.setting,
                    max_target_tokens=self.max_target_tokens,
                    tokenizer=self.tokenizer,
                )
                hypotheses = collect(system.translate(self.sources, self.contexts), len(self.sources))
        if hypotheses is None:
            return
        texts = [hypothesis.text for hypothesis in hypotheses]
        references = target_ids(self.tokenizer, self.references, self.texts, pl_module.tokens.copy_tokens)
        reference_lengths = [len(ids) for ids in references]
        latency = sentence_latency([h.delays for h in hypotheses], [len(s) for s in self.sources], reference_lengths)
        scores = {"BLEU": corpus_statistics(texts, self.references, self.target_language)["BLEU"].score()}
        scores |= {name: value for name in ("AL", "AL_all") if (value := mean_of_known(latency[name])) is not None}
        for name, value in scores.items():
            pl_module.log(f"validation/{name}", value, rank_zero_only=True, prog_bar=name == "BLEU")


@contextmanager
def spared(what: str) -> Iterator[None]:
    """A failure inside, whatever it is, becomes a warning: hours of training are worth more than a figure."""
    try:
        yield
    except Exception as error:
        log.warning("%s: left out (%s: %s)", what, type(error).__name__, error)


@contextmanager
def whole_precision(module: nn.Module) -> Iterator[None]:
    """All weights in at least float32 for a while: frozen ones may be in half precision, and callbacks run outside of
    autocast. Quantised ones stay as they are."""
    half = [(w, w.data) for w in module.parameters() if w.dtype.is_floating_point and w.dtype.itemsize < 4]
    try:
        for weight, values in half:
            weight.data = values.float()
        yield
    finally:
        for weight, values in half:
            weight.data = values
