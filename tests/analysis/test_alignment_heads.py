"""Heads that align: what they are measured by, and what is kept of them in the model folder."""

from itertools import pairwise

import pytest
import torch

from duplexmt.analysis.alignment_heads import CLEAR, attended, best_heads, brought_by
from duplexmt.evaluation.points import rule_of
from duplexmt.model_folder.artifact import load_model_folder
from duplexmt.policy.decoding_options import Adaptive
from duplexmt.streaming.systems import build_system

from ..commands import run
from ..helpers import CORPUS, SENTENCES, model_folder, tiny_prefix, tsv
from ..streaming import slow_policies as slow
from ..streaming.test_grid_system import PREFIXED
from ..streaming.test_prefix_systems import small_talk

PAIRS = [([2, 3, 4, 5], [3, 4, 6]), ([6, 5, 2], [2, 2, 5, 4]), ([4, 3], [6])]


def test_a_token_is_brought_by_the_source_token_that_lowers_its_loss_most():
    model = small_talk(2)
    for source, text in PAIRS:
        drops, places = brought_by(model, PREFIXED, source, text)
        whole = [*PREFIXED.source_prefix, *source, PREFIXED.end]
        for y, token in enumerate(text):
            target = [PREFIXED.seed, *PREFIXED.target_prefix, *text[:y]]
            losses = [
                -float(slow.distribution(model, whole, target, len(whole), [3 + read] * len(target))[token])
                for read in range(len(source) + 1)
            ]
            falls = [before - after for before, after in pairwise(losses)]
            assert float(drops[y]) == pytest.approx(max(falls), abs=1e-5)
            assert int(places[y]) == falls.index(max(falls))


def test_the_best_heads_are_those_that_attend_most_often_to_what_brings_a_token():
    model = small_talk(2)
    hits, clear = [0] * 8, 0
    for source, text in PAIRS:
        weights = slow.rests_on(model, PREFIXED, source, text)[1][:, :-1]
        torch.testing.assert_close(attended(model, PREFIXED, source, text), weights, rtol=0, atol=1e-9)
        drops, places = brought_by(model, PREFIXED, source, text)
        for y in range(len(text)):
            if drops[y] >= CLEAR:
                clear += 1
                hits = [n + int(w[y].argmax() == places[y]) for n, w in zip(hits, weights, strict=True)]
    heads, shares = best_heads(model, PREFIXED, PAIRS, 3)
    order = sorted(range(8), key=lambda at: -hits[at])[:3]
    assert heads == [[at // 4, at % 4] for at in order]
    assert shares == pytest.approx([hits[at] / clear for at in order])
    assert len({*hits}) > 2
    with pytest.raises(ValueError, match="--heads 9: the model has 8 heads"):
        best_heads(model, PREFIXED, PAIRS, 9)


def test_the_command_keeps_them_in_the_model_folder_where_alignatt_finds_them(tmp_path):
    texts = [(f"{source}{n}", f"{target} {n}") for n in range(3) for source, target in SENTENCES]
    data = CORPUS | {"train_path": tsv(tmp_path / "train.tsv", texts), "max_tokens": 64, "licence": "CC0"}
    folder = model_folder(tmp_path / "model", tiny_prefix(vocab_size=320), data=data, policy={})
    adaptive = Adaptive(1, 4, 0.9, "paper")
    assert rule_of("alignatt", adaptive, load_model_folder(folder)) == {"heads": None}

    def command(*arguments):
        return run("duplexmt.analysis.alignment_heads", str(folder), *arguments)

    done = command("--pairs", "5", "--heads", "2")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("of the tokens that one source token brings") == 2
    assert "preparing train.tsv" in done.stderr
    loaded = load_model_folder(folder)
    heads = loaded.model.alignment_heads
    assert len(heads) == 2
    assert rule_of("alignatt", adaptive, loaded) == {"heads": heads}
    system = build_system(loaded, "alignatt", 1, max_target_tokens=4)
    assert list(system.translate([[5, 6, 7]]))
    assert command("--pairs", "99").returncode == 0, "of 27"
    done = command("--pairs", "0")
    assert (done.returncode, done.stderr) == (2, "error: --pairs 0: must be at least 1\n")
