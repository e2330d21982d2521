"""What a user of a benchmark reads where it cannot be done."""

import importlib

import pytest


@pytest.mark.parametrize(
    ("script", "arguments", "message"),
    [
        ("decode_latency", ["--device", "cuda"], "--device cuda: PyTorch sees no GPU on this machine"),
        ("decode_latency", ["--device", "cpu", "--layers", "0"], "--layers 0: must be at least 1"),
        ("gold_alignment", ["nowhere"], "error: model_folder='nowhere' does not exist"),
        ("int8_speed", ["--quick", "--repeats", "0"], "--repeats 0: must be at least 1"),
        ("int8_speed", ["--layers", "0"], "--layers 0: must be at least 1"),
        ("row_cost", ["--steps", "0"], "--steps 0: must be at least 1"),
        (
            "training_speed",
            ["--shape", "qwen"],
            "--shape qwen: PyTorch sees no GPU on this machine; take --shape small",
        ),
        ("where_waiting_pays", ["nowhere", "--resamples", "-1"], "--resamples -1: must be at least 1"),
        ("path_loss", ["nowhere", "--theta", "0.5", "7"], "--theta 7: a threshold is between 0 and 1"),
    ],
)
def test_what_a_benchmark_cannot_do_is_said_in_one_sentence(script, arguments, message, monkeypatch, capsys):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    monkeypatch.setattr("sys.argv", [script, *arguments])
    with pytest.raises(SystemExit, match="2"):
        importlib.import_module(f"benchmarks.{script}").main()
    assert message in capsys.readouterr().err
