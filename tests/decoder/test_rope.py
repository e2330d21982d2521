import torch
from transformers.models.qwen2.modeling_qwen2 import apply_rotary_pos_emb

from duplexmt.decoder.rope import rotate, signed


def test_rotation_and_its_gradient_equal_the_backbones():
    generator = torch.Generator().manual_seed(0)
    draw = lambda *shape: torch.randn(shape, dtype=torch.float64, generator=generator)  # noqa: E731
    states, upstream = draw(5, 3, 8).requires_grad_(), draw(5, 3, 8)
    cos, sin = (draw(5, 4).repeat(1, 2) for _ in range(2))  # both halves have the same angles
    ours = rotate(states, cos[:, None], signed(sin)[:, None])
    theirs, _ = apply_rotary_pos_emb(states, states, cos, sin, unsqueeze_dim=1)
    torch.testing.assert_close(ours, theirs, rtol=1e-14, atol=1e-14)
    (of_ours,), (of_theirs,) = (torch.autograd.grad(value, states, upstream) for value in (ours, theirs))
    torch.testing.assert_close(of_ours, of_theirs, rtol=1e-14, atol=1e-14)
    with torch.no_grad():
        assert torch.equal(rotate(states, cos[:, None], signed(sin)[:, None]), ours)
