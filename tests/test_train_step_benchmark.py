"""The benchmark of the training step, from end to end on a tiny shape: its last line has all it promises."""

import importlib
import json

import pytest
import torch

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
        monkeypatch.setattr("sys.argv", ["train_step.py", "--device", "cpu", "--quick", *arguments])
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
    found = last_line("--memory-only", "--steps", "1")
    assert set(found["peak_memory"]) == {"nothing", "elementwise", "layers"}
    assert [row["X"] for row in found["scaling"]] == [8, 16]
    assert found["scaling"][0]["exact_scores"] == 2 * (36 * 8 + 8 * 36)
    assert found["scaling"][0]["approximate_scores"] == 36 + 36 + 2 * 64
    assert "ratio_hf" not in found


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--steps", "0"], "--steps 0: must be at least 1"),
        (["--pairs", "-3"], "--pairs -3: must be at least 1"),
        (["--device", "cuda"], "--device cuda: PyTorch sees no GPU on this machine; take --device cpu"),
        (["--device", "cuda:1"], "invalid choice: 'cuda:1' (choose from"),
    ],
)
def test_what_cannot_be_measured_is_said_in_one_sentence(arguments, message, last_line, monkeypatch, capsys):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    with pytest.raises(SystemExit, match="2"):
        last_line(*arguments)
    assert message in capsys.readouterr().err


def test_what_does_not_fit_into_the_memory_is_left_out_and_the_rest_is_kept(last_line, monkeypatch, capsys):
    script = importlib.import_module("train_step")

    def too_large(self, work):
        if self.kinds.pop(0) == "nothing":
            raise torch.OutOfMemoryError("CUDA out of memory")
        return 7

    def failing(_):
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(script.Bench, "memory", too_large)
    monkeypatch.setattr(script.Bench, "kinds", ["nothing", "elementwise", "layers"], raising=False)
    monkeypatch.setattr(script, "against_hugging_face", failing)
    monkeypatch.setattr(script, "io_off", lambda _: {"speedup_io_off": 2.0})
    monkeypatch.setattr(script, "scaling", lambda *_: [])
    monkeypatch.setattr("sys.argv", ["train_step.py", "--device", "cpu", "--quick"])
    script.main()
    printed = capsys.readouterr()
    found = json.loads(printed.out.splitlines()[-1])
    assert (found["speedup_io_off"], found["peak_memory"]) == (2.0, {"elementwise": 7, "layers": 7})
    assert "ratio_hf" not in found
    assert "training.recompute=nothing: does not fit into the device's memory" in printed.err

    def interrupted(_):
        raise KeyboardInterrupt

    monkeypatch.setattr(script, "peak_memory", interrupted)
    with pytest.raises(SystemExit, match="130"):
        script.main()
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["speedup_io_off"] == 2.0


def test_all_of_a_matrix_product_counts_as_one():
    script = importlib.import_module("train_step")
    products = (
        "nvjet_tst_128x256_64x4_2x1_v_bz_coopA_TNT", "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize64x64x64",
        "ampere_fp16_s16816gemm_fp16_128x64_ldg8_stages_64x3_tn", "aten::addmm", "mkldnn::_linear_pointwise",
        "void cublasLt::splitKreduce_kernel<32, 16, int, float, __nv_bfloat16>", "void gemv2T_kernel_val<int, int>",
    )  # fmt: skip
    others = ("aten::mul", "_walk", "_walk_back", "void at::native::elementwise_kernel<128, 4>", "Memcpy HtoD")
    assert all(any(part in name for part in script.GEMM) for name in products)
    assert not any(part in name for name in others for part in script.GEMM)
