"""How fast `data_prep` cleans, filters and samples a corpus, how much memory it takes, and how it compares.

    python benchmarks/cleaning_speed.py --data FOLDER            25 million pairs of the six formats, end to end
    python benchmarks/cleaning_speed.py --quick                  under 90 seconds, on lines of the built-in grammar
    … --opusfilter PATH/bin/opusfilter                      of an environment with opusfilter 3.3.1

The corpus is made from the real pairs in FOLDER (*.tsv.gz, source TAB target), or from the built-in grammar's. There
are not 25 million of those: each round over them joins every pair with another one, further away each time, so that
lines get as long as published ones and few are equal; some get noise (escapes, spaces, numerals, faulty lines). Making
it is not part of the times. Then, with the strict preset, `python -m data_prep` runs on corpora of 1/25, 1/5 and all of
the pairs, as a process of its own whose memory is summed over all its children every 50 ms.

Side by side, on one TSV of 1 million pairs: read, clean (the paper's rules), drop exact duplicates, write. `data_prep`
with two processes; `cleaning.clean` in a plain loop and in `datasets.map` with two processes (`cleaning_plain.py`);
opusfilter with two jobs. Each is a process of its own, whose start counts; of three runs (of opusfilter one) that of
median time is taken. Beside the time by the clock stands that of the processors, which says what a core does on a
machine that has other things to do as well.
opusfilter gets the rules as far as its own filters and substitutions can say them, in the same order; `agreement` is
the number of pairs in both outputs over that in either. The last line is one JSON object.
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
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

ROOT = Path(__file__).parents[1]
SHARES = {"paracrawl": 48, "un": 24, "ccmt": 16, "wikimatrix": 8, "wiki_titles": 3, "news_commentary": 1}  # percent
PLAIN_CHARACTERS = {"apos": "'", "quot": '"', "lt": "<", "gt": ">", "amp": "&"}

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
        "pairs": sum(source["lines"] for source in manifest["sources"].values()),
        "seconds": round(cost.seconds, 1),
        "processor_seconds": round(cost.processor_seconds, 1),
        "peak_rss_gb": round(cost.peak_gb, 2),
        "to_sample_from": manifest["pairs_to_sample_from"],
        "looked_at": manifest["sampling"]["looked_at"],
    }
    print(json.dumps(result), flush=True)
    return result


def prepare_all(path: Path, output: Path) -> list[str]:
    """The same with this library: read, clean, drop exact duplicates, write all pairs."""
    return prepare_command(
        path.parent, output, "sources=[paracrawl]", "cleaning.duplicates=exact", "processes=2",
        "sample.train_size=null", "sample.validation_size=0", "sample.max_tokens=null",
    )  # fmt: skip


def opusfilter_configuration(folder: Path) -> str:
    """The paper's rules in opusfilter's terms: substitutions, filters, spaces, duplicates.

    Its RegExpFilter asks the same of both sides. "Neither side has a letter" becomes "each side has a letter", which
    drops some pairs more, and a row of numbers drops a pair by one side alone.
    """
    escapes = [[rf"&\s*{name}\s*;", character, 0, ["I"]] for name, character in PLAIN_CHARACTERS.items()]
    invisible = "[\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f\u00ad\u200b\u2060\ufeff]"
    normalise = [*escapes, [invisible, "", 0, []], [r"\s+", " ", 0, []]]
    close_up = [
        [r" +(?=[,.!?…]+([\s\"'”’)\]}»]|$)|[;:](\s|$)|[)\]}])", "", 0, []],
        [r"(?<=\d) +(?=%(?! ?\d))", "", 0, []],
        [r"(?<=\w) +(?=['’](s|t|re|ll|ve|d|m)\b(?!['’]))", "", 0, ["I"]],
    ]
    filters = [
        {"RegExpFilter": {"regexps": r"[^\W\d_]", "accept_match": True}},
        {"RegExpFilter": {"regexps": r"(?<!\d)(?<!\d\W)0{4,}(?:\W+0{4,})+(?!\d)", "accept_match": False}},
        {"RegExpFilter": {"regexps": r"(?<!\d)\d++(?:[\W_]++\d++){6}", "accept_match": False}},
    ]
    steps = [
        _step("preprocess", "in", "plain", preprocessors=[{"RegExpSub": {"patterns": normalise}}]),
        _step("filter", "plain", "kept", filters=filters),
        _step(
            "preprocess",
            "kept",
            "spaced",
            preprocessors=[{"RegExpSub": {"lang_patterns": [[[r"\s+", "", 0, []]], close_up]}}],
        ),
        _step("remove_duplicates", "spaced", "out"),
    ]
    return json.dumps({"common": {"output_directory": str(folder), "default_n_jobs": 2}, "steps": steps})


def _step(kind: str, before: str, after: str, **parameters: list) -> dict:
    files = {"inputs": [f"{before}.zh", f"{before}.en"], "outputs": [f"{after}.zh", f"{after}.en"]}
    return {"type": kind, "parameters": files | parameters}


def side_by_side(
    pairs: pa.Table, count: int, folder: Path, opusfilter: str | None
) -> tuple[dict[str, Cost], float | None]:
    """The cost of the same work on one TSV by data_prep, a plain loop, datasets.map and opusfilter; and how far the
    last one's pairs are the same (intersection over union)."""
    folder = folder / "side by side"
    folder.mkdir()
    path = folder / "en-zh-v1.txt.gz"
    with gzip.open(path, "wb", 1) as stream:
        for source, target in corpus_chunks(pairs, count):
            stream.write(lines(target, source))
    os.sync()
    quiet = {"stderr": subprocess.DEVNULL, "stdout": subprocess.DEVNULL}
    plain = [sys.executable, str(Path(__file__).with_name("cleaning_plain.py"))]
    costs: dict[str, Cost] = {}
    agreement = None

    def run(name: str, *commands: list[str]) -> None:
        """Each command in a row; what the one of median time took."""
        every = []
        for command in commands:
            every.append(measured(command, **quiet))
            os.sync()
        costs[name] = sorted(every, key=lambda cost: cost.seconds)[len(every) // 2]
        print(name, {key: round(value, 2) for key, value in asdict(costs[name]).items()}, flush=True)

    turns = [folder, folder / "second", folder / "third"]
    for turn in turns[1:]:
        turn.mkdir()
    run("data_prep", *(prepare_all(path, turn / "ours") for turn in turns))
    for name in ("plain_loop", "datasets_map"):
        run(name, *([*plain, name, str(path), str(turn / f"{name}.tsv")] for turn in turns))
    shards = sorted((folder / "ours" / "splits").glob("train-*.parquet"))
    ours = pa.concat_tables([pq.read_table(shard, columns=["source", "target"]) for shard in shards])
    with open(folder / "plain_loop.tsv", encoding="utf-8") as lines_:
        expected = [tuple(line.rstrip("\n").split("\t")) for line in lines_]
    if list(zip(ours["source"].to_pylist(), ours["target"].to_pylist(), strict=True)) != expected:
        raise SystemExit("data_prep and the plain loop differ: no speed-up is reported for wrong results")
    if opusfilter:
        with gzip.open(path, "rt", encoding="utf-8", newline="\n") as stream:
            cells = [line.rstrip("\n").split("\t") for line in stream]
        for name, column in (("zh", 1), ("en", 0)):
            (folder / f"in.{name}").write_text("".join(f"{row[column]}\n" for row in cells), encoding="utf-8")
        (folder / "opusfilter.yaml").write_text(opusfilter_configuration(folder), encoding="utf-8")
        run("opusfilter", [opusfilter, "--overwrite", str(folder / "opusfilter.yaml")])
        theirs = list(
            zip(
                *((folder / f"out.{s}").read_text(encoding="utf-8").split("\n")[:-1] for s in ("zh", "en")), strict=True
            )
        )
        agreement = len(set(theirs) & set(expected)) / max(len(set(theirs) | set(expected)), 1)
    return costs, agreement


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=os.environ.get("DUPLEXMT_DATA"))
    parser.add_argument("--tokenizer", default=os.environ.get("DUPLEXMT_TOKENIZER"), help="none: no length limit")
    parser.add_argument("--opusfilter", help="the command of an environment that has it; none: left out")
    parser.add_argument("--pairs", type=int, default=25_000_000)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--scratch", type=Path, help="folder for the corpora, which are removed in the end")
    arguments = parser.parse_args()
    count, beside = (500_000, 500_000) if arguments.quick else (arguments.pairs, min(arguments.pairs, 1_000_000))
    pairs = real_pairs(arguments.data) if arguments.data and not arguments.quick else grammar_pairs(20_000)
    with tempfile.TemporaryDirectory(dir=arguments.scratch) as scratch:
        compared, agreement = side_by_side(pairs, beside, Path(scratch), arguments.opusfilter)
        counts = [count] if arguments.quick else [count // 25, count // 5, count]
        runs = [end_to_end(pairs, size, Path(scratch), arguments.tokenizer) for size in counts]
    largest = runs[-1]

    def faster(cost: str, name: str) -> float | None:
        """How many times faster than the one named."""
        if name not in compared:
            return None
        return round(getattr(compared[name], cost) / getattr(compared["data_prep"], cost), 1)

    print(
        json.dumps(
            {
                "pairs": largest["pairs"],
                "seconds": largest["seconds"],
                "pairs_per_second": round(largest["pairs"] / largest["seconds"]),
                "peak_rss_gb": largest["peak_rss_gb"],
                "scaling": {run["pairs"]: run["seconds"] for run in runs},
                "speedup_vs_python": faster("seconds", "plain_loop"),
                "speedup_vs_datasets_map": faster("seconds", "datasets_map"),
                "speedup_vs_opusfilter": faster("seconds", "opusfilter"),
                "speedup_per_core_vs_python": faster("processor_seconds", "plain_loop"),
                "opusfilter_agreement": None if agreement is None else round(agreement, 4),
            }
        )
    )


if __name__ == "__main__":
    main()
