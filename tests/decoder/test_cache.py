"""Cached states are the packed ones under one dense mask, whatever was read and written, by whom, in whose company."""

import os
from functools import cache

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from duplexmt.decoder import cache as decoder_cache
from duplexmt.decoder.backbone import add_lora
from duplexmt.decoder.cache import MANY, REFERENCE, TARGET, Append, DecoderCache, Run, check_memory, free_bytes
from duplexmt.decoder.layout import SOURCE
from duplexmt.decoder.model import DecoderModel
from duplexmt.kernels import packed
from tests.helpers import float64, prefix_states, tiny_backbone
from tests.streaming.slow_policies import attention

from .oracle import KNOWN, OTHERS

TOTAL = 12  # length of a source, where its anchor asks
LEFT_OUT = ("gemma", "phi3", "olmo2")  # without a cache test_model.py has all types
WAYS = [*((kind, True) for kind in KNOWN | OTHERS if kind not in LEFT_OUT), ("qwen2", False)]
MODELS = [(rows, anchor) for rows in (True, False) for anchor in ("source_length", 3, 40)] + [(True, "visible_length")]


@cache
def model_of(rows=False, anchor="source_length", kind="qwen2", fast=True):
    backbone = tiny_backbone(kind, scale=0.25, **(KNOWN | OTHERS)[kind])
    return float64(DecoderModel(backbone, emit_hidden=0 if rows else None, anchor=anchor, fast=fast).eval())


def start_of(model, sees, total):
    return {"source_length": total, "visible_length": sees}.get(model.anchor, model.anchor)


class Live:
    """One translation's own record of what it read and wrote, compared with one forward of all of it."""

    def __init__(self, slot, model, draw, total=TOTAL):
        self.slot, self.model, self.draw, self.total = slot, model, draw, total
        self.source, self.target, self.sees = [], [], []
        self.second = []  # what the second view's tokens see

    def token(self):
        return int(torch.randint(97, (1,), generator=self.draw))

    def placed(self, y, sees, line=TARGET):
        return Run(line, y, [self.target[y]], start_of(self.model, sees, self.total) + y, sees)

    def asks(self, reads, writes, again=True, second=False):
        """Read and write so many tokens; where some were read, the target tokens that are to see them come again."""
        old = len(self.source)
        self.source += [self.token() for _ in range(reads)]
        runs = [Run(SOURCE, old, self.source[old:], old)] if reads else []
        first = len(self.target)
        if reads and first and again:
            first = 0 if self.model.rows else first - 1
        self.target += [self.token() for _ in range(writes)]
        self.sees[first:] = [len(self.source)] * (len(self.target) - first)
        if self.model.rows and first < len(self.target):  # all of which see the same
            placed, sees = self.placed(first, self.sees[first]), self.sees[first]
            runs.append(placed._replace(tokens=self.target[first:], sees=sees))
        else:
            runs += [self.placed(y, self.sees[y]) for y in range(first, len(self.target))]
        own = reads + len(self.target) - first
        self.first, self.first_second = first, len(self.second)
        if second:
            self.second += [min(1 + y, len(self.source)) for y in range(len(self.second), len(self.target))]
            runs += [self.placed(y, self.second[y], REFERENCE) for y in range(self.first_second, len(self.target))]
        wanted = range(reads, own + len(self.second) - self.first_second)
        return Append(runs, wanted, slot=self.slot)

    @torch.no_grad()
    def assert_equal(self, states):
        """All states asked for."""
        expected = [self.packed(self.sees)[self.first :]]
        if len(self.second) > self.first_second:
            expected.append(self.packed(self.second)[self.first_second :])
        torch.testing.assert_close(states, torch.cat(expected), rtol=0, atol=1e-9)

    def packed(self, sees):
        return prefix_states(self.model, self.source, self.target, self.total, sees)


def step(cache, streams, moves):
    """One step of some streams, each with its reads and writes, compared with each alone."""
    asked = [stream.asks(*move) for stream, move in zip(streams, moves, strict=True)]
    each = cache.append(asked).split([len(one.wanted) for one in asked])
    for stream, states in zip(streams, each, strict=True):
        stream.assert_equal(states)


moves = st.tuples(st.integers(0, 3), st.integers(0, 3)).filter(any)
beginnings = st.tuples(st.integers(1, 3), st.integers(1, 3))


# --- equal to the packed states --------------------------------------------------------------------------------------


@settings(max_examples=30)
@given(st.sampled_from(MODELS), beginnings, st.lists(st.sampled_from([(0, 1), (1, 0)]) | moves, max_size=8), st.data())
def test_the_cached_state_is_the_packed_one_at_every_state(which, begin, later, data):
    model = model_of(*which)
    cache = DecoderCache(model, length=2)  # small, so that it has to grow
    stream = Live(0, model, torch.Generator().manual_seed(data.draw(st.integers(0, 99))))
    for reads, writes in [begin, *later]:
        # A prefix model's last token need not see what was read; of a grid all do, once something is asked for.
        again = model.rows or not writes or data.draw(st.booleans())
        step(cache, [stream], [(reads, writes, again)])


@pytest.mark.parametrize(
    ("kind", "fast", "fixed", "rows"),
    [
        *((*way, False, number % 2 == 0) for number, way in enumerate(WAYS)),
        *((kind, True, True, number % 2 == 1) for number, kind in enumerate(KNOWN)),
    ],
)
def test_every_decoder_is_cached_exactly_with_its_windows_caps_and_positions(kind, fast, fixed, rows):
    for anchor in ("source_length", 3):
        model = model_of(rows, anchor, kind, fast)
        assert model.patched == (fast and kind in KNOWN)
        cache, draw = DecoderCache(model, length=2, fixed=fixed), torch.Generator().manual_seed(1)
        streams = [Live(slot, model, draw) for slot in range(3)]
        step(cache, streams, [(1, 1), (2, 1), (1, 2)])
        for number in range(4):
            step(cache, streams, [(1, 0) if (slot + number) % 2 else (0, 1) for slot in range(3)])
        step(cache, streams[::2], [(2, 2), (0, 1)])


@pytest.mark.parametrize("kind", ["mistral", "gemma2"])
def test_the_windows_and_caps_compared_above_matter(kind, monkeypatch):
    model = model_of(False, "source_length", kind)
    begin = Live(0, model, torch.Generator().manual_seed(1)).asks(6, 3)
    whole = DecoderCache(model).append([begin])
    inner = decoder_cache._Group.__call__
    unlimited = {"window": lambda *args: inner(*args[:4], None, args[5]), "cap": lambda *args: inner(*args[:5], None)}
    for other in unlimited if kind == "gemma2" else ["window"]:
        monkeypatch.setattr(decoder_cache._Group, "__call__", unlimited[other])
        assert (DecoderCache(model).append([begin]) - whole).abs().max() > 1e-3


@settings(max_examples=20)
@given(st.sampled_from(MODELS), st.data(), st.integers(0, 99))
def test_streams_that_join_leave_and_mix_steps_equal_each_alone(which, data, seed):
    model, draw = model_of(*which), torch.Generator().manual_seed(seed)
    cache = DecoderCache(model, slots=1, length=4)
    live, free = [], [3, 2, 1, 0]
    for _ in range(8):
        if len(live) > 1 and data.draw(st.integers(0, 3), label="leave") == 0:
            free.append(live.pop(0).slot)
        moving = [stream for stream in live if data.draw(st.booleans(), label="moves")]
        steps = [data.draw(moves, label="move") for _ in moving]
        if free and (not moving or data.draw(st.booleans(), label="join")):  # in the others' step
            live.append(Live(free.pop(), model, draw, total=data.draw(st.integers(10, 20), label="total")))
            moving.append(live[-1])
            steps.append(data.draw(beginnings, label="begin"))
        if moving:
            step(cache, moving, steps)


@pytest.mark.parametrize(
    ("which", "fixed"), [(MODELS[at], fixed) for at, fixed in ((0, True), (2, False), (3, False), (5, True), (6, True))]
)
def test_a_crowd_of_all_lengths_equals_each_alone_and_streams_open_in_others_steps(which, fixed):
    model, draw = model_of(*which), torch.Generator().manual_seed(1)
    cache = DecoderCache(model, slots=1, length=2, fixed=fixed)
    crowd = [Live(slot, model, draw) for slot in range(2 * MANY + 3)]
    old = crowd[:-5]
    step(cache, old, [(1 + stream.slot % 3, 1 + stream.slot % 4) for stream in old])
    for _ in range(3):
        step(cache, old, [(0, 1) if torch.rand((), generator=draw) < 0.5 else (1, 0) for _ in old])
    step(cache, crowd, [((0, 1) if s.slot % 4 == 0 else (1, 0)) if s in old else (1, 1) for s in crowd])
    step(cache, crowd[::-1], [(0, 1) if stream.slot % 3 == 0 else (2, 0) for stream in crowd[::-1]])


@pytest.mark.parametrize(("kind", "seed"), [("qwen2", 0), ("gemma3_text", 1)])
def test_a_second_view_of_a_translation_sees_less_of_its_source_and_is_not_seen(kind, seed):
    draw = torch.Generator().manual_seed(seed)
    model = model_of(False, 3, kind)
    cache = DecoderCache(model, lines=3, length=2)
    streams = [Live(slot, model, draw) for slot in range(3)]
    step(cache, streams, [(2, 1, True, True), (1, 2, True, True), (3, 1, True, False)])
    for number in range(5):
        own = [(1, 0) if (slot + number) % 3 else (0, 1) for slot in range(3)]
        step(cache, streams, [(*move, True, (slot + number) % 2 == 0) for slot, move in enumerate(own)])
    assert all(stream.second != stream.sees for stream in streams)


@pytest.mark.parametrize("rows", [True, False])
def test_a_reused_slot_remembers_nothing_of_a_longer_translation(rows):
    model, draw = model_of(rows), torch.Generator().manual_seed(1)
    cache, fresh = DecoderCache(model), DecoderCache(model)
    old = Live(0, model, draw)
    for move in ((4, 3), (1, 0), (0, 1), (2, 2)):
        step(cache, [old], [move])
    new = Live(0, model, draw)
    for move in ((1, 1), (1, 0), (0, 1)):
        append = new.asks(*move)
        torch.testing.assert_close(cache.append([append]), fresh.append([append]), rtol=0, atol=1e-12)


def test_a_source_token_takes_the_place_of_a_draft_end_token_and_a_draft_of_its_own():
    model, draw = model_of(False, 3), torch.Generator().manual_seed(2)
    cache, stream = DecoderCache(model), Live(0, model, draw)
    step(cache, [stream], [(2, 2)])
    cache.append([Append([Run(SOURCE, 2, [0], 2), Run(TARGET, 2, [9, 10, 11, 12], 5, 3)])])
    step(cache, [stream], [(1, 1)])
    step(cache, [stream], [(1, 2)])


# --- attention that is asked for -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "fast", "heads"),
    [
        ("qwen2", True, None), ("qwen2", True, [[1, 2]]), ("qwen2", False, [[0, 3], [2, 0], [2, 1]]),
        ("gemma2", True, [[0, 3], [2, 0], [2, 1]]), ("smollm3", True, None),
    ],
)  # fmt: skip
def test_attention_that_is_asked_for_is_that_of_the_packed_list(kind, fast, heads):
    model, draw = model_of(False, "source_length", kind, fast), torch.Generator().manual_seed(3)
    cache, rows = DecoderCache(model, heads=heads), 4
    streams = [Live(slot, model, draw, total=5) for slot in range(3)]
    asked = [stream.asks(5, writes) for stream, writes in zip(streams, (1, 4, 2), strict=True)]
    for one, attended in zip(asked, (slice(0, 5), slice(1, 4), slice(2, 5)), strict=True):
        one.attended = attended
    cache.append(asked)
    one_more = [stream.asks(0, 1) for stream in streams]
    one_more[0].attended, one_more[2].attended = slice(1, 5), slice(0, 2)
    cache.append(one_more)
    assert not one_more[1].weights, "not asked for"
    chosen = range(3 * rows) if heads is None else [layer * rows + head for layer, head in heads]
    for stream, first, more in zip(streams, asked, one_more, strict=True):
        whole = attention(model, stream.source, stream.target)[list(chosen)]
        for append, of_target in ((first, slice(0, -1)), (more, slice(-1, None))):
            if append.attended is not None:
                expected = whole[:, of_target, append.attended]
                found = torch.cat(append.weights)[:, -expected.shape[1] :]
                torch.testing.assert_close(found, expected, rtol=0, atol=1e-9)


# --- memory ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["qwen2", "gpt_neox"])
def test_memory_is_that_of_the_entries_and_grows_by_doubling(kind):
    heads = {"qwen2": 2, "gpt_neox": 4}[kind]
    model = DecoderModel(tiny_backbone(kind)).eval()
    cache = DecoderCache(model, lines=3, slots=3, length=16)
    assert cache.bytes_per_token == 3 * 2 * 3 * heads * 8 * 4  # layers, keys and values, lines
    assert cache.bytes == 4 * 16 * cache.bytes_per_token
    cache.make_room(4, 16)
    assert cache.bytes == 4 * 16 * cache.bytes_per_token
    cache.make_room(5, 33)
    assert cache.bytes == 8 * 64 * cache.bytes_per_token


def test_a_cache_larger_than_the_memory_is_refused_before_it_is_allocated():
    model = model_of()
    with pytest.raises(ValueError, match=r"a cache of 1048576 streams of 1048576 tokens takes .* MiB, and there are"):
        DecoderCache(model, slots=10**6, length=10**6)
    cache = DecoderCache(model, slots=1, length=4, max_bytes=DecoderCache(model, length=4).bytes)
    stream, draw = Live(0, model, torch.Generator()), torch.Generator()
    step(cache, [stream], [(1, 1)])
    with pytest.raises(ValueError, match=r"a cache of 2 streams of 4 tokens .*decode fewer streams at once"):
        cache.append([Live(1, model, draw).asks(1, 1)])
    step(cache, [stream], [(1, 2)])  # goes on
    with pytest.raises(ValueError, match=r"a cache of 1 streams of 8 tokens"):
        cache.append([Append([Run(SOURCE, 4, [5], 4)])])


def test_memory_that_only_holds_files_counts_as_free(monkeypatch):
    sysconf = os.sysconf
    monkeypatch.setattr(os, "sysconf", lambda name: 1 if name == "SC_AVPHYS_PAGES" else sysconf(name))
    assert free_bytes(torch.device("cpu")) > 2**26
    check_memory(8, 64, 1, torch.device("cpu"), None)


# --- weights and precision -------------------------------------------------------------------------------------------


def some_steps(caches, model, seed=2):
    """States of three streams by each of some caches."""
    draw = torch.Generator().manual_seed(seed)
    streams = [Live(slot, model, draw) for slot in range(3)]
    for number in range(8):
        begun = [stream for stream in streams if stream.slot <= number]
        moves = [(1 + s.slot, 1) if s.slot == number else (number % 2, 1 - number % 2) for s in begun]
        asked = [stream.asks(*move) for stream, move in zip(begun, moves, strict=True)]
        yield [cache.append(asked) for cache in caches]


@pytest.mark.parametrize(("kind", "rows"), [("qwen2", True), ("qwen3", False)])  # with biases, with norms of heads
def test_however_weights_are_kept_a_step_is_the_same(kind, rows, monkeypatch):
    backbone = tiny_backbone(kind, scale=0.25)
    model, caches = DecoderModel(backbone, emit_hidden=0 if rows else None, anchor=3).eval(), {}
    for how, (smallest, free) in {"reordered": (0, 2**40), "joined": (2**40, 2**40), "apart": (0, 1000)}.items():
        monkeypatch.setattr(packed, "SMALLEST", smallest)
        monkeypatch.setattr(decoder_cache, "free_bytes", lambda device, free=free: free)
        caches[how] = DecoderCache(model, max_bytes=2**40)
        assert {product.how for layer in caches[how].packed for product in (layer.qkv, layer.down)} == {how}
    for reordered, joined, apart in some_steps(caches.values(), model):
        torch.testing.assert_close(reordered, apart, rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(joined, apart, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("fixed", [False, True])
def test_a_line_that_copies_another_goes_on_as_if_it_had_the_same_tokens(fixed):
    model, other = model_of(rows=True, anchor=3), 3
    begun = [Run(SOURCE, 0, [5, 6], 0), Run(TARGET, 0, [7, 8, 9], 3, 2)]
    expected = DecoderCache(model).append([Append([begun[0], begun[1]._replace(tokens=[7, 8, 1, 2])])])
    cache = DecoderCache(model, lines=4, length=2, fixed=fixed)
    cache.append([Append(begun, slot=slot) for slot in range(3)])
    further = [Run(other, 2, [1, 2], 5, 2)]
    found = cache.append(
        [
            Append(further, slot=0, copies=[(TARGET, other, 2)]),
            Append([Run(SOURCE, 2, [4], 2)], slot=1),  # has none
            Append(further, slot=2, copies=[(TARGET, REFERENCE, 3), (TARGET, other, 2)]),
        ]
    )
    torch.testing.assert_close(found[[0, 2]], expected.expand(2, -1), rtol=0, atol=1e-9)
    again = cache.append([Append([Run(REFERENCE, 2, [1, 2], 5, 2)], slot=2), Append(further, slot=0)])
    torch.testing.assert_close(again, expected.expand(2, -1), rtol=0, atol=1e-9)


@pytest.mark.parametrize(("slots", "wanted"), [(1, (-1,)), (3, (2, 4, 1))])
def test_the_last_layer_computes_only_the_states_that_are_asked_for(slots, wanted, monkeypatch):
    model, counts, finish = model_of(rows=True, anchor=3), [], packed.PackedLayer.finish
    cache, every = DecoderCache(model), DecoderCache(model)
    runs = [Run(SOURCE, 0, [5, 6], 0), Run(TARGET, 0, [7, 8, 9], 3, 2)]
    expected = torch.cat([every.append([Append(runs, range(5), slot=slot)])[list(wanted)] for slot in range(slots)])

    def counted(layer, states, context):
        counts.append(len(states))
        return finish(layer, states, context)

    monkeypatch.setattr(packed.PackedLayer, "finish", counted)
    found = cache.append([Append(runs, wanted, slot=slot) for slot in range(slots)])
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-9)
    assert counts == [slots * 5, slots * 5, slots * len(wanted)]


@pytest.mark.parametrize(("kind", "rows"), [("qwen2", True), ("smollm3", False)])
def test_half_precision_stays_near_the_whole_one(kind, rows):
    whole, half = (
        DecoderModel(tiny_backbone(kind, scale=0.25), emit_hidden=0 if rows else None, anchor=3).eval() for _ in "12"
    )
    half.bfloat16()
    for exact, moving in some_steps([DecoderCache(whole), DecoderCache(half)], whole):
        assert moving.dtype == torch.bfloat16
        torch.testing.assert_close(moving.float(), exact, rtol=0, atol=0.2)


@pytest.mark.parametrize(("kind", "rows"), [("qwen2", True), ("gemma3_text", False)])
def test_lora_that_was_not_merged_is_decoded_with(kind, rows):
    lora = {"rank": 4, "alpha": 8, "dropout": 0.0, "target_modules": ["q_proj", "down_proj"]}
    backbone, draw = add_lora(tiny_backbone(kind), **lora), torch.Generator().manual_seed(3)
    with torch.no_grad():
        for name, weight in backbone.named_parameters():
            if "lora_B" in name:
                weight.copy_(torch.randn(weight.shape, generator=draw) * 0.3)
    model = float64(DecoderModel(backbone, emit_hidden=0 if rows else None, anchor=3).eval())
    cache, stream = DecoderCache(model), Live(0, model, draw)
    for move in ((1, 1), (0, 1), (1, 0), (0, 1)):
        step(cache, [stream], [move])
