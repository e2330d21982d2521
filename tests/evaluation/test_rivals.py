"""The adaptive policies by evaluate.py and translate.py, in one process, with tiny multi-path and offline models."""

import json
from types import SimpleNamespace

import pytest

import evaluate
import translate
from duplexmt.evaluation.decoding import Decoding
from duplexmt.evaluation.points import point_of
from duplexmt.evaluation.scores import name_points
from duplexmt.model_folder.manifest import read_manifest, write_manifest
from duplexmt.policy.decoding_options import PAPER_RULE, TARGET_TOKENS
from duplexmt.translator.translator import ADAPTIVE

from ..helpers import tiny_prefix, tiny_tokenizer
from ..scripted import TEST
from ..test_config import checked
from .test_evaluate import PAIRS, arguments, save

KNOBS = ("confidence=[0.3,0.5]", "lsg=[0.1,1]", "alignatt=1", "hold=[1,3]")
KINDS = ("confidence", "lsg", "alignatt", "hold")
POLICIES = [("confidence", 0.4), ("lsg", 0.3), ("alignatt", 1), ("hold", 1)]


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """Folders of a multi-path, a wait-3 and an offline model."""
    folder = tmp_path_factory.mktemp("models")
    for seed, (name, k) in enumerate({"multi": "multi", "wait3": 3, "offline": None}.items(), start=5):
        save(folder, name, tiny_prefix(k, seed=seed, vocab_size=len(tiny_tokenizer())), max_tokens=64)
    return folder


def decode(folder, models, *further):
    given = arguments(models, *further)
    cfg = checked("evaluate", *given)
    evaluate.job(cfg, given, folder).decode()
    return cfg, Decoding.read(folder)


def points_in(decoding):
    return sorted(
        (p.system, p.setting, p.model_folder.rpartition("/")[2])
        for p in decoding.points.values()
        if p.setting is not None
    )


def test_each_policy_is_decoded_on_the_models_it_runs_on_and_has_its_row(models, tmp_path):
    run = tmp_path / "run"
    cfg, found = decode(run, [models / "multi", models / "offline"], "k=3", *KNOBS)
    both = [(name, value, held) for name, value in [("lsg", 0.1), ("lsg", 1), ("alignatt", 1), ("hold", 1), ("hold", 3),
            ("waitk", 3)] for held in ("multi", "offline")]  # fmt: skip
    assert points_in(found) == sorted([*both, ("confidence", 0.3, "multi"), ("confidence", 0.5, "multi")])
    evaluate.results(cfg, [run], run, "run", None)
    rows = json.loads((run / "results.json").read_text(encoding="utf-8"))["rows"]
    names = [(row["system"], row["setting"]) for row in rows]
    assert len(names) == len(found.points)
    for name in ("multi-path confidence", "multi-path LSG", "LSG", "multi-path AlignAtt", "AlignAtt", "hold-n"):
        assert name in dict(names), name
    calls = {name: row["calls"] for name, row in zip(names, rows, strict=True)}
    assert calls["offline", "—"] == pytest.approx(1, abs=0.2), "one a token, and one for the end token where it came"
    assert calls["hold-n", "n=3"] > 2, "each draft is translated anew"


def test_a_whole_number_is_one_setting_however_it_is_written(models, tmp_path):
    found = [decode(tmp_path / value, [models / "multi"], f"lsg={value}")[1] for value in ("1", "1.0")]
    assert found[0].points.keys() == found[1].points.keys()


def test_hypotheses_by_other_bounds_are_stale(models, tmp_path):
    decode(tmp_path, [models / "multi"], "lsg=0.3", "hold=1")
    for changed in ("adaptive.k_max=2", "adaptive.alpha=0.5", "adaptive.divergence=code"):
        with pytest.raises(ValueError, match=r"hypotheses of lsg 0\.3 in .* are stale: the settings have changed"):
            decode(tmp_path, [models / "multi"], "lsg=0.3", changed)
        assert decode(tmp_path, [models / "multi"], "hold=1", changed)[1].complete, "which has no bounds"


def test_a_refusal_leaves_a_finished_evaluation_as_it_was(models, tmp_path):
    """Though what was asked for besides, and before, is new."""
    folders = [models / "multi", models / "offline"]
    cfg, _ = decode(tmp_path, folders, "lsg=0.3")
    evaluate.results(cfg, [tmp_path], tmp_path, "run", None)
    before = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    assert "scored.json" in before
    with pytest.raises(ValueError, match=r"hypotheses of lsg 0\.3 in .* are stale"):
        decode(tmp_path, folders, "confidence=0.5", "lsg=0.3", "adaptive.k_max=2")
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == before


def test_hypotheses_by_other_heads_are_stale(models, tmp_path):
    decode(tmp_path, [models / "offline"], "alignatt=1")
    info = read_manifest(models / "offline")
    try:
        write_manifest(models / "offline", info | {"alignment_heads": [[0, 1]]})
        with pytest.raises(ValueError, match=r"hypotheses of alignatt 1 in .* are stale"):
            decode(tmp_path, [models / "offline"], "alignatt=1")
    finally:
        write_manifest(models / "offline", info)


def test_alignatt_with_and_without_alignment_heads_can_be_shown_together(models):
    def point_with(heads):
        info = read_manifest(models / "offline") | {"alignment_heads": heads}
        model = SimpleNamespace(system="offline", anchor=0, k=None)
        loaded = SimpleNamespace(info=info, model=model, rule=PAPER_RULE)
        how = {"max_target_tokens": TARGET_TOKENS, "adaptive": ADAPTIVE}
        return point_of(TEST, loaded, models / "offline", "alignatt", 1, **how)

    without, found, of_another_training = map(point_with, (None, [[0, 1]], [[1, 0]]))
    assert name_points([without, found]) == [("AlignAtt all heads", "f=1"), ("AlignAtt alignment heads", "f=1")]
    assert found.options == of_another_training.options, "trainings of one system"
    assert found.digest != of_another_training.digest


@pytest.mark.parametrize(
    ("held", "knob", "message"),
    [
        (
            "wait3",
            "hold=1",
            r"hold=\[1\]: needs a model folder trained by system=waitk system\.k=multi or system=offline, got waitk "
            r"with k=3: add one to model_folder=\[…\], or leave hold out",
        ),
        ("wait3", "agreement=[2]", r"agreement=\[2\]: needs .* system=offline, got waitk with k=3: add"),
        ("offline", "confidence=0.5", r"confidence=\[0\.5\]: needs .* system=waitk system\.k=multi, got offline: add"),
        ("offline", "alignatt=[1,99]", r"alignatt=99: f is more than the \d+ tokens of the longest source of"),
    ],
)
def test_what_no_model_or_sentence_can_use_is_refused_before_anything_is_decoded(held, knob, message, models, tmp_path):
    with pytest.raises(ValueError, match=message):
        decode(tmp_path / "run", [models / held], knob)
    assert not (tmp_path / "run" / "hypotheses.jsonl").exists()


def test_an_f_beyond_a_second_models_sources_is_refused_before_the_first_is_decoded(models, tmp_path):
    tokenizer = tiny_tokenizer(460)
    save(tmp_path, "merged", tiny_prefix(seed=8, vocab_size=len(tokenizer)), max_tokens=64, tokenizer=tokenizer)
    longest = max(len(tokenizer(source, add_special_tokens=False)["input_ids"]) for source, _ in PAIRS)
    with pytest.raises(ValueError, match=rf"merged: alignatt={longest + 1}: f is more than the {longest} tokens"):
        decode(tmp_path / "run", [models / "offline", tmp_path / "merged"], f"alignatt={longest + 1}")
    assert not (tmp_path / "run" / "hypotheses.jsonl").exists()


# --- translate.py --------------------------------------------------------------------------------------------------


def translated(models, held, capsys, *further):
    given = [f"model_folder='{models / held}'", "device=cpu", "max_target_tokens=6", *further]
    translate.translate(checked("translate", *given))
    return capsys.readouterr().out


@pytest.mark.parametrize(
    ("held", "given", "message"),
    [
        ("multi", [], "holds a waitk model, no grid: say what to run it as, such as run_as=waitk setting=3"),
        ("multi", ["setting=0.5"], r"setting=0\.5: of what"),
        ("multi", ["run_as=grid"], "holds a waitk model, which cannot be run as that"),
        ("multi", ["run_as=grid", "setting=0.5"], r"setting=0\.5: of what"),
        ("multi", ["run_as=waitk", "setting=2", "max_repeats=0"], "max_repeats=0: must be at least 2, or null for no"),
        ("multi", ["run_as=confidence"], "confidence=None: ρ"),
        ("multi", ["run_as=confidence", "setting=nan"], "confidence=nan: ρ"),
        ("multi", ["run_as=waitk"], "k=None: .*whole number"),
        ("multi", ["run_as=waitk", "setting=2", "theta=0.5"], r"theta=0\.5: only a grid has a θ"),
        ("offline", ["run_as=confidence", "setting=0.5"], "holds an offline model, which cannot be run as that"),
        ("offline", ["run_as=alignatt", "setting=65"], "f of alignatt is more than the 64 tokens a sentence may have"),
    ],
)
def test_translation_says_what_it_cannot_do(held, given, message, models, capsys):
    with pytest.raises(ValueError, match=message):
        translated(models, held, capsys, "text='人'", *given)
