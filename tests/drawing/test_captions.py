"""Subtitles: files that are read, and what is written into them."""

from itertools import pairwise

import pytest

from duplexmt.drawing.captions import LEAST, LINE, LINES, CaptionFile, Clock, Cue, read_cues
from duplexmt.drawing.table import terminal_width

SRT = """1
00:00:01,000 --> 00:00:03,500
<i>We went to
the park</i>

2
00:00:04,000 --> 00:00:06,000
{\\an8}- Have you eaten?
- Not yet, AT&T&amp;co.
"""
VTT = """WEBVTT Some talk
Kind: captions

STYLE
::cue { color: red }

NOTE
two cues, the second one first

after
01:04.000 --> 01:06.000 align:start
<v Ann>-5 degrees &amp; <00:01:05.000>falling,

1:00:01.000 --> 1:00:03.500
she <c.loud>said</c>
"""
ODD = "3\n00:00:05,5 --> 00:00:06,0\n\n我们\n\n去\n\n2\n0:0:1.0 --> 0:0:1.5\n他"
COUNTED = "1\n00:01,0 --> 00:02,0\n2\npears\n\n2\nplums\n\n7\nfigs\n\n2\n00:03,0 --> 00:04,0\n3\nleft"
NUMBERS = "00:02,000 --> 00:01,000\n2024\n\n12\n00:03,000 --> 00:04,000\n<3 and 2 < 3\n"


@pytest.mark.parametrize(
    ("text", "between", "cues"),
    [
        (SRT, " ", [Cue(1, 3.5, "We went to the park"), Cue(4, 6, "\nHave you eaten?\nNot yet, AT&T&amp;co.")]),
        (VTT, " ", [Cue(64, 66, "-5 degrees & falling,"), Cue(3601, 3603.5, "she said")]),
        (ODD, "", [Cue(1, 1.5, "他"), Cue(5.5, 6, "我们去")]),
        (COUNTED, " ", [Cue(1, 2, "2 pears 2 plums 7 figs"), Cue(3, 4, "3 left")]),
        (NUMBERS, " ", [Cue(2, 2, "2024"), Cue(3, 4, "<3 and 2 < 3")]),
    ],
    ids=["srt", "vtt", "empty lines inside, out of order", "the next number as text", "numbers as text"],
)  # fmt: skip
def test_cues_are_read_without_tags_in_the_order_of_their_times(text, between, cues):
    assert read_cues(text, "talk", between) == cues


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "talk.srt has no subtitles"),
        ("WEBVTT\n\nNOTE nothing", "talk.srt has no subtitles"),
        ("1\n00:00:01,000 --> later\nHi", r"talk.srt, line 2: '00:00:01,000 --> later' is no 00:00:01.000 -->"),
        ("1\n00:00:01,000 --> 00:00:02,0000\nHi", "talk.srt, line 2"),
        ("1\n00:01 > 00:02\nHi\n\n2\n00:02,0 --> 00:03,0\nyou", "line 2: '00:01 > 00:02' is no .*, which cue 1 needs"),
        ("1\n00:01,0 --> 00:02,0\nHi\n\n2\nbad\nyou\n\n3\n00:03,0 --> 00:04,0\nall", "line 6: 'bad' is no"),
        ("WEBVTT\n\n1\n00:01.0 --> 00:02.0\nHi\n\n2\nbad\nyou", "line 8: 'bad' .*, which cue 2 needs; if both"),
    ],
)
def test_what_is_no_subtitle_is_refused_by_its_line(text, told):
    with pytest.raises(ValueError, match=told):
        read_cues(text, "talk.srt", " ")


def test_cues_come_character_by_character_and_a_gap_is_a_pause():
    clock = Clock()
    cues = [Cue(1, 3, "ab"), Cue(2.5, 4, "\ncd"), Cue(6, 7, "ef"), Cue(7, 8, "g")]
    assert list(clock.by_cues(cues, " ", pause=2)) == ["ab", "\ncd", None, " ef", " g"]
    times = [clock._times[position] for position in range(10)]
    assert times == pytest.approx([2, 3, 3 + 1 / 3, 3 + 2 / 3, 4, 6 + 1 / 3, 6 + 2 / 3, 7, 7.5, 8])
    assert (clock.at(1), clock.at(10), clock.at(11)) == (6, 8, 8), "what came of the pause came after it"


@pytest.mark.parametrize(
    ("text", "unit", "times"),
    [("我们 去。", "character", [0.5, 1, 1, 1.5, 2]), ("Go on, I", "word", [0.5, 0.5, 0.5, 1, 1, 1, 1, 1.5])],
)
def test_a_source_comes_at_its_rate_however_it_is_cut(text, unit, times):
    for cut in range(len(text)):
        clock = Clock()
        assert "".join(part or "" for part in clock.by_rate([text[:cut], None, text[cut:]], unit, 2)) == text
        assert [clock.at(position + 1) for position in range(len(text))] == times


def written(tmp_path, name, sentences):
    """The cues of a file that has words of sentences, `(text, time)`."""
    file = CaptionFile(str(tmp_path / name), Clock())
    for sentence in sentences:
        file._end_cue()
        for text, now in sentence:
            file.write(text, now)
    file.close()
    return read_cues((tmp_path / name).read_text(encoding="utf-8"), name, "\n")


def test_a_file_is_what_players_read(tmp_path):
    sentences = [[("He <b>", 1.0), (" &", 1.5), (" I", 1.5), ("'ll", 2.25)], [("Go", 3661.0625)]]
    written(tmp_path, "a.vtt", sentences)
    written(tmp_path, "a.srt", sentences)
    assert (tmp_path / "a.vtt").read_text() == (
        "WEBVTT\n\n1\n00:00:01.000 --> 00:00:03.250\nHe &lt;b&gt; &amp; I'll\n\n"
        "2\n01:01:01.062 --> 01:01:02.062\nGo\n\n"
    )
    assert (tmp_path / "a.srt").read_text() == (
        "1\n00:00:01,000 --> 00:00:03,250\nHe <b> & I'll\n\n2\n01:01:01,062 --> 01:01:02,062\nGo\n\n"
    )


@pytest.mark.parametrize(
    "text",
    [
        "There were a lot of people, since the weather was fine, and so we stayed there for a very long time." * 3,
        "那里有很多人，因为天气非常好（真的），所以我们在那里待了很长时间，“然后才回家吃饭”，他说，今天他没有来。" * 3,
        "ที่นั่นมีคนเยอะมากเพราะอากาศดีมากเราจึงอยู่ที่นั่นนานมากแล้วจึงกลับบ้านกินข้าวเย็นกันทั้งครอบครัวอย่างมีความสุขมาก",
        f"See https://example.org/{'a' * 200} there",
    ],
    ids=["en", "zh", "th", "address"],
)
@pytest.mark.parametrize("size", [1, 3, 1000])
def test_no_cue_has_more_than_its_lines_and_all_text_is_there_in_its_order(tmp_path, text, size):
    sentence = [(text[at : at + size], at / 10) for at in range(0, len(text), size)]
    cues = written(tmp_path, "a.srt", [sentence])
    assert "".join("".join(cue.text.split()) for cue in cues) == "".join(text.split())
    lines = [line for cue in cues for line in cue.text.split("\n")]
    assert max(map(terminal_width, lines)) <= LINE
    assert max(cue.text.count("\n") + 1 for cue in cues) <= LINES
    assert not any(line[0] in "，。）” " for line in lines)
    assert not any(line[-1] in "（“" for line in lines)


def test_cues_stand_long_enough_and_never_over_each_other(tmp_path):
    """Also where all comes at once."""
    for pace in (0.0, 0.05, 0.6):
        words = [(f" word{number}", number * pace) for number in range(120)]
        cues = written(tmp_path, "a.vtt", [words[:50], words[50:53], words[53:]])
        for before, after in pairwise(cues):
            assert after.begin >= before.begin + LEAST - 1e-6
            assert before.end <= after.begin
            assert before.end > before.begin
        first = [next(now for word, now in words if word.strip() == cue.text.split()[0]) for cue in cues]
        assert all(cue.begin >= now for cue, now in zip(cues, first, strict=True)), "none before it was written"


def test_a_silence_and_a_sentence_end_a_cue(tmp_path):
    cues = written(tmp_path, "a.vtt", [[("He", 0.0), (" is", 1.0), (" here", 9.0)], [("Go", 20.0)]])
    assert [(cue.text, cue.begin, cue.end) for cue in cues] == [("He is", 0, 2), ("here", 9, 10), ("Go", 20, 21)]
