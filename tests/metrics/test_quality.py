"""BLEU and chrF: known values, signatures, and what is refused."""

from math import exp, prod

import pytest

from duplexmt.metrics.quality import bleu_tokenizer, corpus_statistics


def scores(*corpus) -> tuple[float, float]:
    """BLEU and chrF of hypotheses, references and a target language."""
    found = corpus_statistics(*corpus)
    return found["BLEU"].score(), found["chrF"].score()


def signature(*corpus) -> str:
    """Of BLEU."""
    return corpus_statistics(*corpus)["BLEU"].signature


def test_bleu_has_the_value_worked_by_hand() -> None:
    # Five of six tokens match as one run: precisions 5/5, 4/4, 3/3, 2/2, brevity penalty exp(1 - 6/5).
    short, _ = scores(["the cat sat on the"], ["the cat sat on the mat"], "en")
    assert short == pytest.approx(100 * exp(1 - 6 / 5))
    # One wrong word at the end: precisions 5/6, 4/5, 3/4, 2/3, no penalty.
    wrong, _ = scores(["the cat sat on the hat"], ["the cat sat on the mat"], "en")
    assert wrong == pytest.approx(100 * prod((5 / 6, 4 / 5, 3 / 4, 2 / 3)) ** 0.25)


def test_chinese_is_scored_by_characters() -> None:
    # Five of six characters; runs of 今天天气 and 好: precisions 5/5, 3/4, 2/3, 1/2.
    bleu, _ = scores(["今天天气好"], ["今天天气很好"], "zh")
    assert bleu == pytest.approx(100 * exp(1 - 6 / 5) * prod((1, 3 / 4, 2 / 3, 1 / 2)) ** 0.25)


@pytest.mark.parametrize(
    ("language", "text"),
    [
        ("th", "วันนี้อากาศดีมาก"), ("th-TH", "พวกเขาไปโรงเรียน แล้วกลับบ้าน"), ("lo", "ມື້ນີ້ອາກາດດີຫຼາຍ"),
        ("km", "ថ្ងៃនេះអាកាសធាតុល្អណាស់។"), ("my", "ဒီနေ့ရာသီဥတုကောင်းတယ်။"), ("bo", "དེ་རིང་གནམ་གཤིས་ཡག་པོ་འདུག"),
        ("dz", "ད་རིས་གནམ་གཤིས་ལེགས་ཤོམ་ཡོད།"),
    ],
)  # fmt: skip
def test_an_exact_translation_into_a_language_written_without_spaces_scores_a_hundred(language: str, text: str) -> None:
    assert scores([text], [text], language)[0] == pytest.approx(100)
    assert 40 < scores([text[:-3]], [text], language)[0] < 100
    assert scores([text.replace(" ", "")], [text], language)[0] == pytest.approx(100), "a space is no unit"


def test_scores_come_with_their_signatures() -> None:
    found = corpus_statistics(["今天天气好"], ["今天天气很好"], "zh-CN")
    assert found["BLEU"].signature.startswith("nrefs:1|case:mixed|eff:no|tok:zh|smooth:exp|version:")
    assert found["chrF"].signature.startswith("nrefs:1|case:mixed|eff:yes|nc:6|nw:0|space:no|version:")


@pytest.mark.parametrize(
    ("language", "tokenizer"),
    [
        *((code, "zh") for code in ("zh", "zh_TW", "zho")),
        *((code, "char") for code in ("ja", "ko", "th", "th-TH", "tha", "lo", "km", "my", "my_MM", "bo", "dz")),
        *((code, "13a") for code in ("en", "de", "hi", "vi")),
    ],
)
def test_tokenizer_follows_the_target_language_and_needs_no_extra_package(language: str, tokenizer: str) -> None:
    assert bleu_tokenizer(language) == tokenizer
    assert f"|tok:{tokenizer}|" in signature(["a b c d e"], ["a b c d e"], language)


def test_any_of_several_references_counts_and_their_number_may_vary() -> None:
    hypotheses = ["the cat sat on the mat", "it rains in the north"]
    both = hypotheses, [["a dog", "the cat sat on the mat"], ["it rains in the north"]], "en"
    assert scores(*both)[0] == pytest.approx(100)
    assert signature(*both).startswith("nrefs:var|")
    assert signature(hypotheses[:1], [["a dog", hypotheses[0]]], "en").startswith("nrefs:2|")


def test_empty_hypotheses_are_scored_as_empty() -> None:
    sentence = "the cat sat on the mat"
    bleu, chrf = scores([sentence, "", " "], [sentence] * 3, "en")
    assert bleu == pytest.approx(100 * exp(1 - 18 / 6))
    assert chrf < 100
    assert scores([""], [sentence], "en") == (0, 0)


def test_counts_that_differ_are_both_named() -> None:
    with pytest.raises(ValueError, match="got 1 hypotheses and 2 references"):
        corpus_statistics(["a"], ["a", "b"], "en")


def test_an_empty_corpus_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one sentence"):
        corpus_statistics([], [], "en")


@pytest.mark.parametrize("reference", ["", " ", [], ["a", ""]])
def test_an_empty_reference_is_refused_by_its_sentence(reference: str | list[str]) -> None:
    with pytest.raises(ValueError, match="sentence 1 has no reference or an empty one"):
        corpus_statistics(["a", "b"], ["a", reference], "en")


def test_a_language_s_name_is_refused_rather_than_tokenised_as_english() -> None:
    with pytest.raises(ValueError, match=r"language code.*got 'Chinese'"):
        corpus_statistics(["好"], ["好"], "Chinese")
