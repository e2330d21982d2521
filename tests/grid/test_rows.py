"""Chosen rows of the grid are those of the full grid: states and gradients, against padded exact attention."""

import pytest
import torch

from duplexmt.grid import rows
from duplexmt.grid.cells import Cells
from duplexmt.grid.rows import Rows

from ..helpers import tiny_backbone, tiny_grid

SHAPES = [(5, 4), (3, 7), (1, 1), (6, 2)]
LENGTHS = torch.tensor([X for X, _ in SHAPES])
SOME = [(0, 2, 4), (1,), (0,), (3, 5)]
EVERY = [range(X) for X, _ in SHAPES]


def tokens():
    draw = torch.Generator().manual_seed(1)
    return tuple(torch.randint(0, 97, (sum(sizes),), generator=draw) for sizes in zip(*SHAPES, strict=True))


def exact_rows(**options):
    return tiny_grid(options.pop("backbone", None), attention="exact", input_attends_output=False, **options).double()


def in_full_grid(chosen):
    """Places of the cells of chosen rows among all cells."""
    cells = Cells.of(SHAPES)
    rows, pairs = cells.x[cells.source_token].tolist(), cells.source_pair[cells.source_token].tolist()
    return [n for n, (x, pair) in enumerate(zip(rows, pairs, strict=True)) if x in chosen[pair]]


@pytest.mark.parametrize("anchor", ["source_length", 7, "visible_length"])
@pytest.mark.parametrize("model_type", ["qwen2", "llama", "qwen3"])
@pytest.mark.parametrize("chosen", [SOME, EVERY], ids=["some", "every"])
@pytest.mark.parametrize("products", [1, 4])
def test_states_and_gradients_of_chosen_rows_are_those_of_the_full_grid(
    products, chosen, model_type, anchor, monkeypatch
):
    monkeypatch.setattr(rows, "SMALL", 1)
    monkeypatch.setattr(rows, "PARTS", products)
    assert len(Rows.of(SHAPES, chosen, "cpu").padded.groups) == products
    model, places = exact_rows(backbone=tiny_backbone(model_type), anchor=anchor), in_full_grid(chosen)
    found = []
    for layout in (Cells.of(SHAPES), Rows.of(SHAPES, chosen, "cpu")):
        states = model.states(*tokens(), layout, LENGTHS)
        states = states[places] if isinstance(layout, Cells) else states
        model.zero_grad()
        (states * torch.linspace(-1, 1, states.numel(), dtype=torch.float64).view_as(states)).sum().backward()
        gradients = {name: weight.grad.clone() for name, weight in model.named_parameters() if weight.grad is not None}
        found.append((states, gradients))
    (full, of_full), (some, of_rows) = found
    torch.testing.assert_close(some, full, rtol=0, atol=1e-12)
    assert of_rows.keys() == of_full.keys()
    for name, gradient in of_rows.items():
        torch.testing.assert_close(gradient, of_full[name], rtol=1e-9, atol=1e-9, msg=name)


@pytest.mark.parametrize(("shape", "chosen"), [((128, 128), [0, 127]), ((160, 160), [159]), ((2, 220), [0, 1])])
def test_few_rows_of_a_long_pair_are_groups_of_at_least_one_row(shape, chosen):
    groups = Rows.of([shape], [chosen], "cpu").padded.groups
    assert [len(group.cells) for group in groups] == [1] * len(chosen)


@pytest.mark.parametrize("recompute", ["elementwise", "layers"])
def test_rows_are_the_same_whatever_is_computed_again_in_the_backward_pass(recompute):
    layout = Rows.of(SHAPES, SOME, "cpu")
    gradients = []
    for how in ("nothing", recompute):
        model = exact_rows().train()
        model.recompute = how
        model.states(*tokens(), layout, LENGTHS).square().sum().backward()
        gradients.append(torch.cat([w.grad.flatten() for w in model.parameters() if w.grad is not None]))
    torch.testing.assert_close(*gradients, rtol=0, atol=1e-12)


def test_a_layout_counts_the_cells_of_chosen_rows_alone():
    layout = Rows.of(SHAPES, SOME, "cpu")
    assert len(layout) == 3 * 4 + 7 + 1 + 2 * 2
    assert layout.grid.shapes == ((3, 4), (1, 7), (1, 1), (2, 2))
    assert layout.x[layout.at].tolist() == [0, 2, 4, 1, 0, 3, 5]


@pytest.mark.parametrize(
    "options", [{"input_attends_output": True}, {"softmax": "separate"}, {"attention": "approximate"}]
)
def test_rows_that_read_each_other_are_refused_by_what_lets_them(options):
    model = tiny_grid(None, **{"attention": "exact", "input_attends_output": False, **options})
    with pytest.raises(ValueError, match=r"read each other, so all must be computed: give training.rows=null, or"):
        model.states(*tokens(), Rows.of(SHAPES, SOME, "cpu"), LENGTHS)


@pytest.mark.parametrize("rows", [(), (1, 0), (0, 0), (0, 5), (-1,)])
def test_rows_a_grid_has_not_are_refused(rows):
    with pytest.raises(ValueError, match=r"of a grid of 5 rows: must be ascending, from 0 to 4"):
        Rows.of([(5, 4)], [rows], "cpu")
