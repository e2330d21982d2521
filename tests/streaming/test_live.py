"""Live text: how it arrives changes nothing, its tokens are those of training, and nothing of it is kept."""

import os
import random
from functools import cache, partial
from threading import Timer

import pytest

from data_prep.cleaning import is_foreign
from data_prep.rules import clean_side
from duplexmt.common.text import invisible
from duplexmt.data.tokenizer import SourceTokens, stream_tokens
from duplexmt.streaming.engine import Engine
from duplexmt.streaming.events import End, Read
from duplexmt.streaming.live import LiveDriver, longest_sentence
from duplexmt.translator.pipe import arriving, decoded

from ..helpers import SENTENCES, spoken_grid, tiny_tokenizer
from .live_texts import cut_at_random, feed, finish, live_text, pause

TOKENIZER = tiny_tokenizer(460)
TOKENS = stream_tokens(TOKENIZER)
CONTEXT = stream_tokens(TOKENIZER, context_tokens=4)
CHINESE = [source for source, _ in SENTENCES]


@cache
def model_with(**options):
    return spoken_grid(seed=2, tokenizer=TOKENIZER, **options).double()


def translator_of(language="zh", segmentation="tokens", tokens=TOKENS, theta=0.5, anchor=0, engine=None, **values):
    engine = engine or Engine(
        model_with(anchor=anchor),
        tokens,
        theta=theta,
        max_target_tokens=6,
        typical_source_length=9,
        tokenizer=TOKENIZER,
    )
    values = {"max_sentence_tokens": longest_sentence(engine)} | values
    return LiveDriver(engine).join(live_text(TOKENIZER, language, segmentation, **values))


def fed(translator, chunks):
    return [live for chunk in chunks for live in feed(translator, chunk)] + list(finish(translator))


def tokens_read(live, end=TOKENS.end):
    """Source tokens by sentence."""
    sentences = {}
    for entry in live:
        if isinstance(entry.event, Read) and entry.event.token != end:
            sentences.setdefault(entry.event.stream, []).append(entry.event.token)
    return list(sentences.values())


# --- what nobody sees ---------------------------------------------------------------------------------------------


UNSEEN = ["\u200d", "\ufe0f", "\u00ad", "\u202e", "\U000e0041", "\u3164", "\x07"]


@pytest.mark.parametrize("seed", range(4))
def test_invisible_characters_change_nothing_however_the_text_is_cut_and_are_told_once_a_line(seed):
    draw, said = random.Random(seed), []
    plain = "".join(CHINESE[:3]) + "\n" + CHINESE[3] + "\n"
    full = "".join(draw.choice(UNSEEN) * draw.randint(0, 2) + character for character in plain)
    translator = translator_of(warn=said.append, invisible=partial(invisible, language="zh"))
    live = fed(translator, cut_at_random(full, draw))
    assert live == fed(translator_of(), [plain])
    assert len(said) == 2
    count = sum(map(full.partition("\n")[0].count, UNSEEN))
    assert said[0].startswith(f"{count} invisible characters passed over (U+00")


def test_a_sentence_in_another_script_than_the_models_is_told_of_once_and_translated_all_the_same():
    said, text = [], f"{CHINESE[0]}Hello world, how are you? Fine, and you, my friend?"
    live = fed(translator_of(warn=said.append, foreign=partial(is_foreign, language="zh")), [text])
    assert live == fed(translator_of(), [text])
    assert len(said) == 1
    assert said[0].startswith("'Hello world, how are you?' is not in the script of the model's source language, zh")


def test_a_sentence_in_another_script_that_is_cut_at_its_limit_is_judged_before_the_cut():
    said = []
    fed(translator_of(warn=said.append, foreign=partial(is_foreign, language="zh"), max_sentence_tokens=12),
        ["How are you my friend and yours"])  # fmt: skip
    assert said[0].startswith("'How are you my")
    assert sum("is not in the script" in one for one in said) == 1
    assert any("cut at 12 tokens" in one for one in said)


# --- arrival -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("segmentation", ["tokens", "characters"])
@pytest.mark.parametrize(("language", "texts"), [("zh", CHINESE), ("en", [target for _, target in SENTENCES])])
def test_the_tokens_read_are_those_of_training(language, texts, segmentation):
    # θ = 1 reads everything before it writes.
    live = fed(translator_of(language, segmentation, theta=1.0), [" ".join(texts)])
    expected = SourceTokens(TOKENIZER, segmentation).ids([clean_side(text, language) for text in texts])
    assert tokens_read(live) == expected


@pytest.mark.parametrize("character", "\v\f\x1c\x85\u2028\u2029")
def test_no_line_ends_at_other_white_space(character):
    text = f"他没有{character}看见那个人。\n我们\r\n走"
    assert len(tokens_read(fed(translator_of(theta=1.0), [text]))) == 3


def test_what_is_held_back_counts_as_delay():
    live = fed(translator_of("en", theta=0.0), ["The man standing there."])
    reads = [entry for entry in live if isinstance(entry.event, Read) and entry.event.token != TOKENS.end]
    settled = 0
    for entry in reads:
        settled += len(TOKENIZER.decode([entry.event.token]))
        assert entry.characters >= settled, "no token is read before its characters have arrived"
    assert any(
        entry.characters > len(TOKENIZER.decode([other.event.token for other in reads[: number + 1]]))
        for number, entry in enumerate(reads)
    ), "a merge was waited for"
    characters = [entry.characters for entry in live]
    assert characters == sorted(characters)


@pytest.mark.parametrize("pause_at", range(1, 22, 2))
def test_a_pause_where_a_word_ends_changes_no_token(pause_at):
    text = "the man standing there"
    translator = translator_of("en", theta=1.0)
    list(feed(translator, text[:pause_at]))
    list(pause(translator))
    found = tokens_read(fed(translator, [text[pause_at:]]))
    assert len(found) == 1 or translator.sentences == 1
    whole = SourceTokens(TOKENIZER).ids([text])[0]
    if text[pause_at] == " " or text[pause_at - 1] != " ":
        assert TOKENIZER.decode(translator.text.context) == text
    if text[pause_at] == " ":
        assert translator.text.context == whole


# --- sentences -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("limit", "segmentation"), [(1, "tokens"), (3, "characters"), (8, "tokens")])
@pytest.mark.parametrize(
    ("language", "text"),
    [
        ("zh", "站在那边的男人曾是棒球手我昨天买了一本书 " * 3),
        ("en", "The man \u200d standing   there said  it 's the \ufe0fbaseball player who bought my books yesterday"),
        ("en", "internationalisation" * 4),
        ("en", "1 2  34 5\u200d6" + " " * 30 + "seven"),
    ],
)
def test_a_sentence_that_is_cut_ends_where_the_text_of_the_next_one_begins(language, text, segmentation, limit):
    """Who goes on from there elsewhere loses nothing, and reads hardly anything twice."""

    unseen = partial(invisible, language=language)

    def squeezed(part):
        return "".join(clean_side("".join(c for c in part if not unseen(c)), language).split())

    live = fed(translator_of(language, segmentation, theta=1.0, max_sentence_tokens=limit, invisible=unseen), [text])
    read = [squeezed(TOKENIZER.decode(tokens)) for tokens in tokens_read(live)]
    ends = [entry.position for entry in live if isinstance(entry.event, End)]
    assert len(read) == len(ends)
    assert ends[-1] == len(text)
    whole = squeezed(text)
    for number, end in enumerate(ends, start=1):
        before, rest = "".join(read[:number]), squeezed(text[end:])
        assert whole.startswith(before)
        assert whole.endswith(rest)
        assert len(whole) <= len(before) + len(rest) <= len(whole) + 3


def test_the_sentence_before_is_read_first_where_the_model_was_trained_so():
    translator = translator_of(tokens=CONTEXT)
    for number, text in enumerate(CHINESE[:3]):
        list(feed(translator, text))
        previous = SourceTokens(TOKENIZER).ids([CHINESE[number - 1]])[0] if number else []
        expected = ([TOKENS.end] * 4 + previous)[-4:]
        if translator.stream is not None:
            assert translator.stream.source[:4] == expected
        list(finish(translator))


def test_a_translation_stopped_by_a_guard_ignores_the_rest_of_its_sentence():
    translator = translator_of(theta=0.0)
    translator.driver.engine.max_target_tokens = 1
    live = fed(translator, ["他没有看见那个人。我们走。"])
    assert [entry.event.reason for entry in live if isinstance(entry.event, End)].count("max_target_tokens") >= 1
    assert {entry.event.stream for entry in live} == {0, 1}


def test_empty_and_invisible_text_is_no_sentence():
    translator = translator_of()
    assert fed(translator, [" \n\t\u200b\x07\n ", "\ufeff"]) == []
    assert translator.sentences == 0


def test_nothing_is_kept_of_sentences_that_have_ended():
    translator = translator_of(segmentation="characters", max_sentence_tokens=10)
    states = translator.driver.engine.states
    fed(translator, CHINESE[:4])
    memory = states.cache.bytes
    fed(translator, ["长" * 40, *CHINESE[:4]])
    assert states.cache.bytes == memory
    assert states.cache.tokens.shape[1] == 1
    assert translator.driver.engine.streams == states.slots.taken == states.reached == {}
    assert translator.text.source.text == ""
    assert len(translator.text.context) <= 10


@pytest.mark.parametrize("held", [" ", "\u200b", "&#1", "\u0301"])
def test_characters_that_settle_no_token_are_not_kept_without_end(held, monkeypatch):
    monkeypatch.setattr("duplexmt.streaming.live_text.MOST_HELD", 20)
    translator = translator_of(theta=1.0)
    live = list(feed(translator, "他没有"))
    for _ in range(30):
        live += feed(translator, held)
        assert len(translator.text.source.text) <= 20 + len("他没有")
    live += fed(translator, ["看见"])
    text = TOKENIZER.decode([token for sentence in tokens_read(live) for token in sentence])
    assert text.startswith("他没有")
    assert text.endswith("看见")


def test_a_limit_the_backbone_has_no_positions_for_is_refused():
    with pytest.raises(ValueError, match="max_sentence_tokens=999: must be a whole number between 1 and 255"):
        translator_of(max_sentence_tokens=999)


# --- the pipe --------------------------------------------------------------------------------------------------------


def pieces(*chunks):
    """What `arriving` makes of bytes written one after the other, and its warnings."""
    reader, writer = os.pipe()
    warnings = []
    found = []
    text = arriving(reader, 0.01, lambda line, message: warnings.append((line, message)))
    for chunk in chunks:
        os.write(writer, chunk)
        found.append(next(text))
    os.close(writer)
    found += [part for part in text if part]
    os.close(reader)
    return found, warnings


@pytest.mark.parametrize("blocking", [True, False])  # where it does not block, reading returns at once
def test_characters_are_there_as_soon_as_they_arrive_and_a_pause_is_told_once(blocking):
    reader, writer = os.pipe()
    os.set_blocking(reader, blocking)
    text = arriving(reader, 0.01, print)
    later = Timer(0.1, os.write, (writer, "他".encode()))
    later.start()
    assert next(text) == "他"
    later.join()
    assert next(text) is None
    os.write(writer, "没\n有".encode())
    assert next(text) == "没\n有"
    os.close(writer)
    assert list(text) in ([], [None])
    os.close(reader)


def test_a_character_cut_in_two_is_put_together():
    raw = "a他😀".encode()
    found, warnings = pieces(raw[:2], raw[2:4], raw[4:])
    assert "".join(part or "" for part in found) == "a他😀"
    assert warnings == []


@pytest.mark.parametrize("cuts", [(2, 3, 4), (1, 3, 5)])
def test_a_line_ends_once_however_its_end_is_written_and_cut(cuts):
    raw = b"a\r\rb\r\n\nc\r"
    parts = [raw[begin:end] for begin, end in zip((0, *cuts), (*cuts, None), strict=True)]
    warnings = []
    assert "".join(decoded(parts, lambda *warning: warnings.append(warning))) == "a\n\nb\n\nc\n"
    assert list(decoded([b"a\r", None, b"\n\xff"], lambda *warning: warnings.append(warning))) == ["a\n", None]
    assert [line for line, _ in warnings] == [2]


@pytest.mark.parametrize("codec", ["gb18030", "utf-16", "utf-16-le", "big5"])
def test_text_in_another_encoding_is_refused_by_its_name_and_a_mark_of_utf_8_is_no_text(codec):
    text = "我們去公園吧\n他沒有來\n這是誰的書\n" if codec == "big5" else "今天天气很好\n我们去公园吧\n他没有来\n"
    with pytest.raises(
        ValueError, match=rf"(?i)seems to be in {codec.replace('f-16-', 'f-16')}: .*`iconv -f \S+ -t UTF-8"
    ):
        list(decoded([text.encode(codec)], print))
    assert "".join(decoded([b"\xef\xbb\xbf", b"a\n"], print)) == "a\n"


def test_bytes_that_are_no_utf_8_are_left_out_and_told_with_their_line():
    found, warnings = pieces("他\n没".encode(), b"\xff\n\xe4\xbd", b"a\xe6")
    assert "".join(part or "" for part in found) == "他\n没\na"
    assert [line for line, _ in warnings] == [2, 3, 3]
    assert "left out" in warnings[0][1]
