"""What benchmarks of a trained model run on."""

import pytest

from benchmarks.held_out import examples, held_out_pairs
from duplexmt.data.tokenizer import stream_tokens
from duplexmt.model_folder.artifact import load_model_folder
from tests.helpers import SENTENCES, as_pairs, spoken_grid, tiny_tokenizer
from tests.model_folder.test_artifact import save
from tests.scripted import TEST, evaluated, point

TOKENS = stream_tokens(tiny_tokenizer())


@pytest.fixture(scope="module")
def loaded(tmp_path_factory):
    return load_model_folder(save(tmp_path_factory.mktemp("run") / "model", spoken_grid(), tokens=TOKENS))


def test_pairs_of_another_corpus_must_be_given(loaded, tmp_path):
    with pytest.raises(ValueError, match="with --pairs"):
        held_out_pairs(loaded, None)
    file = tmp_path / "pairs.tsv"
    file.write_text("\n".join("\t".join(pair) for pair in SENTENCES), encoding="utf-8")
    loaded.info["data"] |= {"source_field": 0, "target_field": 1}
    assert held_out_pairs(loaded, 3, str(file)) == as_pairs(SENTENCES[:3])


def test_pairs_of_an_evaluation_are_its_sentences_and_first_references(loaded, tmp_path):
    evaluated(tmp_path, [point("grid", 0.5), point("grid", 0.9)])
    found = held_out_pairs(loaded, 2, str(tmp_path))
    assert found == as_pairs(list(zip(TEST.sources, [first for first, *_ in TEST.references], strict=True))[:2])
    evaluated(tmp_path / "killed", [point("grid", 0.5)], stop_after=1)
    with pytest.raises(ValueError, match="killed"):
        held_out_pairs(loaded, 2, str(tmp_path / "killed"))


def test_a_side_without_tokens_is_named(loaded):
    with pytest.raises(ValueError, match="pair 2 has a target without tokens"):
        examples(loaded, as_pairs([SENTENCES[0], ("我好。", "")]))
    with pytest.raises(ValueError, match="pair 1 has a source without tokens"):
        examples(loaded, as_pairs([("", "Good.")]))
    with pytest.raises(ValueError, match="no sentence pairs"):
        examples(loaded, [])
