"""The benchmark of the training step, from end to end on a tiny shape: its last line has all it promises."""

import importlib
import json

import pytest

from tests.test_imports import ROOT

TINY = {
    "model_type": "qwen2", "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 3,
    "num_attention_heads": 4, "num_key_value_heads": 2, "tie_word_embeddings": True,
}  # fmt: skip


@pytest.fixture
def last_line(monkeypatch, capsys):
    """Runs the benchmark with some arguments; returns the object of its last line."""
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    script = importlib.import_module("train_step")
    monkeypatch.setattr(script, "SMALL", TINY)
    monkeypatch.setitem(script.LORA, "rank", 4)
    monkeypatch.setattr(script, "keep_freed_memory", lambda: True)  # not in the process of the other tests

    def run(*arguments):
        monkeypatch.setattr("sys.argv", ["train_step.py", "--quick", *arguments])
        script.main()
        return json.loads(capsys.readouterr().out.splitlines()[-1])

    return run


def test_speed(last_line):
    found = last_line("--speed-only", "--steps", "1")
    assert found["padding_waste"] == 0
    assert 0 < found["gemm_share"] < 1
    assert found["flop_ratio_io_off"] > 1
    for name in ("ratio_hf", "speedup_io_off", "mfu", "epoch_minutes"):
        assert found[name] > 0
    assert "scaling" not in found


def test_memory(last_line):
    found = last_line("--steps", "1")
    assert set(found["peak_memory"]) == {"nothing", "elementwise", "layers"}
    assert [row["X"] for row in found["scaling"]] == [8, 16]
    assert found["scaling"][0]["exact_scores"] == 2 * (36 * 8 + 8 * 36)
    assert found["scaling"][0]["approximate_scores"] == 36 + 36 + 2 * 64
