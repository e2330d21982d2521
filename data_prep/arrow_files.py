"""Files of cleaned pairs, a block each: Arrow's own format, as it is in memory, so that reading one costs nothing.

They are written once and read a few times, a column here and a few rows there, on the way to the splits; those are
Parquet.
"""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa

from data_prep.report import Report
from duplexmt.common.files import write_whole

_REPORT = b"report"


def write_block(table: pa.Table, report: Report, path: Path) -> None:
    """The pairs of a block with its report, whole or not at all."""
    text = json.dumps(report.as_dict(), ensure_ascii=False, sort_keys=True)
    schema = table.schema.with_metadata({_REPORT: text.encode()})

    def write(stream: Any) -> None:
        with pa.ipc.new_file(stream, schema) as writer:
            writer.write_table(table)

    write_whole(path, write)


def read_block(path: Path, columns: Sequence[str]) -> pa.Table:
    """Some columns of a block; pages of the others are not touched."""
    with _opened(path) as reader:
        batches = [reader.get_batch(number).select(list(columns)) for number in range(reader.num_record_batches)]
        schema = pa.schema([reader.schema.field(name) for name in columns])
        return pa.Table.from_batches(batches, schema).combine_chunks()


def block_report(path: Path) -> Report:
    """What became of the lines of a block."""
    with _opened(path) as reader:
        return Report.from_dict(json.loads(reader.schema.metadata[_REPORT]))


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    try:
        with pa.memory_map(str(path)) as file:
            yield pa.ipc.open_file(file)
    except pa.ArrowInvalid as error:
        raise ValueError(f"{path} is damaged ({error}): remove {path.parent}, and it is made again") from error
