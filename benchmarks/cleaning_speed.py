"""How fast `data_prep` cleans, filters and samples a corpus, and how much memory it takes.

    python benchmarks/cleaning_speed.py --data FOLDER            25 million pairs of the six formats, end to end
    python benchmarks/cleaning_speed.py --quick                  under 90 seconds, on lines of the built-in grammar

The corpus is made from the real pairs in FOLDER (*.tsv.gz, source TAB target), or from the built-in grammar's. There
are not 25 million of those: each round over them joins every pair with another one, further away each time, so that
lines get as long as published ones and few are equal; some get noise (escapes, spaces, numerals, faulty lines). Making
it is not part of the times. Then, with the strict preset, `python -m data_prep` runs on corpora of 1/25, 1/5 and all of
the pairs, as a process of its own whose memory is summed over all its children every 50 ms.
The last line is one JSON object.
"""

import argparse
import gzip
import io
import json
import os
import resource
import shutil
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
import zipfile
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

ROOT = Path(__file__).parents[1]
SHARES = {"paracrawl": 48, "un": 24, "ccmt": 16, "wikimatrix": 8, "wiki_titles": 3, "news_commentary": 1}  # percent

NOISE = (  # share of the pairs, and what happens to them
    (0.02, lambda s, t: (s, pc.replace_substring(t, "'", "&apos;"))),
    (0.02, lambda s, t: (pc.replace_substring(s, "的", " 的 "), pc.replace_substring(t, ",", " ,"))),
    (0.01, lambda s, t: (s, pc.replace_substring(t, ".", " ."))),
    (0.005, lambda s, t: (pc.replace_substring_regex(s, ".+", "10-26"), pc.replace_substring_regex(t, ".+", "10-26."))),
    (0.005, lambda s, t: (t, s)),
)


def real_pairs(folder: Path) -> pa.Table:
    """All pairs of a folder of .tsv.gz files but for the public test set."""
    sources, targets = [], []
    for path in sorted(folder.glob("*.tsv.gz")):
        if not path.name.startswith("test-"):
            with gzip.open(path, "rt", encoding="utf-8", newline="\n") as lines:
                for line in lines:
                    source, target = line.rstrip("\n").split("\t")
                    sources.append(source)
                    targets.append(target)
    return pa.table({"source": pa.array(sources), "target": pa.array(targets)})


def grammar_pairs(count: int) -> pa.Table:
    """Pairs of the built-in grammar."""
    from duplexmt.data.grammar import builtin_corpus

    pairs = builtin_corpus(count, 1, 1, 1)["train"]
    return pa.table({"source": [pair.source for pair in pairs], "target": [pair.target for pair in pairs]})


def corpus_chunks(pairs: pa.Table, count: int) -> Iterator[tuple[pa.Array, pa.Array]]:
    """`count` pairs in chunks, noise included."""
    draw = np.random.default_rng(0)
    total, made = len(pairs), 0
    chunk = min(200_000, max(count // 100, 1))
    order = pa.array(draw.permutation(total))
    pairs = pairs.take(order).combine_chunks()
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


def lines(*columns: pa.Array | str) -> bytes:
    """The columns as lines of a TSV."""
    joined = pc.binary_join_element_wise(*columns, "\t") if len(columns) > 1 else columns[0]
    ended = pc.binary_join_element_wise(joined, "\n", "")
    return ended.buffers()[2].to_pybytes()[: pc.sum(pc.binary_length(ended)).as_py()]


def write_corpus(pairs: pa.Table, count: int, root: Path) -> None:
    """The six formats of `data_prep/conf/corpus/wmt21_zhen.yaml`."""
    root.mkdir()
    (root / "ccmt" / "neu2017").mkdir(parents=True)
    names = list(SHARES)
    sizes = np.cumsum([count * SHARES[name] // 100 for name in names])
    with (
        ExitStack() as opened,
        gzip.open(root / "en-zh-v1.txt.gz", "wb", 1) as paracrawl,
        gzip.open(root / "news-commentary-v16.en-zh.tsv.gz", "wb", 1) as news,
        gzip.open(root / "WikiMatrix.v1.en-zh.langid.tsv.gz", "wb", 1) as matrix,
        open(root / "wikititles-v3.zh-en.tsv", "wb") as titles,
    ):
        part = {
            side: opened.enter_context(tempfile.TemporaryFile(dir=root))
            for side in ("un.zh", "un.en", "ccmt.zh", "ccmt.en")
        }
        made = 0
        for source, target in corpus_chunks(pairs, count):
            name = names[min(int(np.searchsorted(sizes, made, side="right")), len(names) - 1)]
            made += len(source)
            if name == "paracrawl":
                paracrawl.write(lines(target, source))
            elif name == "news_commentary":
                news.write(lines(target, source) + b"\t\n")
            elif name == "wiki_titles":
                titles.write(lines(source, target) + b"one column\n")
            elif name == "wikimatrix":
                matrix.write(
                    lines(
                        pa.array(["1.05"] * len(source)),
                        target,
                        source,
                        pa.array(["en"] * len(source)),
                        pa.array(["zh"] * len(source)),
                    )
                )
            else:
                part[f"{name}.zh"].write(lines(source))
                part[f"{name}.en"].write(lines(target))
        archive = root / "un.tar.gz"
        with gzip.open(archive, "wb", 1) as stream, tarfile.open(fileobj=stream, mode="w|") as tar:
            for side in ("en", "zh"):
                entry = tarfile.TarInfo(f"en-zh/UNv1.0.en-zh.{side}")
                entry.size = part[f"un.{side}"].tell()
                part[f"un.{side}"].seek(0)
                tar.addfile(entry, part[f"un.{side}"])
        with zipfile.ZipFile(root / "ccmt" / "casia2015.zip", "w", zipfile.ZIP_DEFLATED, compresslevel=1) as zipped:
            for side, name in (("en", "en"), ("zh", "ch")):
                part[f"ccmt.{side}"].seek(0)
                with zipped.open(f"casia2015/casia2015_{name}.txt", "w", force_zip64=True) as stream:
                    shutil.copyfileobj(part[f"ccmt.{side}"], stream, 1 << 24)
    half = archive.stat().st_size // 2
    with open(archive, "rb") as whole:
        for number, size in ((0, half), (1, -1)):
            with open(root / f"UNv1.0.en-zh.tar.gz.{number:02d}", "wb") as piece:
                while size and (data := whole.read(min(size, 1 << 24) if size > 0 else 1 << 24)):
                    piece.write(data)
                    size -= len(data) if size > 0 else 0
    archive.unlink()
    for side, name in (("en", "en"), ("zh", "cn")):
        text = io.BytesIO(lines(*[pairs[{"zh": "source", "en": "target"}[side]].slice(0, 1000).combine_chunks()]))
        (root / "ccmt" / "neu2017" / f"NEU_{name}.txt").write_bytes(
            text.getvalue().decode().encode("gb18030") if side == "zh" else text.getvalue()
        )


def resident(pid: int) -> int:
    """Bytes of memory of a process and all its descendants, shared pages counted each time."""
    total, todo = 0, [pid]
    while todo:
        process = todo.pop()
        try:
            total += int(Path(f"/proc/{process}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
            for thread in Path(f"/proc/{process}/task").iterdir():
                todo += map(int, (thread / "children").read_text().split())
        except (FileNotFoundError, ProcessLookupError):
            pass
    return total


@dataclass(frozen=True)
class Cost:
    """Of a command, with all its processes, its start included."""

    seconds: float
    processor_seconds: float  # what it would take on one core that it has to itself
    peak_gb: float


def measured(command: list[str], **options) -> Cost:
    """What a command takes."""
    start, peak, before = time.perf_counter(), 0, resource.getrusage(resource.RUSAGE_CHILDREN)
    with subprocess.Popen(command, cwd=ROOT, **options) as process:
        ended = threading.Event()

        def watch() -> None:
            nonlocal peak
            while not ended.wait(0.05):
                peak = max(peak, resident(process.pid))

        watcher = threading.Thread(target=watch)
        watcher.start()
        code = process.wait()
        seconds = time.perf_counter() - start
        ended.set()
        watcher.join()
    if code:
        raise SystemExit(f"{' '.join(command)} failed with {code}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    processor = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Cost(seconds, processor, peak / 1e9)


def prepare_command(root: Path, output: Path, *arguments: str) -> list[str]:
    return [sys.executable, "-m", "data_prep", f"root={root}", f"output={output}", *arguments]


def end_to_end(pairs: pa.Table, count: int, folder: Path, tokenizer: str | None) -> dict[str, float]:
    """Clean, filter and sample a corpus of `count` pairs with the strict preset."""
    root, output = folder / f"raw-{count}", folder / f"out-{count}"
    start = time.perf_counter()
    write_corpus(pairs, count, root)
    os.sync()  # or the first flush of the timed run would wait for all of it
    print(f"{count:,} pairs made in {time.perf_counter() - start:.0f} s", flush=True)
    limit = [f"tokenizer={tokenizer}"] if tokenizer else ["sample.max_tokens=null"]
    size = min(100_000, count // 20)
    cost = measured(
        prepare_command(root, output, "cleaning=strict", f"sample.train_size={size}", *limit), stderr=subprocess.DEVNULL
    )
    manifest = json.loads((output / "splits" / "manifest.json").read_text(encoding="utf-8"))
    shutil.rmtree(root)
    shutil.rmtree(output)
    result = {
        "pairs": sum(source["lines"]["read"] for source in manifest["sources"].values()),
        "seconds": round(cost.seconds, 1),
        "processor_seconds": round(cost.processor_seconds, 1),
        "peak_rss_gb": round(cost.peak_gb, 2),
        "to_sample_from": manifest["pairs_to_sample_from"],
        "looked_at": manifest["sampling"]["looked_at"],
    }
    print(json.dumps(result), flush=True)
    return result


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=os.environ.get("DUPLEXMT_DATA"))
    parser.add_argument("--tokenizer", default=os.environ.get("DUPLEXMT_TOKENIZER"), help="none: no length limit")
    parser.add_argument("--pairs", type=int, default=25_000_000)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--scratch", type=Path, help="folder for the corpora, which are removed in the end")
    arguments = parser.parse_args()
    counts = [500_000] if arguments.quick else [arguments.pairs // 25, arguments.pairs // 5, arguments.pairs]
    pairs = real_pairs(arguments.data) if arguments.data and not arguments.quick else grammar_pairs(20_000)
    with tempfile.TemporaryDirectory(dir=arguments.scratch) as scratch:
        runs = [end_to_end(pairs, size, Path(scratch), arguments.tokenizer) for size in counts]
    largest = runs[-1]
    print(
        json.dumps(
            {
                "pairs": largest["pairs"],
                "seconds": largest["seconds"],
                "pairs_per_second": round(largest["pairs"] / largest["seconds"]),
                "peak_rss_gb": largest["peak_rss_gb"],
                "scaling": {run["pairs"]: run["seconds"] for run in runs},
            }
        )
    )


if __name__ == "__main__":
    main()
