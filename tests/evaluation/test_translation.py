"""Translations as records: where the text is complete, and all that scores need."""

import pytest

from duplexmt.data.tokenizer import token_spans
from duplexmt.evaluation.translation import complete_ends, tokenise, translate_pairs

from ..helpers import as_pairs, byte_level_tokenizer, tiny_tokenizer
from ..scripted import Scripted, records

# --- where the text is complete ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spans", "ends"),
    [
        ([(0, 1), (1, 3), (3, 4)], [1, 3, 4]),  # a character, two, one
        ([(0, 1), (0, 1), (0, 1), (1, 2)], [0, 0, 1, 2]),  # one character in three tokens
        ([(0, 2), (1, 2)], [1, 2]),  # a character and the beginning of the next in one token
        ([(0, 1), (0, 2)], [0, 2]),  # its last byte together with the next character
        ([(0, 1), (0, 1)], [0, 1]),
        ([(0, 3), (4, 6)], [3, 6]),  # a space between, where a tokenizer trims it
        ([(0, 2)], [2]),
        ([], []),
    ],
)
def test_a_character_is_complete_with_the_last_token_of_it(spans, ends):
    assert complete_ends(spans) == ends


@pytest.mark.parametrize("tokenizer", [tiny_tokenizer(), byte_level_tokenizer()])
def test_ends_of_real_spans_are_what_the_growing_text_shows(tokenizer):
    text = "你好😀! the"
    ends = complete_ends(token_spans(tokenizer, text))
    system = Scripted(tokenizer, [(text, [1] * len(ends), "end_token")])
    (found,) = translate_pairs(system, as_pairs([("人", "a")]), tokenizer)
    assert (found["text"], found["token_ends"]) == (text, ends)
    assert ends[:11] == [0, 0, 1, 1, 1, 2, 2, 2, 2, 3, 4]
    assert ends[-1] == len(text)


def test_a_text_cut_off_inside_a_character_ends_with_its_last_token():
    system = Scripted(tiny_tokenizer(), [("a😀", [1] * 3, "max_target_tokens")])
    (found,) = translate_pairs(system, as_pairs([("人", "a")]), tiny_tokenizer())
    assert found["text"].startswith("a\N{REPLACEMENT CHARACTER}")
    assert found["token_ends"] == [1, 1, len(found["text"])]


# --- records -----------------------------------------------------------------------------------------------------


def test_a_record_holds_all_that_the_scores_need_in_the_order_of_the_pairs():
    first, second = records()
    assert first == {
        "id": 0,
        "source": "人好",
        "source_tokens": ["人", "<0xE5>", "<0xA5>", "<0xBD>"],
        "source_token_ends": [1, 1, 1, 2],
        "references": ["a cat"],
        "reference_lengths": [5],
        "text": "a cat",
        "tokens": ["a", " ", "c", "a", "t"],
        "token_ends": [1, 2, 3, 4, 5],
        "delays": [1, 1, 4, 4, 4],
        "emit_probabilities": [0.75] * 5,
        "elapsed": [0.5, 1.0, 1.5, 2.0, 2.5],
        "stopped": "end_token",
        "seconds": 2.5,
        "calls": 10,
    }
    assert (second["id"], second["text"], second["tokens"], second["delays"]) == (1, "", [], [])
    assert (second["stopped"], second["seconds"]) == ("max_target_tokens", 0)


def test_a_sentence_may_have_several_references_each_with_its_length():
    (sentence,) = tokenise(["人好"], [["a cat", "the cat"]], tiny_tokenizer())
    assert (sentence.references, sentence.reference_lengths) == (["a cat", "the cat"], [5, 7])
