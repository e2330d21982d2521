"""From the six formats to splits: what comes out, the same however it was run, and what goes wrong on the way."""

import contextlib
import errno
import json
import os
import random
import signal
import subprocess
import sys
import time
from dataclasses import replace
from hashlib import blake2b
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from data_prep.clean_corpus import repeated, write_block
from data_prep.preparation import Preparation, Sampling, preparation
from data_prep.prepare import prepare, read_manifest, workers
from data_prep.prepare import read_split as pairs_of_split
from data_prep.relatives import RELATED
from data_prep.splitting import ranks
from data_prep.tokens import TokenCounter, token_counter
from duplexmt.common import files
from duplexmt.common.files import locked
from duplexmt.common.text import text_key
from tests.commands import run as run_command
from tests.commands import succeeded
from tests.data_prep.brute_force import likeness
from tests.data_prep.formats import PAIRS, tsv, write_wmt21

CHARACTERS = TokenCounter(lambda texts: [len(text) for text in texts], "characters", "0")
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def raw(tmp_path_factory):
    root = tmp_path_factory.mktemp("raw")
    write_wmt21(root)
    return root


def plan(root, output, cleaning="strict", block_bytes=1500, sources=None, **sizes) -> Preparation:
    values = {"train_size": 300, "validation_size": 30, "test_size": 20, "max_tokens": 40} | sizes
    made = preparation(
        "wmt21_zhen", cleaning, sources=sources, root=root, output=output, seed=1, sample=Sampling(**values)
    )
    return replace(made, block_bytes=block_bytes)


def run(root, output, processes=1, **values):
    return prepare(plan(root, output, **values), CHARACTERS, processes=processes)


def contents(folder):
    """Every file of a folder but the locks, byte for byte."""
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def sessions_of(leader):
    """Processes of the session that a process began."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            state, _, _, session = stat.read_text().rpartition(")")[2].split()[:4]
            found += [stat.parent.name] if int(session) == leader and state != "Z" else []
    return found


def source_of(folder, lines, name="wikititles-v3.zh-en.tsv"):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(tsv(lines))
    return folder


def read_split(folder, name):
    """Sources and targets; there is no sentence before any of them."""
    pairs = pairs_of_split(folder, name)
    assert {pair.before for pair in pairs} <= {""}
    return [(pair.source, pair.target) for pair in pairs]


# --- what comes out ----------------------------------------------------------------------------------------------


def test_raw_files_of_six_formats_come_to_disjoint_splits_of_the_sizes_asked_for(raw, tmp_path):
    manifest = run(raw, tmp_path)
    splits = {name: read_split(tmp_path, name) for name in ("train", "validation", "test")}
    assert {name: len(pairs) for name, pairs in splits.items()} == {"train": 300, "validation": 30, "test": 20}
    known = {(zh.replace(" ", ""), en.replace(" .", ".")) for zh, en in PAIRS}
    # NEU's texts are spaced character by character, in the test file: between digits the spaces stay
    assert {(zh.replace(" ", ""), en) for pairs in splits.values() for zh, en in pairs} <= known
    for side in (0, 1):
        keys = [{text_key(pair[side]) for pair in pairs} for pairs in splits.values()]
        assert sum(map(len, keys)) == len(set.union(*keys))
    assert all(len(text) <= 40 for pairs in splits.values() for pair in pairs for text in pair)
    assert manifest == read_manifest(tmp_path)
    table = pq.read_table(tmp_path / "splits" / "train-00000-of-00001.parquet")
    assert set(table["corpus"].to_pylist()) == set(manifest["sources"])


def test_the_manifest_accounts_for_every_line_and_names_its_inputs(raw, tmp_path):
    manifest = run(raw, tmp_path)
    for counts in manifest["sources"].values():
        gone = [*counts.get("faulty", {}).values(), *counts.get("dropped", {}).values()]
        assert counts["lines"]["read"] == counts["lines"]["kept"] + sum(gone)
    assert manifest["sources"]["news_commentary"]["faulty"] == {"empty_line": 100}
    assert manifest["sources"]["ccmt"]["rewritten"]["remove_spaces"] == 100
    (entry,) = manifest["settings"]["inputs"]["paracrawl"]
    assert entry["file"] == "en-zh-v1.txt.gz"
    assert len(entry["sha256"]) == 64
    assert len(manifest["settings"]["inputs"]["un"]) == 2
    report = json.loads((tmp_path / "clean" / "ccmt" / "source.json").read_text(encoding="utf-8"))["report"]
    assert len(report["examples"]["rewritten"]["remove_spaces"]) == 50


@pytest.mark.parametrize("how", ["cut short", "another's", "a letter"])
def test_a_damaged_shard_is_named_when_it_is_read(raw, tmp_path, how):
    manifest = run(raw, tmp_path)
    shard, other = (tmp_path / "splits" / manifest["splits"][name]["shards"][0]["file"] for name in ("train", "test"))
    content = bytearray(shard.read_bytes())
    if how == "cut short":
        shard.write_bytes(content[: len(content) // 2])
    elif how == "another's":
        shard.write_bytes(other.read_bytes())
    else:
        content[content.index(b"Sentence number") + 2] ^= 1
        shard.write_bytes(content)
    with pytest.raises(ValueError, match=rf"{shard.name} is damaged \(.*\): remove .*splits, and it is made again"):
        pairs_of_split(tmp_path, "train")


@pytest.mark.parametrize("name", ["splits/manifest.json", "clean/un/settings.json", "clean/un/source.json"])
def test_a_damaged_record_is_named_with_the_way_out_and_shards_without_one_are_made_again(raw, tmp_path, name):
    run(raw, tmp_path)
    before = contents(tmp_path)
    (tmp_path / name).write_bytes(before[name][:-9])
    with pytest.raises(ValueError, match=rf"{name} is damaged .*: remove .*, and it is made again"):
        run(raw, tmp_path)
    (tmp_path / name).write_bytes(before[name])
    (tmp_path / "splits" / "manifest.json").unlink()
    run(raw, tmp_path)
    assert contents(tmp_path) == before


def test_duplicates_are_dropped_across_sources_the_first_one_stays(tmp_path):
    pairs = [(f"第{n}句", f"Sentence {n}.") for n in range(20)]
    near = [(f"第{n}句！", f"sentence {n}") for n in range(5)]
    source_of(tmp_path / "raw", pairs)
    source_of(tmp_path / "raw", [(en, zh) for zh, en in [*pairs[:3], *near, ("新", "New")]], "corpus.tsv")
    import gzip

    (tmp_path / "raw" / "en-zh-v1.txt.gz").write_bytes(gzip.compress((tmp_path / "raw" / "corpus.tsv").read_bytes()))
    values = {"sources": ["wiki_titles", "paracrawl"], "train_size": None, "validation_size": 0, "test_size": 0}
    manifest = run(tmp_path / "raw", tmp_path / "out", **values)
    assert manifest["duplicates"] == {"duplicate": 3, "near_duplicate": 5 - 3 + 3}
    assert manifest["pairs_to_sample_from"] == 29 - 8
    kept = read_split(tmp_path / "out", "train")
    assert len(kept) == 21
    assert ("第3句！", "sentence 3") in kept, "paracrawl comes first"
    assert ("第0句", "Sentence 0.") in kept
    assert run(tmp_path / "raw", tmp_path / "paper", cleaning="paper", **values)["pairs_to_sample_from"] == 29


def test_all_pairs_are_taken_where_no_size_is_given_but_those_that_share_a_text_with_held_out_ones(tmp_path):
    pairs = [(f"第{n}句", f"Sentence {n}.") for n in range(300)] + [(f"第{n}句", f"Another {n}.") for n in range(300)]
    root = source_of(tmp_path / "raw", pairs)
    values = {"sources": ["wiki_titles"], "train_size": None, "validation_size": 40, "test_size": 10}
    manifest = run(root, tmp_path / "out", cleaning="paper", train_on_relatives=True, **values)
    held = read_split(tmp_path / "out", "validation") + read_split(tmp_path / "out", "test")
    train = read_split(tmp_path / "out", "train")
    assert len({zh for zh, _ in held}) == 50
    assert len(train) == 500
    assert not {zh for zh, _ in held} & {zh for zh, _ in train}
    assert train == [pair for pair in pairs if pair in set(train)], "in the order of the corpus"
    assert manifest["sampling"]["shares_held_out"] >= 50


@pytest.mark.parametrize("train_size", [100, None])
def test_no_training_pair_is_a_relative_of_a_held_out_one_but_where_that_is_asked_for(tmp_path, train_size):
    near = [(zh[:-1] + "吗。", en.replace(" .", " so .")) for zh, en in PAIRS[:200]]
    root = source_of(tmp_path / "raw", [*PAIRS[:200], *near])
    values = {"sources": ["wiki_titles"], "train_size": train_size, "validation_size": 20, "test_size": 10}
    manifest = run(root, tmp_path / "out", **values)
    names = ("train", "validation", "test")
    splits = {name: pairs_of_split(tmp_path / "out", name) for name in names}
    held = splits["test"] + splits["validation"]
    assert all(likeness(one, other, ("zh", "en")) < RELATED for one in splits["train"] for other in held)
    assert manifest["sampling"]["relative_of_held_out"] >= (5 if train_size else 20)
    run(root, tmp_path / "old", **values, train_on_relatives=True)
    old = {name: pairs_of_split(tmp_path / "old", name) for name in names}
    assert {name: old[name] for name in names[1:]} == {name: splits[name] for name in names[1:]}
    assert any(likeness(one, other, ("zh", "en")) >= RELATED for one in old["train"] for other in held)


# --- uniform -----------------------------------------------------------------------------------------------------


def test_a_sample_is_uniform_over_sources_positions_and_the_pairs_that_fit(tmp_path):
    # Ten blocks of ten sources' worth of lines, half of them too long: chi-square over 20 cells of what was drawn.
    lines = [(f"第{n}句", "word " * (3 if n % 2 else 30) + str(n)) for n in range(20_000)]
    root = source_of(tmp_path / "raw", lines)
    drawn = []
    for seed in range(3):
        values = {"sources": ["wiki_titles"], "cleaning": "paper", "block_bytes": 20_000, "train_size": 2000}
        values["train_on_relatives"] = True
        made = plan(root, tmp_path / f"out{seed}", **values)
        manifest = prepare(replace(made, seed=seed), CHARACTERS, processes=1)
        for name in ("train", "validation", "test"):
            path = tmp_path / f"out{seed}" / "splits" / f"{name}-00000-of-00001.parquet"
            drawn += pq.read_table(path)["line"].to_pylist()
        assert manifest["sampling"]["looked_at"] < 5000, "no more is tokenised than it takes"
    assert all(line % 2 for line in drawn), "only short ones"
    observed = np.bincount(np.array(drawn) // 1000, minlength=20)
    expected = len(drawn) / 20
    assert ((observed - expected) ** 2 / expected).sum() < 43.8  # 19 degrees of freedom, p = 0.001


def test_ranks_are_those_of_splitmix64():
    """The generator as its author wrote it (Vigna, 2015), in Python's unbounded integers."""
    state = int.from_bytes(blake2b(b"un", digest_size=8, key=b"1").digest(), "big")
    expected, mask = [], 2**64 - 1
    for _ in range(5):
        state = (state + 0x9E3779B97F4A7C15) & mask
        z = state
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & mask
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & mask
        expected.append(z ^ (z >> 31))
    assert ranks(1, "un", np.arange(5)).tolist() == expected


def test_a_smaller_sample_is_the_beginning_of_a_larger_one(raw, tmp_path):
    run(raw, tmp_path / "small", train_size=50)
    run(raw, tmp_path / "large", train_size=200)
    assert read_split(tmp_path / "large", "train")[:50] == read_split(tmp_path / "small", "train")


# --- the same however it was run -----------------------------------------------------------------------------------


@pytest.mark.parametrize("train_size", [300, None])
def test_one_process_and_two_come_to_the_same_bytes(raw, tmp_path, train_size):
    for name, processes in (("one", 1), ("two", 2)):
        made = plan(raw, tmp_path / name, train_size=train_size, max_tokens=None)
        manifest = prepare(made, None, processes=processes)
    assert contents(tmp_path / "one") == contents(tmp_path / "two")
    sizes = [shard["pairs"] for shard in manifest["splits"]["train"]["shards"]]
    assert (len(sizes) > 2) == (train_size is None)
    assert sum(sizes) == manifest["splits"]["train"]["pairs"] == len(read_split(tmp_path / "two", "train"))


@pytest.mark.parametrize("at_once", [7, 1 << 20])
@pytest.mark.parametrize("factor", [1, 0x9E3779B97F4A7C15])  # alike in their first bits, or nowhere
def test_of_equal_hashes_all_but_the_first_are_repeated_however_many_at_once(tmp_path, monkeypatch, at_once, factor):
    monkeypatch.setattr("data_prep.clean_corpus._HASHES", at_once)
    hashes = np.random.default_rng(0).integers(0, 40, 100, np.uint64) * np.uint64(factor)
    paths = [tmp_path / str(number) for number in range(4)]
    for path, part in zip(paths, np.split(hashes, [0, 30, 31]), strict=True):
        write_block(pa.table({"exact": part}), path)
    expected = [value in hashes[:index] for index, value in enumerate(hashes)]
    assert np.concatenate(repeated(paths, [0, 30, 1, 69], "exact", map)).tolist() == expected


def test_a_run_that_was_stopped_anywhere_or_had_a_full_disk_goes_on_to_the_same_bytes(raw, tmp_path, monkeypatch):
    """Whatever the number of files written before the end, the second run does the rest and no pair twice."""
    run(raw, tmp_path / "whole")
    expected = contents(tmp_path / "whole")
    write, count = files.write_whole, len(expected)
    for stop in random.Random(0).sample(range(count), 3):
        left = iter(range(stop))

        def stopping(path, content, left=left):
            if next(left, None) is None:
                path.with_name(f".{path.name}.tmp").write_bytes(b"half a fi")  # as a killed process leaves it
                raise OSError(errno.ENOSPC, "No space left on device")
            write(path, content)

        for module in ("clean_corpus", "sampling", "prepare"):
            monkeypatch.setattr(f"data_prep.{module}.write_whole", stopping)
        with pytest.raises(OSError, match="No space left"):
            run(raw, tmp_path / str(stop))
        monkeypatch.undo()
        run(raw, tmp_path / str(stop))
        assert contents(tmp_path / str(stop)) == expected


@pytest.mark.slow
def test_killed_at_random_moments_and_started_again_a_run_comes_to_the_same_bytes(raw, tmp_path):
    command = [
        sys.executable, "-m", "data_prep", f"root={raw}", "cleaning=strict", "sample.train_size=300", "processes=2",
        "sample.validation_size=30", "sample.max_tokens=null", "tokenizer=null", "block_bytes=600",
    ]  # fmt: skip
    start, killed = time.monotonic(), tmp_path / "killed"
    subprocess.run([*command, f"output={tmp_path / 'whole'}"], cwd=ROOT, check=True)
    duration, draw = time.monotonic() - start, random.Random(0)
    first = subprocess.Popen([*command, f"output={killed}"], cwd=ROOT, start_new_session=True)
    while not list(killed.glob("clean/*/*.arrow")):
        time.sleep(0.002)
    first.kill()  # none of its workers, which end, and hold up nobody
    first.wait()
    process = subprocess.Popen([*command, f"output={killed}"], cwd=ROOT, start_new_session=True)
    time.sleep(draw.uniform(0.4, 0.9) * duration)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    subprocess.run([*command, f"output={killed}"], cwd=ROOT, check=True)
    assert contents(killed) == contents(tmp_path / "whole")
    end = time.monotonic() + 10
    while sessions_of(first.pid):
        assert time.monotonic() < end
        time.sleep(0.05)


@pytest.mark.slow
def test_jobs_of_a_launcher_that_share_out_the_sources_come_to_the_same_bytes(raw, tmp_path):
    def data_prep(output, sources, *arguments):
        sizes = ["tokenizer=null", "sample.max_tokens=null", "sample.train_size=50", "sample.validation_size=5"]
        given = [*arguments, f"sources={sources}", f"root={raw}", f"output={output}", *sizes, "block_bytes=1500"]
        if "-m" in arguments:  # joblib starts processes in a way of its own
            subprocess.run([sys.executable, "-m", "data_prep", *given, "processes=1"], cwd=ROOT, check=True)
        else:
            succeeded(run_command("data_prep", *given, "processes=1"))

    launcher = ["hydra/launcher=joblib", "hydra.launcher.n_jobs=2", f"hydra.sweep.dir='{tmp_path}'"]
    data_prep(tmp_path / "jobs", "[un],[paracrawl]", "-m", "clean_only=true", *launcher)
    data_prep(tmp_path / "jobs", "[paracrawl,un]")
    data_prep(tmp_path / "one", "[paracrawl,un]")
    assert contents(tmp_path / "jobs") == contents(tmp_path / "one")


def test_a_finished_run_is_not_done_again(raw, tmp_path):
    first = run(raw, tmp_path)
    times = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.[ap]*")}
    assert len(times) > 5
    assert run(raw, tmp_path) == first
    assert times == {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.[ap]*")}


# --- what goes wrong ---------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("ctrl_c_taken")
def test_a_worker_that_is_killed_is_told_in_a_line():
    with (
        pytest.raises(OSError, match=r"one of 2 processes was killed .*: the same command goes on"),
        workers(2) as pool,
    ):
        pool.submit(os._exit, 9).result()
    with workers(2) as pool:
        assert pool.submit(signal.getsignal, signal.SIGINT).result() == signal.SIG_DFL, "no traceback of Ctrl-C"


def test_a_damaged_tokenizer_is_told_in_a_line(tmp_path):
    (tmp_path / "tokenizer.json").write_text('{"version": "1.0", "model', encoding="utf-8")
    with pytest.raises(ValueError, match=r"tokenizer\.json is damaged .*: copy or save it again"):
        token_counter(str(tmp_path))


def test_exchanged_columns_are_refused_before_a_source_counts_as_done(tmp_path):
    root = source_of(tmp_path / "raw", [(f"Sentence {n}.", f"这是第{n}个句子。") for n in range(100)])
    with pytest.raises(ValueError, match="wiki_titles: 5 of the first 5 source texts are not in the script of zh"):
        run(root, tmp_path / "out", sources=["wiki_titles"], cleaning="paper", block_bytes=200)
    assert len(contents(tmp_path / "out" / "clean" / "wiki_titles")) < 6, "of the settings and a few blocks, not of all"


def test_other_settings_or_files_in_the_same_folder_are_refused_by_name(raw, tmp_path):
    root = source_of(tmp_path / "raw", [(f"第{n}句", f"Sentence {n}.") for n in range(100)])
    values = {"sources": ["wiki_titles"], "train_size": 20, "validation_size": 5, "test_size": 5}
    run(root, tmp_path / "out", **values)
    with pytest.raises(ValueError, match="splits was made with other sample: give another output"):
        run(root, tmp_path / "out", **values | {"train_size": 21})
    with pytest.raises(ValueError, match=r"wiki_titles was made with other cleaning: give another output"):
        run(root, tmp_path / "out", cleaning="paper", **values)
    source_of(tmp_path / "raw", [("别的", "Other")])
    with pytest.raises(ValueError, match="made with other inputs"):
        run(root, tmp_path / "out", **values)


def test_two_runs_at_once_on_one_folder_the_second_is_refused_or_waits(raw, tmp_path):
    with locked(tmp_path, wait=False), pytest.raises(ValueError, match="another run is at work"):
        run(raw, tmp_path)
    with locked(tmp_path / "clean" / "paracrawl", wait=False), pytest.raises(ValueError, match="another run"):
        run(raw, tmp_path)
    run(raw, tmp_path)


def test_a_file_that_cannot_be_written_whole_is_not_there_at_all(tmp_path):
    def half(stream):
        stream.write(b"half")
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(OSError, match=r"No space left on device: .*file'"):
        files.write_whole(tmp_path / "file", half)
    assert list(tmp_path.iterdir()) == []


def test_damage_late_in_a_file_stops_the_run_and_a_good_copy_starts_afresh(raw, tmp_path):
    import shutil

    shutil.copytree(raw, tmp_path / "raw")
    path = tmp_path / "raw" / "en-zh-v1.txt.gz"
    good = path.read_bytes()
    path.write_bytes(good[:-20])
    with pytest.raises(ValueError, match=r"en-zh-v1\.txt\.gz: damaged or cut short"):
        run(tmp_path / "raw", tmp_path / "out")
    path.write_bytes(good)
    run(tmp_path / "raw", tmp_path / "out")


def test_too_few_pairs_are_refused_with_what_became_of_them(raw, tmp_path):
    message = r"too few pairs: of all 600 clean ones 0 have over 40 tokens.*; 450 are lacking"
    with pytest.raises(ValueError, match=message):
        run(raw, tmp_path, train_size=1000)
    with pytest.raises(ValueError, match=r"or raise sample\.max_tokens=1: 600 of 600 pairs have more"):
        run(raw, tmp_path, max_tokens=1)


def test_unknown_names_are_refused_with_the_known_ones(raw, tmp_path):
    with pytest.raises(ValueError, match="cleaning=gentle: must be one of paper, strict"):
        plan(raw, tmp_path, cleaning="gentle")
    with pytest.raises(ValueError, match="processes=0"):
        run(raw, tmp_path, processes=0)
    with pytest.raises(ValueError, match="needs a tokenizer"):
        prepare(plan(raw, tmp_path), None, processes=1)
