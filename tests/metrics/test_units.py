"""Texts counted in characters or words, and the conversion of delays in tokens to those units."""

import pytest

from duplexmt.metrics.latency import average_lagging
from duplexmt.metrics.units import Unit, count_units, delays_in_characters_and_words, last_tokens, text_unit


@pytest.mark.parametrize(
    ("text", "unit", "count"),
    [
        ("今天 天气　好。", "character", 6),
        ("今天 天气好", "word", 2),
        (" It  is\tfine. ", "word", 3),
        ("It is", "character", 4),
        ("It's 3.5, isn't it?", "piece", 12),
        ("वह किताब खरीदता है।", "piece", 5),  # vowel signs and viramas are of their words
        ("हिन्दी தமிழ் বাংলা", "piece", 3),
        ("e\u0301te\u0301 می\u200cخواهم", "piece", 2),
        ("السَّلامُ עֲלֵיכֶם", "piece", 2),
        ("สวัสดีครับ ยินดีที่ได้รู้จัก", "character", 27),
        ("ສະບາຍດີ ທ່ານ", "character", 11),
        ("བཀྲ་ཤིས། བདེ་ལེགས།", "character", 17),
        ("  ", "word", 0),
        ("", "character", 0),
    ],
)
def test_units_are_counted_without_white_space(text: str, unit: Unit, count: int) -> None:
    assert count_units(text, unit) == count


@pytest.mark.parametrize(
    ("language", "unit"),
    [
        *((code, "character") for code in ("zh", "zh-Hant", "ja_JP", "zho", "cmn-Hans", "jpn", "yue")),
        *((code, "character") for code in ("th", "lo", "km", "my", "bo", "dz", "th-TH", "my_MM", "KM-kh")),
        *((code, "character") for code in ("tha", "lao", "khm", "mya", "bur", "bod", "tib", "dzo")),
        *((code, "word") for code in ("en", "ko", "kor", "hi", "vi", "deu", "mr")),
    ],
)
def test_text_is_counted_in_characters_where_it_is_written_without_spaces(language: str, unit: Unit) -> None:
    assert text_unit(language) == unit


def test_a_language_s_name_is_no_code() -> None:
    with pytest.raises(ValueError, match=r"language code.*got 'Chinese'"):
        text_unit("Chinese")


def test_an_offline_translation_of_a_source_in_thai_lags_by_its_characters() -> None:
    source, target = "ฉันรักคุณ มากที่สุด", "I love you most"  # one "word" before the space
    delays = delays_in_characters_and_words(source, [9, 19], target, [1, 6, 10, 15], [1, 1, 2, 2], text_unit("th"))
    assert delays == [9, 9, 18, 18]
    lengths = count_units(source, "character"), count_units(target, "word")
    assert average_lagging(delays, *lengths) == (9 + (9 - 4.5) + (18 - 9)) / 3


# Source tokens 今天| 天气|好: 2, 4, 5 characters. Target tokens The| wea|ther| is.
SOURCE, SOURCE_ENDS = "今天 天气好", [2, 5, 6]
TARGET, TARGET_ENDS = "The weather is", [3, 7, 11, 14]


def test_a_word_s_delay_is_its_last_token_s_in_source_characters_without_spaces() -> None:
    assert delays_in_characters_and_words(SOURCE, SOURCE_ENDS, TARGET, TARGET_ENDS, [1, 1, 2, 3]) == [2, 4, 5]
    assert delays_in_characters_and_words(SOURCE, SOURCE_ENDS, TARGET, TARGET_ENDS, [0, 1, 1, 2]) == [0, 2, 4]


def test_the_source_s_end_token_adds_no_characters() -> None:
    with_end = [*SOURCE_ENDS, SOURCE_ENDS[-1]]
    assert delays_in_characters_and_words(SOURCE, with_end, TARGET, TARGET_ENDS, [3, 4, 4, 4]) == [5, 5, 5]


def test_one_token_may_complete_several_words() -> None:
    assert delays_in_characters_and_words(SOURCE, SOURCE_ENDS, TARGET, [14], [2]) == [4, 4, 4]


def test_a_character_in_two_byte_tokens_is_complete_with_the_second() -> None:
    # Target 好天: 好 is the tokens 0 and 1. Source 今天: 天 is the tokens 1 and 2.
    delays = delays_in_characters_and_words("今天", [1, 1, 2], "好天", [0, 1, 2], [1, 2, 3], target_unit="character")
    assert delays == [1, 2]


def test_words_in_and_characters_out_use_the_same_rule() -> None:
    delays = delays_in_characters_and_words(
        "The weather is", [3, 7, 11, 14], "天气好", [2, 3], [2, 4], source_unit="word", target_unit="character"
    )
    assert delays == [1, 1, 3]


def test_a_word_s_last_token_is_the_first_that_completes_it() -> None:
    assert last_tokens(TARGET, TARGET_ENDS, "word") == [0, 2, 3]
    assert last_tokens(TARGET, [14], "word") == [0, 0, 0]
    assert last_tokens("", [], "word") == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((SOURCE, SOURCE_ENDS, TARGET, TARGET_ENDS, [1, 1]), "got 2 delays for 4 target tokens"),
        ((SOURCE, SOURCE_ENDS, TARGET, TARGET_ENDS, [1, 1, 2, 4]), r"delay 3 must be within 0\.\.3 source tokens"),
        ((SOURCE, SOURCE_ENDS, TARGET, TARGET_ENDS, [2, 1, 2, 3]), "delays must not decrease, got 1 after 2"),
        ((SOURCE, [2, 5], TARGET, TARGET_ENDS, [1, 1, 2, 2]), "source tokens reach character 5 of .* ends at 6"),
        ((SOURCE, [2, 5, 7], TARGET, TARGET_ENDS, [1, 1, 2, 2]), r"source token 2 must end within 0\.\.6"),
        ((SOURCE, [5, 2, 6], TARGET, TARGET_ENDS, [1, 1, 2, 2]), "ends of source tokens must not decrease"),
        ((SOURCE, SOURCE_ENDS, TARGET, [3, 7], [1, 1]), "target tokens reach character 7 of .* ends at 14"),
    ],
)
def test_spans_that_do_not_fit_their_text_are_refused(arguments: tuple, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        delays_in_characters_and_words(*arguments)
