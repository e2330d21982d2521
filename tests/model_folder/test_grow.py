"""A grown base computes what the small one does, and all that is new can learn."""

import sys

import pytest
import torch

from duplexmt.grid.model import GridModel
from duplexmt.model_folder import grow
from duplexmt.model_folder.artifact import load_model_folder
from duplexmt.model_folder.manifest import trained_on
from tests.helpers import CORPUS, model_folder, tiny_backbone

SENTENCES = torch.randint(97, (3, 12), generator=torch.Generator().manual_seed(1))


def grown(**options):
    small = tiny_backbone(layers=2).double()
    return small, grow.grown(small, **{"hidden": 48, "layers": 4} | options).double().eval()


@torch.no_grad()
def test_a_wider_and_deeper_model_has_the_logits_of_the_small_one():
    small, large = grown()
    assert (large.config.hidden_size, large.config.num_attention_heads, large.config.num_key_value_heads) == (48, 6, 3)
    assert large.num_parameters() > 3 * small.num_parameters()
    torch.testing.assert_close(large(SENTENCES).logits, small(SENTENCES).logits, atol=2e-3, rtol=1e-3)


def test_after_two_steps_every_matrix_has_a_gradient_in_all_its_rows():
    _, large = grown()
    for _ in range(3):
        large.zero_grad()
        large(SENTENCES, labels=SENTENCES).loss.backward()
        with torch.no_grad():
            for weight in large.parameters():
                weight -= 0.05 * weight.grad
    idle = [
        name
        for name, weight in large.named_parameters()
        if weight.grad.ndim > 1 and not weight.grad.abs().sum(-1).all() and "embed" not in name
    ]
    assert not idle


@pytest.mark.parametrize(("hidden", "layers"), [(40, 4), (16, 4), (48, 1)])
def test_what_is_no_growth_is_refused(hidden, layers):
    with pytest.raises(ValueError, match=rf"--hidden {hidden} --layers {layers}: must be a multiple of 16 .* from 32"):
        grown(hidden=hidden, layers=layers)


def test_the_command_writes_a_model_folder_that_says_what_the_small_one_has_seen(tmp_path, monkeypatch, capsys):
    before = CORPUS | {"path": "earlier.tsv", "licence": "CC0"}
    grid = GridModel(tiny_backbone(vocab_size=320, layers=2), anchor=12)
    small = model_folder(tmp_path / "small", grid, trained_before=[before])
    monkeypatch.setattr(sys, "argv", ["grow.py", f"{small}", f"{tmp_path}/large", "--hidden=48", "--layers=3"])
    grow.main()
    assert "M parameters" in capsys.readouterr().out
    one, other = load_model_folder(small), load_model_folder(tmp_path / "large")
    assert (other.model.system, other.model.anchor) == ("offline", 12)
    assert other.model.causal_lm.config.num_hidden_layers == 3
    assert trained_on(str(tmp_path / "large")) == [before, one.info["data"]]
    assert (other.tokens, other.tokenizer.get_vocab()) == (one.tokens, one.tokenizer.get_vocab())
    monkeypatch.setattr(sys, "argv", ["grow.py", "nowhere", f"{tmp_path}/large", "--hidden=48", "--layers=3"])
    with pytest.raises(SystemExit):
        grow.main()
    assert "error: " in capsys.readouterr().err
