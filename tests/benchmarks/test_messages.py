"""What a user of a benchmark reads where it cannot be done."""

import importlib

import pytest


@pytest.mark.parametrize(
    ("script", "arguments", "message"),
    [
        (
            "decode_latency",
            ["--shape", "qwen"],
            "--shape: qwen: PyTorch sees no GPU on this machine; take small",
        ),
        (
            "decode_latency",
            ["--streams", "8,64"],
            "--streams: 8,64: must be numbers of at least 1, with commas between",
        ),
        (
            "decode_latency",
            ["--kinds", "rows,int8"],
            "--kinds: int8: there are grid, grid_io_off, rows, rows_int8, rows",
        ),
        ("path_loss", ["nowhere"], "error: model_folder='nowhere' does not exist"),
        ("row_cost", ["--steps", "0"], "--steps: 0: must be a whole number, at least 1"),
        (
            "training_speed",
            ["--shape", "qwen"],
            "--shape: qwen: PyTorch sees no GPU on this machine; take small",
        ),
        ("where_waiting_pays", ["nowhere", "--resamples", "-1"], "--resamples: -1: must be a whole number"),
        (
            "path_loss",
            ["nowhere", "--theta", "0.5", "7"],
            "--theta=7.0: the EMIT threshold must be a number between 0 and 1",
        ),
    ],
)
def test_what_a_benchmark_cannot_do_is_said_in_one_sentence(script, arguments, message, monkeypatch, capsys):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    monkeypatch.setattr("sys.argv", [script, *arguments])
    with pytest.raises(SystemExit, match="2"):
        importlib.import_module(f"benchmarks.{script}").main()
    assert message in capsys.readouterr().err
