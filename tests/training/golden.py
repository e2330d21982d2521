"""Loss curves of 50 batches of 200 fixed pairs, in float64: what an optimisation must not change.

python -m tests.training.golden writes tests/golden/losses.json from the code as it stands: run it only when the
computation itself is meant to change, and say why in the commit.
"""

import json
from functools import cache
from pathlib import Path

import torch

from data_prep.report import Report
from duplexmt.corpus.prepared import PreparedCorpus
from duplexmt.data.loader import StepLoader
from duplexmt.data.tokenizer import stream_tokens, train_bpe
from duplexmt.training.data import GridDataModule
from duplexmt.training.module import GridTranslation
from tests.helpers import as_pairs, tiny_backbone, tiny_grid

GOLDEN = Path(__file__).parent.parent / "golden" / "losses.json"
PAIRS = GOLDEN.with_name("pairs.tsv")  # words of the source with blanks between them, tab, target
MODELS = {
    "approximate": {},
    "io_off": {"input_attends_output": False},
    "separate": {"softmax": "separate"},
    "constant_anchor": {"anchor": 40},
    "exact": {"attention": "exact"},
}
STEPS = 50


@cache
def golden_data():
    """200 pairs, 4 a batch, and the size of their vocabulary."""
    rows = [line.split("\t") for line in PAIRS.read_text(encoding="utf-8").splitlines()]
    tokenizer = train_bpe([text for words, target in rows for text in (*words.split(), target)], 600)
    pairs = [(words.replace(" ", ""), target) for words, target in rows]
    prepared = PreparedCorpus({"train": as_pairs(pairs), "validation": [], "test": []}, tokenizer, Report())
    data = GridDataModule(prepared, stream_tokens(prepared.tokenizer), batch_size=4, seed=1)
    return data, len(prepared.tokenizer)


def loss_curve(model_options, steps=STEPS, recompute="nothing"):
    """`[steps, 3]`: mean LM loss, mean EMIT loss and path area fraction of each batch, trained by Adam."""
    data, vocab_size = golden_data()
    backbone = tiny_backbone(vocab_size=vocab_size, layers=2, scale=0.2)
    model = tiny_grid(backbone, **model_options).double().train()
    model.recompute(recompute)
    module = GridTranslation(model, data.tokens, lam=0.003, learning_rate=2e-3, warmup_steps=0)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    curve = []
    for batch, _ in zip(StepLoader(data.examples("train"), 4, seed=1), range(steps), strict=False):
        loss, area = module.losses(batch)
        optimizer.zero_grad()
        loss.total(loss.lm_weights, loss.emit_weights).backward()
        optimizer.step()
        curve.append([(loss.lm_sum / loss.lm_weights).item(), (loss.emit_sum / loss.valid_cells).item(), area.item()])
    return curve


if __name__ == "__main__":
    GOLDEN.parent.mkdir(exist_ok=True)
    curves = {name: loss_curve(options) for name, options in MODELS.items()}
    lines = [f'"{name}": {json.dumps([[round(v, 9) for v in row] for row in curve])}' for name, curve in curves.items()]
    GOLDEN.write_text("{\n" + ",\n".join(lines) + "\n}\n")
