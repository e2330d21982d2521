"""Latency metrics against values worked by hand, and the conversion of delays to characters and words."""

from typing import NamedTuple

import pytest

from duplexmt.metrics.latency import (
    SENTENCE_METRICS,
    average_lagging,
    average_lagging_all,
    average_proportion,
    average_token_delay,
    coverage,
    first_response_latency,
    mean_of_known,
    sentence_latency,
    words_before_end,
    yet_another_average_lagging,
)


class Case(NamedTuple):
    """A sentence and its metrics in the order of `SENTENCE_METRICS`: AL, AL_all, LAAL, YAAL, AP, DAL, ATD, FRL."""

    delays: list[float]
    source_length: float
    reference_length: float
    expected: tuple[float, float, float, float | None, float, float, float, float]


CASES = {
    # Step S/R = 2: lags 4 and 4 - 2; the first token ends the mean of AL.
    "offline": Case([4, 4], 4, 2, (4, 3, 4, None, 1, 4, 4, 4)),
    # Step 1: lags 3, 3, 3, 3 up to the first delay of 6, then 2, 1; YAAL ends before that delay; DAL's g is 3..8.
    "wait-3": Case([3, 4, 5, 6, 6, 6], 6, 6, (3, 15 / 6, 3, 3, 30 / 36, 3, 3, 3)),
    "single token before the source ends": Case([3], 5, 1, (3, 3, 3, 3, 3 / 5, 3, 3, 3)),
    "single token after the source ends": Case([5], 5, 1, (5, 5, 5, None, 1, 5, 5, 5)),
    # Step 2 by the reference: lags 1, 0, -1, -2; step 1 by the hypothesis: lags 1.
    "hypothesis twice as long as the reference": Case([1, 2, 3, 4], 4, 2, (-0.5, -0.5, 1, 1, 10 / 8, 1, 1, 1)),
    # ATD: the partners are the source tokens 1, 2 and 3, the ends 3, 5 and 6.
    # The source is never read to its end, so tau = n. Step 1: lags 2, 3, 3; DAL's step 2: g = 2, 4, 6.
    "hypothesis half as long as the reference": Case(
        [2, 4, 5], 6, 6, (8 / 3, 8 / 3, 8 / 3, 8 / 3, 11 / 36, 2, 8 / 3, 2)
    ),
    # ATD: the first two tokens have no partner (0), the others start again at source token 1; ends 1, 2, 5, 6.
    # YAAL is over the first two, lags 0, -1: what is guessed early lags less than nothing.
    "tokens written before anything is read": Case([0, 0, 4, 4], 4, 4, (1 / 3, 0.5, 1 / 3, -0.5, 0.5, 1, 11 / 4, 0)),
    # Step 3/4: lags 2, 2.25 | 1.5, 0.75, 0. LAAL's and DAL's step 3/5: lags 2, 2.4 | ...; g = 2, 3, 3.6, 4.2, 4.8.
    # ATD: partners 1, 2, 3, 3, 3, ends 3..7.
    "most tokens after the source": Case([2, 3, 3, 3, 3], 3, 4, (2.125, 1.3, 2.2, 2, 14 / 12, 11.6 / 5, 13 / 5, 2)),
}


@pytest.mark.parametrize("name", SENTENCE_METRICS)
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_metric_has_the_value_worked_by_hand(case: Case, name: str) -> None:
    expected = dict(zip(SENTENCE_METRICS, case.expected, strict=True))[name]
    value = SENTENCE_METRICS[name](case.delays, case.source_length, case.reference_length)
    assert value == (None if expected is None else pytest.approx(expected, rel=1e-12, abs=1e-12))


def test_al_all_of_an_offline_system_gives_the_paper_s_offline_row_and_al_does_not() -> None:
    source_length = 18.06
    delays = [source_length] * 25
    assert average_lagging_all(delays, source_length, 25) == pytest.approx(9.39, abs=0.005)
    assert average_lagging(delays, source_length, 25) == source_length
    assert average_proportion(delays, source_length, 25) == pytest.approx(1.0)
    assert first_response_latency(delays, source_length, 25) == source_length


def test_a_hypothesis_ahead_of_the_source_waits_for_its_partners_in_atd() -> None:
    # Four tokens after one source token, two after all five. The second chunk is 3 tokens ahead, so that its tokens,
    # 5 and 6, belong to source tokens 2 and 3. Ends 2, 3, 4, 5, 6, 7; partners 1, 1, 1, 1, 2, 3.
    assert average_token_delay([1, 1, 1, 1, 5, 5], 5, 6) == pytest.approx((1 + 2 + 3 + 4 + 4 + 4) / 6)


def test_yaal_is_laal_of_the_tokens_before_the_source_s_end_with_the_length_of_all() -> None:
    # Steps 10 / 5, by the reference, and 10 / 6, by the longer hypothesis; the tokens at 10 do not count.
    assert yet_another_average_lagging([2, 5, 10, 10], 10, 5) == (2 + 5 - 2) / 2
    assert yet_another_average_lagging([2, 5, 10, 10, 10, 10], 10, 5) == pytest.approx((2 + 5 - 10 / 6) / 2)
    assert yet_another_average_lagging([10, 10], 10, 5) is None


def test_words_before_the_end_are_counted_over_a_corpus_and_not_over_sentences() -> None:
    assert words_before_end([[1, 2, 4, 4], [], [3]], [4, 4, 3]) == 100 * 2 / 5
    assert words_before_end([[], []], [4, 4]) is None
    assert coverage([1.5, None, 2.0, None]) == 50


def test_atd_refuses_parts_of_tokens() -> None:
    with pytest.raises(ValueError, match=r"whole number, got 1\.5"):
        average_token_delay([1.5], 3, 3)


BAD_SENTENCES = {
    "empty reference": (([1], 3, 0), "the reference must not be empty.*got 0"),
    "reference of unknown length": (([1], 3, float("nan")), "the reference must not be empty.*got nan"),
    "empty source": (([0], 0, 3), "source length must be at least 1, got 0"),
    "endless source": (([0], float("inf"), 3), "source length must be at least 1, got inf"),
    "delay beyond the source": (([1, 4], 3, 3), r"delay 1 must be within 0\.\.3 .*got 4"),
    "first delay beyond the source": (([4], 3, 3), r"delay 0 must be within 0\.\.3 .*got 4"),
    "negative delay": (([-1, 2], 3, 3), r"delay 0 must be within 0\.\.3 .*got -1"),
    "delay not a number": (([1, float("nan")], 3, 3), "delay 1 must be within .*got nan"),
    "falling delays": (([1, 3, 2], 3, 3), "delays must not decrease, got 2 after 3 at position 2"),
}


@pytest.mark.parametrize(("arguments", "message"), BAD_SENTENCES.values(), ids=BAD_SENTENCES)
def test_a_sentence_without_meaning_is_refused_with_its_number_and_the_reason(
    arguments: tuple[list[float], float, float], message: str
) -> None:
    sound = ([1, 2], 2, 2)
    with pytest.raises(ValueError, match=f"sentence 1: .*{message}"):
        sentence_latency(*zip(sound, arguments, strict=True))


def means(*corpus) -> dict[str, float | None]:
    """Of each metric over the sentences of a corpus."""
    return {name: mean_of_known(values) for name, values in sentence_latency(*corpus).items()}


def test_a_metric_of_a_corpus_is_the_mean_over_its_sentences() -> None:
    cases = (CASES["offline"], CASES["wait-3"])
    assert means(*zip(*(case[:3] for case in cases), strict=True)) == pytest.approx(
        {"AL": 3.5, "AL_all": 2.75, "LAAL": 3.5, "YAAL": 3, "AP": 11 / 12, "DAL": 3.5, "ATD": 3.5, "FRL": 3.5}
    )


def test_empty_hypotheses_are_left_out_of_the_means() -> None:
    assert means([[], [4, 4], []], [9, 4, 9], [9, 2, 9]) == means([[4, 4]], [4], [2])
    assert means([[], []], [3, 4], [3, 4]) == dict.fromkeys(SENTENCE_METRICS)


def test_corpus_errors_name_the_sentence_or_the_counts() -> None:
    with pytest.raises(ValueError, match="sentence 0: the reference must not be empty"):
        sentence_latency([[]], [3], [0])
    with pytest.raises(ValueError, match="got 2 hypotheses, 1 source lengths and 3 reference lengths"):
        sentence_latency([[1], [1]], [3], [3, 3, 3])
    with pytest.raises(ValueError, match="at least one sentence"):
        sentence_latency([], [], [])
