"""The parts of evaluate.py in one process, with tiny models: what is decoded, gone on with and refused."""

import json
import re
import shutil

import pytest

import evaluate
from duplexmt.data.tokenizer import stream_tokens
from duplexmt.evaluation.alike import BANDS, read_likeness
from duplexmt.evaluation.decoding import SCORED, Decoding, model_digest
from duplexmt.evaluation.results import score
from duplexmt.model_folder.manifest import MANIFEST, read_manifest, write_manifest

from ..helpers import CORPUS, SENTENCES, model_folder, spoken_grid, tiny_prefix, tiny_tokenizer, tsv
from ..scripted import evaluated, point
from ..test_config import checked

PAIRS = SENTENCES[:3]


def save(folder, name, model, source="zh", target="en", max_tokens=24, tokenizer=None):
    """A model folder in a folder, and there the pairs that were held out from its corpus, which is gone."""
    held_out = tsv(folder / "pairs.tsv", PAIRS)
    data = CORPUS | {"path": "gone.tsv", "licence": "CC0", "max_tokens": max_tokens}
    data |= {"source_language": source, "target_language": target, "test_path": held_out, "validation_path": held_out}
    model_folder(folder / name, model, tokenizer, data=data)


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A grid model zh → en, and one that says it is en → zh."""
    folder = tmp_path_factory.mktemp("models")
    save(folder, "grid", spoken_grid(seed=5))
    save(folder, "back", spoken_grid(seed=6), "en", "zh")
    return folder


@pytest.fixture
def models(saved, tmp_path):
    """Copies of these model folders."""
    return shutil.copytree(saved, tmp_path / "models")


def arguments(folders, *further):
    names = ",".join(f"'{folder}'" for folder in folders)
    return [
        f"model_folder=[{names}]", "policy.max_target_tokens=6", "device=cpu", "check_overlap=false",
        "quality.resamples=100", *further,
    ]  # fmt: skip


def decode(folder, models, *further):
    """Decode as the entry point does; the evaluation."""
    given = arguments(models, *further)
    evaluate.job(checked("evaluate", *given), given, folder).decode()
    return Decoding.read(folder)


def tear(folder, lines):
    """Leave only so many lines of an evaluation's hypotheses, as a kill would."""
    path = folder / "hypotheses.jsonl"
    path.write_text("".join(path.read_text("utf-8").splitlines(keepends=True)[:lines]), encoding="utf-8")


def settings_of(decoding):
    return sorted(entry.setting for entry in decoding.points.values())


def test_an_evaluation_says_which_model_folders_it_was_begun_with(models, tmp_path):
    link = tmp_path / "latest"
    link.symlink_to(models / "grid")
    found = decode(tmp_path / "run", [link], "policy.theta=0.5")
    assert found.model_folders == [str((models / "grid").resolve())]
    assert found.complete


def test_what_was_begun_in_a_folder_is_finished_by_whoever_decodes_there_again(models, tmp_path):
    run = tmp_path / "run"
    decode(run, [models / "grid"], "policy.theta=[0.3,0.6]")
    (run / SCORED).touch()
    tear(run, 5)
    found = decode(run, [models / "grid"], "policy.theta=0.9")  # without resume=
    assert settings_of(found) == [0.3, 0.6, 0.9]
    found.check_complete()
    assert not (run / SCORED).exists()


def test_a_search_that_goes_on_with_another_target_finishes_what_the_one_before_began(models, tmp_path, caplog):
    run = tmp_path / "run"

    def search(target):
        given = arguments([models / "grid"], f"target_al={target}")
        evaluate.job(checked("evaluate", *given), given, run).choose_theta()
        return Decoding.read(run)

    first = settings_of(search(100))
    reached = read_manifest(models / "grid")["operating_point"]["AL"]
    assert f"target_al=100: no θ that was tried has an AL between {reached:.2f} and that" in caplog.text
    tear(run, 3 * len(first) - 1)  # its last θ, 1, lacks a sentence
    search(reached / 2).check_complete()  # has no need of θ = 1


@pytest.mark.parametrize(
    "passed_over", ["policy.theta=[0.3,0.5]", "split=test", "k=3", "agreement=[2]", "hold=[1]", "lsg=[1]"]
)
def test_a_search_refuses_what_it_would_pass_over(models, tmp_path, passed_over):
    given = arguments([models / "grid"], "target_al=3", passed_over)
    refused = rf"{re.escape(passed_over)}: target_al=3 tries θ of its own on validation pairs; leave one out"
    with pytest.raises(ValueError, match=refused):
        evaluate.decoded(checked("evaluate", *given), given, tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("passed_over", ["references=[y]", "+k=3", "policy.theta=0.3", "data=tatoeba", "target_al=3"])
def test_scoring_again_refuses_what_only_decoding_reads(passed_over):
    evaluate.check_scoring([passed_over, "rescore=null"])
    further = ["-m", "rescore=[a,b]", "quality=neural", "experiment=x", "hydra.run.dir=c", "logger.offline=true"]
    evaluate.check_scoring(further)
    with pytest.raises(ValueError, match=rf"^{re.escape(passed_over)}: rescore=\[a,b\] scores .*; leave one out"):
        evaluate.check_scoring([*further, passed_over])


@pytest.mark.parametrize(
    ("knob", "given", "recorded"), [("certainty", 0.5, 0.25), ("k_min", 2, 1), ("k_max", 3, 2), ("words", True, True)]
)
def test_a_rule_is_given_to_an_evaluation_and_found_recorded_with_the_theta_it_belongs_to(
    models, tmp_path, knob, given, recorded
):
    run, theta = tmp_path / "run", "policy.theta=0.3"
    (point,) = decode(run, [models / "grid"], theta, f"policy.{knob}={given}").points.values()
    assert (point.options[knob], point.options["max_target_tokens"]) == (given, 6)
    with pytest.raises(ValueError, match=r"are stale: the settings have changed.*evaluate into a new folder"):
        decode(run, [models / "grid"], theta)
    given = arguments([models / "grid"], "target_al=100", f"policy.{knob}={recorded}")
    evaluate.job(checked("evaluate", *given), given, tmp_path / "search").choose_theta()
    assert read_manifest(models / "grid")["operating_point"][knob] == recorded
    found = decode(tmp_path / "next", [models / "grid"], "policy.theta=recorded")
    assert [point.options[knob] for point in found.points.values()] == [recorded]


def test_any_system_ends_by_as_many_endings_as_asked_for_and_the_papers_grid_refuses_more_than_one(models, tmp_path):
    vocabulary = len(tiny_tokenizer())
    save(models, "wait", tiny_prefix(3, vocab_size=vocabulary, max_position_embeddings=1024))
    found = decode(tmp_path / "ended", [models / "wait"], "k=[2]", "policy.beam=3", "policy.lookahead=1")
    (point,) = found.points.values()
    assert (point.system, point.options["beam"], point.options["lookahead"]) == ("waitk", 3, 1)
    with pytest.raises(ValueError, match=r"policy\.beam=3: the paper's grid keeps one translation a stream"):
        decode(tmp_path / "grid", [models / "grid"], "policy.theta=0.3", "policy.beam=3")


def test_an_evaluation_whose_models_were_moved_goes_on_with_them_where_they_are(models, tmp_path):
    run = tmp_path / "run"
    decode(run, [models / "grid"], "policy.theta=[0.3,0.6]")
    tear(run, 5)
    moved = (models / "grid").rename(tmp_path / "moved")
    found = decode(run, [moved], "policy.theta=0.9", f"resume='{run}'")
    found.check_complete()
    assert {entry.setting: entry.model_folder for entry in found.points.values()} == {
        0.3: str(models / "grid"), 0.6: str(moved), 0.9: str(moved)
    }  # fmt: skip
    tear(run, 5)
    shutil.rmtree(moved)
    before = (run / "hypotheses.jsonl").read_bytes()
    with pytest.raises(ValueError, match="moved' does not exist"):
        decode(run, [models / "back"], f"resume='{run}'")
    assert (run / "hypotheses.jsonl").read_bytes() == before, "told before anything is decoded"


def test_models_of_other_languages_are_refused_before_any_is_run(models, tmp_path):
    with pytest.raises(ValueError, match=r"back translates en → zh, model_folder=.*grid zh → en: systems are compared"):
        decode(tmp_path / "run", [models / "grid", models / "back"])
    assert not (tmp_path / "run" / "hypotheses.jsonl").exists()


def test_a_test_set_of_other_languages_than_the_model_s_is_refused_and_leaves_nothing(models, tmp_path):
    run, pairs = tmp_path / "run", ["data=pairs", f"data.test_path='{models / 'pairs.tsv'}'"]  # zh → en, by default
    told = r"back translates en → zh, the test set is zh → en: give .* data\.source_language=en data\.target_"
    with pytest.raises(ValueError, match=told):
        decode(run, [models / "back"], *pairs)
    search = arguments([models / "back"], "target_al=3", "data=pairs", f"data.validation_path='{models / 'pairs.tsv'}'")
    with pytest.raises(ValueError, match=told):
        evaluate.job(checked("evaluate", *search), search, run).choose_theta()
    assert not run.exists()
    turned = ["data.source_language=en", "data.target_language=zh", "data.source_field=1", "data.target_field=0"]
    found = decode(run, [models / "back"], "policy.theta=0.5", *pairs, *turned)
    assert [line["source"] for line in found.sorted(next(iter(found.points)))] == [english for _, english in PAIRS]


def test_sources_one_model_has_no_positions_for_are_refused_before_any_model_is_run(models, tmp_path):
    run, vocabulary = tmp_path / "run", len(tiny_tokenizer())
    save(models, "wait", tiny_prefix(3, vocab_size=vocabulary, max_position_embeddings=1024))
    (models / "long.tsv").write_text(f"人\ta man\n{'人' * 300}\ta man\n", encoding="utf-8")
    file, told = f"='{models / 'long.tsv'}'", r"model_folder=.*grid: 1 of 2 sources are longer than the 256.* 1 \(301\)"
    for folders in (["grid"], ["wait", "grid"]):
        with pytest.raises(ValueError, match=told):
            decode(run, [models / folder for folder in folders], f"data.test_path{file}")
    search = arguments([models / "grid"], "target_al=3", f"data.validation_path{file}")
    with pytest.raises(ValueError, match=told):
        evaluate.job(checked("evaluate", *search), search, run).choose_theta()
    assert not run.exists()
    assert decode(run, [models / "wait"], f"data.test_path{file}").complete
    assert decode(tmp_path / "first", [models / "wait", models / "grid"], f"data.test_path{file}", "limit=1").complete


@pytest.mark.parametrize("own", ["own.tsv", "gone.tsv"])
def test_test_sentences_are_looked_for_in_what_a_base_was_trained_on(models, tmp_path, caplog, own):
    manifest = models / "grid" / MANIFEST
    info = json.loads(manifest.read_text(encoding="utf-8"))
    base = tmp_path / "base.tsv"
    further = [(f"我有{n}本书。", f"I have {n} books.") for n in range(30)]  # so that few are held out
    base.write_text("".join(f"{source}\t{target}\n" for source, target in [*PAIRS, *further]), encoding="utf-8")
    data = {"path": str(base), "validation_path": None, "test_path": None, "validation_size": 1, "test_size": 1}
    data |= {"max_tokens": None}  # the test set is not filtered by length either
    own_data = data | {"path": str(tmp_path / own), "test_path": info["data"]["test_path"]}
    tsv(tmp_path / "own.tsv", further)
    write_manifest(models / "grid", info | {"data": info["data"] | own_data, "trained_before": [info["data"] | data]})
    out, is_whole = tmp_path / "evaluation", own == "own.tsv"
    out.mkdir()
    (out / "likeness.json").write_text(json.dumps({str(models / "grid"): [0.1]}))  # of one killed before its first line
    with caplog.at_level("INFO"):
        decode(out, [models / "grid"], "policy.theta=0.5", "check_overlap=true")
    base, *unread = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert f"{models / 'grid'} or a base of it was trained on 3 of these 3 test sentences" in base
    (known,) = read_likeness(out, 3).values()
    assert known == ([1, 1, 1] if is_whole else None), "what nobody can read would count as new"
    told = [f"{models / 'grid'}: not all it was trained on can be read, so no test sentence counts as new"]
    assert unread == told * (not is_whole)
    evaluate.results(checked("evaluate", *arguments([models / "grid"])), [out], out, "one", None)
    assert ("not all it was trained on could be read" in (out / "results.md").read_text("utf-8")) is not is_whole
    assert (out / "relatives.json").is_file() is is_whole


def test_sentences_with_and_without_relatives_in_training_are_scored_apart(models, tmp_path, caplog):
    manifest = models / "grid" / MANIFEST
    info = json.loads(manifest.read_text(encoding="utf-8"))
    trained = [(f"我有{n}本书。", f"I have {n} books.") for n in range(30)]
    test = [
        ("我有一本书。", "I have a book"),
        ("我有7本书。", "There are seven"),
        ("红花", "A red flower of mine"),
        PAIRS[0],
    ]
    for name, pairs in (("train", trained), ("test", test)):
        text = "".join(f"{source}\t{target}\n" for source, target in pairs)
        (tmp_path / f"{name}.tsv").write_text(text, encoding="utf-8")
    data = {"path": str(tmp_path / "train.tsv"), "validation_path": None, "test_path": None, "validation_size": 1}
    write_manifest(models / "grid", info | {"data": info["data"] | data | {"test_size": 1, "max_tokens": None}})
    given = [f"data.test_path='{tmp_path / 'test.tsv'}'", "policy.theta=[0.2,0.8]", "check_overlap=true"]
    found = decode(tmp_path / "out", [models / "grid"], *given)
    (known,) = read_likeness(tmp_path / "out", 4).values()
    assert [value >= 0.5 for value in known] == [False, True, False, False]
    cfg = checked("evaluate", *arguments([models / "grid"], *given))
    evaluate.results(cfg, [tmp_path / "out"], tmp_path / "out", "one", None)
    shown = json.loads((tmp_path / "out" / "relatives.json").read_text(encoding="utf-8"))["rows"]
    assert [row["setting"] for row in shown] == ["θ=0.2", "θ=0.8"]
    for row, key in zip(shown, sorted(found.points, key=lambda key: found.points[key].setting), strict=True):
        assert [row[f"sentences{band}"] for band in ("", *(f" {name}" for name in BANDS))] == [4, 3, 2, 1, 1]
        for band, inside in BANDS.items():
            chosen = [record for record, value in zip(found.sorted(key), known, strict=True) if inside(value)]
            apart = score(chosen, "zh", "en", source_rate=4.0).row
            assert (row[f"BLEU {band}"], row[f"AL {band}"]) == (apart["BLEU"], apart["AL"]), "of these alone"
    with caplog.at_level("INFO"):
        decode(tmp_path / "out", [models / "grid"], *given)
    assert not [record for record in caplog.records if "looking for test sentences" in record.getMessage()]


def test_a_models_files_are_read_as_it_is_loaded_and_not_for_each_point(models, tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr("duplexmt.evaluation.decoding.file_digest", None)
        found = decode(tmp_path / "out", [models / "grid"], "policy.theta=[0.2,0.8]")
    expected = model_digest(models / "grid", read_manifest(models / "grid"))
    assert [point.model for point in found.points.values()] == [expected] * 2


def test_where_nothing_is_known_of_training_pairs_there_is_no_table_of_relatives(models, tmp_path):
    decode(tmp_path / "out", [models / "grid"], "policy.theta=0.5")
    cfg = checked("evaluate", *arguments([models / "grid"]))
    evaluate.results(cfg, [tmp_path / "out"], tmp_path / "out", "one", None)
    assert not (tmp_path / "out" / "relatives.json").exists()
    (tmp_path / "out" / "likeness.json").write_text("{", encoding="utf-8")
    with pytest.raises(ValueError, match=r"likeness\.json is damaged .*: remove it"):
        evaluate.results(cfg, [tmp_path / "out"], tmp_path / "out", "one", None)


def test_a_job_of_a_sweep_that_cannot_be_scored_says_so_and_the_sweep_fails_in_the_end(tmp_path, caplog):
    evaluated(tmp_path / "0", [point(setting=0.5)])
    cfg = checked("evaluate", "quality=neural", "quality.environment=no/such", "quality.resamples=100")
    job = tmp_path / "0"
    evaluate.results(cfg, [job], job, "a job", None, in_sweep=True)
    told = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    assert len(told) == 2
    assert "make metrics" in told[0]
    assert (job / "results.json").is_file()
    assert not (job / SCORED).exists()
    with pytest.raises(ValueError, match="make metrics"):  # as after a sweep
        evaluate.results(cfg, [job], tmp_path, "all jobs", None)


def test_all_models_get_simplified_sources_where_one_was_trained_on_such(models, tmp_path):
    shutil.copytree(models / "grid", models / "strict")
    info = read_manifest(models / "strict")
    info["data"] |= {"corpus": "pairs_folder", "cleaning": "strict", "test_path": None, "validation_path": None}
    write_manifest(models / "strict", info)
    (models / "test.tsv").write_text("他們沒有\tThey all left 沒有.\n", encoding="utf-8")
    given = f"data.test_path='{models / 'test.tsv'}'", "policy.theta=0.5"
    for folders, source in ((["grid"], "他們沒有"), (["grid", "strict"], "他们没有"), (["strict", "grid"], "他们没有")):
        found = decode(tmp_path / "-".join(folders), [models / folder for folder in folders], *given)
        (line,) = found.sorted(next(iter(found.points)))
        assert (line["source"], line["references"]) == (source, ["They all left 沒有."])


def test_models_with_and_without_the_sentence_before_are_compared_on_the_same_sources(models, tmp_path):
    tokens, info = stream_tokens(tiny_tokenizer(), context_tokens=4), read_manifest(models / "grid")
    data = info["data"] | {"context_tokens": 4, "context_separator": "|||"}
    model_folder(models / "context", spoken_grid(seed=5), tokens=tokens, data=data)
    lines = [f"我们走。|||{source}\t{target}\n" for source, target in PAIRS]
    (models / "test.tsv").write_text("".join(lines), encoding="utf-8")
    given = f"data.test_path='{models / 'test.tsv'}'", "policy.theta=0.5"
    texts = {}
    for folders in (["grid", "context"], ["context", "grid"]):
        found = decode(tmp_path / "-".join(folders), [models / folder for folder in folders], *given)
        found.check_complete()
        for key, entry in found.points.items():
            rows = found.sorted(key)
            assert [(row["before"], row["source"]) for row in rows] == [("我们走。", source) for source, _ in PAIRS]
            texts.setdefault(entry.model_folder, []).append([row["tokens"] for row in rows])
    with_context, without = texts[str(models / "context")], texts[str(models / "grid")]
    assert with_context[0] == with_context[1] != without[0] == without[1]
    bare = "".join(f"{source}\t{target}\n" for source, target in PAIRS)
    (models / "test.tsv").write_text(bare, encoding="utf-8")
    found = decode(tmp_path / "bare", [models / "grid"], *given)
    assert [row["tokens"] for row in found.sorted(next(iter(found.points)))] == without[0]
