"""The recurrence behind path, worth and visits: one launch on a GPU, few operators elsewhere, and none that waits."""

import os
import subprocess
import sys

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from duplexmt.policy import path, recurrence, regret, visits
from duplexmt.policy.path import best_path
from duplexmt.policy.recurrence import running_best
from duplexmt.policy.regret import emit_advantages
from duplexmt.policy.visits import decoding_shares, drawn_cells
from tests.accelerator import accelerator


@pytest.mark.parametrize("by", ["sum", "min"])
@pytest.mark.parametrize(("S", "N", "W"), [(1, 1, 1), (4, 3, 7), (9, 2, 5)])
def test_each_place_has_the_best_of_all_before_it(by, S, N, W):
    gains = torch.randn(S, N, W, dtype=torch.float64, generator=torch.Generator().manual_seed(S))
    gains[0, :, W // 2 :] = float("-inf")
    found = running_best(gains, by)
    for n in range(N):
        before = [0.0 if by == "sum" else float("inf")] * W
        for s in range(S):
            one = [(a + b if by == "sum" else min(a, b)) for a, b in zip(gains[s, n].tolist(), before, strict=True)]
            before = [max(one[: w + 1]) for w in range(W)]
            assert found[s, n].tolist() == before


class Operators(TorchDispatchMode):
    """Names of all that is dispatched, views left out."""

    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if not func.is_view:
            self.names.append(func._schema.name.removeprefix("aten::"))
        return func(*args, **(kwargs or {}))


def operators(X, Y):
    """What path, worth, visits and drawn words of a batch dispatch."""
    draw = torch.Generator().manual_seed(X)
    lengths = torch.tensor([X, max(1, X - 3)]), torch.tensor([max(1, Y - 2), Y])
    losses, p_emit = torch.rand(2, X, Y, generator=draw), torch.rand(2, X, Y, generator=draw)
    with Operators() as seen:
        best_path(losses, *lengths, 0.1)
        emit_advantages(losses, *lengths, 0.1)
        drawn_cells(decoding_shares(p_emit, *lengths), torch.tensor([0.2, 0.7]))
    return seen.names


def test_two_operators_a_step_and_beside_them_as_many_whatever_the_size(monkeypatch):
    small, large = operators(3, 4), operators(33, 40)
    steps = 2 * (2 * 30 + 2 * 36)  # of the rows of path and worth, of the columns of path and visits
    assert len(large) - len(small) == steps
    assert {name for name in large if large.count(name) != small.count(name)} == {"add", "minimum", "cummax"}
    for module in (path, regret, visits):  # as by the kernel
        monkeypatch.setattr(module, "running_best", lambda gains, by: gains.new_zeros(gains.shape))
    assert operators(3, 4) == operators(33, 40)
    assert len(operators(33, 40)) < 140  # of which the worth is worked out twice


def test_nothing_waits_for_the_device(monkeypatch):
    monkeypatch.setenv("DUPLEXMT_TRITON", "0")
    draw = torch.Generator().manual_seed(0)
    losses, p_emit = torch.rand(2, 5, 6, generator=draw), torch.rand(2, 5, 6, generator=draw)
    lengths, points = (torch.tensor([5, 2]), torch.tensor([4, 6])), torch.tensor([0.3, 0.9])

    def results(losses, p_emit, points, *lengths):
        shares = decoding_shares(p_emit, *lengths)
        return (
            best_path(losses, *lengths, 0.1),
            emit_advantages(losses, *lengths, 0.1),
            shares,
            drawn_cells(shares, points),
        )

    given = losses, p_emit, points, *lengths
    expected = results(*given)
    with accelerator() as waits:
        there = [part.to("cuda", non_blocking=True) for part in given]
        found = results(*there)
        assert waits == {}
        for one, other in zip(found, expected, strict=True):
            torch.testing.assert_close(torch.tensor(one.tolist()).to(other.dtype), other)


# Under Triton's interpreter; the whole of path, worth and visits, too, asked for where there is no GPU.
PROGRAM = """
import torch
from duplexmt.policy import recurrence, recurrence_triton
from duplexmt.policy.path import best_path
from duplexmt.policy.regret import emit_advantages
from duplexmt.policy.visits import visit_shares

for dtype in (torch.float64, torch.float32):
    for S, N, W in ((1, 1, 1), (3, 2, 7), (2, 3, 64), (4, 1, 70), (2, 0, 3)):
        draw = torch.Generator().manual_seed(W)
        gains = torch.randn(S, N, W, generator=draw).to(dtype)
        gains[gains > 1.5] = float("inf")
        gains[gains < -1] = float("-inf")
        for by in ("sum", "min"):
            if by == "sum":
                gains = gains.clamp(max=2)
            found = recurrence_triton.running_best(gains, by, recurrence.block_of(W))
            expected = recurrence.naive_running_best(gains, by)
            torch.testing.assert_close(found, expected, rtol=0, atol=0)

draw = torch.Generator().manual_seed(1)
losses, p_emit = (torch.rand(3, 7, 5, generator=draw).mul(16).round() / 16 for _ in range(2))
lengths = torch.tensor([7, 1, 4]), torch.tensor([3, 5, 5])
outcomes = []
for asked in (False, True):
    recurrence.use_triton = lambda gains: asked
    outcomes.append([
        best_path(losses, *lengths, 0.0), best_path(losses, *lengths, 0.125),
        emit_advantages(losses, *lengths, 0.1), visit_shares(p_emit, *lengths),
    ])
for one, other in zip(*outcomes):
    assert torch.equal(one, other)
from duplexmt.kernels import triton_use
assert {name for name, *_ in triton_use.proven} == {recurrence.KERNEL} and not triton_use.refused
print("equal")
"""

COMPILE = """
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource, compile
from duplexmt.policy import recurrence_triton

kernel = recurrence_triton._steps
for numbers in ("*fp32", "*fp64"):
    for block in (64, 2048):
        for summed in (False, True):
            constants = {"BLOCK": block, "summed": summed}
            signature = dict.fromkeys(("gains", "best"), numbers) | dict.fromkeys("SNW", "i32")
            signature |= dict.fromkeys(constants, "constexpr")
            source = ASTSource(kernel, signature=signature, constexprs=constants)
            compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": 1 if block == 64 else 8})
print("compiled")
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("program", "says", "environment"), [(PROGRAM, "equal\n", {"TRITON_INTERPRET": "1"}), (COMPILE, "compiled\n", {})]
)
def test_the_kernel_is_its_twin_and_compiles(program, says, environment):
    pytest.importorskip("triton", reason="Triton is installed on Linux only")
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program], env=os.environ | environment, capture_output=True, text=True
    )
    assert done.stdout == says, done.stderr


def test_a_number_of_places_is_compiled_for_with_its_neighbours():
    assert [recurrence.block_of(W) for W in (1, 33, 64, 65, 128, 129)] == [64, 64, 64, 128, 128, 256]
