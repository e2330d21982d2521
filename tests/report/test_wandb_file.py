"""The run file of W&B, read back: whole, cut off, damaged, or something else."""

import struct
import zlib

import pytest

from duplexmt.report.wandb_file import BLOCK, MAGIC, read_wandb_file


def written(path, records):
    """A run file in LevelDB's log format, as W&B writes it."""
    raw = bytearray(MAGIC)
    for record in records:
        data, first = record.SerializeToString(), True
        while first or data:
            room = BLOCK - len(raw) % BLOCK
            if room < 7:
                raw += bytes(room)
                continue
            piece, data = data[: room - 7], data[room - 7 :]
            kind = (1 if first else 4) if not data else (2 if first else 3)
            raw += struct.pack("<IHB", zlib.crc32(bytes([kind]) + piece), len(piece), kind) + piece
            first = False
    path.write_bytes(raw)
    return path


def history(**values):
    from wandb.proto.wandb_internal_pb2 import Record

    record = Record()
    for name, value in values.items():
        item = record.history.item.add()
        item.nested_key.append(name)
        item.value_json = value
    return record


@pytest.mark.parametrize("length", [3, 500, 40_000, 100_000])
def test_records_are_read_across_blocks(tmp_path, length):
    lines = [history(step=str(n), text='"' + "x" * (length + n) + '"') for n in range(70)]
    run = read_wandb_file(written(tmp_path / "run-a.wandb", lines))
    assert [(line["step"], len(line["text"])) for line in run.history] == [(n, length + n) for n in range(70)]
    assert run.curve("text", step="step")[0] == (0, "x" * length)
    assert run.last("nothing") is None
    assert run.rows("nothing") == []


def test_of_a_run_that_was_killed_the_written_part_is_read(tmp_path):
    path = written(tmp_path / "run-a.wandb", [history(a="1"), history(a="2")])
    path.write_bytes(path.read_bytes()[:-3])
    run = read_wandb_file(path)
    assert run.history == [{"a": 1}]
    assert not run.finished


def test_a_damaged_file_and_another_one_are_refused(tmp_path):
    path = written(tmp_path / "run-a.wandb", [history(a="1")])
    raw = bytearray(path.read_bytes())
    raw[-1] ^= 1
    path.write_bytes(raw)
    with pytest.raises(ValueError, match=r"run-a.wandb: is damaged at byte 7"):
        read_wandb_file(path)
    path.write_text("step,loss\n")
    with pytest.raises(ValueError, match=r"is no run file of W&B; give the run-….wandb"):
        read_wandb_file(path)
