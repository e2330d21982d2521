"""The grid model: proof against Hugging Face, causality, raggedness, precision, refusals."""

from functools import partial

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import AutoConfig, AutoModelForCausalLM

from duplexmt.decoder.backbone import add_lora
from duplexmt.decoder.blocks import finish_block
from duplexmt.decoder.decoder_options import RECOMPUTE
from duplexmt.grid.cells import Cells
from duplexmt.grid.model import GridModel
from duplexmt.kernels.products import matrix_products
from tests.helpers import tiny_backbone

OPTIONS = [
    {"attention": attention, "input_attends_output": io, "softmax": softmax, "anchor": anchor}
    for attention in ("approximate", "exact")
    for io, softmax, anchor in ((True, "joint", "source_length"), (True, "separate", 0), (False, "joint", 40))
]


def grid(model_type="qwen2", layers=3, values=None, **options):
    torch.manual_seed(1)
    return GridModel(tiny_backbone(model_type, layers=layers, **(values or {})), **options).double().eval()


def tokens(*shape, seed=0):
    return torch.randint(97, shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize(
    ("model_type", "values"),
    [
        ("qwen2", {}),
        ("llama", {}),
        ("llama", {"attention_bias": True, "num_key_value_heads": 1}),
        ("mistral", {"sliding_window": 64}),
        ("mistral", {"sliding_window": None, "head_dim": 12}),
        ("qwen3", {"head_dim": 16}),
        ("qwen2", {"rope_parameters": {"rope_type": "yarn", "factor": 4.0, "rope_theta": 1e4,
                                       "original_max_position_embeddings": 16}}),
    ],
)  # fmt: skip
@pytest.mark.parametrize(("X", "Y"), [(1, 1), (4, 5)])
@pytest.mark.parametrize("anchor", ["source_length", "visible_length"])
def test_exact_grid_without_io_equals_hugging_face_at_every_row(model_type, values, X, Y, anchor):
    model = grid(model_type, values=values, attention="exact", input_attends_output=False, anchor=anchor)
    source, target = tokens(2, X, seed=X), tokens(2, Y, seed=Y + 50)
    logits = model.text_logits(model(source, target))
    for x in range(X):
        ids = torch.cat((source[:, : x + 1], target), 1)
        first = X if anchor == "source_length" else x + 1
        positions = torch.cat((torch.arange(x + 1), torch.arange(first, first + Y)))[None].expand(2, -1)
        # Without the mask transformers takes the jump in positions for packed sequences.
        expected = model.causal_lm(input_ids=ids, position_ids=positions, attention_mask=torch.ones_like(ids)).logits
        torch.testing.assert_close(logits[:, x], expected[:, x + 1 :], rtol=0, atol=1e-5)


def test_naive_positions_keep_causality_and_are_decoded_by_recomputation():
    model = grid(anchor="visible_length")
    source, target = tokens(1, 5), tokens(1, 6)
    whole = model(source, target)
    torch.testing.assert_close(model(source[:, :3], target[:, :4]), whole[:, :3, :4], rtol=0, atol=1e-12)
    assert not model.cacheable


@pytest.mark.parametrize("io", [True, False])
def test_approximate_equals_exact_with_one_layer_and_differs_with_three(io):
    source, target = tokens(2, 4), tokens(2, 5)
    for layers, same in ((1, True), (3, False)):
        approximate = grid(layers=layers, input_attends_output=io)(source, target)
        exact = grid(layers=layers, input_attends_output=io, attention="exact")(source, target)
        # One layer reads layer-0 states only, where I does not depend on y nor O on x.
        assert torch.allclose(approximate, exact, rtol=0, atol=1e-12) is same


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_changing_a_future_token_changes_no_earlier_cell(options):
    model = grid(**options)
    source, target = tokens(1, 5), tokens(1, 6)
    before = model(source, target)
    for changed in range(5):
        other = source.clone()
        other[:, changed] = (other[:, changed] + 1) % 97
        after = model(other, target)
        assert torch.equal(after[:, :changed], before[:, :changed])
        assert (after[:, changed] != before[:, changed]).any()
    for changed in range(6):
        other = target.clone()
        other[:, changed] = (other[:, changed] + 1) % 97
        after = model(source, other)
        assert torch.equal(after[:, :, :changed], before[:, :, :changed])
        assert (after[:, :, changed] != before[:, :, changed]).any()


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_padding_and_batch_mates_change_nothing(options):
    model = grid(**options)
    shapes = [(3, 6), (5, 2), (1, 1), (5, 6)]
    source, target = tokens(4, 5), tokens(4, 6)
    together = model(source, target, torch.tensor([X for X, _ in shapes]))
    for b, (X, Y) in enumerate(shapes):
        alone = model(source[b : b + 1, :X], target[b : b + 1, :Y])
        torch.testing.assert_close(together[b : b + 1, :X, :Y], alone, rtol=0, atol=1e-12)


def test_anchor_moves_the_target_positions_only_when_the_length_does():
    source, target = tokens(1, 3), tokens(1, 4)
    by_length, constant = grid(anchor="source_length"), grid(anchor=3)
    torch.testing.assert_close(by_length(source, target), constant(source, target), rtol=0, atol=0)
    longer = torch.tensor([9])  # three tokens have arrived of a source that will have nine
    assert not torch.allclose(by_length(source, target, longer), by_length(source, target))
    torch.testing.assert_close(constant(source, target, longer), constant(source, target), rtol=0, atol=0)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float16, 2e-2), (torch.bfloat16, 1.5e-1)])
@pytest.mark.parametrize("attention", ["approximate", "exact"])
def test_autocast_stays_near_float32(dtype, tolerance, attention):
    """Tolerance in units of the final-normed states, whose root mean square is about 0.3."""
    model = grid(attention=attention).float()
    for weight in model.parameters():
        weight.data *= 0.3  # activations of a trained model's size
    source, target = tokens(2, 5), tokens(2, 6)
    expected = model(source, target)
    with torch.autocast("cpu", dtype=dtype):
        got = model(source, target).float()
    error = (got - expected).square().mean().sqrt() / expected.square().mean().sqrt()
    assert 0 < error < tolerance


def test_a_sliding_window_shorter_than_the_streams_is_refused():
    model = grid("mistral", values={"sliding_window": 8})
    model(tokens(1, 4), tokens(1, 4))
    with pytest.raises(ValueError, match="4 \\+ 5 tokens exceed the backbone's sliding window of 8"):
        model(tokens(1, 4), tokens(1, 5))


def test_a_sliding_window_is_that_of_a_pair_whatever_stands_beside_it():
    model = grid("mistral", attention="exact", input_attends_output=False, values={"sliding_window": 8})

    def states(*shapes):
        sizes = (sum(of) for of in zip(*shapes, strict=True))
        tokens = (torch.ones(size, dtype=torch.int64) for size in sizes)
        return model.states(*tokens, Cells.of(shapes), torch.tensor([X for X, _ in shapes]))

    assert states((6, 2), (2, 6)).isfinite().all()
    with pytest.raises(ValueError, match=r"6 \+ 3 tokens exceed the backbone's sliding window of 8"):
        states((6, 3), (2, 6))


def test_a_decoder_that_is_not_supported_is_refused_with_those_that_are_and_so_is_its_dropout():
    config = AutoConfig.for_model("gpt2", n_embd=8, n_layer=1, n_head=2, vocab_size=11)
    with pytest.raises(ValueError, match="'gpt2': grid attention supports qwen2, llama, mistral, qwen3"):
        GridModel(AutoModelForCausalLM.from_config(config))
    with pytest.raises(ValueError, match=r"attention_dropout=0\.1"):
        grid(values={"attention_dropout": 0.1})


def gradients_of(model, source, target, lengths=None):
    hidden = model(source, target, lengths)
    weights = [weight for weight in model.parameters() if weight.requires_grad]
    loss = (hidden * torch.linspace(-1, 1, hidden.numel()).view_as(hidden)).sum()
    return torch.autograd.grad(loss, weights, allow_unused=True, materialize_grads=True)


@pytest.mark.parametrize(("recompute", "io"), [("elementwise", True), ("layers", False)])
def test_recomputing_in_the_backward_pass_changes_no_gradient(recompute, io):
    model = grid(input_attends_output=io)
    expected = gradients_of(model, tokens(2, 4), tokens(2, 5))
    model.recompute(recompute)
    for a, b in zip(gradients_of(model, tokens(2, 4), tokens(2, 5)), expected, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-12)


def test_recomputing_keeps_less_for_the_backward_pass():
    kept = {}
    for recompute in RECOMPUTE:
        model = grid(layers=4)
        model.recompute(recompute)
        sizes = []
        with torch.autograd.graph.saved_tensors_hooks(lambda t, s=sizes: (s.append(t.numel()), t)[1], lambda t: t):
            model(tokens(2, 6), tokens(2, 6))
        kept[recompute] = sum(sizes)
    assert (
        kept["layers"] < kept["nothing"] / 5
    )  # what is recomputed is saved inside checkpoint, out of the hooks' sight


@pytest.mark.slow
def test_compiled_blocks_give_the_same_and_compile_once_for_all_layers_and_sizes(monkeypatch):
    """Up to the graphs; code of them is made in `decoder/test_model.py`."""
    from torch._dynamo.utils import counters

    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="aot_eager"))

    torch._dynamo.reset()
    counters.clear()
    plain, compiled = (grid().float() for _ in range(2))
    compiled.compile_blocks()
    for X, Y in ((3, 4), (5, 2), (6, 7)):
        source, target = tokens(2, X), tokens(2, Y)
        for a, b in zip(gradients_of(compiled, source, target), gradients_of(plain, source, target), strict=True):
            torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-3 * b.abs().max().item() + 1e-6)
    # The last layer projects the source's and row 0's keys and values, and the target's queries, by themselves.
    assert counters["stats"]["unique_graphs"] == 4
    assert not counters["graph_break"]


@pytest.mark.slow
def test_all_versions_of_a_block_that_a_run_needs_are_compiled(monkeypatch):
    """Probes, training, the cells of accumulated batches, and validation, in mixed precision with LoRA."""
    torch._dynamo.reset()
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="eager"))
    backbone = add_lora(tiny_backbone(layers=3), rank=2, alpha=4, dropout=0.0, target_modules=["q_proj", "up_proj"])
    model = GridModel(backbone).train()
    # PyTorch's own limit, and what it is again afterwards.
    with torch._dynamo.config.patch(recompile_limit=8, fail_on_recompile_limit_hit=True):
        model.compile_blocks()
        for training, gradients, half in (
            (False, False, False),
            (True, True, True),
            (True, False, True),
            (False, False, True),
        ):
            model.train(training)
            for size in (1, 3, 5):
                with torch.set_grad_enabled(gradients), torch.autocast("cpu", torch.bfloat16, enabled=half):
                    model(tokens(2, size), tokens(2, size + 1))


def test_a_frozen_backbone_in_half_precision_leaves_the_residual_stream_in_float32():
    model = grid().float()
    expected = model(tokens(2, 4), tokens(2, 5))
    for weight in model.backbone.parameters():
        weight.requires_grad_(False)
        weight.data = weight.data.bfloat16()
    seen = []

    def watched(layer, states, context):
        seen.append(states.dtype)
        return finish_block(layer, states, context)

    model.blocks.finish = watched
    with torch.autocast("cpu", dtype=torch.bfloat16):
        hidden = model(tokens(2, 4), tokens(2, 5))
    assert seen == [torch.float32] * 3
    assert hidden.dtype == torch.bfloat16  # the final norm's, which the heads read
    assert (hidden.float() - expected).square().mean().sqrt() < 0.2 * expected.square().mean().sqrt()


class Counted(TorchDispatchMode):
    """Counts the matrix products that are really computed."""

    def __init__(self):
        super().__init__()
        self.products = 0

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        self.products += operation in matrix_products()
        return operation(*args, **(kwargs or {}))


def test_elementwise_recomputation_repeats_no_product():
    lora = {"rank": 3, "alpha": 6, "dropout": 0.0, "target_modules": ["q_proj", "up_proj", "down_proj"]}

    def products(recompute):
        model = GridModel(add_lora(tiny_backbone(), **lora)).train()  # float32: oneDNN's and PyTorch's own
        model.recompute(recompute)
        with Counted() as counted:
            model(tokens(2, 6), tokens(2, 6)).square().sum().backward()
        return counted.products

    assert products("nothing") == products("elementwise") < products("layers")
