"""COMET and BLEURT, which live in an environment of their own (`make metrics`) and are spoken to in JSON lines.

Scores are kept, sentence by sentence, as soon as they arrive: an interrupted scorer goes on where it was, and what
several systems say alike is scored once.
"""

import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from hashlib import blake2b
from math import isfinite
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

from tqdm import tqdm

ROOT = Path(__file__).parents[2]
PROGRAM = ROOT / "metrics_env" / "neural.py"


Text = tuple[str, str, str]  # source, hypothesis, reference


class Translation(NamedTuple):
    """What is scored: a source, its hypothesis and one or several references."""

    source: str
    hypothesis: str
    references: Sequence[str]


class Neural(NamedTuple):
    """Scores of each translation, ×100, and what made them."""

    scores: list[float]
    version: str


def neural_scores(
    metric: str,
    checkpoint: str,
    translations: Sequence[Translation],
    folder: Path,
    *,
    also_kept: Sequence[Path] = (),
    environment: str = ".venv-metrics",
    batch_size: int = 32,
    device: str = "auto",
) -> Neural:
    """Score translations with COMET or BLEURT; the mean over its references where one has several.

    Args:
        metric: `COMET` or `BLEURT`.
        checkpoint: a name on the hub, or a local folder.
        translations: in any order, repeated or not.
        folder: where scores are kept between runs.
        also_kept: further folders with scores of earlier runs.
        environment: folder of the metrics environment; a relative one is looked for in the project.
        device: auto, cpu or cuda.

    Raises:
        ValueError: no environment, no checkpoint, a scorer that stopped, or a score that is no number; the message
            says what to run.
    """
    path = folder / f"{metric}-{_fingerprint(checkpoint)}.jsonl"
    version, known = _read(path)
    for other in also_kept:
        of_other, scores_of_other = _read(other / path.name)
        version, known = version or of_other, scores_of_other | known
    texts = [[(item.source, item.hypothesis, reference) for reference in item.references] for item in translations]
    missing = {key: text for of_one in texts for text in of_one if (key := _key(text)) not in known}
    if missing:
        command = [str(environment_python(metric, environment)), str(PROGRAM), metric, checkpoint]
        command += ["--batch-size", str(batch_size), "--device", device]
        version, found = _run(command, metric, checkpoint, missing, path, environment)
        known |= found
    return Neural([100 * fmean(known[_key(text)] for text in of_one) for of_one in texts], version)


def _run(
    command: Sequence[str], metric: str, checkpoint: str, texts: Mapping[str, Text], path: Path, environment: str
) -> tuple[str, dict[str, float]]:
    """Let the metrics environment score texts, given by their keys, and write each score down as it comes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    cut_half_line(path)
    log, keys = path.with_suffix(".log"), list(texts)
    found: dict[str, float] = {}
    version, error = "", ""
    names = ("source", "hypothesis", "reference")
    lines = [json.dumps(dict(zip(names, text, strict=True)), ensure_ascii=False) + "\n" for text in texts.values()]
    with (
        open(log, "wb") as errors,
        open(path, "a", encoding="utf-8") as kept,
        tqdm(total=len(texts), desc=f"{metric} {checkpoint}", unit="sentence") as bar,
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors) as scorer,
    ):
        assert scorer.stdin is not None
        assert scorer.stdout is not None
        try:
            with suppress(BrokenPipeError):  # it has stopped before reading: its log says why
                scorer.stdin.write("".join(lines).encode("utf-8", "surrogatepass"))
                scorer.stdin.close()
            for line in scorer.stdout:
                report = json.loads(line)
                if "error" in report:
                    error = report["error"]
                elif "version" in report:
                    version = report["version"]
                    kept.write(json.dumps({"metric": metric, "checkpoint": checkpoint, "version": version}) + "\n")
                else:
                    key, score = keys[report["index"]], report["score"]
                    if not isfinite(score):
                        source, hypothesis, _ = texts[key]
                        raise ValueError(
                            f"{metric} {checkpoint} gave {score} for {hypothesis!r} (source {source!r}): no score is "
                            "reported with such a sentence in it; check the checkpoint, then run "
                            "python evaluate.py rescore=FOLDER"
                        )
                    kept.write(json.dumps({"key": key, "score": score}) + "\n")
                    kept.flush()
                    found[key] = score
                    bar.update()
        finally:
            scorer.kill()
    if error:
        raise ValueError(
            f"{metric}: checkpoint {checkpoint!r} could not be loaded ({_one_line(error)}). Where there is a network: "
            f"{environment}/bin/hf download {checkpoint}; else give its folder as quality.{metric.lower()}=FOLDER. "
            "Then python evaluate.py rescore=FOLDER"
        )
    if len(found) < len(texts):
        lines = [line for line in log.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
        said = _one_line(lines[-1]) if lines else "it said nothing"
        raise ValueError(
            f"{metric} stopped after {len(found)} of {len(texts)} sentences ({said}; all of it in {log}). "
            "They are kept: go on with python evaluate.py rescore=FOLDER"
        )
    return version, found


def environment_python(what: str, environment: str) -> Path:
    """The metrics environment's Python.

    Raises:
        ValueError: there is none; the message says what needs it and what to run.
    """
    python = ROOT / environment / "bin" / "python"
    if not python.exists():
        raise ValueError(
            f"{what} needs the metrics environment, and there is none at {python.parent.parent}: run make metrics "
            "(or give quality.environment=FOLDER), then python evaluate.py rescore=FOLDER"
        )
    return python


def whole_lines(path: Path) -> list[bytes]:
    """The lines of a file that grows line by line, none if it is not there; half a line, which another process may be
    writing, or was killed while it wrote, is left out."""
    return path.read_bytes().split(b"\n")[:-1] if path.is_file() else []


def cut_half_line(path: Path) -> None:
    """Remove half a line that a killed run has left, before others are written after it."""
    if path.is_file():
        os.truncate(path, path.read_bytes().rfind(b"\n") + 1)


def _read(path: Path) -> tuple[str, dict[str, float]]:
    """Version and scores kept so far."""
    version, scores = "", dict[str, float]()
    for number, line in enumerate(whole_lines(path), start=1):
        try:
            entry = json.loads(line)
            if "version" in entry:
                version = entry["version"]
            else:
                scores[entry["key"]] = float(entry["score"])
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(f"{path}:{number} is damaged ({error!r}): delete the file, and score again") from error
    return version, scores


def _key(text: Text) -> str:
    return blake2b(json.dumps(text).encode(), digest_size=12).hexdigest()


def _fingerprint(checkpoint: str) -> str:
    """A name for a checkpoint's scores; a folder's changes with its files."""
    path = Path(checkpoint)
    files = sorted(entry for entry in path.rglob("*") if entry.is_file()) if path.is_dir() else []
    stamps = [(str(entry.relative_to(path)), entry.stat().st_size, entry.stat().st_mtime_ns) for entry in files]
    where = str(path.resolve()) if path.exists() else checkpoint
    return blake2b(json.dumps([where, stamps]).encode(), digest_size=6).hexdigest()


def _one_line(text: str) -> str:
    return " ".join(text.split())[:300]
