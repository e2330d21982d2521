"""The incremental cache equals the full grid, after any sequence of reads and writes."""

from types import SimpleNamespace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from duplexmt.decoder.backbone import add_lora
from duplexmt.grid import cache as grid_cache
from duplexmt.grid import step_attention
from duplexmt.grid.cache import GridCache
from duplexmt.grid.model import GridModel
from duplexmt.kernels import packed
from tests.helpers import tiny_backbone

GRID_OPTIONS = [
    {"input_attends_output": io, "softmax": softmax, "anchor": anchor}
    for io in (True, False)
    for softmax in ("joint", "separate")
    for anchor in ("source_length", 0, 40)
]
MODELS = {}


def model_with(options, model_type="qwen2"):
    key = model_type, str(options)
    if key not in MODELS:
        MODELS[key] = GridModel(tiny_backbone(model_type, scale=0.25), **options).double().eval()
    return MODELS[key]


class Live:
    """One stream's own record of what it read and wrote, compared with the full grid after every step."""

    def __init__(self, slot, model, draw, total):
        self.slot, self.model, self.total = slot, model, total
        self.draw = draw
        self.source, self.target = [self.token()], [self.token()]

    def token(self):
        return int(torch.randint(97, (1,), generator=self.draw))

    @torch.no_grad()
    def assert_equal(self, hidden):
        source, target = torch.tensor([self.source]), torch.tensor([self.target])
        full = self.model(source, target, torch.tensor([self.total]))[0, -1, -1]
        torch.testing.assert_close(hidden, full, rtol=0, atol=1e-9)
        for head in (self.model.text_logits, self.model.emit_logits):
            torch.testing.assert_close(head(hidden), head(full), rtol=0, atol=1e-9)


def open_streams(cache, streams):
    hidden = cache.open(
        [s.slot for s in streams],
        [s.source[0] for s in streams],
        [s.target[0] for s in streams],
        [s.total for s in streams],
    )
    for stream, state in zip(streams, hidden, strict=True):
        stream.assert_equal(state)


def step_streams(cache, streams, emits):
    tokens = [stream.token() for stream in streams]
    hidden = cache.step([s.slot for s in streams], emits, tokens)
    for stream, emit, token, state in zip(streams, emits, tokens, hidden, strict=True):
        (stream.target if emit else stream.source).append(token)
        stream.assert_equal(state)


@settings(max_examples=25)
@given(st.sampled_from(GRID_OPTIONS), st.lists(st.booleans(), max_size=14), st.integers(0, 99))
def test_cached_step_equals_full_grid_at_every_state(options, emits, seed):
    model = model_with(options)
    cache = GridCache(model, slots=1, length=2)  # small, so that it has to grow
    stream = Live(0, model, torch.Generator().manual_seed(seed), total=emits.count(False) + 1)
    open_streams(cache, [stream])
    for emit in emits:
        step_streams(cache, [stream], [emit])


@settings(max_examples=15)
@given(st.sampled_from(GRID_OPTIONS), st.data(), st.integers(0, 99))
def test_streams_that_join_leave_and_mix_steps_equal_the_full_grid_of_each_alone(options, data, seed):
    model = model_with(options)
    draw = torch.Generator().manual_seed(seed)
    cache = GridCache(model, slots=1, length=4)
    live, free = [], [3, 2, 1, 0]
    for _ in range(8):
        if free and (not live or data.draw(st.booleans(), label="join")):
            stream = Live(free.pop(), model, draw, total=data.draw(st.integers(1, 20), label="total"))
            open_streams(cache, [stream])
            live.append(stream)
        if len(live) > 1 and data.draw(st.integers(0, 3), label="leave") == 0:
            free.append(live.pop(0).slot)
        moving = [stream for stream in live if data.draw(st.booleans(), label="moves")] or live[:1]
        step_streams(cache, moving, [data.draw(st.booleans(), label="emit") for _ in moving])


@pytest.mark.parametrize("model_type", ["llama", "mistral", "qwen3"])
def test_every_supported_decoder_is_cached_exactly(model_type):
    model = model_with({}, model_type)
    cache = GridCache(model)
    stream = Live(0, model, torch.Generator().manual_seed(0), total=3)
    open_streams(cache, [stream])
    for emit in (True, False, True, True, False):
        step_streams(cache, [stream], [emit])


def test_a_reused_slot_remembers_nothing():
    model = model_with({})
    cache, fresh = GridCache(model), GridCache(model)
    for emit in (True, False, True):
        if emit is True and not cache.count[0][0]:
            cache.open([0], [5], [6], [9])
        cache.step([0], [emit], [7])
    arguments = [0], [11], [12], [4]
    assert torch.equal(cache.open(*arguments), fresh.open(*arguments))
    for emit in (False, True):
        step = [0], [emit], [13]
        assert torch.equal(cache.step(*step), fresh.step(*step))


def test_a_sliding_window_shorter_than_the_streams_is_refused_while_decoding():
    model = GridModel(tiny_backbone("mistral", sliding_window=4))
    cache = GridCache(model)
    cache.open([0], [5], [6], [9])
    for emit in (True, False):
        cache.step([0], [emit], [7])
    with pytest.raises(ValueError, match=r"3 \+ 2 tokens exceed the backbone's sliding window of 4"):
        cache.step([0], [False], [7])


def test_self_attention_as_one_operation_equals_the_operations_it_stands_for(monkeypatch):
    fused, _ = opened(model_with({}), 1)
    plain, _ = opened(model_with({}), 1)
    for step in random_moves(torch.Generator().manual_seed(4), 1, 8):
        hidden = fused.step(*step)
        with monkeypatch.context() as patch:
            patch.setattr(step_attention, "FLASH", None)
            torch.testing.assert_close(plain.step(*step), hidden, rtol=0, atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_scores_of_a_steps_self_attention_are_not_rounded_to_half_precision(dtype, monkeypatch):
    monkeypatch.setattr(step_attention, "FLASH", None)  # as on a GPU
    draw = torch.Generator().manual_seed(1)
    n, T, K, G, E = 3, 16, 2, 2, 64
    q = torch.randn(n, K, G, E, generator=draw).to(dtype)
    k, v = (torch.randn(n, T, K, E, generator=draw).to(dtype) for _ in range(2))
    q[..., 0] += 50
    k[..., 0] += 50  # scores of some 300, as Qwen2's keys with their bias bring
    steps = SimpleNamespace(own_mask=None, put_new=lambda *_: None, new=lambda states: states)
    cache = SimpleNamespace(k=k, v=v, lse=torch.empty(0), own=None)
    heads = SimpleNamespace(first=(q, k[:, -1], v[:, -1]))
    context, lse = step_attention.StepAttention(steps, cache, heads, 0.125).own()
    score = torch.einsum("nkge,ntke->nkgt", q.double(), k.double()) * 0.125
    torch.testing.assert_close(lse.double(), score.logsumexp(-1), rtol=0, atol=1e-3)
    expected = torch.einsum("nkgt,ntke->nkge", score.softmax(-1), v.double())
    assert (context.double() - expected).norm() < 0.005 * expected.norm()


@pytest.mark.parametrize("options", [{"attention": "exact"}, {"anchor": "visible_length"}], ids=str)
def test_a_cache_refuses_models_that_do_not_fit_it(options):
    with pytest.raises(ValueError, match=r"neither exact attention nor .* fits this cache: .* is a DecoderModel's"):
        GridCache(GridModel(tiny_backbone(), **options))


def test_memory_is_that_of_the_entries():
    model = model_with({}).float()
    cache = GridCache(model, slots=3, length=16)
    layers, K, H, E = 3, 2, 4, 8
    a_token = 2 * K * E + H * E + H  # keys and values; a context; its log-sum-exp
    layer_0 = H * E  # queries
    assert cache.bytes == 2 * 3 * 16 * (layers * a_token + layer_0) * 4 == 3 * 16 * cache.bytes_per_token
    separate = GridCache(model_with({"softmax": "separate"}).float(), slots=3, length=16)
    assert separate.bytes == cache.bytes + 2 * 3 * 16 * layers * H * E * 4 == 3 * 16 * separate.bytes_per_token
    MODELS.clear()


def test_however_weights_are_kept_a_step_is_the_same(monkeypatch):
    model = GridModel(tiny_backbone("qwen3", scale=0.25), anchor=3).float().eval()  # with norms of heads
    caches = {}
    for how, (smallest, free) in {"reordered": (0, 2**40), "joined": (2**40, 2**40), "apart": (0, 1000)}.items():
        monkeypatch.setattr(packed, "SMALLEST", smallest)
        monkeypatch.setattr(grid_cache, "free_bytes", lambda device, free=free: free)
        caches[how], _ = opened(model, 3, max_bytes=2**40)
        assert {product.how for layer in caches[how].packed for product in (layer.qkv, layer.down)} == {how}
    for step in random_moves(torch.Generator().manual_seed(2), 3, 12):
        hidden = {how: cache.step(*step) for how, cache in caches.items()}
        torch.testing.assert_close(hidden["reordered"], hidden["apart"], rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(hidden["joined"], hidden["apart"], rtol=1e-5, atol=1e-5)


def test_half_precision_stays_near_the_whole_one_alone_and_in_company():
    whole, half = (GridModel(tiny_backbone(scale=0.25), anchor=3).eval() for _ in range(2))
    half.emit_head.load_state_dict(whole.emit_head.state_dict())
    (exact, _), (moving, _) = opened(whole, 3), opened(half.bfloat16(), 3)
    for step in random_moves(torch.Generator().manual_seed(1), 3, 8):
        expected, hidden = exact.step(*step), moving.step(*step)
        assert hidden.dtype == torch.bfloat16
        torch.testing.assert_close(hidden.float(), expected, rtol=0, atol=0.2)


def test_lora_that_was_not_merged_is_decoded_with():
    adapted = add_lora(tiny_backbone(), rank=4, alpha=8, dropout=0.0, target_modules=["q_proj", "down_proj"])
    draw = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for name, weight in adapted.named_parameters():
            if "lora_B" in name:
                weight.copy_(torch.randn(weight.shape, generator=draw) * 0.3)
    model = GridModel(adapted, anchor=3).double().eval()
    cache = GridCache(model)
    assert cache.packed[0].qkv.how == "apart"
    stream = Live(0, model, draw, total=3)
    open_streams(cache, [stream])
    for emit in (True, False, True):
        step_streams(cache, [stream], [emit])


def random_moves(draw, open_slots, steps):
    """Batches of distinct slots with random WAITs, EMITs and tokens."""
    for _ in range(steps):
        slots = torch.randperm(open_slots, generator=draw)[: int(torch.randint(1, open_slots + 1, (), generator=draw))]
        emit = torch.rand(len(slots), generator=draw) < 0.5
        yield slots.tolist(), emit.tolist(), torch.randint(97, (len(slots),), generator=draw).tolist()


def opened(model, streams, **values):
    cache = GridCache(model, slots=streams, length=16, **values)
    return cache, cache.open(range(streams), *([slot + shift for slot in range(streams)] for shift in (5, 15, 9)))
