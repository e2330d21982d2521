"""Anticipation and hallucination, from word alignments that the metrics environment makes (`make metrics`). No torch.

An alignment gives each target word the source word it belongs to, counted from 1, or 0 where there is none.
"""

import json
import subprocess
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from duplexmt.metrics.neural import ROOT, environment_python

PROGRAM = ROOT / "metrics_env" / "align.py"


class WordPair(NamedTuple):
    """A source and a target, cut into words."""

    source: Sequence[str]
    target: Sequence[str]


def word_alignments(
    learnt: Iterable[WordPair], pairs: Sequence[WordPair], environment: str = ".venv-metrics"
) -> tuple[list[list[int]], str]:
    """Align pairs by IBM Model 1 (Brown et al. 1993) as Thot has it, learnt from other pairs.

    What is aligned is not learnt from, so that a system's rates do not depend on which others are evaluated with it. A
    target word that no learnt pair has is aligned to nothing.

    Args:
        learnt: pairs to learn from; many, or rare words are aligned by chance.
        environment: folder of the metrics environment; a relative one is looked for in the project.

    Returns:
        The alignment of each pair, and the aligner with its version.

    Raises:
        ValueError: no environment, or an aligner that fails; the message says what to do.
    """
    python = environment_python("the aligner", environment)
    lines = [json.dumps({"source": s, "target": t, "learn": True}) for s, t in learnt]
    lines += [json.dumps({"source": s, "target": t}) for s, t in pairs]
    done = subprocess.run([str(python), str(PROGRAM)], input="\n".join(lines), capture_output=True, text=True)
    head, *found = [json.loads(line) for line in done.stdout.splitlines()] or [{}]
    if "version" not in head or len(found) != len(pairs):
        said = head.get("error") or " ".join(done.stderr.split())[-300:] or f"status {done.returncode}"
        raise ValueError(f"the aligner failed ({said}): make metrics, then python evaluate.py rescore=FOLDER")
    return found, f"IBM Model 1, {head['version']}"


def anticipation_rate(delays: Sequence[Sequence[int]], alignments: Sequence[Sequence[int]]) -> float | None:
    """AR: target words aligned to a source word that had not been read when they were written, in %.

    The k-anticipation rate of Chen et al. (2021, arXiv 2010.11247), `1[i ≥ j + k]` for target word j and source word i,
    with the delays as they were in place of wait-k's, `d_j = j + k - 1`; over all words of a corpus.

    Args:
        delays: of each hypothesis, source words read before each of its words.

    Returns:
        0..100, or None without a word.
    """
    pairs = [pair for both in zip(delays, alignments, strict=True) for pair in zip(*both, strict=True)]
    return 100 * sum(partner > delay for delay, partner in pairs) / len(pairs) if pairs else None


def hallucination_rate(alignments: Sequence[Sequence[int]]) -> float | None:
    """HR: target words aligned to no source word, in % (Chen et al. 2021), over all words of a corpus.

    Returns:
        0..100, or None without a word.
    """
    partners = [partner for alignment in alignments for partner in alignment]
    return 100 * partners.count(0) / len(partners) if partners else None
