"""Anticipation and hallucination worked by hand; the aligner against the gold alignments of the built-in corpus."""

import lzma
import random
from itertools import accumulate, islice

import pytest

from duplexmt.data.builtin import FILE
from duplexmt.metrics.alignment import WordPair, anticipation_rate, hallucination_rate, word_alignments

from ..helpers import needs_metrics_environment
from .test_neural import stand_in


def test_rates_are_over_all_words_of_a_corpus() -> None:
    # Written after 1, 2 and 4 words, from words 2 (not yet read), 2 and none; then after 3, from 1. One word without.
    delays, alignments = [[1, 2, 4], [3], [], [0]], [[2, 2, 0], [1], [], [0]]
    assert anticipation_rate(delays, alignments) == 100 * 1 / 5
    assert hallucination_rate(alignments) == 100 * 2 / 5
    assert anticipation_rate([[]], [[]]) is None
    assert hallucination_rate([]) is None


@pytest.mark.parametrize("k", [1, 3])
def test_under_wait_k_the_rate_is_the_published_k_anticipation_rate(k: int) -> None:
    draw, anticipated, words = random.Random(k), 0, 0
    delays, alignments = [], []
    for _ in range(50):
        source, target = draw.randint(1, 12), draw.randint(1, 12)
        links = {(draw.randint(1, source), j) for j in range(1, target + 1) if draw.random() < 0.8}
        # Chen et al. 2021: A_k(j, a) = 1[{(i, j) in a | i >= j + k} is not empty], averaged over target words.
        anticipated += sum(any(i >= j + k for i, other in links if other == j) for j in range(1, target + 1))
        words += target
        delays.append([min(source, j + k - 1) for j in range(1, target + 1)])
        alignments.append([max([i for i, other in links if other == j], default=0) for j in range(1, target + 1)])
    assert 0 < anticipated < words
    assert anticipation_rate(delays, alignments) == pytest.approx(100 * anticipated / words)


@needs_metrics_environment
def test_the_aligner_finds_what_the_built_in_corpus_knows_and_says_the_same_twice() -> None:
    with lzma.open(FILE, "rt", encoding="utf-8") as lines:
        pairs = [[column.split(" ") for column in line.rstrip("\n").split("\t")] for line in islice(lines, 1500)]
    texts = [WordPair([*"".join(source)], [word.lower() for word in target]) for source, target, *_ in pairs]
    found, version = word_alignments(texts, texts[:300])
    assert version.startswith("IBM Model 1, sil-thot 3")
    right = wrong = 0
    for (source, _, links, (content,)), alignment in zip(pairs, found, strict=False):
        ends = [0, *accumulate(map(len, source))]
        for partner, gold, is_content in zip(alignment, links, content, strict=True):
            if is_content == "1":
                fits = any(ends[int(one)] < partner <= ends[int(one) + 1] for one in gold.split(","))
                right, wrong = right + fits, wrong + (not fits)
    assert right / (right + wrong) > 0.9
    assert word_alignments(texts, texts[:300])[0] == found


@needs_metrics_environment
def test_a_word_that_no_learnt_pair_has_belongs_to_nothing() -> None:
    learnt = [WordPair(["我", "走"], ["i", "go"]), WordPair(["我", "来"], ["i", "come"]), WordPair(["走"], ["go"])] * 5
    (alignment, empty, long), _ = word_alignments(
        learnt,
        [WordPair(["走", "我"], ["i", "blurgh", "go"]), WordPair(["我"], []), WordPair(["我"] * 300, ["i"] * 300)],
    )
    assert alignment == [2, 0, 1]
    assert empty == []
    assert hallucination_rate([long]) == 0, "Thot learns from sentences of up to 200 words, and aligns any"


@pytest.mark.parametrize(
    ("program", "said"),
    [
        ('print(\'{"error": "ModuleNotFoundError: No module named thot"}\')', "No module named thot"),
        ("import sys; print('{\"version\": \"1\"}'); sys.exit('MemoryError')", "MemoryError"),
        ("", "status 0"),
    ],
)
def test_an_aligner_that_fails_says_why_and_what_to_do(tmp_path, program: str, said: str) -> None:
    with pytest.raises(ValueError, match=rf"the aligner failed \(.*{said}.*make metrics, then python evaluate.py"):
        word_alignments([], [WordPair(["a"], ["b"])], str(stand_in(tmp_path, program)))


def test_without_the_environment_the_error_says_how_to_make_it() -> None:
    with pytest.raises(ValueError, match=r"the aligner needs the metrics environment.*run make metrics"):
        word_alignments([], [], "no/such")
