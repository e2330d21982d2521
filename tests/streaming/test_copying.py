"""Copy tokens in live translations: written once it is certain what they stand for, and then with its text."""

from types import SimpleNamespace

import pytest
import torch

from duplexmt.data.tokenizer import stream_tokens, token_ids
from duplexmt.policy.decoding_options import Adaptive
from duplexmt.streaming.drafting import Draft, Hold, LocalAgreement, WholeLsg
from duplexmt.streaming.engine import Engine
from duplexmt.streaming.events import End, Read, Write
from duplexmt.streaming.growing_text import GrowingText
from duplexmt.streaming.policies import Theta, WaitK

from ..helpers import byte_level_tokenizer, tiny_backbone, tiny_grid, tiny_prefix, tiny_tokenizer

SOURCE = "给foo.com和x1。"


def always(kind, script):
    """A policy of a kind for which a script's next token is always the most probable one."""

    class Scripted(kind):
        def predict(self, model, requests, states):
            if issubclass(kind, Theta):
                return [(1.0, script[len(stream.written)], False) for stream, _ in requests]
            if issubclass(kind, WaitK):
                return [(script[len(stream.written)], True) for stream, _ in requests]
            places = [append.runs[-1].place + len(append.runs[-1].tokens) - 1 for _, append in requests]
            return [(script[place], states[0]) for place in places]

    return Scripted


def scripted(kind, script, setting=1, make=tiny_tokenizer):
    """Tokenizer, copy tokens, a script's tokens, and an engine that writes it: texts, and numbers of copy tokens."""
    tokenizer = make()
    tokens, size = stream_tokens(tokenizer, copy_tokens=3), len(tokenizer)
    parts = ([tokens.copy_tokens[one]] if isinstance(one, int) else token_ids(tokenizer, [one])[0] for one in script)
    chosen = [token for part in parts for token in part]
    model = tiny_grid(tiny_backbone(vocab_size=size)) if kind is Theta else tiny_prefix(vocab_size=size)
    policy = always(kind, [*chosen, *3 * [tokenizer.eos_token_id]])(setting)
    limits = {"max_target_tokens": 20, "typical_source_length": 9}
    engine = Engine(model, tokens, policy=policy, theta=0.5, **limits, tokenizer=tokenizer)
    return tokenizer, tokens.copy_tokens, chosen, engine


def read_before(events, copies):
    """What was read before each copy token, and the text that came with it."""
    read, found = 0, []
    for event in events:
        read += isinstance(event, Read)
        if isinstance(event, Write) and event.token in copies:
            found.append((read, event.text))
    return found


@pytest.mark.parametrize("make", [tiny_tokenizer, byte_level_tokenizer])
@pytest.mark.parametrize(("kind", "setting"), [(Theta, None), (WaitK, 1), (LocalAgreement, 1), (Hold, 0)])
def test_a_copy_token_waits_for_what_follows_its_run_and_has_its_text(kind, setting, make):
    tokenizer, copies, script, engine = scripted(kind, ["a", 0, " ", 1], setting, make)
    (source,) = token_ids(tokenizer, [SOURCE])
    ends = [len(token_ids(tokenizer, [SOURCE[:place]])[0]) for place in (len("给foo.com"), len("给foo.com和x1"))]

    stream = engine.open()
    events = []
    for token in source:
        stream.read([token])
        events += list(stream.write())
    stream.end()
    events += list(stream.write())
    assert read_before(events, copies) == [(ends[0] + 1, " foo.com"), (ends[1] + 1, "x1")]
    assert "".join(event.text for event in events if isinstance(event, (Write, End))) == "a foo.com x1"
    assert isinstance(events[-1], End)
    assert events[-1].reason == "end_token"
    assert [event.token for event in events if isinstance(event, Write)] == script


def test_a_run_at_the_end_is_copied_once_the_source_has_ended_and_one_there_is_not_is_the_last():
    tokenizer, *_, engine = scripted(WaitK, [0, 2])
    for text, written in (("是x1", "x1 x1"), ("是", "")):
        stream = engine.open()
        stream.read(token_ids(tokenizer, [text])[0])
        assert not any(isinstance(event, Write) for event in stream.write())
        stream.end()
        assert "".join(event.text for event in stream.write() if not isinstance(event, Read)) == written


def test_a_stream_that_goes_on_elsewhere_has_the_same_text_behind_what_was_copied():
    tokenizer, *_, engine = scripted(WaitK, [0, "§", 1])  # § is of two bytes
    (source,) = token_ids(tokenizer, [SOURCE])
    whole = engine.open()
    whole.read(source)
    whole.end()
    events = list(whole.write())
    text = "".join(event.text for event in events if not isinstance(event, Read))
    assert text == "foo.com§x1"
    writes = [number for number, event in enumerate(events) if isinstance(event, Write)]
    for number in writes:
        before = events[: number + 1]
        other = engine.open()
        other.read(source)
        other.end()
        reads, read = [], 0
        for event in before:
            read += isinstance(event, Read)
            reads += [read] if isinstance(event, Write) else []
        other.go_on(read, [event.token for event in before if isinstance(event, Write)], reads)
        rest = list(other.write())
        assert "".join(e.text for e in [*before, *rest] if not isinstance(e, Read)) == text
        other.close()


def asked(policy, stream, draft):
    """The texts for which a draft's wait-1 view is asked."""
    texts, answer, moves = [], None, policy.safe(stream, draft)
    while True:
        try:
            texts.append(moves.send(answer))
        except StopIteration:
            return texts
        answer = 0, torch.zeros(3)


def test_whole_lsg_compares_with_the_text_at_hand_where_a_draft_has_changed_before_it(monkeypatch):
    monkeypatch.setattr(WholeLsg, "wait_1", lambda self, stream, text: text)
    policy = WholeLsg(1e9, Adaptive(k_min=1, k_max=9, alpha=0.9, divergence="paper"))
    sure, unsure = torch.tensor([0.0, -9, -9]), torch.tensor([1 / 3] * 3).log()
    stream = SimpleNamespace(written=[], visible=9, prefix=0, memory={})
    found = [
        asked(policy, stream, Draft(text, likely=[sure, sure, unsure])) for text in ([5, 6, 7], [5, 6, 8], [7, 7, 7])
    ]
    assert found == [[[5, 6]], [], [[7, 7]]]


@pytest.mark.parametrize(
    ("text", "script", "written"),
    [
        ("甲x1和y2。", "① ①", "x1 y2"),  # the first once more, where the source has it once: the second
        ("甲x1和y2。", "② ②", "y2 x1"),
        ("甲x1和y2，x1。", "① ① ②", "x1 x1 y2"),  # the source has it twice
        ("甲x1。", "① ①", "x1 x1"),  # there is no other
        ("甲x1。", "① ①①a", "x1 x1"),  # but not for ever
        ("甲x1。", "③ ③③a", "x1 x1"),  # nor the last, for one that is not there
        ("甲x1和y2。", "① ③", "x1 y2"),  # there is no third
        ("甲512和x1。", "5 ②", "512 x1"),  # a digit that begins a number of the source
        ("甲a5和5.5%。", "a5 5", "a5 5.5%"),  # in a word it begins none
        ("甲512。", "51", "5121"),  # then the model goes on by itself
        ("甲5x。", "5", "5 5x"),  # no number
        ("甲512。", "6", "6 512"),
        ("甲x1和y2。", "②", "y2 x1"),  # at the end, what is lacking still comes
        ("甲x1和y2。", "a.", "a x1 y2"),  # before the full stop that ends a sentence, as often as there is one
        ("甲x1。", "(", "(x1"),
        ("甲x1。", "x1.", "x1."),  # spelt, it is not lacking
        ("甲x1。", "ax1.", "ax1 x1"),  # but as a part of another one
    ],
)
def test_each_run_is_copied_in_its_turn_and_no_number_of_the_source_is_spelt(text, script, written):
    signs = ["①②③".index(sign) if sign in "①②③" else sign for sign in script]
    tokenizer, *_, engine = scripted(WaitK, signs, None)
    stream = engine.open()
    stream.read(token_ids(tokenizer, [text])[0])
    stream.end()
    assert "".join(event.text for event in stream.write() if not isinstance(event, Read)) == written


def test_a_number_that_goes_on_is_not_begun():
    tokenizer, *_, engine = scripted(WaitK, ["5"])
    for text, written in (("5112。", "5112"), ("5。", "5")):
        stream, shown = engine.open(), []
        for token in token_ids(tokenizer, [text])[0]:
            assert not shown
            stream.read([token])
            shown += [event.text for event in stream.write() if isinstance(event, Write)]
        assert shown == [written]
        stream.close()


@pytest.mark.parametrize("kind", [Theta, WaitK])
def test_a_run_is_copied_again_only_once_no_other_one_can_come(kind):
    tokenizer, (first, second, _), _, engine = scripted(kind, [0, 0], 1 if kind is WaitK else None)
    for text, before, written in (
        ("x1和x10。", 2, [first, second]),  # the second one in the first one's place
        ("x1在那里。", 1, [first, first]),  # at the source's end there is no other
        ("x1和x1。", 2, [first, first]),
    ):
        stream = engine.open()
        stream.read(token_ids(tokenizer, [text])[0])
        assert sum(isinstance(event, Write) for event in stream.write()) == before
        stream.end()
        list(stream.write())
        assert stream.written == written


def test_an_engine_without_a_tokenizer_cannot_copy():
    tokens = stream_tokens(tiny_tokenizer(), copy_tokens=1)
    with pytest.raises(ValueError, match="this model has copy tokens: give the tokenizer"):
        Engine(tiny_prefix(), tokens, policy=WaitK(1), max_target_tokens=5)


def test_a_character_that_was_cut_off_by_a_copied_run_is_shown_broken():
    tokenizer = tiny_tokenizer()
    growing = GrowingText(tokenizer)
    half = token_ids(tokenizer, ["§"])[0][0]
    assert growing.add(half) == ""
    assert growing.add(0, "x.y") == "\N{REPLACEMENT CHARACTER}x.y"
    assert growing.add(token_ids(tokenizer, ["a"])[0][0]) == "a"
    assert growing.finish() == ""
    growing = GrowingText(tokenizer)
    both = token_ids(tokenizer, ["§"])[0]
    shown = [growing.add(both[0]), growing.add(0, ""), growing.add(both[0]), growing.add(0, "z"), growing.finish()]
    assert "".join(shown) == growing.text == 2 * "\N{REPLACEMENT CHARACTER}" + "z"
