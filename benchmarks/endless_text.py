"""Does the memory of one process stay flat while it translates sentence after sentence?

    python benchmarks/endless_text.py [MODEL_FOLDER] [--sentences 10000] [--segmentation tokens]

Feeds sentences of the built-in grammar as one text without end, in chunks of random size, to one live translator: the
given model, or without one a small model with random weights. Prints resident memory on the way; the last line is one
JSON object. Flat means that the memory after the last sentence is at most 2 % above that after the first tenth.
"""

import argparse
import gc
import json
import random
import sys
from functools import partial
from pathlib import Path
from time import perf_counter

import torch

sys.path.insert(0, str(Path(__file__).parents[1]))  # before this folder and its data_prep.py

from data_prep import clean_side
from data_prep.live import settled_side
from duplexmt.data.grammar import builtin_corpus
from duplexmt.data.tokenizer import SourceTokens, stream_tokens, train_bpe
from duplexmt.grid.backbone import random_backbone
from duplexmt.grid.model import GridModel
from duplexmt.streaming.engine import Engine
from duplexmt.streaming.events import End, Write
from duplexmt.streaming.live import LiveTranslator
from duplexmt.studies.pairs import load_grid

SHAPE = {
    "model_type": "qwen2", "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2,
    "num_key_value_heads": 1, "max_position_embeddings": 1024, "tie_word_embeddings": True, "initializer_range": 0.3,
}  # fmt: skip


def resident() -> float:
    """Resident memory of this process, MiB."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * 4096 / 2**20


def main() -> None:
    """Translate, measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model_folder", nargs="?")
    parser.add_argument("--sentences", type=int, default=10_000)
    parser.add_argument("--segmentation", default="tokens", choices=["tokens", "characters"])
    arguments = parser.parse_args()
    if arguments.sentences < 1:
        parser.error(f"--sentences {arguments.sentences}: must be at least 1")
    pairs = builtin_corpus(500, 10, 10, 1)["train"]
    if arguments.model_folder:
        try:
            loaded = load_grid(arguments.model_folder)
        except (ValueError, OSError) as error:
            parser.error(str(error))
        model, sources, tokens = loaded.model, loaded.sources, loaded.tokens
    else:
        tokenizer = train_bpe([text for pair in pairs for text in (pair.source, pair.target)], 2000)
        tokens = stream_tokens(tokenizer)
        torch.manual_seed(1)
        model = GridModel(random_backbone(SHAPE, len(tokenizer), tokens.end), anchor=64).eval()
        sources = SourceTokens(tokenizer, arguments.segmentation)
    engine = Engine(
        model,
        tokens,
        theta=0.5,
        max_target_tokens=4,
        max_streams=1,
        typical_source_length=10,
        tokenizer=sources.tokenizer,
    )
    translator = LiveTranslator(
        engine,
        sources,
        partial(clean_side, language="zh"),
        partial(settled_side, language="zh"),
        max_sentence_tokens=48,
    )
    draw = random.Random(1)
    begin, written, ended, memory = perf_counter(), 0, 0, []
    mark = max(arguments.sentences // 10, 1)
    while ended < arguments.sentences:
        text = "".join(draw.choice(pairs).source for _ in range(10))
        while text:
            size = draw.randint(1, 9)
            for live in translator.feed(text[:size]):
                written += isinstance(live.event, Write)
                if isinstance(live.event, End):
                    ended += 1
                    if ended % mark == 0:
                        gc.collect()
                        memory.append(resident())
                        print(f"{ended:>7,} sentences  {memory[-1]:8.1f} MiB")
            text = text[size:]
    growth = memory[-1] / memory[0] - 1
    result = {
        "sentences": ended,
        "tokens_written": written,
        "seconds": round(perf_counter() - begin, 1),
        "resident_mib": [round(value, 1) for value in memory],
        "growth": round(growth, 4),
        "cache_bytes": getattr(getattr(engine.states, "cache", None), "bytes", None),  # some models have none
        "flat": growth <= 0.02,
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
