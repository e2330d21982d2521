"""Systems by name: which model can be run as which, and with which setting."""

import logging

import pytest

from duplexmt.data.tokenizer import StreamTokens
from duplexmt.policy.decoding_options import SYSTEMS, Adaptive
from duplexmt.streaming.drafting import AlignAtt, Hold, LocalAgreement, WholeLsg
from duplexmt.streaming.policies import Confidence, Lsg, Theta, WaitK
from duplexmt.streaming.systems import build_system

from ..helpers import tiny_grid, tiny_prefix, trained

TOKENS = StreamTokens(end=0, seed=1)
MODELS = {"grid": tiny_grid(), "waitk": tiny_prefix(3), "offline": tiny_prefix(), "multi": tiny_prefix("multi")}
SETTINGS = {"grid": 0.5, "waitk": 3, "offline": None, "local_agreement": 2}
SETTINGS |= {"confidence": 0.5, "lsg": 0.3, "alignatt": 2, "hold": 1}
KINDS = {"grid": Theta, "local_agreement": LocalAgreement, "confidence": Confidence}
KINDS |= {"lsg": Lsg, "alignatt": AlignAtt, "hold": Hold}
ADAPTIVE = Adaptive(k_min=1, k_max=4, alpha=0.9, divergence="paper")


def build(held, name, setting, **limits):
    loaded = trained(MODELS[held], TOKENS)
    return build_system(
        loaded,
        name,
        setting,
        **{"max_target_tokens": 8, "batch_size": 4, "adaptive": ADAPTIVE, "told_length": True} | limits,
    )


@pytest.mark.parametrize(("name", "held"), [(name, held) for name in SYSTEMS for held in SYSTEMS[name]])
def test_each_system_runs_on_the_models_it_can_with_the_limits_given(name, held):
    system = build(held, name, SETTINGS[name])
    kind = WholeLsg if (name, held) == ("lsg", "offline") else KINDS.get(name, WaitK)
    assert type(system.policy) is kind
    assert (system.max_target_tokens, system.max_streams) == (8, 4)
    assert (system.theta if name == "grid" else system.policy.setting) == SETTINGS[name]


@pytest.mark.parametrize(
    ("held", "name", "message"),
    [
        ("grid", "waitk", "system='waitk' cannot be run on a grid model: .*train.py system=waitk or system=offline"),
        ("waitk", "grid", "system='grid' cannot be run on a waitk model: .*system=grid"),
        ("waitk", "hold", "'hold' cannot be run on a waitk model: .*system=waitk system.k=multi or .*system=offline"),
        ("offline", "confidence", "'confidence' cannot be run on an offline model: .*system=waitk system.k=multi"),
        ("offline", "simuleval", "system='simuleval': must be one of grid, waitk, offline, local_agreement, hold, "),
    ],
)
def test_a_model_of_the_wrong_system_is_refused_with_the_way_to_the_right_one(held, name, message):
    with pytest.raises(ValueError, match=message):
        build(held, name, SETTINGS.get(name))


@pytest.mark.parametrize(
    ("held", "name", "setting", "message"),
    [
        ("grid", "grid", None, "policy.theta=None: the EMIT threshold must be a number"),
        ("grid", "grid", True, "policy.theta=True"),
        ("grid", "grid", 1.5, "policy.theta=1.5: .* between 0 and 1"),
        ("grid", "grid", -0.1, "policy.theta=-0.1: .* between 0 and 1"),
        ("grid", "grid", float("nan"), "policy.theta=nan: .* between 0 and 1"),
        ("grid", "grid", float("inf"), "policy.theta=inf: .* between 0 and 1"),
        ("waitk", "waitk", None, "k=None: .*whole number of at least 1$"),
        ("waitk", "waitk", 0, "k=0: "),
        ("waitk", "waitk", 0.5, "k=0.5: "),
        ("offline", "offline", 3, "setting=3: the offline system reads the whole source and has no setting"),
        ("offline", "local_agreement", 0, "n=0: "),
        ("offline", "local_agreement", 1.5, "n=1.5: "),
        ("multi", "confidence", None, "confidence=None: ρ.* between 0 and 1"),
        ("multi", "confidence", float("nan"), "confidence=nan: ρ.* between 0 and 1"),
        ("multi", "confidence", 1.1, "confidence=1.1: ρ"),
        ("multi", "confidence", True, "confidence=True: ρ"),
        ("multi", "lsg", 0, "lsg=0: δ.* finite number above 0"),
        ("offline", "lsg", float("nan"), "lsg=nan: δ"),
        ("offline", "lsg", float("inf"), "lsg=inf: δ"),
        ("offline", "alignatt", -1, "alignatt=-1: f.* whole number of at least 0"),
        ("multi", "alignatt", 1.5, "alignatt=1.5: f"),
        ("multi", "hold", -1, "hold=-1: n.* whole number ≥ 0"),
        ("offline", "hold", None, "hold=None: n"),
    ],
)
def test_a_setting_the_system_cannot_take_is_refused(held, name, setting, message):
    with pytest.raises(ValueError, match=message):
        build(held, name, setting)


@pytest.mark.parametrize("name", ["waitk", "local_agreement", "hold", "alignatt"])
def test_a_whole_number_may_come_as_a_fraction(name):
    setting = build("offline", name, 2.0).policy.setting
    assert (type(setting), setting) == (int, 2)


@pytest.mark.parametrize(
    ("held", "k", "said"),
    [
        ("waitk", 3, []),
        ("multi", 5, []),
        ("waitk", 5, ["wait-5 by a model trained with k = 3"]),
        ("offline", 5, ["wait-5 by a model trained with the whole source"]),
    ],
)
def test_decoding_with_another_k_than_in_training_is_said(held, k, said, caplog):
    caplog.set_level(logging.INFO)
    assert build(held, "waitk", k).policy.setting == k
    assert [record.message for record in caplog.records] == said
