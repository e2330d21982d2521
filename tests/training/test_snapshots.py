"""Models kept on the way."""

import torch

from duplexmt.training.snapshots import Snapshots
from tests.training.small_run import small_data, small_module, small_trainer


def kept(tmp_path, steps, **settings):
    """The EMIT head's weights at each step, and those of the trained model."""
    module, found = small_module(), {}

    def save(folder):
        assert folder.parent == tmp_path
        assert folder.name not in found
        found[folder.name] = module.model.emit_head.weight.detach().clone()

    trainer = small_trainer(tmp_path, callbacks=[Snapshots(tmp_path, steps, save)], **settings)
    trainer.fit(module, small_data(batch_size=3))
    return found, module.model.emit_head.weight


def test_the_model_is_kept_after_the_steps_asked_for_and_before_the_first(tmp_path):
    found, last = kept(tmp_path, [0, 2, 4, 100])  # an epoch of 12 pairs has four steps
    assert list(found) == ["000000", "000002", "000004"]
    assert torch.equal(found["000000"], small_module().model.emit_head.weight)
    assert not torch.equal(found["000002"], found["000000"])
    assert torch.equal(found["000004"], last)


def test_steps_are_those_of_the_optimiser(tmp_path):
    found, last = kept(tmp_path, [1, 2], accumulate_grad_batches=2)
    assert list(found) == ["000001", "000002"]
    assert torch.equal(found["000002"], last)


def test_none_asked_for_none_kept(tmp_path):
    assert kept(tmp_path, [])[0] == {}
