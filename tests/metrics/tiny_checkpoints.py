"""Run in the metrics environment: writes a COMET and a BLEURT checkpoint of a few thousand random weights, and to
`comet.json` and `bleurt.json` how each scores, in batches of three, what standard input has as `metrics_env/neural.py`
is given it.

    .venv-metrics/bin/python tests/metrics/tiny_checkpoints.py FOLDER < ITEMS

The layouts are those of `hf download Unbabel/wmt22-comet-da` and of `lucadiliello/BLEURT-20`.
"""

import json
import runpy
import sys
from pathlib import Path

import sentencepiece
import torch
import yaml
from bleurt_pytorch.bleurt.configuration_bleurt import BleurtConfig
from bleurt_pytorch.bleurt.modeling_bleurt import BleurtForSequenceClassification
from bleurt_pytorch.bleurt.tokenization_bleurt_sp import BleurtSPTokenizer
from comet.models import RegressionMetric
from transformers import XLMRobertaConfig, XLMRobertaModel, XLMRobertaTokenizerFast

TEXTS = [
    "the man is a man",
    "a cat is well",
    "I am a man",
    "we are well",
    "the cat sat",
    "人是人",
    "我们好",
    "我是人",
] * 4
SHAPE = {
    "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24,
    "max_position_embeddings": 80,
}  # fmt: skip


def pieces(folder, **options):
    """A sentencepiece model of 60 pieces."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "texts").write_text("\n".join(TEXTS), encoding="utf-8")
    sentencepiece.SentencePieceTrainer.train(
        input=str(folder / "texts"), model_prefix=str(folder / "spm"), vocab_size=60, hard_vocab_limit=False,
        minloglevel=2, **options,
    )  # fmt: skip
    return folder / "spm.model"


def comet(folder):
    """A regression metric over a tiny XLM-RoBERTa."""
    encoder = folder / "encoder"
    tokenizer = XLMRobertaTokenizerFast(vocab_file=str(pieces(folder / "pieces")))
    tokenizer.save_pretrained(encoder)
    config = XLMRobertaConfig(vocab_size=len(tokenizer) + 8, **SHAPE)
    XLMRobertaModel(config, add_pooling_layer=False).save_pretrained(encoder)
    options = {
        "encoder_model": "XLM-RoBERTa", "pretrained_model": str(encoder), "layer": "mix", "pool": "avg",
        "layer_transformation": "sparsemax", "hidden_sizes": [24, 12], "dropout": 0.0, "layer_norm": False,
        "keep_embeddings_frozen": True, "nr_frozen_epochs": 0.0, "train_data": ["x"], "validation_data": ["x"],
    }  # fmt: skip
    model = RegressionMetric(**options, load_pretrained_weights=False)
    (folder / "checkpoints").mkdir()
    (folder / "hparams.yaml").write_text(yaml.safe_dump({"class_identifier": "regression_metric", **options}))
    torch.save(
        {"state_dict": model.state_dict(), "hyper_parameters": options, "pytorch-lightning_version": "2.0.0"},
        folder / "checkpoints" / "model.ckpt",
    )


def bleurt(folder):
    """A BLEURT over sentence pieces, as BLEURT-20 is."""
    model = pieces(folder / "pieces", control_symbols="[CLS],[SEP],[MASK],[PAD]")
    tokenizer = BleurtSPTokenizer(str(model))
    tokenizer.save_pretrained(folder)
    BleurtForSequenceClassification(
        BleurtConfig(vocab_size=len(tokenizer) + 8, embedding_size=8, num_labels=1, **SHAPE)
    ).save_pretrained(folder)


if __name__ == "__main__":
    torch.manual_seed(0)
    folder = Path(sys.argv[1])
    neural = runpy.run_path(str(Path(__file__).parents[2] / "metrics_env" / "neural.py"))
    items = [json.loads(line) for line in sys.stdin.buffer]
    for build in (comet, bleurt):
        build(folder / build.__name__)
        score = neural[f"load_{build.__name__}"](folder / build.__name__, "cpu")
        (folder / f"{build.__name__}.json").write_text(json.dumps(score(items, 3)))
