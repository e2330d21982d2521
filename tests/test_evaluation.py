"""Records and scores of an evaluation, worked by hand."""

import pytest

from duplexmt.data.tokenizer import token_ids, token_spans
from duplexmt.evaluation import complete_ends, score, text_and_token_ends, translate_pairs
from duplexmt.streaming.events import End, Read, Write

from .helpers import byte_level_tokenizer, tiny_tokenizer


class Scripted:
    """A system that writes given texts, each of its tokens after a given number of source tokens."""

    def __init__(self, tokenizer, script):
        self.tokenizer, self.script = tokenizer, script

    def translate(self, sources):
        for index, (text, delays, reason) in reversed(list(enumerate(self.script))):  # longest last, as real systems do
            yield Read(index, sources[index][0])
            for token, delay in zip(token_ids(self.tokenizer, [text])[0], delays, strict=True):
                yield Write(index, token, delay, 0.75)
            yield End(index, reason)


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
    tokens = token_ids(tokenizer, [text])[0]
    ends = complete_ends(token_spans(tokenizer, text))
    assert text_and_token_ends(tokenizer, tokens) == (text, ends)
    assert ends[:11] == [0, 0, 1, 1, 1, 2, 2, 2, 2, 3, 4]
    assert ends[-1] == len(text)


def test_a_text_cut_off_inside_a_character_ends_with_its_last_token():
    tokenizer = tiny_tokenizer()
    tokens = token_ids(tokenizer, ["a😀"])[0][:-2]
    text, ends = text_and_token_ends(tokenizer, tokens)
    assert text.startswith("a\N{REPLACEMENT CHARACTER}")
    assert ends == [1, 1, len(text)]


def test_no_tokens_have_neither_text_nor_ends():
    assert text_and_token_ends(tiny_tokenizer(), []) == ("", [])


# --- records -----------------------------------------------------------------------------------------------------

PAIRS = [("人好", "a cat"), ("我们是人", "the man")]


def records():
    """Two hypotheses: the second is empty. Letters, spaces and 人, 我, 们, 是 are tokens; 好 is three bytes."""
    system = Scripted(tiny_tokenizer(), [("a cat", [1, 1, 4, 4, 4], "end_token"), ("", [], "max_target_tokens")])
    return translate_pairs(system, PAIRS, tiny_tokenizer(), "test", progress=False)


def test_a_record_holds_all_that_the_scores_need_in_the_order_of_the_pairs():
    first, second = records()
    assert first == {
        "id": 0,
        "source": "人好",
        "source_tokens": ["人", "<0xE5>", "<0xA5>", "<0xBD>"],
        "source_token_ends": [1, 1, 1, 2],
        "reference": "a cat",
        "text": "a cat",
        "tokens": ["a", " ", "c", "a", "t"],
        "token_ends": [1, 2, 3, 4, 5],
        "delays": [1, 1, 4, 4, 4],
        "emit_probabilities": [0.75] * 5,
        "stopped": "end_token",
    }
    assert (second["id"], second["text"], second["tokens"], second["delays"]) == (1, "", [], [])
    assert second["stopped"] == "max_target_tokens"


def test_the_progress_bar_changes_no_record():
    system = Scripted(tiny_tokenizer(), [("a cat", [1, 1, 4, 4, 4], "end_token"), ("", [], "max_target_tokens")])
    assert translate_pairs(system, PAIRS, tiny_tokenizer(), "test", progress=True) == records()


# --- scores ------------------------------------------------------------------------------------------------------


def test_scores_of_two_records_worked_by_hand():
    row, notes = score(records(), tiny_tokenizer(), "zh", "en")
    # Latency is that of the first sentence: the empty one has none. S = 4 tokens, R = n = 5.
    # AL: cut off at the third token, the first with delay 4: (1 - 0 + 1 - 0.8 + 4 - 1.6) / 3
    assert row["AL"] == pytest.approx(3.6 / 3)
    # AL_all: (1 + 1 + 4 + 4 + 4 - 0.8 · (0 + 1 + 2 + 3 + 4)) / 5
    assert row["AL_all"] == pytest.approx(6 / 5)
    assert row["AP"] == pytest.approx(14 / 20)
    assert row["FRL"] == 1
    # 2 characters in, 2 words out: "a" is written after 人, "cat" after 人好. Delays 1, 2; S = R = 2.
    assert row["AL c/w"] == pytest.approx((1 + 2 - 1) / 2)
    assert row["AP c/w"] == pytest.approx(3 / 4)
    assert row["FRL c/w"] == 1
    assert (row["tokens"], row["source"]) == (2.5, 4.0)  # means over both: 5 and 0, 4 and 4
    assert row["reference"] == (5 + 7) / 2
    assert (row["empty"], row["cut off"], row["sentences"]) == (1, 1, 2)
    assert 0 < row["chrF"] < 100
    assert notes[0].startswith("BLEU nrefs:1|")
    assert "tok:13a" in notes[0]
    assert "source characters and target words" in notes[1]


def test_a_perfect_translation_scores_100():
    text = "The man standing there was a baseball player."
    delays = [1] * len(token_ids(tiny_tokenizer(), [text])[0])
    system = Scripted(tiny_tokenizer(), [(text, delays, "end_token")])
    found = translate_pairs(system, [("我们是人", text)], tiny_tokenizer(), "test", progress=False)
    row, _ = score(found, tiny_tokenizer(), "zh", "en")
    assert row["BLEU"] == pytest.approx(100)
    assert row["chrF"] == pytest.approx(100)
    assert row["FRL c/w"] == 1


def test_units_follow_the_languages():
    pairs = [("a cat", "人好")]
    system = Scripted(tiny_tokenizer(), [("人好", [1, 1, 1, 5], "end_token")])
    row, notes = score(
        translate_pairs(system, pairs, tiny_tokenizer(), "", progress=False), tiny_tokenizer(), "en", "zh"
    )
    # 2 words in, 2 characters out: 人 after the word "a", 好 complete after all 5 tokens.
    assert row["FRL c/w"] == 1
    assert row["AP c/w"] == pytest.approx((1 + 2) / 4)
    assert "tok:zh" in notes[0]
    assert "source words and target characters" in notes[1]


def test_where_every_hypothesis_is_empty_there_is_no_latency():
    system = Scripted(tiny_tokenizer(), [("", [], "end_token")] * 2)
    row, _ = score(translate_pairs(system, PAIRS, tiny_tokenizer(), "", progress=False), tiny_tokenizer(), "zh", "en")
    assert row["BLEU"] == 0
    assert [row[name] for name in ("AL", "AL_all", "AP", "FRL", "AL c/w", "AP c/w", "FRL c/w")] == [None] * 7
    assert (row["empty"], row["cut off"]) == (2, 0)
