"""Memory over many sentences, in a process of its own."""

import gc
import json
import random
from pathlib import Path

import pytest

from duplexmt.data.builtin import builtin_corpus
from duplexmt.data.tokenizer import stream_tokens
from duplexmt.streaming.engine import Engine
from duplexmt.streaming.events import End
from duplexmt.streaming.live import LiveDriver
from tests.commands import run, succeeded
from tests.helpers import spoken_grid, tiny_tokenizer
from tests.streaming.live_texts import feed, live_text


def resident_after(sentences: int) -> list[float]:
    """Resident memory of this process, MiB, after each tenth of so many sentences of one text, fed in odd pieces."""
    pairs, tokenizer = builtin_corpus(500, 10, 10, 1)["train"], tiny_tokenizer()
    engine = Engine(
        spoken_grid(anchor=64), stream_tokens(tokenizer), theta=0.5, max_target_tokens=4, max_streams=1,
        typical_source_length=10, tokenizer=tokenizer,
    )  # fmt: skip
    # By characters, so that no tokenizer's cache fills up first.
    arriving = live_text(tokenizer, segmentation="characters", max_sentence_tokens=48)
    translator = LiveDriver(engine).join(arriving)
    draw, ended, memory = random.Random(1), 0, []
    while len(memory) < 10:
        text = "".join(draw.choice(pairs).source for _ in range(10))
        while text:
            size = draw.randint(1, 9)
            for live in feed(translator, text[:size]):
                ended += isinstance(live.event, End)
                if isinstance(live.event, End) and ended % (sentences // 10) == 0:
                    gc.collect()
                    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
                    memory.append(pages * 4096 / 2**20)
            text = text[size:]
    return memory[:10]


@pytest.mark.slow
def test_memory_stays_flat_over_consecutive_sentences():
    memory = json.loads(succeeded(run("tests.streaming.test_memory")).stdout.splitlines()[-1])
    assert len(memory) == 10
    assert memory[-1] - memory[0] <= 6, memory


if __name__ == "__main__":
    print(json.dumps(resident_after(100)))
