"""Which sentences are shown: the best, the worst and random ones, each once."""

import pytest
from sacrebleu import sentence_bleu, sentence_chrf

from duplexmt.report.examples import choose, examples, sentence_scores, written


def record(number, text, reference, source="人好", delays=None):
    return {
        "id": number,
        "source": source,
        "source_tokens": list(source),
        "source_token_ends": list(range(1, len(source) + 1)),
        "references": [reference],
        "reference_lengths": [len(reference.split())],
        "text": text,
        "tokens": list(text),
        "token_ends": list(range(1, len(text) + 1)),
        "delays": [len(source)] * len(text) if delays is None else delays,
        "stopped": "end_token",
    }


RECORDS = [
    record(0, "a cat sat", "a cat sat"),
    record(1, "", "the man"),
    record(2, "the dog", "the man"),
    record(3, "zzz", "we are well"),
    record(4, "we are good", "we are well"),
    record(5, "a man is", "a man is a man"),
    record(6, "I am", "I am well"),
]


def test_scores_are_those_of_sacrebleu():
    for found, entry in zip(sentence_scores(RECORDS, "en"), RECORDS, strict=True):
        bleu = sentence_bleu(entry["text"], entry["references"], use_effective_order=True).score
        assert found == pytest.approx((bleu, sentence_chrf(entry["text"], entry["references"]).score))


def test_best_come_first_and_worst_and_no_sentence_twice():
    scores = sentence_scores(RECORDS, "en")
    chosen = choose(scores, 2)
    assert len({i for _, i in chosen}) == len(chosen) == 6
    groups = {group: [i for name, i in chosen if name == group] for group in ("best", "worst", "random")}
    assert groups["best"][0] == 0
    assert set(groups["worst"]) == {1, 3}
    assert min(scores[i][1] for i in groups["best"]) >= max(scores[i][1] for i in groups["random"] + groups["worst"])
    assert choose(scores, 2) == chosen


@pytest.mark.parametrize("count", range(6))
def test_few_sentences_are_shared_out(count):
    chosen = choose(sentence_scores(RECORDS[:count], "en") if count else [], 3)
    assert len({i for _, i in chosen}) == len(chosen) == count


def test_an_example_says_what_was_written_after_which_token():
    assert written(2, "a cat", [1, 2, 5], [1, 2, 2]) == ["a", " cat"]
    assert written(3, "a cat", [1, 2, 5], [0, 1, 4]) == ["a ", "", "cat"]
    assert written(2, "", [], []) == ["", ""]
    with pytest.raises(ValueError, match="3 tokens has 1 delays"):
        written(1, "abc", [1, 2, 3], [1])
    found = examples(RECORDS[:1], "en", 1, systems={"grid θ=0.5": {0: RECORDS[0]}, "offline": {}})[0]
    assert (found.group, found.record["id"], found.al) == ("best", 0, 2.0)
    assert (found.source_tokens, found.written) == (["人", "好"], {"grid θ=0.5": ["", "a cat sat"]})
