"""Systems by name: which model can be run as which, and with which setting."""

import logging
from types import SimpleNamespace

import pytest

from duplexmt.data.tokenizer import StreamTokens
from duplexmt.streaming.grid_system import GridSystem
from duplexmt.streaming.prefix_systems import LocalAgreementSystem, WaitKSystem
from duplexmt.streaming.systems import SYSTEMS, build_system

from ..helpers import tiny_grid, tiny_prefix

TOKENS = StreamTokens(end=0, seed=1)
MODELS = {"grid": tiny_grid(), "waitk": tiny_prefix(3), "offline": tiny_prefix(), "multi": tiny_prefix("multi")}
SETTINGS = {"grid": 0.5, "waitk": 3, "offline": None, "local_agreement": 2}


def build(held, name, setting, **limits):
    loaded = SimpleNamespace(model=MODELS[held], tokens=TOKENS)
    return build_system(loaded, name, setting, **{"max_target_tokens": 8, "batch_size": 4} | limits)


@pytest.mark.parametrize(("name", "held"), [(name, held) for name in SYSTEMS for held in SYSTEMS[name]])
def test_each_system_runs_on_the_models_it_can_with_the_limits_given(name, held):
    system = build(held, name, SETTINGS[name])
    kind = {"grid": GridSystem, "local_agreement": LocalAgreementSystem}.get(name, WaitKSystem)
    assert type(system) is kind
    limited, streams = (system.engine, "max_streams") if name == "grid" else (system, "batch_size")
    assert (limited.max_target_tokens, getattr(limited, streams)) == (8, 4)
    setting = {"grid": "theta", "local_agreement": "n"}.get(name, "k")
    assert getattr(limited, setting) == SETTINGS[name]


@pytest.mark.parametrize(
    ("held", "name", "message"),
    [
        ("grid", "waitk", "system='waitk' cannot be run on a grid model: .*system=waitk or .*system=offline"),
        ("grid", "offline", "system='offline' cannot be run on a grid model: .* python train.py system=offline"),
        ("grid", "local_agreement", "'local_agreement' cannot be run on a grid model: .*system=offline"),
        ("waitk", "grid", "system='grid' cannot be run on a waitk model: .*system=grid"),
        ("waitk", "offline", "system='offline' cannot be run on a waitk model"),
        ("waitk", "local_agreement", "cannot be run on a waitk model"),
        ("offline", "grid", "system='grid' cannot be run on a offline model"),
        ("offline", "simuleval", "system='simuleval': must be one of grid, waitk, offline, local_agreement"),
    ],
)
def test_a_model_of_the_wrong_system_is_refused_with_the_way_to_the_right_one(held, name, message):
    with pytest.raises(ValueError, match=message):
        build(held, name, SETTINGS.get(name))


@pytest.mark.parametrize(
    ("held", "name", "setting", "message"),
    [
        ("grid", "grid", None, "θ=None: the grid system needs its EMIT threshold"),
        ("grid", "grid", True, "θ=True"),
        ("grid", "grid", 1.5, "policy.theta=1.5"),
        ("waitk", "waitk", None, "k=None: .*whole number ≥ 1"),
        ("waitk", "waitk", 0, "k=0: "),
        ("waitk", "waitk", 0.5, "k=0.5: "),
        ("offline", "offline", 3, "setting=3: the offline system reads the whole source and has no setting"),
        ("offline", "local_agreement", 0, "n=0: "),
        ("offline", "local_agreement", 1.5, "n=1.5: "),
    ],
)
def test_a_setting_the_system_cannot_take_is_refused(held, name, setting, message):
    with pytest.raises(ValueError, match=message):
        build(held, name, setting)


def test_local_agreement_compares_two_hypotheses_where_nothing_is_said():
    assert build("offline", "local_agreement", None).n == 2


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
    assert build(held, "waitk", k).k == k
    assert [record.message for record in caplog.records] == said
