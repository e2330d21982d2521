"""The prefix model against loops, Hugging Face, and the future; its cache against the whole sequence."""

import random

import pytest
import torch
from duplexmt.baselines.prefix_cache import ALL, NOTHING, REFERENCE, SOURCE, TARGET, PrefixCache, Slot, arrival_mask

from duplexmt.baselines.prefix_model import PrefixModel, prefix_mask
from duplexmt.decoder.knobs import check_k
from duplexmt.decoder.schedules import visible_source

from ..helpers import float64, tiny_backbone

LENGTHS = torch.tensor([6, 3, 1])  # end token included
SOURCE_TOKENS = torch.tensor([[5, 6, 7, 8, 9, 2], [4, 5, 2, 0, 0, 0], [2, 0, 0, 0, 0, 0]])
TARGET_TOKENS = torch.tensor([[1, 11, 12, 13, 14], [1, 21, 22, 23, 0], [1, 31, 32, 0, 0]])


def tiny_prefix(k=None, seed=0, anchor="source_length", **values):
    return PrefixModel(tiny_backbone(seed=seed, **values), k=k, anchor=anchor).eval()


def run(model, k=None, source=SOURCE_TOKENS, target=TARGET_TOKENS, lengths=LENGTHS):
    with torch.no_grad():
        return model(source, target, lengths, visible_source(k, lengths, target.shape[1]))


# --- who sees whom -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("prefixes", [(0, 0), (2, 0), (0, 1), (2, 2)])
@pytest.mark.parametrize("k", [1, 2, 3, 9, None])
def test_the_mask_equals_wait_k_written_in_loops(k, prefixes):
    source_prefix, target_prefix = prefixes
    lengths, X, Y = [8, 5, 3], 8, 7
    mask = prefix_mask(visible_source(k, torch.tensor(lengths), Y, source_prefix, target_prefix), X)
    for b, length in enumerate(lengths):
        read, writes = set(range(source_prefix)), 0  # a live stream: read k, then write and read in turn
        seen_by_target = []
        for y in range(Y):
            if y > target_prefix:
                writes += 1
            while len(read) < length and (k is None or len(read) - source_prefix < k + writes):
                read.add(len(read))
            seen_by_target.append(read | {X + earlier for earlier in range(y + 1)})
        for x in range(X):
            assert set(mask[b, x].nonzero()[:, 0].tolist()) == set(range(x + 1))
        for y in range(Y):
            assert set(mask[b, X + y].nonzero()[:, 0].tolist()) == seen_by_target[y]


def test_the_mask_of_arrivals_equals_a_literal_one():
    kinds = torch.tensor([[SOURCE, TARGET, SOURCE, NOTHING, REFERENCE, TARGET, SOURCE, REFERENCE]])
    positions = torch.tensor([[0, 9, 1, 0, 9, 10, 2, 10]])
    sees = torch.tensor([[ALL, ALL, 1, ALL, ALL, 2]])
    assert arrival_mask(kinds, positions, sees)[0].int().tolist() == [
        [1, 0, 1, 0, 0, 0, 0, 0],  # source: source up to itself
        [1, 0, 1, 1, 0, 0, 0, 0],  # nothing: itself at least, to stay finite; its state is of no use to anybody
        [1, 0, 0, 0, 1, 0, 0, 0],  # second view: itself, and no more of the source than it says
        [1, 1, 1, 0, 0, 1, 0, 0],  # target: everything up to itself but nothing and the second view
        [1, 0, 1, 0, 0, 0, 1, 0],
        [1, 0, 1, 0, 1, 0, 0, 1],
    ]


@pytest.mark.parametrize("model_type", ["qwen2", "llama", "mistral", "qwen3"])
@pytest.mark.parametrize("implementation", ["sdpa", "eager"])
def test_offline_is_the_hugging_face_model_on_source_and_target_in_a_row(model_type, implementation):
    backbone = tiny_backbone(model_type, sliding_window=None)
    backbone.set_attn_implementation(implementation)
    model = PrefixModel(backbone)
    hidden = run(model)
    for b, length in enumerate(LENGTHS.tolist()):
        row = torch.cat((SOURCE_TOKENS[b, :length], TARGET_TOKENS[b]))[None]
        with torch.no_grad():
            expected = backbone(row, attention_mask=torch.ones_like(row)).logits[0, length:]
        torch.testing.assert_close(model.text_logits(hidden[b]), expected, rtol=0, atol=1e-4)


@pytest.mark.parametrize("k", [1, 3, None])
def test_batch_mates_and_padding_change_nothing(k):
    model = float64(tiny_prefix(k))
    together = run(model, k)
    for b, (length, width) in enumerate(zip(LENGTHS.tolist(), (5, 4, 3), strict=True)):
        alone = run(model, k, SOURCE_TOKENS[b : b + 1, :length], TARGET_TOKENS[b : b + 1, :width], LENGTHS[b : b + 1])
        torch.testing.assert_close(together[b, :width], alone[0], rtol=0, atol=1e-12)


@pytest.mark.parametrize("k", [1, 2, 4])
def test_a_source_token_that_is_not_read_yet_changes_no_state(k):
    model = float64(tiny_prefix(k))
    before = run(model, k)[0]
    for x in range(6):
        source = SOURCE_TOKENS.clone()
        source[0, x] = 50
        changed = (run(model, k, source)[0] - before).abs().amax(-1) > 1e-12
        assert changed.tolist() == [x < k + y for y in range(5)], f"source token {x}"


def test_a_schedule_as_long_as_the_source_is_offline():
    model = float64(tiny_prefix(2))
    assert torch.equal(run(model, 6), run(model, None))
    assert not torch.equal(run(model, 5), run(model, None))


def test_a_constant_anchor_knows_nothing_of_the_sources_length():
    model = float64(tiny_prefix(2, anchor=20))
    lengths = torch.tensor([6, 6, 6])
    visible = visible_source(2, LENGTHS, 1)  # the first two source tokens
    with torch.no_grad():
        one = model(SOURCE_TOKENS, TARGET_TOKENS[:, :1], LENGTHS, visible)
        assert torch.equal(one, model(SOURCE_TOKENS, TARGET_TOKENS[:, :1], lengths, visible))


# --- the cache ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("anchor", ["source_length", 9])
@pytest.mark.parametrize("model_type", ["qwen2", "llama", "mistral", "qwen3"])
def test_cached_decoding_equals_the_whole_sequence_under_the_training_mask_at_every_step(model_type, anchor):
    """Streams read and write at random, take tokens back, and end; each step against one forward of each alone."""
    model = float64(tiny_prefix(anchor=anchor, model_type=model_type, sliding_window=None))
    draw = random.Random(model_type)
    sources = [[draw.randrange(3, 90) for _ in range(length)] for length in (7, 4, 1, 5)]
    streams = [{"source": s, "read": 0, "target": [], "visible": []} for s in sources]
    cache, compared = PrefixCache(model), 0
    for step in range(12):
        slots, again = [], []
        for stream in streams:
            fresh = []
            reads = draw.randrange(1 if step == 0 else 0, 3)
            for _ in range(min(reads, len(stream["source"]) - stream["read"])):
                fresh.append(Slot(stream["source"][stream["read"]], SOURCE, stream["read"]))
                stream["read"] += 1
            again.append(stream.get("fresh", 0) if draw.random() < 0.3 else 0)
            kept = len(stream["target"]) - again[-1]  # the last target tokens again, with what has been read since
            tokens = stream["target"][kept:] or [draw.randrange(3, 90) for _ in range(draw.randrange(1, 3))]
            stream["fresh"] = len(tokens)
            del stream["target"][kept:], stream["visible"][kept:]
            first = len(stream["source"]) if anchor == "source_length" else anchor
            for token in tokens:
                fresh.append(Slot(token, TARGET, first + len(stream["target"])))
                stream["target"].append(token)
                stream["visible"].append(stream["read"])
            slots.append(fresh)
        if step:
            cache.forget_last(again)
        hidden = cache.append(slots)
        for state, stream in zip(hidden, streams, strict=True):
            unread = [91] * (len(stream["source"]) - stream["read"])
            whole = model(
                torch.tensor([stream["source"][: stream["read"]] + unread]),
                torch.tensor([stream["target"]]),
                torch.tensor([len(stream["source"])]),
                torch.tensor([stream["visible"]]),
            )
            torch.testing.assert_close(state, whole[0, -1], rtol=0, atol=1e-12)
            compared += 1
        if step in (4, 8):
            kept = [2, 0, 1] if step == 4 else [1, 0]
            cache.keep(kept)
            streams = [streams[row] for row in kept]
    assert compared == 5 * 4 + 4 * 3 + 3 * 2


def test_a_cropped_cache_is_as_it_was():
    model = float64(tiny_prefix())
    cache, other = PrefixCache(model), PrefixCache(model)
    for each in (cache, other):
        each.append([[Slot(5, SOURCE, 0)], [Slot(6, SOURCE, 0)]])
    cache.append([[Slot(7, SOURCE, 1), Slot(1, TARGET, 2)], [Slot(1, TARGET, 1)]])
    cache.crop(1)
    cache.crop(1)
    step = [[Slot(8, SOURCE, 1), Slot(1, TARGET, 2)], [Slot(1, TARGET, 1)]]
    assert torch.equal(cache.append(step), other.append(step))


# --- what is refused ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("k", [0, -3, 1.5, True, "three", None])
def test_k_must_be_a_whole_number_of_at_least_1(k):
    with pytest.raises(ValueError, match=r"system\.k=.*must be a whole number ≥ 1"):
        check_k(k)


def test_a_sequence_beyond_a_sliding_window_is_refused():
    model = tiny_prefix(model_type="mistral", sliding_window=10)
    with pytest.raises(ValueError, match="11 tokens exceed the backbone's sliding window of 10"):
        run(model)
    cache = PrefixCache(model)
    cache.append([[Slot(5, SOURCE, x) for x in range(10)]])
    with pytest.raises(ValueError, match="11 tokens exceed the backbone's sliding window of 10"):
        cache.append([[Slot(1, TARGET, 10)]])
