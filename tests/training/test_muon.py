"""Muon's steps against PyTorch's, one matrix at a time."""

import socket
from copy import deepcopy

import pytest
import torch
import torch.distributed as dist
from torch.multiprocessing import start_processes

from duplexmt.training import muon
from duplexmt.training.muon import Muon, orthogonal

SIZES = [(6, 4), (4, 6), (6, 4), (5, 5), (3, 7)]


def weights(seed=0):
    draw = torch.Generator().manual_seed(seed)
    return [torch.nn.Parameter(torch.randn(size, generator=draw)) for size in SIZES]


def step(optimizer, matrices, times=3):
    """Some steps along random gradients, the same for everyone."""
    draw = torch.Generator().manual_seed(1)
    for _ in range(times):
        for matrix in matrices:
            matrix.grad = torch.randn(matrix.shape, generator=draw)
        optimizer.step()
    return [matrix.detach() for matrix in matrices]


@pytest.mark.parametrize(("native", "tolerance"), [(False, 1e-5), (True, 0.05)])
def test_steps_are_those_of_torchs_own(monkeypatch, native, tolerance):
    monkeypatch.setattr(muon, "fast_bfloat16", lambda _: native)
    if not native:
        monkeypatch.setattr(torch.Tensor, "bfloat16", torch.Tensor.float)  # torch's would round to it
    ours, theirs = weights(), weights()
    step(Muon(ours, lr=0.1, momentum=0.9), ours)
    step(torch.optim.Muon(theirs, lr=0.1, momentum=0.9, weight_decay=0.0, adjust_lr_fn="match_rms_adamw"), theirs)
    for a, b, before in zip(ours, theirs, weights(), strict=True):
        assert (a - b).norm() < tolerance * (b - before).norm()


def test_singular_values_come_near_1_in_matrices_of_any_scale():
    draw = torch.Generator().manual_seed(2)
    matrices = torch.randn(3, 4, 9, generator=draw) * torch.tensor([1e-3, 1.0, 1e3])[:, None, None]
    values = torch.linalg.svdvals(orthogonal(matrices))
    assert ((values > 0.6) & (values < 1.3)).all()
    left, _, right = torch.linalg.svd(matrices, full_matrices=False)
    turned = left.mT @ orthogonal(matrices) @ right.mT  # the same singular vectors
    assert (turned - torch.diag_embed(turned.diagonal(dim1=1, dim2=2))).abs().max() < 1e-4
    assert (orthogonal(torch.zeros(1, 2, 3)) == 0).all()


def test_weights_without_a_gradient_stay_as_they_are_and_a_checkpoint_holds_the_momentum():
    matrices, twins = weights(), weights()
    optimizer, whole = Muon(matrices, lr=0.1), Muon(twins, lr=0.1)
    step(whole, twins, times=2)
    step(optimizer, matrices, times=1)
    again = Muon(matrices, lr=0.5)
    again.load_state_dict(deepcopy(optimizer.state_dict()))
    draw = torch.Generator().manual_seed(1)
    for _ in range(2):  # the second step's gradients
        for matrix in matrices:
            matrix.grad = torch.randn(matrix.shape, generator=draw)
    again.step()
    assert all(map(torch.equal, matrices, twins))
    again.zero_grad(set_to_none=True)
    again.step()
    assert all(map(torch.equal, matrices, twins))


def test_a_checkpoint_holds_in_which_numbers_the_products_are(monkeypatch):
    monkeypatch.setattr(muon, "fast_bfloat16", lambda _: True)
    optimizer = Muon(weights(), lr=0.1)
    step(optimizer, optimizer.param_groups[0]["params"], times=1)
    monkeypatch.setattr(muon, "fast_bfloat16", lambda _: False)  # as measured beside other work, say
    again = Muon(weights(), lr=0.1)
    again.load_state_dict(deepcopy(optimizer.state_dict()))
    step(again, again.param_groups[0]["params"], times=1)
    assert again.param_groups[0]["bfloat16"] is True
    old = deepcopy(optimizer.state_dict())
    del old["param_groups"][0]["bfloat16"]
    again.load_state_dict(old)
    step(again, again.param_groups[0]["params"], times=1)
    assert again.param_groups[0]["bfloat16"] is False


def share(rank, port, folder):
    """One of two processes."""
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)
    matrices = weights()
    torch.save(step(Muon(matrices, lr=0.1), matrices), f"{folder}/{rank}.pt")
    dist.destroy_process_group()


def test_two_processes_share_the_work_and_take_the_same_steps(tmp_path):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    start_processes(share, args=(port, tmp_path), nprocs=2, start_method="fork")
    first, second = (torch.load(tmp_path / f"{rank}.pt", weights_only=True) for rank in (0, 1))
    matrices = weights()
    alone = step(Muon(matrices, lr=0.1), matrices)
    for a, b, c in zip(first, second, alone, strict=True):
        assert torch.equal(a, b)
        torch.testing.assert_close(a, c, rtol=0, atol=1e-5)
