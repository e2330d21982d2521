"""What is shown of a model while and after it trains is decoded as it was trained: with the previous sentence, too."""

import torch

from duplexmt.common.pair import Pair
from duplexmt.corpus.prepared import PreparedCorpus
from duplexmt.data.tokenizer import SourceTokens, stream_tokens
from duplexmt.drawing.staircase import staircase
from duplexmt.streaming.events import collect
from duplexmt.training import sample as sample_module
from duplexmt.training.finish import demonstrate
from duplexmt.training.module import GridTranslation
from duplexmt.training.sample import SimultaneousSample

from ..helpers import SENTENCES, grid_system, model_folder, spoken_grid, tiny_tokenizer
from .small_run import small_trainer

TOKENS = stream_tokens(tiny_tokenizer(), context_tokens=4)
SOURCES = SourceTokens(tiny_tokenizer())
PAIRS = [*(Pair(*pair, "我们走。") for pair in SENTENCES[:3]), Pair(*SENTENCES[3])]
TEXTS, BEFORES = [pair.source for pair in PAIRS], [pair.before for pair in PAIRS]


def prepared():
    return PreparedCorpus({"validation": PAIRS, "test": PAIRS}, tiny_tokenizer(), None)


def translated(model, contexts):
    """Greedy translations of the pairs."""
    system = grid_system(model, TOKENS, 0.4, 8, tokenizer=tiny_tokenizer())
    return [hypothesis.text for hypothesis in collect(system.translate(SOURCES.ids(TEXTS), contexts), len(PAIRS))]


def test_the_validation_sample_reads_the_previous_sentence_first(monkeypatch):
    model = spoken_grid(seed=5, anchor=20).double()
    expected = translated(model, SOURCES.ids(BEFORES))
    assert expected != translated(model, None), "the context matters"
    texts = []
    statistics = sample_module.corpus_statistics
    monkeypatch.setattr(
        sample_module, "corpus_statistics", lambda own, *others: texts.extend(own) or statistics(own, *others)
    )
    callback = SimultaneousSample(prepared(), 4, "en", "grid", 0.4, 8)
    module = GridTranslation(model, TOKENS, lam=0.1, learning_rate=1e-3, warmup_steps=0)
    module.log = lambda *_, **__: None
    trainer = small_trainer()
    trainer.strategy.connect(module)
    with torch.no_grad():
        callback.on_validation_epoch_end(trainer, module)
    assert texts == expected


def test_the_demonstration_reads_the_previous_sentence_first(tmp_path):
    model = spoken_grid(seed=5, anchor=20)
    data = {
        "source_language": "zh", "target_language": "en", "licence": "CC0", "path": "-", "max_tokens": None,
        "context_tokens": 4, "context_separator": "|||",
    }  # fmt: skip
    folder = model_folder(tmp_path / "model", model, tokens=TOKENS, data=data)
    shown = demonstrate(folder, prepared(), 2, "grid", 0.4, 8, torch.device("cpu"))
    system = grid_system(model, TOKENS, 0.4, 8, tokenizer=tiny_tokenizer())
    events = system.translate(SOURCES.ids(TEXTS[:1]), SOURCES.ids(BEFORES[:1]))
    assert f"{TEXTS[0]}\n{staircase(events, tiny_tokenizer(), TOKENS.end)}\n" in shown
