"""BLEU and chrF: known values, signatures, and what is refused."""

from math import exp, prod

import pytest

from duplexmt.metrics.quality import bleu_tokenizer, corpus_quality


def test_bleu_has_the_value_worked_by_hand() -> None:
    # Five of six tokens match as one run: precisions 5/5, 4/4, 3/3, 2/2, brevity penalty exp(1 - 6/5).
    short = corpus_quality(["the cat sat on the"], ["the cat sat on the mat"], "en")
    assert short["bleu"] == pytest.approx(100 * exp(1 - 6 / 5))
    # One wrong word at the end: precisions 5/6, 4/5, 3/4, 2/3, no penalty.
    wrong = corpus_quality(["the cat sat on the hat"], ["the cat sat on the mat"], "en")
    assert wrong["bleu"] == pytest.approx(100 * prod((5 / 6, 4 / 5, 3 / 4, 2 / 3)) ** 0.25)


def test_chinese_is_scored_by_characters() -> None:
    # Five of six characters; runs of 今天天气 and 好: precisions 5/5, 3/4, 2/3, 1/2.
    quality = corpus_quality(["今天天气好"], ["今天天气很好"], "zh")
    assert quality["bleu"] == pytest.approx(100 * exp(1 - 6 / 5) * prod((1, 3 / 4, 2 / 3, 1 / 2)) ** 0.25)


def test_a_perfect_translation_scores_a_hundred() -> None:
    texts = ["The weather is fine today.", "It will rain tomorrow, they say."]
    quality = corpus_quality(texts, texts, "en")
    assert quality["bleu"] == pytest.approx(100)
    assert quality["chrf"] == pytest.approx(100)
    assert (quality["sentences"], quality["empty_hypotheses"]) == (2, 0)


def test_scores_come_with_their_signatures() -> None:
    quality = corpus_quality(["今天天气好"], ["今天天气很好"], "zh-CN")
    assert quality["bleu_signature"].startswith("nrefs:1|case:mixed|eff:no|tok:zh|smooth:exp|version:")
    assert quality["chrf_signature"].startswith("nrefs:1|case:mixed|eff:yes|nc:6|nw:0|space:no|version:")


@pytest.mark.parametrize(
    ("language", "tokenizer"),
    [("zh", "zh"), ("zh_TW", "zh"), ("ja", "char"), ("ko", "char"), ("en", "13a"), ("de", "13a")],
)
def test_tokenizer_follows_the_target_language_and_needs_no_extra_package(language: str, tokenizer: str) -> None:
    assert bleu_tokenizer(language) == tokenizer
    assert f"|tok:{tokenizer}|" in corpus_quality(["a b c d e"], ["a b c d e"], language)["bleu_signature"]


def test_any_of_several_references_counts_and_their_number_may_vary() -> None:
    hypotheses = ["the cat sat on the mat", "it rains in the north"]
    both = corpus_quality(hypotheses, [["a dog", "the cat sat on the mat"], ["it rains in the north"]], "en")
    assert both["bleu"] == pytest.approx(100)
    assert both["bleu_signature"].startswith("nrefs:var|")
    assert corpus_quality(hypotheses[:1], [["a dog", hypotheses[0]]], "en")["bleu_signature"].startswith("nrefs:2|")


def test_one_reference_in_a_list_scores_as_the_reference_itself() -> None:
    hypotheses, references = ["the cat sat on a mat", "rain"], ["the cat sat on the mat", "it rains"]
    assert corpus_quality(hypotheses, [[text] for text in references], "en") == corpus_quality(
        hypotheses, references, "en"
    )


def test_empty_hypotheses_are_scored_as_empty_and_counted() -> None:
    sentence = "the cat sat on the mat"
    quality = corpus_quality([sentence, "", " "], [sentence] * 3, "en")
    assert quality["bleu"] == pytest.approx(100 * exp(1 - 18 / 6))
    assert quality["chrf"] < 100
    assert (quality["sentences"], quality["empty_hypotheses"]) == (3, 2)
    nothing = corpus_quality([""], [sentence], "en")
    assert (nothing["bleu"], nothing["chrf"], nothing["empty_hypotheses"]) == (0, 0, 1)


def test_counts_that_differ_are_both_named() -> None:
    with pytest.raises(ValueError, match="got 1 hypotheses and 2 references"):
        corpus_quality(["a"], ["a", "b"], "en")


def test_an_empty_corpus_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one sentence"):
        corpus_quality([], [], "en")


@pytest.mark.parametrize("reference", ["", " ", [], ["a", ""]])
def test_an_empty_reference_is_refused_by_its_sentence(reference: str | list[str]) -> None:
    with pytest.raises(ValueError, match="sentence 1 has no reference or an empty one"):
        corpus_quality(["a", "b"], ["a", reference], "en")


def test_one_string_is_not_a_corpus() -> None:
    with pytest.raises(ValueError, match="references must be a list with one entry a sentence"):
        corpus_quality(["a", "b"], "ab", "en")
    with pytest.raises(ValueError, match="hypotheses must be a list"):
        corpus_quality("ab", ["a", "b"], "en")


def test_a_language_s_name_is_refused_rather_than_tokenised_as_english() -> None:
    with pytest.raises(ValueError, match=r"language code.*got 'Chinese'"):
        corpus_quality(["好"], ["好"], "Chinese")
