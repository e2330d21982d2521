"""Where sentences end, by language, in texts that grow; when that is certain; and where too long ones are cut."""

import random
import re
import time
import unicodedata
from functools import partial
from itertools import pairwise

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from data_prep.rules import clean_side
from duplexmt.common.text import invisible
from duplexmt.data.tokenizer import SourceTokens
from duplexmt.streaming.live_text import CLAUSE_MARKS, LineEnd, SentenceEnd, Settled
from duplexmt.streaming.sentences import Sentences

from ..helpers import tiny_tokenizer
from .live_texts import cut_at_random, live_text

TOKENIZER = tiny_tokenizer(460)


def unseen(character):
    return invisible(character, "en")


def cut(language, text, pauses=(), end=True):
    """The sentences of a line that arrives character by character; what comes late is blank."""
    sentences, found = Sentences(language, unseen), [""]
    for at, character in enumerate(text, start=1):
        for one in [*sentences.take(character), *(sentences.take() if at in pauses else ())]:
            found = [*found[:-1], found[-1] + (one or ""), *[""] * (one is None and found[-1].strip() != "")]
    for one in sentences.take() if end else ():
        found = [*found[:-1], found[-1] + (one or ""), *[""] * (one is None and found[-1].strip() != "")]
    return found[:-1] if found[-1] == "" else found


SAMPLES = {  # with | between sentences
    "zh": [
        "你好吗?|我很好!|谢谢你.|再见。",
        '然后他们走了。|"好。"|他说。',
        "他说：“好。”|然后走了。",
        "他说：“走吧！”|我们走。|真的？！|是。",
        "“我很好。|你呢？”|他说。|走了。|“好。”",
        '"我很好。|你呢？"|他说。|走了。|"好。"',
        "「他走了。」|我们走。",
        "我们走〔注。〕他来了。|好。",
        "我们走【注。】他来了。",
        "我们走（注。）他来了。",
        "他买了3.5公斤。|他走了……我们也走。|好！！！|走。",
        "看www.Example.Com/A?B=C。|好。",
        "1.开门。|2.关门。",
        "他7岁。|她9岁。",
        "加上“.local”后缀。|好。",
        "多少度?6万年前。|好。",
        "他走了。|2024年他回来了。|ok。|好。",
    ],
    "ja": [
        "「はい。」|と言った。|行きます。",
        "元気ですか？|はい！|「行こう。」|彼は言った。",
        "『本。』を読む。|はい。",
    ],
    "ko": ["네. |좋아요. |갑시다.", "어디 가요? |집에 가요! |네."],
    "en": [
        "Gen. Smith came on Jan. 5 with Dr. Wang. |He left.",
        "He is 7. |She is 9. |I am 8.",
        'He left... and "slept." |So did I. J. Smith! |Go.',
        "See www.Example.Com/A?B=C!D or https://a.b/C.D?E. |Then go.",
        "It costs 3.5, e.g. 1,000.50. |Fine.",
        'Really?! |Yes!  |"Why?" she asked. |"So." |He left.',
        "He said 'Go.' |Then he left.",
        "1. Open the door. |2. Close it.",
        "It is 5 p.m. |The sun shines.",
        "I live in the U.S. |He does too.",
        "Call it .example.txt or .NET. |Save it.",
        "Mail a.b@c.Com now. |Bye.",
        "He had a Ph.D. from MIT. |Good.",
        "(He left. |She came.) They met. |Good.",
        "Mr. and Mrs. Jones vs. Mr. Wu. |How are you?",
    ],
    "de": [
        "Ich bin am 13. Mai geboren. |Er kam.",
        "„Ich komme.“ |Anna lachte.",
        "„Ich komme. |Du auch.“ |Anna lachte. |»Ja.« |Er ging.",
        "Das kostet z. B. 3 Euro. |Gut.",
    ],
    "fr": ["« Je viens. » |Il part. |« Oui. » |Elle reste ! |Bon."],
    "es": ["¿Cómo estás? |¡Bien! |Sí. |¿Y tú?"],
    "sv": ["”Hej.” |Han gick. |Hon kom."],
    "ru": ["Он пришёл. |Она ушла в 7. |«Да.» |Он ушёл."],
    "hi": ["मैं घर जा रहा हूँ। |तुम कहाँ हो? |ठीक है।"],
    "hy": ["Ես գնում եմ։ |Դու գալիս ես։ |Այո։"],
    "ur": ["میں جا رہا ہوں۔ |تم کہاں ہو؟ |ہاں۔"],
    "ar": ["أين أنت؟ |أنا هنا. |نعم!"],
    "km": ["ខ្ញុំទៅផ្ទះ។ |អ្នកនៅឯណា? |បាទ។"],
    "my": ["ကျွန်တော်သွားမယ်။ |မင်းလာမလား။ |ဟုတ်ကဲ့။"],
    "el": ["Πού είσαι; |Είμαι εδώ. |Ναι\u037e |Όχι."],
    "am": ["ሰላም። |እንዴት ነህ? |ደህና።"],
    "th": ["สวัสดีครับ ผมไปบ้าน คุณไปไหน? |ผมไป"],
}
EACH = [(language, text) for language, texts in SAMPLES.items() for text in texts]
LONGEST = [(language, max(texts, key=len)) for language, texts in SAMPLES.items()]


@pytest.mark.parametrize(("language", "text"), EACH)
def test_sentences_end_where_readers_of_the_language_end_them(language, text):
    assert cut(language, text.replace("|", "")) == text.split("|")


@pytest.mark.parametrize(("language", "text"), EACH)
def test_an_end_is_certain_by_the_end_of_the_next_word(language, text):
    sentences = text.split("|")
    for number in range(1, len(sentences)):
        begun, rest = sentences[:number], "".join(sentences[number:])
        word = rest[: len(re.match(r"\W*\w*", rest)[0]) + 1]
        assert cut(language, "".join(begun) + word, end=False)[:number] == begun


MARKED = [
    *"。！？.!?… \t\"'”“„«»)（）「，aB男1_x\u0301é。\u3000។।\u200d",
    "Dr",
    "Mai",
    "13",
    "p.m",
    "https://",
    "The",
    "I",
]
TEXTS = st.lists(st.sampled_from(MARKED), max_size=16).map("".join)


@settings(max_examples=100)
@given(st.sampled_from([*SAMPLES, "fi", "xx"]), TEXTS | st.text(max_size=20), st.integers(0, 16))
@example("en", "I\u3000. A", 0)  # as it is, sentencex 1.0.32 panics over it
def test_sentences_put_together_are_the_text_whatever_it_is(language, text, pause):
    line = "".join(character for character in text if character not in "\n\r")
    assert "".join(cut(language, line)) == line
    assert len("".join(cut(language, line, pauses=[pause]))) == len(line), "positions stay, where marks are passed over"


# --- a pause ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("language", "text"),  # with | at the pause
    [
        ("zh", "今天天气很好，我们去公园吧。|"),
        ("zh", "你好吗？！|"),
        ("zh", "他说：“好。|"),
        ("zh", "他说：“好。”|"),
        ("zh", "(他走了。)|"),
        ("zh", "谢谢你.|"),
        ("zh", "7。|"),
        ("zh", "第3。|"),
        ("en", "He left. |"),
        ("en", "He is 7.|"),
        ("en", "(He left.)|"),
        ("en", '"Go."|'),
        ("en", "He left...|"),
        ("de", "Er kam.|"),
        ("hi", "मैं घर जा रहा हूँ।|"),
        ("km", "ខ្ញុំទៅផ្ទះ។|"),
        ("el", "Πού είσαι;|"),
        ("hy", "Ես գնում եմ։|"),
        ("ur", "ہاں۔|"),
        ("ko", "네.|"),
        ("ja", "「はい。」|"),
    ],
)
@pytest.mark.parametrize("late", ["", "。", "”", "」。", "?! ", ")", " "])
def test_a_pause_ends_a_sentence_that_is_complete_and_what_closes_it_later_is_no_new_one(language, text, late):
    text, _ = text.split("|")
    late = late if text[-1] not in '”"」' else late.replace("”", "")  # which opens in Swedish, and closes once
    found = cut(language, text + late + "Xa 好", pauses=[len(text)])
    assert found == [text, " " * len(late) + "Xa 好"]


@pytest.mark.parametrize(
    ("language", "text"),
    [
        ("zh", "今天天气很好|，我们走。"), ("zh", "今天天气很好，|我们走。"), ("zh", "3.|5公斤。"),
        ("zh", "Dr.| Wang来了。"), ("en", "Dr.| Wang came."), ("en", "Hello Dr. |Wang came."),
        ("en", "He came, e.g.| today."), ("en", "1.| Open it."), ("en", "Dr. W|ang came."), ("en", "a|"), ("en", "|a"),
        ("de", "Ich kam am 13.| Mai."), ("fi", "Hän tuli 7.| tammikuuta."), ("hy", "Ես.| գնում եմ։"),
        ("th", "สวัสดี| ครับ"),
    ],
)  # fmt: skip
def test_a_pause_in_mid_sentence_ends_none(language, text):
    assert cut(language, text.replace("|", ""), pauses=[text.index("|")]) == [text.replace("|", "")]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('走了。|"好。"', ["走了。", '"好。"']),
        ('他说"好。|"走了。', ['他说"好。', " 走了。"]),
        ("He is 7. Sh|e is 9.", ["He is 7. ", "She is 9."]),
        ("他走了。|“好。”", ["他走了。", "“好。”"]),
        ('He left.| "Go."', ["He left.", ' "Go."']),
    ],
)
def test_a_quotation_that_opens_after_a_pause_belongs_to_the_new_sentence(text, found):
    assert cut("zh", text.replace("|", ""), pauses=[text.index("|")]) == found


# --- how long it takes -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("part", ["站在那边的男人，", "!)", "Dr. W", '"', ". \u200d"])
def test_a_text_without_a_sentence_end_takes_time_in_proportion_to_its_length(part):
    text = part * (10_000 // len(part))
    sentences, begin = Sentences("en", unseen), time.process_time()
    for character in text:
        list(sentences.take(character))
    assert time.process_time() - begin < 10, "ten times what it takes at worst; the square of its length takes minutes"
    assert len(sentences.text) <= 300


# --- as parts of a live text -----------------------------------------------------------------------------------------


def parts_of(text, chunks, pauses=()):
    """What a live text leads to; pauses are positions."""
    found = []
    for chunk in chunks:
        found += text.take(chunk)
        if text.position in pauses:
            found += text.pause()
    return [part for part in [*found, *text.end()] if part is not None]


def by_sentence(parts):
    """Tokens of each sentence as text."""
    found, tokens = [], []
    for part in parts:
        if isinstance(part, Settled):
            tokens += part.tokens
        elif isinstance(part, SentenceEnd):
            found, tokens = [*found, TOKENIZER.decode(tokens)], []
    return found


@pytest.mark.parametrize("segmentation", ["tokens", "characters"])
@pytest.mark.parametrize(("language", "text"), LONGEST)
def test_the_pieces_a_text_comes_in_change_nothing_in_any_language(language, text, segmentation):
    draw = random.Random(len(text))
    text = text.replace("|", "") * 2
    new = partial(live_text, TOKENIZER, language, segmentation, max_sentence_tokens=40, invisible=unseen)
    whole = parts_of(new(), [text])
    assert whole == parts_of(new(), text) == parts_of(new(), cut_at_random(text, draw))


@pytest.mark.parametrize(("limit", "segmentation"), [(12, "tokens"), (30, "characters"), (200, "tokens")])
@pytest.mark.parametrize(("language", "text"), LONGEST)
def test_who_goes_on_at_a_boundary_reads_the_rest_as_the_first_would_have(language, text, segmentation, limit):
    draw = random.Random(len(text))
    text = text.replace("|", "") + " " + text.replace("|", "\n")
    pauses = {draw.randrange(len(text)) for _ in range(4)}
    new = partial(live_text, TOKENIZER, language, segmentation, max_sentence_tokens=limit, invisible=unseen)
    first, begun, states = new(), [], []
    stream = (part for at in range(len(text)) for part in _taken(first, text, at, pauses))
    for part in stream:
        begun += [part] if part is not None else []
        if isinstance(part, SentenceEnd | LineEnd):
            states.append((len(begun), first.position, first.state()))
    begun += [part for part in first.end() if part is not None]
    assert states or len(begun) < limit
    for size, position, state in states:
        second = new()
        second.restore(state)
        rest = [part for at in range(position, len(text)) for part in _taken(second, text, at, pauses)]
        rest = [part for part in [*rest, *second.end()] if part is not None]
        assert by_sentence(rest) == by_sentence(begun[size:])
        ends = [part.position for part in begun[size:] if isinstance(part, SentenceEnd | LineEnd)]
        assert [part.position for part in rest if isinstance(part, SentenceEnd | LineEnd)] == ends


def _taken(live, text, at, pauses):
    """A character, and the pause after it."""
    yield from live.take(text[at])
    if at + 1 in pauses:
        yield from live.pause()


# --- too long --------------------------------------------------------------------------------------------------------

LONG = {
    "zh": "站在那边的男人曾是棒球手，我昨天买了一本书；而且他说今天天气很好、我们明天一起去公园吧",
    "zh with words": "我喜欢New York City和San Francisco因为那里的天气很好而且我们每年都去2024年也是",
    "en": "the man standing there was a player, and I bought a book yesterday because it was nice; we went",
    "de": "der Mann der dort steht war einmal Spieler – und ich habe gestern ein Buch gekauft weil er das sagte",
    "ru": "человек который там стоит был игроком, а я вчера купил книгу потому что он сказал что погода хорошая",
    "hi": "वह आदमी जो वहाँ खड़ा है खिलाड़ी था, और मैंने कल एक किताब खरीदी क्योंकि उसने कहा कि मौसम अच्छा है",
    "th": "ผู้ชายที่ยืนอยู่ตรงนั้นเคยเป็นนักเบสบอลและฉันซื้อหนังสือเมื่อวานนี้เพราะเขาบอกว่าอากาศดี",
    "km": "បុរសដែលឈរនៅទីនោះធ្លាប់ជាអ្នកលេងហើយខ្ញុំបានទិញសៀវភៅកាលពីម្សិលមិញ",
}

UNSPACED = re.compile("[\u0e00-\u0eff\u1780-\u17ff\u3000-\u9fff\uff00-\uff9f]")


def cut_long(name, segmentation, limit, chunks=None):
    said = []
    text = live_text(TOKENIZER, name[:2], segmentation, max_sentence_tokens=limit, warn=said.append)
    parts = parts_of(text, chunks or LONG[name])
    ends = [0, *(part.position for part in parts if isinstance(part, SentenceEnd))]
    assert len(said) == len(ends) - 2
    assert all(len(part.tokens) <= limit for part in parts if isinstance(part, Settled))
    pieces = [LONG[name][begin:end] for begin, end in pairwise(ends)]
    return pieces, by_sentence(parts)


@pytest.mark.parametrize(("limit", "segmentation"), [(32, "tokens"), (45, "characters")])
@pytest.mark.parametrize("name", LONG)
def test_a_sentence_that_is_too_long_is_cut_between_words_and_nothing_begins_with_a_space(name, limit, segmentation):
    limit *= 3 if name in ("hi", "ru", "th", "km") else 1  # their letters are two or three tokens here
    pieces, read = cut_long(name, segmentation, limit)
    assert "".join(pieces) == LONG[name]
    for before, after in pairwise(pieces):
        assert before[-1].isspace() or UNSPACED.search(before[-1] + after[0])
        assert unicodedata.category(after[0])[0] != "M"
        assert not (before[-1].isascii() and before[-1].isalnum() and after[0].isascii() and after[0].isalnum())
        assert not after[0].isspace()
        assert after[0] not in CLAUSE_MARKS
    assert [text.strip() for text in read] == read
    squeezed = ["".join(text.split()) for text in ("".join(read), LONG[name])]
    assert squeezed[0] == squeezed[1]


def tokens_of(language, text, segmentation="characters"):
    return len(SourceTokens(TOKENIZER, segmentation).ids([clean_side(text, language)])[0])


@pytest.mark.parametrize("segmentation", ["tokens", "characters"])
@pytest.mark.parametrize(
    ("name", "end"),
    [
        ("zh", "棒球手，"), ("zh", "一本书；"), ("en", "player, "), ("de", "Spieler – "), ("hi", "खिलाड़ी था, "),
        ("ru", "игроком, "),
    ],
)  # fmt: skip
def test_it_is_cut_at_a_clause_mark_near_the_limit(name, end, segmentation):
    clause, rest = LONG[name][: LONG[name].index(end) + len(end)], LONG[name][LONG[name].index(end) + len(end) :]
    size = tokens_of(name, clause, segmentation)
    for limit in (size + 4, size + size // 4):
        assert cut_long(name, segmentation, limit)[0][0] == clause
    far = cut_long(name, segmentation, 3 * size // 2)[0][0]
    assert far.startswith(clause + rest[0]), "where it is far from the limit, as much is kept together as fits"


@pytest.mark.parametrize("text", ["internationalisation" * 60, "好" * 1000, "a,b." * 250, "😀" * 300])
@pytest.mark.parametrize(("limit", "segmentation"), [(1, "tokens"), (32, "characters")])
def test_a_text_without_any_gap_is_cut_all_the_same(text, segmentation, limit):
    read = by_sentence(parts_of(live_text(TOKENIZER, "en", segmentation, max_sentence_tokens=limit), text))
    assert "".join(read) == text
    assert len(read) > 1
