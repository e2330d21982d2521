"""FSDP: several processes that each keep a share of all weights train what one process alone trains."""

import shutil
from importlib.util import find_spec
from types import SimpleNamespace

import pytest
import torch

from duplexmt.training import sharded
from duplexmt.training.processes import choose_strategy
from duplexmt.training.sharded import ShardedStrategy, whole_model

from .sharded_run import CASES, in_processes, train

FEW_BITS = {"int8", "int4"}
HERE = [case for case in CASES if case not in FEW_BITS or find_spec("bitsandbytes")]
STOPPED = ("tied", "head's own rate")
# In bfloat16 the pairs beside a pair change how its sums are rounded, and Adam's first steps are signs.
TOLERANCES = {"half": 0.02} | dict.fromkeys(FEW_BITS, 1e-4)


def trained(folder):
    return torch.load(folder / "trained.pt", weights_only=True)


def assert_alike(folder, other, tolerance):
    """Losses, weights, and what was seen of them on the way."""
    one, two = trained(folder), trained(other)
    assert one["weights"].keys() == two["weights"].keys()
    torch.testing.assert_close(one["losses"], two["losses"], rtol=0, atol=tolerance)
    for name, weight in one["weights"].items():
        torch.testing.assert_close(weight, two["weights"][name], rtol=0, atol=tolerance, msg=name)
    assert one["seen"] == pytest.approx(two["seen"], abs=1e3 * tolerance)
    assert len(set(one["seen"])) > 1, "the whole model follows the training"


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    """The folder of what two processes have trained, all cases at one start; two of them stopped and gone on with."""
    folder = tmp_path_factory.mktemp("sharded")
    in_processes(folder, 2, *HERE, *STOPPED)
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("case", HERE)
def test_two_processes_train_what_one_does_with_the_same_pairs(two, tmp_path, case):
    """Full and LoRA, tied, frozen in half precision or few bits, accumulated, recomputed, the paper's grid, a Gemma."""
    train(tmp_path, case, 1, "auto")
    assert_alike(tmp_path, two / case, TOLERANCES.get(case, 1e-7))


@pytest.mark.slow
def test_a_sharded_run_is_stopped_and_goes_on_sharded_or_not(two, tmp_path):
    for case in STOPPED:
        train(tmp_path / case, case, 1, "auto", 5)
        begun = shutil.copytree(two / case, tmp_path / f"{case} begun")
        train(begun, case, 1, "auto", 5, resume=True)
        expected = trained(tmp_path / case)["weights"]
        for folder in (two / f"{case} again", begun):
            found = trained(folder)["weights"]
            for name, weight in expected.items():
                torch.testing.assert_close(found[name], weight, rtol=0, atol=1e-7, msg=f"{folder} {name}")


@pytest.mark.parametrize("free", [0, 1])
def test_the_whole_model_is_looked_at_on_the_cpu_where_its_device_has_no_room_for_it(free, monkeypatch, caplog):
    strategy, device, asked = ShardedStrategy(), torch.device("meta"), []
    strategy.whole = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.Linear(3, 1).half())
    needed = 9 * 4 + 4 * (2 + 4)
    monkeypatch.setattr(ShardedStrategy, "gather", lambda _: None)
    monkeypatch.setattr(ShardedStrategy, "root_device", device)
    monkeypatch.setattr(sharded, "free_bytes", lambda device: asked.append(device) or needed - 1 + free)

    def full(device):
        raise torch.OutOfMemoryError

    strategy.whole.to = full if free else None
    with whole_model(SimpleNamespace(strategy=strategy), SimpleNamespace(tokens=None, rule=None)) as whole:
        assert {weight.device.type for weight in whole.model.parameters()} == {"cpu"}
    assert asked == [device]
    assert "meta has no room for the whole model" in caplog.text


@pytest.mark.parametrize("name", ["deepspeed", "deepspeed_stage_2", "deepspeed_stage_1"])
def test_deepspeed_is_lightnings_own_where_it_is_installed_and_else_refused(name, monkeypatch):
    with pytest.raises(ValueError, match=rf"trainer\.strategy={name}: DeepSpeed is not installed: pip install deeps"):
        choose_strategy(name, 2, 1, 1)
    monkeypatch.setattr("duplexmt.training.processes.find_spec", lambda _: object())
    assert choose_strategy(name, 2, 1, 1) == name
