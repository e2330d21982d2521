"""What a W&B run has logged, read back from its `.wandb` file: no server, no network, no W&B process.

The file is a log of protocol buffers in LevelDB's format: after seven bytes of header, blocks of 32 KiB hold pieces of
records, each with its checksum, length and kind. The messages' definitions come with the `wandb` package.
"""

import json
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

MAGIC = b":W&B\xe1\xbe\x00"
BLOCK, PIECE = 32768, struct.Struct("<IHB")  # checksum, length, kind
FULL, FIRST, MIDDLE, LAST = 1, 2, 3, 4


@dataclass
class LoggedRun:
    """A run as it stands in its file."""

    folder: Path  # of the file, which holds `files/media` too
    project: str = ""
    name: str = ""
    group: str = ""
    job_type: str = ""
    config: dict[str, Any] = field(default_factory=dict)
    history: list[dict[str, Any]] = field(default_factory=list)  # a line for each time something was logged
    artifacts: list[dict[str, Any]] = field(default_factory=list)  # name, type, metadata, and files by path
    finished: bool = False

    def curve(self, name: str, step: str = "trainer/global_step") -> list[tuple[float, float]]:
        """Steps and values of a metric."""
        return [(line[step], line[name]) for line in self.history if name in line and step in line]

    def last(self, name: str) -> Any:
        """What was logged last under a name; None where nothing was."""
        return next((line[name] for line in reversed(self.history) if name in line), None)

    def file(self, value: dict[str, Any]) -> Path:
        """The file of a logged image or table."""
        return self.folder / "files" / value["path"]

    def rows(self, name: str) -> list[dict[str, Any]]:
        """The table logged last under a name; empty where none was."""
        value = self.last(name)
        if value is None:
            return []
        table = json.loads(self.file(value).read_text(encoding="utf-8"))
        return [dict(zip(table["columns"], row, strict=True)) for row in table["data"]]


def read_wandb_file(path: Path) -> LoggedRun:
    """Read a run's file; of a run that was killed, what had been written.

    Raises:
        ValueError: for a file that is none of W&B's, or is damaged.
    """
    from wandb.proto import wandb_internal_pb2

    messages: Any = wandb_internal_pb2  # its classes are made while it is imported

    run = LoggedRun(path.parent)
    for raw in _records(path):
        record = messages.Record.FromString(raw)
        kind = record.WhichOneof("record_type")
        if kind == "run":
            found = record.run
            run.project, run.name = found.project, found.display_name
            run.group, run.job_type = found.run_group, found.job_type
            _update(run.config, found.config.update)
        elif kind == "config":
            _update(run.config, record.config.update)
        elif kind == "history":
            line: dict[str, Any] = {}
            _update(line, record.history.item)
            run.history.append(line)
        elif kind == "artifact":
            of = record.artifact
            files = {entry.path: entry.local_path for entry in of.manifest.contents}
            metadata = json.loads(of.metadata or "{}")
            run.artifacts.append({"name": of.name, "type": of.type, "metadata": metadata, "files": files})
        elif kind == "exit":
            run.finished = True
    return run


def _update(into: dict[str, Any], items: Any) -> None:
    """Set entries, nested ones in dictionaries."""
    for item in items:
        *parents, name = item.nested_key or [item.key]
        place = into
        for parent in parents:
            place = place.setdefault(parent, {})
        place[name] = json.loads(item.value_json)


def _records(path: Path) -> Iterator[bytes]:
    raw = path.read_bytes()
    if not raw.startswith(MAGIC):
        raise ValueError(f"{path}: is no run file of W&B; give the run-….wandb in a run's wandb/offline-run-… folder")
    place, record = len(MAGIC), b""
    while place + PIECE.size <= len(raw):
        if BLOCK - place % BLOCK < PIECE.size:  # no room for a piece: the block ends in zeros
            place += BLOCK - place % BLOCK
            continue
        checksum, length, kind = PIECE.unpack_from(raw, place)
        piece = raw[place + PIECE.size : place + PIECE.size + length]
        if len(piece) < length:
            return  # the run was killed while it wrote
        if kind not in (FULL, FIRST, MIDDLE, LAST) or zlib.crc32(bytes([kind]) + piece) != checksum:
            raise ValueError(f"{path}: is damaged at byte {place}")
        record = piece if kind in (FULL, FIRST) else record + piece
        place += PIECE.size + length
        if kind in (FULL, LAST):
            yield record
