"""Loss curves of 50 batches of the built-in corpus, in float64: what an optimisation must not change.

python -m tests.training.golden writes tests/golden/losses.json from the code as it stands: run it only when the
computation itself is meant to change, and say why in the commit.
"""

import json
from functools import cache
from pathlib import Path

import torch

from duplexmt.data.loader import StepLoader
from duplexmt.data.tokenizer import stream_tokens
from duplexmt.training.data import GridDataModule, prepare_corpus
from duplexmt.training.module import GridTranslation
from tests.helpers import tiny_backbone, tiny_grid

GOLDEN = Path(__file__).parent.parent / "golden" / "losses.json"
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
    """200 pairs of the built-in corpus, 4 a batch."""
    prepared = prepare_corpus(
        corpus="builtin", path=None, train_path=None, validation_path=None, test_path=None, source_field=0,
        target_field=1, source_language="zh", target_language="en", tokenizer=None, vocab_size=600, max_tokens=None,
        train_size=200, validation_size=10, test_size=10, seed=1,
    )  # fmt: skip
    data = GridDataModule(prepared, stream_tokens(prepared.tokenizer), batch_size=4, seed=1)
    return data, len(prepared.tokenizer)


def loss_curve(model_options, steps=STEPS, recompute="nothing"):
    """`[steps, 3]`: mean LM loss, mean EMIT loss and path area fraction of each batch, trained by Adam."""
    data, vocab_size = golden_data()
    backbone = tiny_backbone(vocab_size=vocab_size, layers=2, scale=0.2)
    model = tiny_grid(backbone, **model_options).double().train()
    model.recompute = recompute
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
