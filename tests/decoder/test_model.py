"""The decoder over packed streams: against Hugging Face, the paper's exact grid, and pairs by themselves."""

import copy

import pytest
import torch
from torch.nn import functional as F

from duplexmt.decoder.attention import PackedAttention
from duplexmt.decoder.backbone import add_lora
from duplexmt.decoder.decoder_options import RECOMPUTE
from duplexmt.decoder.model import DecoderModel
from duplexmt.decoder.schedules import visible_source
from duplexmt.grid.cells import Cells
from duplexmt.grid.model import GridModel, build_grid
from duplexmt.policy.heatmap import losses_of_head
from tests.helpers import float64, naive_attention, tiny_backbone

from .oracle import GEMMA3, KNOWN, OTHERS, hugging_face_logits, some_tokens

SHAPES = [(5, 4), (3, 7), (1, 1), (6, 2)]
SOME = [(0, 2, 4), (1,), (0,), (3, 5)]
EVERY = [tuple(range(X)) for X, _ in SHAPES]
LORA = {"rank": 3, "alpha": 6, "dropout": 0.0}


def backbone(kind, **values):
    return tiny_backbone(kind, **(KNOWN | OTHERS)[kind] | values).double()


def views_of(chosen):
    """What the tokens of chosen rows of each pair see."""
    return [[torch.full((Y,), x + 1) for x in at] for at, (_, Y) in zip(chosen, SHAPES, strict=True)]


def prefix_states(model, shapes, sees, tokens=None):
    """States of one target of each pair, whose tokens see so much of the source."""
    return model.states(torch.cat(tokens or some_tokens(shapes)), model.layout(shapes, [[own] for own in sees]))


def by_pair(shapes):
    """Source and target tokens of each pair."""
    source, target = some_tokens(shapes)
    return zip(source.split([X for X, _ in shapes]), target.split([Y for _, Y in shapes]), strict=True)


def gradients_of(model):
    return {name: w.grad.clone() for name, w in model.causal_lm.named_parameters() if w.grad is not None}


def assert_gradients(found, expected, atol=1e-9):
    assert found.keys() == expected.keys()
    assert any((gradient != 0).any() for gradient in expected.values())
    for name, gradient in found.items():
        torch.testing.assert_close(gradient, expected[name], rtol=1e-9, atol=atol, msg=lambda m, n=name: f"{n}: {m}")


# --- Hugging Face --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [*KNOWN, *OTHERS])
def test_offline_is_hugging_faces_model_on_source_and_target_in_a_row(kind):
    """By its modules as they are, under its own masks: with windows shorter than the row."""
    lm = float64(backbone(kind))
    model = DecoderModel(float64(backbone(kind)), fast=False)
    logits = model.text_logits(prefix_states(model, SHAPES, [torch.full((Y,), X) for X, Y in SHAPES]))
    lm.config._attn_implementation = "eager" if kind == "gemma2" else "sdpa"  # which knows no soft cap
    expected = []
    for source, target in by_pair(SHAPES):
        row = torch.cat((source, target))[None]
        expected.append(
            lm(input_ids=row, attention_mask=torch.ones_like(row), use_cache=False).logits[0, len(source) :]
        )
    # Eager attention takes its softmax in float32.
    torch.testing.assert_close(logits, torch.cat(expected), rtol=0, atol=1e-5 if kind == "gemma2" else 1e-9)


@pytest.mark.parametrize(("kind", "lora"), [*((kind, False) for kind in KNOWN), ("qwen2", True)])
def test_faster_modules_give_the_logits_and_gradients_of_hugging_faces(kind, lora):
    found = []
    for fast in (False, True):
        torch.manual_seed(0)
        lm = backbone(kind)
        if lora:
            lm = add_lora(lm, **LORA, target_modules=["q_proj", "o_proj", "up_proj"]).double()
            for name, weight in lm.named_parameters():
                if "lora_B" in name:
                    torch.nn.init.normal_(weight)
        model = DecoderModel(lm, fast=fast).train()
        assert model.patched == fast
        states = prefix_states(model, SHAPES, [torch.full((Y,), X) for X, Y in SHAPES])
        (states * torch.linspace(-1, 1, states.numel(), dtype=states.dtype).view_as(states)).sum().backward()
        found.append((model.text_logits(states), gradients_of(model)))
    (slow, of_slow), (fast, of_fast) = found
    torch.testing.assert_close(fast, slow, rtol=0, atol=1e-5)  # Hugging Face's norms are in float32
    for name, gradient in of_fast.items():
        torch.testing.assert_close(gradient, of_slow[name], rtol=1e-5, atol=1e-5 * of_slow[name].abs().max().item())


@pytest.mark.parametrize("k", [2, None])
@pytest.mark.parametrize(("kind", "anchor"), [("qwen2", 20), ("qwen3", "source_length"), ("smollm3", 20), ("phi", 20)])
def test_a_schedule_is_hugging_faces_model_under_a_dense_mask_with_all_gradients(kind, anchor, k):
    lm, model = float64(backbone(kind)), DecoderModel(float64(backbone(kind)), k=k, anchor=anchor)
    lm.config._attn_implementation = "sdpa"
    X = torch.tensor([X for X, _ in SHAPES])
    sees = [own[:Y] for own, (_, Y) in zip(visible_source(k, X, 7), SHAPES, strict=True)]
    logits = model.text_logits(prefix_states(model, SHAPES, sees))
    expected = torch.cat([
        hugging_face_logits(lm, source, target, own.tolist(), len(source) if anchor == "source_length" else anchor)
        for (source, target), own in zip(by_pair(SHAPES), sees, strict=True)
    ])  # fmt: skip
    torch.testing.assert_close(logits, expected, rtol=0, atol=1e-9)
    for one in (logits, expected):
        F.cross_entropy(one, torch.arange(len(one)), reduction="sum").backward()
    of_lm = {name: weight.grad for name, weight in lm.named_parameters() if weight.grad is not None}
    assert_gradients(gradients_of(model), of_lm)


# --- the naive twin ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "anchor"),
    [*((kind, "source_length") for kind in KNOWN | OTHERS), ("qwen2", 9), ("gemma2", 9), ("qwen2", "visible_length")],
)
def test_rows_are_those_under_one_dense_mask(kind, anchor, monkeypatch):
    model = DecoderModel(float64(backbone(kind)), emit_hidden=0, anchor=anchor).double()
    layout = model.layout(SHAPES, views_of(SOME))
    found = []
    for twin in (False, True):
        if twin:

            def naive(self, layer, q, k, v, scale, window, softcap):
                some = len(q) < len(k)
                q = q.new_zeros(len(k), *q.shape[1:]).index_copy(0, layout.targets, q) if some else q
                whole = naive_attention(layout, q, k, v, scale, window, softcap)
                return whole[layout.targets] if some else whole

            monkeypatch.setattr(PackedAttention, "__call__", naive)
        model.zero_grad()
        states = model.states(torch.cat(some_tokens(SHAPES)), layout)
        losses = losses_of_head(states, model.text_head, torch.arange(len(states)), model.logit_cap)
        losses.sum().backward()
        found.append((states, losses, gradients_of(model)))
    torch.testing.assert_close(found[0][0], found[1][0], rtol=0, atol=1e-9)
    torch.testing.assert_close(found[0][1], found[1][1], rtol=0, atol=1e-9)
    assert_gradients(found[0][2], found[1][2])


# --- the paper's exact grid ----------------------------------------------------------------------------------------


def in_full_grid(chosen):
    """Places of the cells of chosen rows among all cells."""
    cells = Cells.of(SHAPES)
    rows, pairs = cells.x[cells.source_token].tolist(), cells.source_pair[cells.source_token].tolist()
    return [n for n, (x, pair) in enumerate(zip(rows, pairs, strict=True)) if x in chosen[pair]]


@pytest.mark.parametrize(
    ("products", "chosen", "kind", "anchor"),
    [
        (4, SOME, "qwen2", "source_length"), (1, SOME, "llama", 7), (4, EVERY, "qwen3", "visible_length"),
        (1, EVERY, "qwen2", 7),
    ],
)  # fmt: skip
def test_states_losses_and_gradients_of_rows_are_those_of_the_exact_grid(products, chosen, kind, anchor, monkeypatch):
    monkeypatch.setattr("duplexmt.decoder.layout.SMALL", 1)
    monkeypatch.setattr("duplexmt.decoder.layout.PARTS", products)
    options = {"attention": "exact", "input_attends_output": False, "anchor": anchor}
    cells, places = Cells.of(SHAPES), in_full_grid(chosen)
    labels = cells.over_columns(torch.arange(sum(Y for _, Y in SHAPES)))[places]
    found = []
    for rows in (False, True):
        if rows:
            model = build_grid(backbone(kind), **options).double()
            own = views_of(chosen)
            layout = model.layout(SHAPES, own)
            assert len(layout.groups) == 1 + products
            states = model.states(torch.cat(some_tokens(SHAPES)), layout)
        else:
            model = GridModel(backbone(kind), **options).double()
            states = model.states(*some_tokens(SHAPES), cells, torch.tensor([X for X, _ in SHAPES]))[places]
        losses = losses_of_head(states, model.text_head, labels, model.logit_cap)
        losses.sum().backward()
        found.append((states, losses, gradients_of(model)))
    assert isinstance(model, DecoderModel)
    torch.testing.assert_close(found[1][0], found[0][0], rtol=0, atol=1e-9)
    torch.testing.assert_close(found[1][1], found[0][1], rtol=0, atol=1e-9)
    assert_gradients(found[1][2], found[0][2])


@pytest.mark.parametrize(
    "options", [{"input_attends_output": True}, {"softmax": "separate"}, {"attention": "approximate"}]
)
def test_a_grid_whose_rows_read_each_other_is_the_papers(options):
    alone = {"attention": "exact", "input_attends_output": False, "softmax": "joint", "emit_hidden": 4}
    model = build_grid(backbone("qwen2"), **alone)
    assert isinstance(model, DecoderModel)
    assert model.options == alone | {"anchor": "source_length"}
    paper = build_grid(backbone("qwen2"), **alone | options)
    assert isinstance(paper, GridModel)
    assert paper.options == alone | options | {"anchor": "source_length"}


# --- pairs by themselves -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "rows"), [("qwen2", True), ("gemma2", False), ("gemma3_text", True), ("phi", False)])
def test_pairs_side_by_side_have_the_states_they_have_alone(kind, rows):
    model = DecoderModel(float64(backbone(kind)), emit_hidden=0 if rows else None, anchor=11)
    views = [
        [torch.full((Y,), x + 1) for x in (at if rows else at[-1:])] for at, (_, Y) in zip(SOME, SHAPES, strict=True)
    ]
    together = model.states(torch.cat(some_tokens(SHAPES)), model.layout(SHAPES, views))
    alone = [
        model.states(torch.cat((source, target)), model.layout([shape], [own]))
        for (source, target), shape, own in zip(by_pair(SHAPES), SHAPES, views, strict=True)
    ]
    torch.testing.assert_close(together, torch.cat(alone), rtol=0, atol=1e-9)


@pytest.mark.parametrize("k", [1, 4])
def test_a_source_token_that_is_not_read_yet_changes_no_state(k):
    model, shape = DecoderModel(backbone("qwen2"), k=k), (6, 5)
    source, target = some_tokens([shape])
    sees = [visible_source(k, torch.tensor([6]), 5)[0]]
    before = prefix_states(model, [shape], sees, (source, target))
    for x in range(6):
        other = source.clone()
        other[x] = 50 + (source[x] == 50)
        changed = (prefix_states(model, [shape], sees, (other, target)) - before).abs().amax(-1) > 1e-12
        assert changed.tolist() == [x < k + y for y in range(5)], f"source token {x}"


# --- what is kept, compiled, dropped -------------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "rows"), [("qwen2", True), ("gemma3_text", False)])
def test_recomputing_keeps_less_and_changes_no_gradient(kind, rows):
    views = [
        [torch.full((Y,), x + 1) for x in (at if rows else at[-1:])] for at, (_, Y) in zip(SOME, SHAPES, strict=True)
    ]
    found, kept = [], []
    for what in RECOMPUTE:
        model, sizes = DecoderModel(backbone(kind, layers=4 if kind == "qwen2" else 3), emit_hidden=0).train(), []
        model.recompute(what)
        with torch.autograd.graph.saved_tensors_hooks(lambda t, s=sizes: (s.append(t.numel()), t)[1], lambda t: t):
            loss = model.states(torch.cat(some_tokens(SHAPES)), model.layout(SHAPES, views)).square().sum()
        loss.backward()
        found.append(gradients_of(model))
        kept.append(sum(sizes))
    assert_gradients(found[1], found[0], atol=1e-12)
    assert_gradients(found[2], found[0], atol=1e-12)
    assert kept[2] < kept[0] / 2
    assert model.causal_lm.is_gradient_checkpointing
    model.recompute("nothing")
    assert not model.causal_lm.is_gradient_checkpointing


@pytest.mark.slow
def test_compiled_blocks_give_the_same():
    """By code that PyTorch's compiler makes; what it makes it of: `training/test_packed.py`, `grid/test_model.py`."""
    torch._dynamo.reset()
    views, found = views_of(SOME), []
    for compiled in (False, True):
        model = DecoderModel(backbone("qwen2", layers=1).float(), emit_hidden=0)
        if compiled:
            model.compile_blocks()
        model.states(torch.cat(some_tokens(SHAPES)), model.layout(SHAPES, views)).square().sum().backward()
        found.append(gradients_of(model))
    for name, gradient in found[1].items():
        torch.testing.assert_close(gradient, found[0][name], rtol=1e-3, atol=1e-3 * gradient.abs().max().item() + 1e-6)


def test_a_frozen_backbone_in_half_precision_leaves_the_residual_stream_in_float32():
    layout = views_of(SOME)
    for kind in ("qwen2", "gemma3_text"):
        lm = backbone(kind).float()
        model = DecoderModel(copy.deepcopy(lm), emit_hidden=0)
        expected = model.states(torch.cat(some_tokens(SHAPES)), model.layout(SHAPES, layout))
        for weight in lm.parameters():
            weight.requires_grad_(False)
            weight.data = weight.data.bfloat16()
        model, seen = DecoderModel(lm, emit_hidden=0), []
        for layer in model.decoder.layers:
            layer.register_forward_pre_hook(lambda _, given, seen=seen: seen.append(given[0].dtype))
        with torch.autocast("cpu", dtype=torch.bfloat16):
            states = model.states(torch.cat(some_tokens(SHAPES)), model.layout(SHAPES, layout))
        assert seen == [torch.float32] * 3
        assert (states.float() - expected).square().mean().sqrt() < 0.3 * expected.square().mean().sqrt()


# --- refusals ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "values", "message"),
    [
        ("cohere", {}, r"backbone of type 'cohere': its logits differ by .* so it asks for something that is unknown"),
        ("granite", {"logits_scaling": 3.0}, r"backbone of type 'granite': its logits differ by"),
        ("gpt2", {"n_embd": 32, "n_head": 4}, r"backbone of type 'gpt2' has no rotary positions: give one that has"),
        ("stablelm", {}, r"backbone of type 'stablelm': StableLmAttention does not attend by what it is given"),
        ("qwen2", {"attention_dropout": 0.1}, r"attention_dropout=0.1 of the backbone"),
        ("seed_oss", {}, r"attention_dropout=0.1 of the backbone"),
        (
            "llama",
            {"rope_parameters": {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 1e4}},
            r"rotary embedding 'dynamic' changes with the length seen",
        ),
    ],
)
def test_a_type_that_asks_for_something_unknown_is_refused_by_name(kind, values, message):
    with pytest.raises(ValueError, match=message):
        DecoderModel(tiny_backbone(kind, **values))


def spoilt(layer, kind):
    """Layers of a Gemma 3 that do not keep to what others do."""
    if kind == "alone":  # attends by itself
        layer.self_attn.forward = lambda hidden_states, **given: (hidden_states, None)
    else:  # does not tell its window
        layer.self_attn.sliding_window = None


@pytest.mark.parametrize(
    ("kind", "message"),
    [("alone", "its layer 0 does not attend as"), ("silent", "its layer 0 does not tell its sliding window")],
)
def test_a_layer_that_attends_by_itself_or_hides_its_window_is_refused(kind, message):
    lm = tiny_backbone("gemma3_text", **GEMMA3)
    spoilt(lm.model.layers[0], kind)
    with pytest.raises(ValueError, match=f"backbone of type 'gemma3_text': {message}"):
        DecoderModel(lm)
