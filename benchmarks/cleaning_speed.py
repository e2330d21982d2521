"""How fast `data_prep` cleans, filters and samples a corpus, and how much memory it takes.

    python benchmarks/cleaning_speed.py --data FOLDER            25 million pairs, end to end
    python benchmarks/cleaning_speed.py --pairs 500000           fewer, on lines of the built-in grammar

The corpus is made from the real pairs in FOLDER (*.tsv.gz, source TAB target), or from the built-in grammar's. There
are not 25 million of those: each round over them joins every pair with another one, further away each time, so that
lines get as long as published ones and few are equal; some get noise (escapes, spaces, numerals, exchanged sides).
Making it is not part of the times. Then, with the strict preset, `python -m data_prep` runs on corpora of 1/25, 1/5 and
all of the pairs, as a process of its own whose memory is summed over all its children every 50 ms.
The last line is one JSON object.
"""

import gzip
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

sys.path.insert(0, str(Path(__file__).parents[1]))  # works without an installed package, too

from benchmarks.measuring import command, count
from duplexmt.data.builtin import builtin_corpus

ROOT = Path(__file__).parents[1]

NOISE = (  # share of the pairs, and what happens to them
    (0.02, lambda s, t: (s, pc.replace_substring(t, "'", "&apos;"))),
    (0.02, lambda s, t: (pc.replace_substring(s, "的", " 的 "), pc.replace_substring(t, ",", " ,"))),
    (0.01, lambda s, t: (s, pc.replace_substring(t, ".", " ."))),
    (0.005, lambda s, t: (pc.replace_substring_regex(s, ".+", "10-26"), pc.replace_substring_regex(t, ".+", "10-26."))),
    (0.005, lambda s, t: (t, s)),
)


def real_pairs(folder: Path) -> pa.Table:
    """All pairs of a folder of .tsv.gz files but for the public test set."""
    names = csv.ReadOptions(column_names=["source", "target"])
    plain = csv.ParseOptions(delimiter="\t", quote_char=False)
    texts = csv.ConvertOptions(column_types={"source": pa.string(), "target": pa.string()})
    files = [path for path in sorted(folder.glob("*.tsv.gz")) if not path.name.startswith("test-")]
    return pa.concat_tables([csv.read_csv(path, names, plain, texts) for path in files])


def grammar_pairs(count: int) -> pa.Table:
    """Pairs of the built-in grammar."""
    pairs = builtin_corpus(count, 1, 1, 1)["train"]
    return pa.table({"source": [pair.source for pair in pairs], "target": [pair.target for pair in pairs]})


def corpus_chunks(pairs: pa.Table, count: int) -> Iterator[tuple[pa.Array, pa.Array]]:
    """`count` pairs in chunks, noise included."""
    draw = np.random.default_rng(0)
    total, made, chunk = len(pairs), 0, min(200_000, max(count // 100, 1))
    pairs = pairs.take(pa.array(draw.permutation(total))).combine_chunks()
    while made < count:
        size = min(chunk, count - made)
        places = (np.arange(size) + made) % total
        partner = (places + 7919 * (1 + made // total)) % total
        both = pairs.take(pa.array(places)), pairs.take(pa.array(partner))
        columns = []
        for side, comma in (("source", "，"), ("target", ", ")):
            text = pc.binary_join_element_wise(*(each[side].combine_chunks() for each in both), comma)
            columns.append(pc.if_else(pa.array(draw.random(size) < 0.7), text, both[0][side].combine_chunks()))
        source, target = columns
        noise, low = draw.random(size), 0.0
        for share, change in NOISE:
            where = pa.array((noise >= low) & (noise < low + share))
            changed = change(source, target)
            source, target = pc.if_else(where, changed[0], source), pc.if_else(where, changed[1], target)
            low += share
        yield source, target
        made += size


def write_corpus(pairs: pa.Table, count: int, root: Path) -> None:
    """One file as ParaCrawl has it: target and source, a line each pair."""
    root.mkdir()
    with gzip.open(root / "en-zh-v1.txt.gz", "wb", 1) as stream:
        for source, target in corpus_chunks(pairs, count):
            text = pc.binary_join_element_wise(pc.binary_join_element_wise(target, source, "\t"), "\n", "")
            stream.write(text.buffers()[2].to_pybytes()[: pc.sum(pc.binary_length(text)).as_py()])


def measured(arguments: list[str]) -> dict[str, float]:
    """What a command of Python takes with all its processes, its start included; `processor_seconds` are what it would
    take on one core that it has to itself."""
    begun, before, peak = time.perf_counter(), os.times(), 0
    process = psutil.Popen([sys.executable, *arguments], cwd=ROOT, stderr=subprocess.DEVNULL)
    while (code := process.poll()) is None:
        resident = 0  # bytes of all, shared pages counted each time
        with suppress(psutil.NoSuchProcess):
            for one in (process, *process.children(recursive=True)):
                with suppress(psutil.NoSuchProcess):
                    resident += one.memory_info().rss
        peak = max(peak, resident)
        time.sleep(0.05)
    seconds, after = time.perf_counter() - begun, os.times()
    if code:
        raise SystemExit(f"python {' '.join(arguments)} failed with {code}")
    processor = after.children_user + after.children_system - before.children_user - before.children_system
    figures = {"seconds": round(seconds, 1), "processor_seconds": round(processor, 1)}
    return figures | {"peak_rss_gb": round(peak / 1e9, 2)}


def end_to_end(pairs: pa.Table, count: int, folder: Path, tokenizer: str | None) -> dict[str, float]:
    """Clean, filter and sample a corpus of `count` pairs with the strict preset."""
    root, output = folder / f"raw-{count}", folder / f"out-{count}"
    write_corpus(pairs, count, root)
    os.sync()  # or the first flush of the timed run would wait for all of it
    limit = [f"tokenizer={tokenizer}"] if tokenizer else ["sample.max_tokens=null"]
    size = min(100_000, count // 20)
    asked = ["sources=[paracrawl]", "cleaning=strict", f"sample.train_size={size}", *limit]
    cost = measured(["-m", "data_prep", f"root={root}", f"output={output}", *asked])
    manifest = json.loads((output / "splits" / "manifest.json").read_text(encoding="utf-8"))
    shutil.rmtree(root)
    shutil.rmtree(output)
    result = {
        "pairs": sum(source["lines"]["read"] for source in manifest["sources"].values()),
        **cost,
        "to_sample_from": manifest["pairs_to_sample_from"],
        "looked_at": manifest["sampling"]["looked_at"],
    }
    print(json.dumps(result), flush=True)
    return result


def main() -> None:
    """Measure and print."""
    parser = command(__doc__)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--tokenizer", help="default: no length limit")
    parser.add_argument("--pairs", type=count, default=25_000_000)
    asked = parser.parse_args()
    pairs = real_pairs(asked.data) if asked.data else grammar_pairs(20_000)
    with tempfile.TemporaryDirectory() as scratch:
        sizes = (asked.pairs // 25, asked.pairs // 5, asked.pairs)
        runs = [end_to_end(pairs, size, Path(scratch), asked.tokenizer) for size in sizes]
    summary = runs[-1] | {"pairs_per_second": round(runs[-1]["pairs"] / runs[-1]["seconds"])}
    print(json.dumps(summary | {"scaling": {run["pairs"]: run["seconds"] for run in runs}}))


if __name__ == "__main__":
    main()
