"""COMET and BLEURT, run by the metrics environment's Python for `duplexmt/metrics/neural.py`.

Standard input: a JSON object with `source`, `hypothesis` and `reference` a line. Standard output: first what does the
scoring, `{"version": …}`, then `{"index": …, "score": …}` a line as batches finish, in any order; what cannot be done
is told as `{"error": …}`. Nothing of duplexmt is imported: it need not run on this environment's older libraries.
"""

import argparse
import json
import os
import sys
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

Item = dict[str, str]
CHUNK = 8  # batches between two reports


def folder_of(checkpoint: str) -> Path:
    """The folder given, or that of a name on the hub: downloaded, unless it has been before."""
    if Path(checkpoint).is_dir():
        return Path(checkpoint)
    from huggingface_hub import snapshot_download

    return Path(snapshot_download(checkpoint))


def load_comet(folder: Path, device: str) -> Callable[[list[Item], int], list[float]]:
    """COMET from a folder as `hf download` makes it; its encoder's tokenizer comes from where `hparams.yaml` says."""
    from comet import load_from_checkpoint

    model = load_from_checkpoint(
        str(folder / "checkpoints" / "model.ckpt"), local_files_only=os.environ.get("HF_HUB_OFFLINE") == "1"
    )

    def score(items: list[Item], batch_size: int) -> list[float]:
        samples = [{"src": item["source"], "mt": item["hypothesis"], "ref": item["reference"]} for item in items]
        kind, _, number = device.partition(":")
        where = {"gpus": 1, "accelerator": "gpu"} if kind == "cuda" else {"gpus": 0, "accelerator": "cpu"}
        devices = [int(number)] if number and kind == "cuda" else None
        return model.predict(
            samples, batch_size=batch_size, devices=devices, progress_bar=False, num_workers=0, **where
        ).scores

    return score


def load_bleurt(folder: Path, device: str) -> Callable[[list[Item], int], list[float]]:
    """BLEURT from a folder."""
    import torch
    from bleurt_pytorch.bleurt.modeling_bleurt import BleurtForSequenceClassification
    from bleurt_pytorch.bleurt.tokenization_bleurt_fast import BleurtTokenizerFast
    from bleurt_pytorch.bleurt.tokenization_bleurt_sp import BleurtSPTokenizer

    try:  # BLEURT-20 is over sentencepiece, the older ones over word pieces
        tokenizer = BleurtSPTokenizer.from_pretrained(folder)
    except (OSError, TypeError, ValueError):
        tokenizer = BleurtTokenizerFast.from_pretrained(folder)
    model = BleurtForSequenceClassification.from_pretrained(folder).eval().to(device)

    @torch.no_grad()
    def score(items: list[Item], batch_size: int) -> list[float]:
        scores = []
        for begin in range(0, len(items), batch_size):
            batch = items[begin : begin + batch_size]
            inputs = tokenizer(
                [item["reference"] for item in batch],
                [item["hypothesis"] for item in batch],
                padding="longest",
                truncation=True,
                max_length=model.config.max_position_embeddings,
                return_tensors="pt",
            )
            scores += model(**inputs.to(device)).logits.flatten().tolist()
        return scores

    return score


METRICS = {"COMET": (load_comet, "unbabel-comet"), "BLEURT": (load_bleurt, "bleurt-pytorch")}


def main() -> int:
    """Score what standard input holds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("metric", choices=METRICS)
    parser.add_argument("checkpoint")
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--device", default="auto")
    arguments = parser.parse_args()

    reports = os.fdopen(os.dup(1), "w", encoding="utf-8", buffering=1)
    os.dup2(2, 1)  # whatever the libraries print is no report

    def report(content: dict) -> None:
        reports.write(json.dumps(content) + "\n")

    items = [json.loads(line) for line in sys.stdin.buffer]
    load, package = METRICS[arguments.metric]
    try:
        import torch

        device = arguments.device
        if device == "auto":
            device = "cuda" if torch.cuda.is_available() else "cpu"
        score = load(folder_of(arguments.checkpoint), device)
    except Exception as error:  # whatever it is, the caller tells the user in one line
        report({"error": f"{type(error).__name__}: {error}"})
        return 1
    report({"version": f"{package} {version(package)}"})
    order = sorted(range(len(items)), key=lambda index: len(items[index]["reference"]) + len(items[index]["source"]))
    size = arguments.batch_size * CHUNK
    for begin in range(0, len(order), size):
        chunk = order[begin : begin + size]
        for index, value in zip(chunk, score([items[index] for index in chunk], arguments.batch_size), strict=True):
            report({"index": index, "score": value})
    return 0


if __name__ == "__main__":
    sys.exit(main())
