"""Decisions by words: which tokens go on with one; path, worth and visits against all paths that finish words."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from benchmarks.path_loss import schedule_rows, threshold_rows
from duplexmt.data.batch import collate
from duplexmt.data.tokenizer import StreamTokens, token_ids
from duplexmt.policy.regret import emit_advantages
from duplexmt.policy.visits import THETAS, decoding_shares, delay_shares, visit_shares
from duplexmt.policy.words import ends_of_words, goes_on, going_on, has_choice, within_words

from ..helpers import SENTENCES, best_path, byte_level_tokenizer, tiny_tokenizer
from .brute_force import best_row_exits, best_score_from
from .test_path import heatmaps


def metaspace():
    """A BPE like Llama's: a space is ▁, and the decoder takes the first one."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.Metaspace(), decoders.Metaspace()
    trainer = trainers.BpeTrainer(vocab_size=60, special_tokens=["</s>"], show_progress=False)
    tokenizer.train_from_iterator([text for _, text in SENTENCES], trainer)
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="</s>")


TOKENIZERS = {"ours": lambda: tiny_tokenizer(480), "bytes": byte_level_tokenizer, "metaspace": metaspace}


@pytest.mark.parametrize(
    ("text", "whether"),
    [(" the", False), ("ing", True), ("", False), (" ", False), ("\n", False), (".", False), ("?!", False),
     ("'s", True), ("-old", True), ("_", True), ("/", True), ("7", True), (" 7", False), (".com", True),
     ("\N{REPLACEMENT CHARACTER}", True)],
)  # fmt: skip
def test_what_neither_begins_with_a_space_nor_is_a_mark_goes_on_with_a_word(text, whether):
    assert goes_on(text) == whether


@pytest.mark.parametrize("name", TOKENIZERS)
def test_tokens_that_go_on_are_those_that_no_space_is_before_in_the_text(name):
    tokenizer = TOKENIZERS[name]()
    words = going_on(tokenizer, len(tokenizer) + 5, "en").tolist()
    assert len(words) == len(tokenizer) + 5
    assert not any(words[len(tokenizer) :])
    assert not words[tokenizer.eos_token_id]
    pieces = 0
    for _, text in SENTENCES:
        (ids,) = token_ids(tokenizer, [text])
        for place in range(1, len(ids)):
            before, with_it = (
                tokenizer.decode(ids[:end], clean_up_tokenization_spaces=False) for end in (place, place + 1)
            )
            assert words[ids[place]] == goes_on(with_it.removeprefix(before)), (text, place)
            pieces += words[ids[place]]
    assert pieces > 20


@pytest.mark.parametrize("language", ["zh", "ja", "th"])
def test_where_no_spaces_part_words_decisions_by_words_are_refused(language):
    with pytest.raises(ValueError, match=rf"policy\.words=true: no spaces part the words of '{language}'"):
        going_on(tiny_tokenizer(), len(tiny_tokenizer()), language)


def test_padding_prefix_and_first_token_are_within_no_word():
    tokens = StreamTokens(end=1, seed=2, target_prefix=(5, 2))
    prefix = tokens.prefixes[1]
    batch = collate([tokens.example([5, 6], text) for text in ([9, 9, 8], [9, 9, 8, 9, 9, 9])])
    words = torch.zeros(len(tiny_tokenizer()), dtype=torch.bool)
    words[[0, 9]] = True  # the padding's id, too
    inner = within_words(words, batch, tokens)
    assert inner.shape == (2, batch.labels.shape[1] - prefix)
    assert inner.tolist() == [
        [False, True, False, False, False, False, False],
        [False, True, False, True, True, True, False],
    ]
    assert ends_of_words(inner).tolist() == [[2, 2, 3, 4, 5, 6, 7], [2, 2, 6, 6, 6, 6, 7]]
    assert has_choice(inner, torch.tensor([[1, 2], [5, 7]])).tolist() == [
        [[False] * 7, [True] + [False] * 6],
        [[True] + [False] * 6, [True, False, True, False, False, False, True]],
    ]
    assert within_words(None, batch, tokens) is None


@st.composite
def with_words(draw):
    heatmap = draw(heatmaps())
    return heatmap, (draw(st.booleans()) and [False, *(draw(st.booleans()) for _ in heatmap[0][1:])]) or None


@settings(max_examples=80)
@given(with_words(), st.sampled_from([0.0, 0.125, 0.25, 1.0, 4.0]))
def test_path_and_worth_equal_enumeration_of_the_paths_that_finish_words(case, lam):
    heatmap, words = case
    (X, Y), inner = (len(heatmap), len(heatmap[0])), words or []
    grid = (
        torch.tensor([heatmap], dtype=torch.float64), torch.tensor([X]), torch.tensor([Y]), lam,
        torch.tensor([words]) if words else None,
    )  # fmt: skip
    _, winners = best_row_exits(heatmap, lam, inner)
    highest = [max(exits) for exits in zip(*winners, strict=True)]
    assert best_path(*grid)[0].tolist() == highest
    assert highest in winners
    expected = [
        [
            0.0
            if inner and inner[y]
            else best_score_from(heatmap, lam, x, y + 1, inner) - heatmap[x][y]
            - best_score_from(heatmap, lam, x + 1, y, inner) - lam * y
            for y in range(Y)
        ]
        for x in range(X - 1)
    ]  # fmt: skip
    assert emit_advantages(*grid)[0].tolist() == [*expected, [0.0] * Y]


def test_words_of_one_token_change_nothing():
    heatmap, lengths = torch.rand(3, 6, 5), (torch.tensor([6, 2, 4]), torch.tensor([5, 5, 3]))
    none = torch.zeros(3, 5, dtype=torch.bool)
    assert torch.equal(emit_advantages(heatmap, *lengths, 0.1, none), emit_advantages(heatmap, *lengths, 0.1))
    assert torch.equal(decoding_shares(heatmap, *lengths, none), decoding_shares(heatmap, *lengths))
    assert ends_of_words(none).tolist() == [[1, 2, 3, 4, 5]] * 3


def test_padding_is_not_read():
    heatmap, lengths = torch.rand(2, 5, 6), (torch.tensor([3, 5]), torch.tensor([4, 6]))
    inner = torch.tensor([[False, True, False, False, False, False], [False, True, True, False, True, False]])
    alone = emit_advantages(heatmap[:1, :3, :4], *(own[:1] for own in lengths), 0.1, inner[:1, :4])
    assert torch.equal(emit_advantages(heatmap, *lengths, 0.1, inner)[0, :3, :4], alone[0])


def test_visits_and_delays_are_those_of_paths_that_write_a_word_in_one_row():
    draw = torch.Generator().manual_seed(5)
    source_lengths, target_lengths = torch.tensor([5, 1, 3, 7, 5]), torch.tensor([4, 6, 1, 6, 4])
    inner = torch.zeros(5, 6, dtype=torch.bool)
    inner[0, 1], inner[1, 2:4], inner[3, [1, 3, 4]] = True, True, True
    p_emit = torch.rand(5, 7, 6, generator=draw)
    p_emit[4, 0, 0], p_emit[4, :, 1] = 1.0, 0.0  # no words: a token that needs no more, one that waits to the end
    visits = visit_shares(p_emit, source_lengths, target_lengths, inner=inner)
    delays = delay_shares(source_lengths, target_lengths, 7, 6, inner)
    expected, waited = torch.zeros_like(visits), torch.zeros_like(delays)
    for b, (X, Y) in enumerate(zip(source_lengths.tolist(), target_lengths.tolist(), strict=True)):
        sure = p_emit[b, :X, :Y].masked_fill(inner[b, :Y], 2.0)  # of no threshold, not even 1
        for theta in THETAS:
            expected[b, threshold_rows(sure.tolist(), theta), range(Y)] += 1 / len(THETAS)
        ends = ends_of_words(inner[b : b + 1, :Y])[0] - 1
        for k in range(1, X + 1):
            rows = schedule_rows(k, X, Y)
            waited[b, [rows[end] for end in ends], range(Y)] += 1 / X
    torch.testing.assert_close(visits, expected)
    assert visits[4, 4, 1:].tolist() == [1, 1, 1, 0, 0], "nothing is written before what precedes it"
    torch.testing.assert_close(delays, waited)
    for shares in (visits, delays):
        assert torch.equal(shares[:, :, 1:].mT[inner[:, 1:]], shares[:, :, :-1].mT[inner[:, 1:]]), "as the token before"
