"""The schema and `conf/`: what composes, what is refused and how, and the paper's own values."""

import re
import shutil
import signal
import sys
from copy import deepcopy
from dataclasses import asdict
from functools import cache
from pathlib import Path

import hypothesis
import pytest
from hydra import compose, initialize_config_dir
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import ConfigCompositionException
from hypothesis import strategies as st
from omegaconf import OmegaConf

import evaluate
import train
from duplexmt.command_line import (
    alone_in,
    check_first,
    follower_arguments,
    model_name,
    run_label,
    user_errors,
)
from duplexmt.common.arguments import check_arguments, check_names, quote_arguments
from duplexmt.config import SCHEMAS, DataConfig, PolicyConfig, TrainSettings, recorded_data, register_schemas, settings
from duplexmt.policy.decoding_options import TARGET_TOKENS

CONF = Path(__file__).parents[1] / "conf"
GROUPS = sorted(path.name for path in CONF.iterdir() if path.is_dir() and path.name != "experiment")
EXPERIMENTS = sorted(path.stem for path in (CONF / "experiment").glob("*.yaml"))
OF_EVALUATION = [
    path.stem for path in (CONF / "experiment").glob("*.yaml") if "# python evaluate.py" in path.read_text("utf-8")
]
OF_EVALUATION.remove("ablation_lambda")  # both
OPTIONS = [(group, path.stem) for group in GROUPS for path in sorted((CONF / group).glob("*.yaml"))]
ABSTRACT = [("model", "grid")]  # what the other models have in common
register_schemas()


@cache  # tests read the same compositions again and again, and only read them
def composed(name, *overrides, folder=CONF, hydra=False):
    with initialize_config_dir(version_base="1.3", config_dir=str(folder)):
        return compose(name, overrides=list(overrides), return_hydra_config=hydra)


def checked(name, *overrides):
    """The settings of a command line; plain ones are put into a composition that others share, as Hydra does it."""
    plain = [one for one in overrides if one.partition("=")[0] not in (*GROUPS, "experiment") and one[0] not in "+~"]
    cfg = deepcopy(composed(name, *(one for one in overrides if one not in plain)))
    for one in OverridesParser.create().parse_overrides(plain):
        OmegaConf.update(cfg, one.key_or_group, one.value())
    return settings(SCHEMAS[name], cfg)


def leaves(values, path=""):
    for key, value in values.items():
        if isinstance(value, dict):
            yield from leaves(value, f"{path}{key}.")
        else:
            yield f"{path}{key}", value


def test_a_job_of_a_sweep_is_grouped_by_the_sweeps_folder_and_named_by_what_differs(tmp_path):
    sweep = tmp_path / "lambdas"
    sweep.mkdir()
    task = ["policy.lam=0.1,1", "name=test", "model.input_attends_output=false"]
    OmegaConf.save({"hydra": {"overrides": {"task": task}}}, sweep / "multirun.yaml")
    hydra = composed("train", "hydra.mode=MULTIRUN", hydra=True).hydra
    job = {
        "sweep": {"dir": str(sweep)},
        "job": {"num": 1},
        "overrides": {"task": ["policy.lam=1", "name=test", "model.input_attends_output=False"]},
    }
    hydra = OmegaConf.merge(hydra, job)
    assert run_label(hydra, None) == ("1 policy.lam=1", "lambdas")
    assert model_name(hydra, "test") == "test policy.lam=1"
    seeds = OmegaConf.merge(hydra, {"overrides": {"task": [*job["overrides"]["task"], "training.seed=2"]}})
    assert model_name(seeds, "test") == "test policy.lam=1", "seeds of one name are one system"
    assert run_label(hydra, "mine")[1] == "mine"
    again = {"mode": "RUN", "runtime": {"output_dir": str(sweep / "1")}}
    again["overrides"] = {"task": [*job["overrides"]["task"], f"resume={sweep / '1'}"]}
    assert run_label(OmegaConf.merge(hydra, again), None) == ("1 policy.lam=1", "lambdas"), "resumed"
    hydra = OmegaConf.merge(hydra, {"mode": "RUN", "runtime": {"output_dir": "runs/builtin-1"}})
    assert run_label(hydra, None) == ("builtin-1", None)
    assert run_label(hydra, "mine") == ("builtin-1", "mine")
    assert model_name(hydra, "builtin") == "builtin"


# --- everything that ships ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SCHEMAS)
def test_every_leaf_of_a_default_configuration_has_a_value(name):
    cfg = composed(name)
    assert OmegaConf.missing_keys(cfg) == set()
    checked_leaves = dict(leaves(asdict(checked(name))))
    assert "???" not in checked_leaves.values()
    assert set(checked_leaves) >= {
        f"{group}.{key}" if group else key
        for group, schema in [("", SCHEMAS[name]), ("data", DataConfig), ("policy", PolicyConfig)]
        if not group or group in SCHEMAS[name].__dataclass_fields__
        for key, field in schema.__dataclass_fields__.items()
        if not hasattr(field.type, "__dataclass_fields__")
    }


@pytest.mark.parametrize("experiment", EXPERIMENTS)
def test_every_experiment_composes_and_is_accepted(experiment):
    if experiment in OF_EVALUATION:
        checked("evaluate", f"experiment={experiment}")
        return
    cfg = composed("train", f"experiment={experiment}")
    if cfg.data.corpus in ("pairs", "pairs_folder"):
        cfg = OmegaConf.merge(cfg, {"data": {"path": "corpus.tsv"}})
    assert settings(TrainSettings, cfg).name, "an experiment's runs carry a name"


@pytest.mark.parametrize(
    ("experiment", "option", "value"),
    [
        ("ablation_io_off", "input_attends_output", False),
        ("ablation_exact", "attention", "exact"),
        ("ablation_separate", "softmax", "separate"),
        ("ablation_paper_anchor", "anchor", "source_length"),
        ("ablation_naive_rope", "anchor", "visible_length"),
    ],
)
def test_an_ablation_changes_one_option_of_any_experiment(experiment, option, value):
    alone = asdict(checked("train", f"experiment={experiment}"))
    assert alone == asdict(checked("train")) | {
        "name": experiment, "model": asdict(checked("train").model) | {option: value}
    }  # fmt: skip
    paper = asdict(checked("train", f"experiment=[paper,{experiment}]", "data.path=corpus.tsv"))
    assert paper["model"][option] == value
    assert paper["data"]["max_tokens"] == 32
    assert paper["name"] == experiment


def test_a_sweep_of_an_experiment_is_dormant_without_multirun():
    cfg = composed("train", "experiment=ablation_lambda", hydra=True)
    assert cfg.hydra.sweeper.params == {"policy.lam": "0.01,0.03,0.1,0.3,1"}
    assert checked("train", "experiment=ablation_lambda").policy.lam == checked("train").policy.lam


@pytest.mark.parametrize(("name", "launcher"), [("train", "submitit_slurm"), ("evaluate", "joblib")])
def test_sweeps_run_here_in_parallel_or_on_a_cluster_by_configuration(name, launcher):
    cfg = composed(name, f"hydra/launcher={launcher}", hydra=True)
    assert launcher.partition("_")[0] in cfg.hydra.launcher._target_


def test_the_experiment_of_the_papers_table_asks_for_its_metrics_thresholds_and_claims():
    cfg = checked("evaluate", "experiment=duplex_results", "model_folder=[grid,wait3,wait5,offline]")
    assert cfg.policy.thetas == [0.5, 0.6, 0.7, 0.8, 0.9]
    assert cfg.quality.comet == "Unbabel/wmt22-comet-da"
    assert cfg.quality.bleurt.endswith("BLEURT-20")
    assert cfg.claims
    assert cfg.model_folders == ["grid", "wait3", "wait5", "offline"]


@pytest.mark.parametrize(("group", "option"), [entry for entry in OPTIONS if entry not in ABSTRACT])
def test_every_group_option_composes_and_is_accepted(group, option):
    entry_point = "evaluate" if (group, option) == ("data", "recorded") or group in ("quality", "adaptive") else "train"
    where = {
        "pairs": ["data.path=corpus.tsv"], "pairs_folder": ["data.path=corpora"], "wmt21_zhen": ["data.root=raw"],
        "qwen2_5_0_5b": ["data.tokenizer=folder"], "local_base": ["data.tokenizer=folder"],
    }  # fmt: skip
    arguments = [f"{group}={option}", *where.get(option, [])]
    cfg = asdict(checked(entry_point, *arguments))
    values = OmegaConf.to_container(OmegaConf.load(CONF / group / f"{option}.yaml"))
    values.pop("defaults", None)
    assert values, "a file of a group holds values"
    for key, value in leaves(values):
        found = cfg[group]
        for part in key.split("."):
            found = found[part]
        assert found == value, key


def test_the_paper_experiment_holds_every_value_of_table_train_hparam():
    cfg = checked("train", "experiment=paper", "data.path=corpus.tsv")
    assert cfg.model.backbone == "Qwen/Qwen2.5-0.5B"
    assert cfg.model.architecture is None
    assert (cfg.model.lora.rank, cfg.model.lora.alpha) == (64, 128)
    assert cfg.model.lora.dropout == 0
    assert sorted(cfg.model.lora.target_modules) == sorted(
        ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
    )
    assert cfg.model.adaptation == "lora"  # text head and EMIT head train in full: tests of grid/backbone.py
    assert cfg.training.learning_rate == 1e-4
    assert cfg.data.batch_size == 4  # per GPU
    assert cfg.trainer.precision == "16-mixed"
    assert cfg.training.betas == [0.9, 0.999]  # Adam's own
    assert cfg.training.warmup_steps == 3000
    assert cfg.training.schedule == "constant"
    assert cfg.trainer.max_epochs == 1
    assert cfg.policy.lam == 0.1
    assert (cfg.trainer.devices, cfg.trainer.num_nodes) == (4, 1)
    assert cfg.trainer.accumulate_grad_batches == 1
    # Section VI, "Datasets"
    assert cfg.data.max_tokens == 32
    assert (cfg.data.train_size, cfg.data.validation_size) == (100_000, 1_000)
    assert (cfg.data.source_language, cfg.data.target_language) == ("zh", "en")
    assert cfg.data.tokenizer == cfg.model.backbone
    # Sections III and IV
    assert (cfg.model.attention, cfg.model.input_attends_output) == ("approximate", True)
    assert (cfg.model.softmax, cfg.model.anchor) == ("joint", "source_length")


WITH_THE_PAPERS_ANCHOR = ("paper", "prompted", "ablation_paper_anchor")


@pytest.mark.parametrize("experiment", [*(e for e in EXPERIMENTS if e not in OF_EVALUATION), "[paper,past_paper]"])
def test_every_system_has_a_constant_anchor_but_the_papers_and_what_is_not_trained(experiment):
    cfg = composed("train", f"experiment={experiment}")
    held = "source_length" if experiment in WITH_THE_PAPERS_ANCHOR else 128
    assert cfg.model.anchor == ("visible_length" if experiment == "ablation_naive_rope" else held)


@pytest.mark.parametrize("experiment", ["small_pairs", "qwen"])
def test_baselines_are_trained_with_everything_else_as_for_the_grid(experiment):
    given = [f"experiment={experiment}", "data.path=corpus.tsv"]
    grid = asdict(checked("train", *given))
    assert grid.pop("system") == {"name": "grid", "k": None}
    assert grid["training"].pop("rows") == 4
    for system, k in (("waitk", 3), ("waitk", "multi"), ("offline", None)):
        own = [f"system={system}", *(["system.k=multi"] if k == "multi" else [])]
        other = asdict(checked("train", *given, *own))
        assert other.pop("system") == {"name": system, "k": k}
        assert other["training"].pop("rows") is None
        assert other == grid


@pytest.mark.parametrize("size", ["mini", "small", "medium"])
def test_systems_of_the_experiment_differ_in_the_system_alone_and_start_from_the_same_base(size):
    grid = asdict(checked("train", f"experiment=[grid_finetune,{size}_finetune]", "data.path=corpora"))
    assert grid.pop("system") == {"name": "grid", "k": None}
    assert grid.pop("name") == "grid_finetune"
    for system, k in (("waitk", 7), ("offline", None)):
        given = [f"system.k={k}"] if k else []
        of = f"experiment=[{system}_finetune,{size}_finetune]"
        other = asdict(checked("train", of, "data.path=corpora", *given))
        assert other.pop("system") == {"name": system, "k": k}
        assert other.pop("name") == f"{system}_finetune"
        assert other == grid
    base = asdict(checked("train", f"experiment=[base_pretrain,{size}_base]", "data.path=corpora"))
    assert base["system"] == {"name": "offline", "k": None}
    assert (base["model"]["adaptation"], grid["model"]["adaptation"]) == ("full", "lora")
    assert base["model"]["architecture"]["model_type"] == "qwen2"
    assert grid["data"]["tokenizer"] == grid["model"]["backbone"]
    for name in ("corpus", "exclude", "held_out", "test_size", "validation_size", "seed", "max_tokens", "prepared"):
        assert base["data"][name] == grid["data"][name], "one split for base and fine-tunings"
    assert (base["data"]["exclude"], base["data"]["test_size"]) == (["test-*"], 1000)
    if size == "medium":
        assert grid["data"]["train_size"] == 100_000


# --- what is refused ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("schema", "argument", "hint"),
    [
        ("train", "policy.lamb=0.3", "did you mean policy.lam?"),
        ("train", "+lam=0.3", "did you mean policy.lam?"),
        ("evaluate", "theta=0.5", "did you mean policy.theta?"),
        ("translate", "policy.theta=0.5", "did you mean theta?"),
        ("train", "quality=neural", "--help shows all"),
        ("serve", "engine.thread=1", "did you mean engine.threads?"),
        ("serve", "enigne.threads=1", "did you mean engine.threads?"),
        ("serve", "engine.foo=1", "engine has device, quantize, "),
        ("train", "training.foo=1", "training has learning_rate, "),
    ],
)
def test_a_name_that_is_no_setting_is_refused_with_the_one_most_like_it(schema, argument, hint):
    name = argument.partition("=")[0].lstrip("+")
    with pytest.raises(ValueError, match=re.escape(f"{name}: there is no such setting; {hint}")):
        check_names(SCHEMAS[schema], ["-m", argument])


@pytest.mark.parametrize(
    ("schema", "arguments", "told"),
    [
        ("translate", ["你好"], "你好: every setting is given as name=value; for a text to translate, text='你好'"),
        ("train", ["policy.theta=1", "all"], "all: every setting is given as name=value"),
        ("translate", ["--theta", "0.5"], "--theta: settings have no dashes before them; write theta=…"),
        (
            "evaluate",
            ["--policy.theta=0.5"],
            "--policy.theta: settings have no dashes before them; write policy.theta=",
        ),
        (
            "translate",
            ["--max-target-tokens=3"],
            "--max-target-tokens: settings have no dashes before them; write max_",
        ),
    ],
)
def test_settings_as_other_programs_take_them_are_refused_with_the_way_they_are_written(schema, arguments, told):
    with pytest.raises(ValueError, match=f"^{re.escape(told)}"):
        check_names(SCHEMAS[schema], arguments)


def test_hydras_own_options_keep_their_values():
    check_names(SCHEMAS["translate"], ["--cfg", "job", "-c", "job", "theta=0.5", "~text", "-m", "--info", "plugins"])


def test_names_of_settings_groups_and_hydras_own_are_let_through():
    arguments = ["-m", "model=grid", "~experiment=smoke", "++policy.lam=1", "hydra.run.dir=a", "hydra/help=b"]
    check_names(SCHEMAS["train"], [*arguments, "experiment=[a,b]", "model.architecture.hidden_size=8", "+data@x=c"])
    for name, schema in SCHEMAS.items():
        check_names(schema, [f"{key}=1" for key, _ in leaves(OmegaConf.to_container(composed(name)))])


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ("policy.lam=abc", "policy.lam=abc: must be a number"),
        ("policy.lam=null", "policy.lam=null: must be a number"),
        ("data.max_tokens=1.5", "data.max_tokens=1.5: must be a whole number, or null"),
        ("+training.betas=[a,1]", "training.betas=['a', 1]: must be a list in which each is a number"),
        ("name=[a]", "name=['a']: must be a text"),
        ("training.seed=1,x", "training.seed=x: must be a whole number"),
        ("model.lora.rank=choice(8,x)", "model.lora.rank=x: must be a whole number"),
        ("model.architecture=3", "model.architecture=3: must be {name: value}, or null"),
        ("data=5", "data=5: must be the name of a file in conf/data"),
        ("model.lora={rank:x}", "model.lora.rank=x: must be a whole number"),
        ("data.sources={a:1}", "data.sources={'a': 1}: must be a list in which each is a text, or null"),
        ("policy.lamb=0.1", "policy.lamb: there is no such setting; did you mean policy.lam?"),
    ],
)
def test_an_argument_of_the_wrong_type_is_one_line_that_says_which_type_it_must_be(argument, message):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        check_arguments(TrainSettings, ["name=run", argument])


def test_arguments_of_the_right_type_stay_as_they_are():
    arguments = [
        "experiment=smoke", "data=pairs", "+data.path=1.tsv", "data.max_tokens=null", "policy.lam=1,0.1,1e-2",
        "policy.lam=interval(0,1)", "training.seed=range(1,4)", "training.betas=[0,1]", "model.architecture.x=y",
        "name=${system.name}", "trainer.devices=cores", "~data.seed", "hydra.sweep.dir=x", "hydra/launcher=joblib",
        "mine/model=x", "-m", "--config-dir", "some folder", "name=a b", "data=glob(*)", "model.lora={rank:4}",
    ]  # fmt: skip
    assert check_arguments(TrainSettings, arguments, CONF) == arguments


def test_a_typo_in_yaml_is_refused_by_name(tmp_path):
    conf = shutil.copytree(CONF, tmp_path / "conf")
    with (conf / "policy" / "default.yaml").open("a", encoding="utf-8") as file:
        file.write("lamb: 0.1\n")
    with pytest.raises(ConfigCompositionException, match="lamb"):
        composed("train", folder=conf)


@pytest.mark.parametrize(
    ("entry_point", "arguments", "message"),
    [
        ("train", ["trainer.val_check_interval=1.5"], r"trainer\.val_check_interval=1\.5: a share .* at most 1\.0"),
        (
            "train",
            ["trainer.check_val_every_n_epoch=null"],
            r"trainer\.check_val_every_n_epoch=null, trainer\.val_check_interval=None: .* whole number of batches",
        ),
        (
            "train",
            ["trainer.check_val_every_n_epoch=null", "trainer.val_check_interval=0.5"],
            r"trainer\.val_check_interval=0\.5: without a rule by epochs give a whole number of batches, or a time",
        ),
        ("train", ["+policy.lamb=0.1"], r"^policy\.lamb: there is no such setting$"),  # Hydra lets it through
        ("train", ["+lambda=0.1"], r"^lambda: there is no such setting$"),
        ("train", ["policy.lam=-0.1"], r"policy\.lam=-0\.1: .* at least 0"),
        ("train", ["policy.theta=1.5"], r"policy\.theta=1\.5: .*between 0 and 1"),
        ("evaluate", ["policy.theta=[0.5,1.01]"], r"policy\.theta=1\.01: .*between 0 and 1"),
        ("evaluate", ["policy.theta=high"], r"policy\.theta='high': .*a number"),
        ("evaluate", ["policy.theta=[]"], r"policy\.theta=\[\]: give one"),
        ("serve", ["origins=[foo]"], r"origins=\[foo\]: an origin is scheme://host or scheme://host:port"),
        ("serve", ["origins=['https://a.example/page']"], r"origins=\[https://a\.example/page\]: an origin is"),
        ("serve", ["hosts=['https://mt.example']"], r"hosts=\[https://mt\.example\]: a name alone"),
        ("serve", ["hosts=['mt.example:8443']"], r"hosts=\[mt\.example:8443\]: a name alone"),
        ("serve", ["hosts=['*.example']"], r"hosts=\[\*\.example\]: a name alone"),
        ("serve", ["proxies=[localhost]"], r"proxies=\[localhost\]: the address of a proxy or of its network"),
        ("serve", ["proxies=[10.0.0.0/99]"], r"proxies=\[10\.0\.0\.0/99\]: the address"),
        ("translate", ["events=true", "steps=true"], r"^steps=true: events=true shows each step"),
        ("translate", ["theta=1.5"], r"^theta=1\.5: .*between 0 and 1"),
        ("translate", ["max_target_tokens=0"], r"^max_target_tokens=0: must be at least 1"),
        ("translate", ["max_repeats=1"], r"^max_repeats=1: must be at least 2, or null for no guard"),
        ("translate", ["pause=0"], r"^pause=0.0: must be a number of seconds above 0"),
        ("train", ["data.segmentation=words"], r"data\.segmentation='words': must be one of tokens, characters"),
        ("train", ["model.backbone=folder"], r"exactly one of model\.backbone .* and model\.architecture"),
        ("train", ["model.backbone=folder", "model.architecture=null"], r"model\.backbone=folder .*data\.tokenizer=f"),
        ("train", ["model.adaptation=prefix"], r"model\.adaptation='prefix': must be one of full, lora"),
        ("train", ["system.name=simul"], r"system\.name='simul': must be one of grid, waitk, offline"),
        *(
            ("train", ["system=waitk", f"system.k={k}"], rf"system\.k={k}: .*at least 1 \(or 'multi'")
            for k in (0, -3, 1.5, True)
        ),
        ("train", ["system=waitk", "system.k=all"], r"system\.k=all: .*or 'multi': one model trained at every k"),
        ("train", ["system.k=3"], r"system\.k=3: only wait-k has a k; train one by system=waitk system\.k=3"),
        *(
            ("train", [f"trainer.strategy={name}"], rf"strategy='{name}': must be one of auto, ddp, fsdp, deepspeed")
            for name in ("ddp_spawn", "ddp_notebook", "fsdp_cpu_offload", "deepspeed_stage_3")
        ),
        *(
            (
                "train",
                ["trainer.strategy=fsdp", f"trainer.precision={half}"],
                rf"={half}: .*give trainer\.precision=bf16-m",
            )
            for half in ("16-mixed", "16")
        ),
        (
            "train",
            ["trainer.strategy=fsdp", "training.optimizer=muon"],
            r"optimizer=muon .*training\.optimizer=adam, or",
        ),
        ("train", ["model.frozen=int4"], r"model\.frozen=int4 .*=full: nothing is frozen; give model\.adaptation=lora"),
        ("train", ["data.corpus=wmt"], r"data\.corpus='wmt': must be"),
        ("train", ["data=pairs"], r"data\.path=FILE"),
        ("train", ["data=pairs", "data.test_path=test.tsv"], r"no pairs to train on: give data\.path"),
        ("train", ["data=pairs", "data.path=a", "data.train_path=b"], "not both"),
        ("train", ["data=pairs_folder"], r"data=pairs_folder needs data\.path=FOLDER"),
        *(
            ("train", [f"training.max_shard_size={size}"], rf"max_shard_size='{size}': .* such as 40MB, or null")
            for size in ("40", "40 MB", "0MB", "4XB")
        ),
        ("train", ["data=recorded"], "data=recorded"),
        ("train", ["data=wmt21_zhen"], r"data\.root=FOLDER"),
        ("train", ["data.path=a.tsv"], r"data\.path=a\.tsv: data=builtin does not read it; .*data=pairs or"),
        ("train", ["data=pairs", "data.path=a", "data.cleaning=strict"], r"data\.cleaning=strict: data=pairs does not"),
        ("train", ["data=wmt21_zhen", "data.root=raw", "data.tokenizer=null"], r"data\.tokenizer to count with"),
        ("train", ["probes.thetas=[]"], r"probes\.thetas=\[\]: give at least one threshold"),
        ("train", ["probes.thetas=[0.5,1.5]"], r"probes\.thetas=1\.5: the EMIT threshold must be a number between"),
        ("train", ["probes.pairs=[[a,' ']]"], r"probes\.pairs: .* must be a source and its reference, neither of them"),
        ("train", ["data=pairs", "data.path=a", "data.source_field=1"], r"data\.target_field=1: a text would be its"),
        ("train", ["data.context_separator=' ||| '"], r"data\.context_separator=' \|\|\| ': cleaning changes white"),
        *(
            ("train", [f"trainer.val_check_interval={value}"], rf"trainer\.val_check_interval={value}: must be above 0")
            for value in ("0", "0.0", "-5", "nan")
        ),
        ("train", ["data.context_tokens=8"], r"data\.context_tokens=8: data=builtin has no sentence before a source"),
        ("train", ["data.joined_tokens=8"], r"data\.joined_tokens=8: the built-in corpus aligns single"),
        *(
            ("train", ["data=pairs", "data.path=a", f"data.target_language={code}", "policy.words=true"], rule)
            for code, rule in (("zh", r"policy\.words=true: no spaces part the words of 'zh'"), ("th", "of 'th'"))
        ),
        ("train", ["data.copies=0.1"], r"data\.copies=0\.1: the built-in corpus aligns single"),
        (
            "train",
            ["data=pairs", "data.path=a", "data.copies=-0.1"],
            r"data\.copies=-0\.1: must be a share of the train",
        ),
        ("train", ["data=pairs", "data.path=a", "data.copies=1.5"], r"data\.copies=1\.5: must be a share of the train"),
        ("train", ["data=pairs", "data.path=a", "data.joined_tokens=33"], r"joined_tokens=33: .*data\.max_tokens=32"),
        ("train", ["training.dropout=1.5"], r"training\.dropout=1\.5: must be a share, at least 0 and below 1"),
        ("train", ["training.rows=4"], r"model\.attention=approximate, .* give training\.rows=null, or model\.att"),
        ("train", ["model.anchor=foo"], r"model\.anchor='foo': must be 'source_length' or a position"),
        *(
            ("train", [f"model.anchor={anchor}"], rf"model\.anchor={anchor}: must be 'source_length' or a position")
            for anchor in (-1, 1.5, True)
        ),
        ("train", ["system=offline", "model.anchor=visible_length"], r"model\.anchor='visible_length': must be 's"),
        ("train", ["data.vocab_size=100"], r"data\.vocab_size=100: must be at least 300"),
        ("train", ["data.source_language=xx"], "language 'xx' is not an ISO 639-1 code"),
        ("train", ["model.emit_hidden=-3"], r"model\.emit_hidden=-3: must be at least 0"),
        ("train", ["model.lora.target_modules=[]"], r"target_modules=\[\]: give names of linear layers, or \[all"),
        ("train", ["model.lora.alpha=0"], r"model\.lora\.alpha=0: must be at least 1 .* would leave the backbone as"),
        *(
            ("train", [f"trainer.precision={name}"], rf"precision='{name}': .*stay in float32; must be one of auto")
            for name in ("fp8", "bf16-true", "64-true")
        ),
        ("train", ["data=wmt21_zhen", "data.root=r", "data.cleaning=strickt"], r"data\.cleaning='strickt': must be o"),
        ("train", ["training.betas=[0.9,1.5]"], r"training\.betas=\[0\.9, 1\.5\]: .*below 1"),
        ("evaluate", ["split=train"], "split='train': must be one of test, validation"),
        ("train", ["policy.theta=recorded"], r"policy\.theta=recorded: a model that is still to be trained"),
        ("evaluate", ["k=[3,x]"], "k=x: .*must be a whole number of at least 1$"),
        ("evaluate", ["k=[true]"], "k=True: .*must be a whole number of at least 1$"),
        ("evaluate", ["agreement=[0]"], "agreement=0: must be at least 1"),
        ("evaluate", ["confidence=[0.3,nan]"], "confidence=nan: ρ.* between 0 and 1"),
        ("evaluate", ["lsg=[0]"], "lsg=0: δ.* finite number above 0"),
        ("evaluate", ["hold=[1.5]"], r"hold=1\.5: n.* whole number"),
        ("evaluate", ["hold=[]"], r"hold=\[\]: give at least one value, or hold=null"),
        ("evaluate", ["adaptive.k_max=0"], r"adaptive\.k_max=0: .*k_max at least k_min"),
        ("evaluate", ["adaptive.divergence=kl"], r"adaptive\.divergence='kl': must be one of paper, code"),
        ("evaluate", ["target_al=0"], r"target_al=0\.0: the wanted latency must be above 0"),
        ("evaluate", ["source_rate=0"], r"source_rate=0\.0: must be a finite number above 0"),
        ("evaluate", ["model_folder=[]"], r"model_folder=\[\]: give the folder"),
        ("evaluate", ["quality.resamples=10"], r"quality\.resamples=10: must be at least 100"),
        ("train", ["policy.lam=???"], r"no value for policy\.lam: give it as policy\.lam="),
    ],
)
def test_a_value_that_breaks_its_rule_is_refused_with_value_and_rule(entry_point, arguments, message):
    with pytest.raises(ValueError, match=message):
        checked(entry_point, *arguments)


@pytest.mark.parametrize(
    ("rule", "given"),
    [
        ("at least 1", "train probes.every_n_steps=0 probes.max_tokens=0 data.max_tokens=0 data.train_size=0"),
        ("at least 1", "train data.joined_tokens=0 data.batch_size=0 data.validation_size=0"),
        ("at least 1", "train trainer.accumulate_grad_batches=0 trainer.check_val_every_n_epoch=0"),
        ("at least 1", "train trainer.log_every_n_steps=0"),
        ("at least 1", "train model.lora.rank=0 model.lora.alpha=0"),
        ("a share", "train model.lora.dropout=1.0 model.lora.dropout=-0.1 training.dropout=1.0 training.dropout=nan"),
        ("at least 0", "train policy.lam=-0.1 policy.lam=nan policy.lam=inf policy.certainty=-1 policy.certainty=inf"),
        ("at least 0", "evaluate policy.k_min=-1 policy.k_max=-1 policy.certainty=nan"),
        ("at least 2", "train training.rows=1 training.rows=0 training.rows=-3"),
        ("at least 1", "evaluate policy.max_target_tokens=0 policy.beam=0 limit=0 quality.batch_size=0"),
        ("at least 0", "train probes.count=-1 training.seed=-1 training.warmup_steps=-5"),
        ("at least 0", "train trainer.gradient_clip_val=-1"),
        ("above 0", "train training.learning_rate=0.0 training.emit_learning_rate=inf"),
        ("above 0", "train training.learning_rate=-1 training.emit_weight=0 training.emit_learning_rate=0"),
        ("one of", "train training.emit_loss=regrett training.lm_cells=vists training.schedule=lineer"),
        ("one of", "train training.optimizer=mun model.attention=exactt model.softmax=join model.frozen=int2"),
    ],
)
def test_a_setting_beyond_its_limit_is_refused_with_the_limit(rule, given):
    entry_point, *arguments = given.split()
    for argument in arguments:
        name, _, value = argument.partition("=")
        with pytest.raises(ValueError, match=rf"^{re.escape(name)}='?{value}.*: must be .*{rule}"):
            checked(entry_point, argument)


def test_folders_knobs_and_thresholds_may_be_one_or_several():
    cfg = checked("evaluate", "model_folder=a", "k=3", "rescore=[x,y]", "policy.theta=[recorded,0.5]")
    assert (cfg.model_folders, cfg.ks, cfg.rescored) == (["a"], [3], ["x", "y"])
    assert cfg.policy.thetas == ["recorded", 0.5]
    for argument, thetas in (("0.3", [0.3]), ("0", [0]), ("1", [1]), ("[0.5]", [0.5]), ("[0,0.25,1]", [0, 0.25, 1])):
        assert checked("evaluate", f"policy.theta={argument}").policy.thetas == thetas
    cfg = checked("evaluate", "confidence=0.5", "lsg=[0.1,1]")
    assert cfg.rivals == {"confidence": [0.5], "lsg": [0.1, 1], "alignatt": [], "hold": []}
    cfg = checked("evaluate", "model_folder=[a,b]", "k=[3,5]", "agreement=[2]")
    assert (cfg.model_folders, cfg.ks, cfg.agreement, cfg.rescored) == (["a", "b"], [3, 5], [2], [])


# --- settings recorded with a model ------------------------------------------------------------------------------

RECORDED = asdict(
    DataConfig(corpus="builtin", validation_size=500, test_size=500, max_tokens=24, seed=3, vocab_size=900)
)


def test_recorded_data_settings_hold_where_nothing_is_given():
    assert asdict(recorded_data(RECORDED, checked("evaluate").data)) == RECORDED


def test_models_of_before_that_do_not_say_so_were_trained_on_near_repetitions():
    old = {name: value for name, value in RECORDED.items() if name != "train_on_relatives"}
    assert recorded_data(old, checked("evaluate").data).train_on_relatives
    assert not recorded_data(RECORDED, checked("evaluate").data).train_on_relatives


def test_a_data_setting_given_now_replaces_the_recorded_one():
    given = checked("evaluate", "data.target_language=de").data
    assert asdict(recorded_data(RECORDED, given)) == RECORDED | {"target_language": "de"}


def test_a_setting_named_on_the_command_line_counts_even_if_it_equals_the_schemas_default():
    arguments = ["data.path=other.tsv", "data.test_size=1000", "data.max_tokens=32", "policy.theta=0.5"]
    now = recorded_data(RECORDED, checked("evaluate", *arguments).data, arguments)
    assert (now.path, now.test_size, now.max_tokens) == ("other.tsv", 1000, 32)
    assert (now.validation_size, now.seed) == (500, 3)


@pytest.mark.parametrize(
    "argument",
    [
        "data.test_size=501", "data.validation_size=499", "data.seed=4", "data.max_tokens=32", "data.train_size=9",
        "data.source_field=1", "data.source_language=en",
    ],
)  # fmt: skip
def test_another_split_of_the_recorded_corpus_is_refused_as_it_would_test_on_training_pairs(argument):
    with pytest.raises(ValueError, match=rf"{argument}: another split of the recorded corpus"):
        recorded_data(RECORDED, checked("evaluate", argument).data, [argument])
    assert asdict(recorded_data(RECORDED, checked("evaluate", "data.seed=3").data, ["data.seed=3"])) == RECORDED
    lacking = {name: value for name, value in RECORDED.items() if name != "source_field"}
    assert asdict(recorded_data(lacking, checked("evaluate").data, ["data.source_field=0"])) == RECORDED


FOLDER = asdict(
    DataConfig(corpus="pairs_folder", path="corpora", held_out=["one"], exclude=["test-*"], cleaning="strict")
)


def test_a_folder_of_corpora_that_was_moved_is_split_as_before():
    now = recorded_data(FOLDER, checked("evaluate", "data.path=elsewhere").data, ["data.path=elsewhere"])
    assert asdict(now) == FOLDER | {"path": "elsewhere"}
    now = recorded_data(FOLDER, checked("evaluate", "data.test_path=test.tsv").data, ["data.test_path=test.tsv"])
    assert asdict(now) == asdict(DataConfig(corpus="pairs", test_path="test.tsv"))


@pytest.mark.parametrize(
    "argument", ["data.held_out=[two]", "data.exclude=[]", "data.sources=[one]", "data.cleaning=paper", "data.seed=9"]
)
def test_another_split_of_a_folder_is_refused_wherever_it_lies(argument):
    for arguments in ([argument], [argument, "data.path=elsewhere"]):
        with pytest.raises(ValueError, match="another split of the recorded corpus would test on pairs"):
            recorded_data(FOLDER, checked("evaluate", *arguments).data, arguments)


def test_a_file_of_its_own_is_tested_on_whatever_would_split_the_recorded_corpus():
    arguments = ["data.test_path=test.tsv", "data.max_tokens=64", "data.source_field=2"]
    now = recorded_data(RECORDED, checked("evaluate", *arguments).data, arguments)
    assert (now.max_tokens, now.source_field) == (64, 2)


def test_a_file_given_now_replaces_every_recorded_file():
    recorded = RECORDED | {"corpus": "pairs", "train_path": "train.tsv", "validation_path": "validation.tsv"}
    for before in (recorded, RECORDED):
        now = recorded_data(before, checked("evaluate", "data.test_path=test.tsv").data)
        assert (now.corpus, now.path, now.train_path, now.validation_path, now.test_path) == (
            "pairs", None, None, None, "test.tsv"
        )  # fmt: skip
        assert (now.max_tokens, now.seed) == (24, 3)


def test_another_corpus_given_now_leaves_nothing_of_the_recorded_one():
    given = checked("evaluate", "data=pairs", "data.path=other.tsv").data
    assert recorded_data(RECORDED, given) is given


# --- errors for users ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("argument", "quoted"),
    [
        ("text=站在那边。", "text='站在那边。'"),
        ("text=Hello, it's me", "text='Hello, it\\'s me'"),
        ("text='站'", "text='站'"),
        ("text=", "text="),
        ("data.path=语料.tsv", "data.path='语料.tsv'"),
        ("data.path=corpus (1).tsv", "data.path='corpus (1).tsv'"),
        ("data.path=it's/a=b&c.tsv", "data.path='it\\'s/a=b&c.tsv'"),
        ("data.path=my corpus.tsv", "data.path=my corpus.tsv"),
        ("model_folder=[runs/a/model,läufe/*/model, b (2)]", "model_folder=[runs/a/model,'läufe/*/model','b (2)']"),
        ("model_folder=['läufe/b',runs/a]", "model_folder=['läufe/b',runs/a]"),
        ("data.sources=[läufe,b],[c]", "data.sources=['läufe',b],[c]"),
        ("probes.pairs=[[你好,hello],[好,good]]", "probes.pairs=[['你好',hello],['好',good]]"),
        ("probes.pairs=[[你好,hello]]", "probes.pairs=[['你好',hello]]"),
        ("data.path=~/a.tsv", f"data.path={Path.home()}/a.tsv"),
        ("policy.theta=[0.5,0.6]", "policy.theta=[0.5,0.6]"),
        ("policy.lam=range(1,4)", "policy.lam=range(1,4)"),
        ("--config-dir=läufe", "--config-dir=läufe"),
        ("policy.theta=0.5,0.6", "policy.theta=0.5,0.6"),
        ("-m", "-m"),
    ],
)
def test_quotes_are_put_where_hydras_grammar_wants_them(argument, quoted):
    assert quote_arguments([argument]) == [quoted]
    assert quote_arguments([quoted]) == [quoted]


@hypothesis.given(st.lists(st.sampled_from(["\\", "'", '"', "${x}", *"${[，站a :"]), min_size=1).map("".join))
def test_a_text_stands_for_itself_whatever_it_holds(text):
    (argument,) = quote_arguments([f"text={text}"])
    value = OverridesParser.create().parse_override(argument).value()
    found = OmegaConf.create({"text": value}).text
    if not re.fullmatch(r"""'(\\.|[^'\\])*'|"(\\.|[^"\\])*\"""", text, re.DOTALL):
        assert found == text
    elif "\\" not in text:  # a complete string in quotes: they are Hydra's
        assert found == text[1:-1]


@pytest.mark.parametrize("error", [ValueError("λ is wrong"), FileNotFoundError("λ is wrong")])
def test_a_users_mistake_is_one_line_and_exit_status_2(error, capsys, monkeypatch):
    monkeypatch.delenv("HYDRA_FULL_ERROR", raising=False)
    with pytest.raises(SystemExit) as stopped, user_errors():
        raise error
    assert stopped.value.code == 2
    assert capsys.readouterr().err == "error: λ is wrong\n"


def test_ctrl_c_is_one_line_that_says_how_to_go_on_where_that_can_be(tmp_path, capsys):
    for expected in ("interrupted\n", f"interrupted; go on with resume={tmp_path}\n"):
        with pytest.raises(SystemExit) as stopped, user_errors(begun=tmp_path):
            raise KeyboardInterrupt
        assert stopped.value.code == 130
        assert capsys.readouterr().err == expected
        (tmp_path / "decoding.json").touch()


def test_ctrl_c_in_a_sweep_says_how_all_of_it_goes_on(tmp_path, capsys):
    (tmp_path / "decoding.json").touch()
    with pytest.raises(SystemExit), user_errors(tmp_path, sweep="runs/sweep"):
        raise KeyboardInterrupt
    told = "interrupted; go on with the same command and hydra.sweep.dir=runs/sweep\n"
    assert capsys.readouterr().err == told


@pytest.fixture
def sigterm():
    """The handler of a command that has just begun, whatever tests before this one have left."""
    before = signal.signal(signal.SIGTERM, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGTERM, before)


@pytest.mark.usefixtures("sigterm")
def test_sigterm_ends_what_can_be_gone_on_with_as_ctrl_c_does(tmp_path, capsys):
    (tmp_path / "decoding.json").touch()
    with pytest.raises(SystemExit) as stopped, user_errors(begun=tmp_path):
        signal.raise_signal(signal.SIGTERM)
    assert stopped.value.code == 128 + signal.SIGTERM
    assert capsys.readouterr().err == f"interrupted; go on with resume={tmp_path}\n"
    with pytest.raises(SystemExit), user_errors(stops=True):
        signal.raise_signal(signal.SIGTERM)
    assert capsys.readouterr().err == "interrupted\n"
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


@pytest.fixture
def program(monkeypatch):
    """What `python train.py …` and `python evaluate.py …` refuse before Hydra makes a folder."""

    def check(name, *arguments):
        monkeypatch.setattr(sys, "argv", [f"{name}.py"])
        checks = {"train": train.check, "evaluate": lambda job, _: settings(SCHEMAS["evaluate"], job)}
        check_first(checks[name], list(arguments), CONF)

    return check


@pytest.mark.parametrize(("setting", "options"), [("run", []), ("sweep", ["-m"])])
@pytest.mark.parametrize("name", ["train", "evaluate"])
def test_a_folder_that_cannot_be_written_to_is_refused(tmp_path, program, name, setting, options):
    (tmp_path / "file").touch()
    given = f"hydra.{setting}.dir='{tmp_path}/file/run'"
    with pytest.raises(ValueError, match=rf"hydra.{setting}.dir=.*: cannot be written to \(Not a directory\); "):
        program(name, *options, given)
    program(name, *options, given, "--cfg", "job")  # nothing is run
    program(name, *options, given.replace("file", "none"))
    assert not (tmp_path / "none").exists()


IN_THE_BOX = f"model_folder='{CONF.parent}/models/zh-en'"


def test_an_evaluation_is_refused_before_anything_is_read(tmp_path):
    (tmp_path / "a.txt").touch()
    config = composed("evaluate", f"references=['{tmp_path}/a.txt']", IN_THE_BOX)
    assert evaluate.check(config, tmp_path / "new").references == [f"{tmp_path}/a.txt"]
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "duplexmt.json").touch()
    with pytest.raises(ValueError, match=r"hydra\.run\.dir=.*/model is a model folder: give another one"):
        evaluate.check(config, tmp_path / "model")
    missing = f"references=['{tmp_path}/a.txt','{tmp_path}/b.txt']"
    with pytest.raises(ValueError, match=r"references=.*/b\.txt: there is no such file"):
        evaluate.check(composed("evaluate", missing, IN_THE_BOX), tmp_path / "new")
    missing = missing, "model_folder=none", "data.test_path=none.tsv"
    assert evaluate.check(composed("evaluate", f"rescore=['{tmp_path}']", *missing), tmp_path / "new").rescored


@pytest.mark.parametrize(
    ("command", "arguments", "told"),
    [
        (
            "train",
            ["data=pairs", "data.path=none.tsv"],
            r"data\.path=none\.tsv: there is no such file or folder, and no",
        ),
        (
            "train",
            ["data=pairs", "data.train_path=none/*.tsv"],
            r"data\.train_path=none/\*\.tsv: there is no such file",
        ),
        ("train", ["data=pairs_folder", "data.path=none"], "data.path=none: there is no such file or folder"),
        ("evaluate", [IN_THE_BOX, "data.test_path=none.tsv"], r"data\.test_path=none\.tsv: there is no such file"),
        ("evaluate", ["model_folder=none"], "model_folder='none' does not exist: give the folder"),
        (
            "evaluate",
            [f"model_folder=['{CONF.parent}/models/zh-en',none/x/y]"],
            "model_folder='none/x/y' does not exist",
        ),
        ("evaluate", ["model_folder='none/*'"], r"model_folder=none/\*: no folder fits this pattern"),
    ],
)
def test_pairs_and_models_that_are_not_there_are_refused_before_libraries_are_loaded(
    tmp_path, monkeypatch, command, arguments, told
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(ValueError, match=f"^{told}"):
        {"train": train, "evaluate": evaluate}[command].check(composed(command, *arguments), tmp_path)


def test_a_pattern_of_pairs_that_files_fit_and_a_model_of_the_hub_are_left_to_who_reads_them(tmp_path):
    (tmp_path / "a.tsv").touch()
    train.check(composed("train", "data=pairs", f"data.path='{tmp_path}/*.tsv'"), tmp_path / "new")
    evaluate.check(composed("evaluate", "model_folder=owner/name"), tmp_path / "new")


@pytest.mark.parametrize("kept", ["checkpoints/last.ckpt", "model/duplexmt.json"])
def test_a_new_training_never_takes_the_folder_of_another(tmp_path, program, kept):
    for job in ("1", "lam-1.0"):
        (tmp_path / job / kept).parent.mkdir(parents=True)
        (tmp_path / job / kept).touch()
    told = rf"holds a training already \({kept}\): go on with resume="
    with pytest.raises(ValueError, match=told):
        train.check(composed("train"), tmp_path / "1")
    train.check(composed("train", "resume=it"), tmp_path / "1")
    sweep = ["-m", f"hydra.sweep.dir='{tmp_path}'", "policy.lam=0.1,1"]
    for named in ([], ["hydra.sweep.subdir='lam-${policy.lam}'"]):
        with pytest.raises(ValueError, match=told):
            program("train", *sweep, *named)
    program("train", *sweep, "hydra.sweep.subdir='seed-${training.seed}'")
    program("evaluate", "-m", f"hydra.sweep.dir='{tmp_path}'", "policy.theta=0.1,1")


@pytest.mark.parametrize(
    ("name", "swept", "told"),
    [
        ("train", ["policy.lam=0.1,-1"], r"policy\.lam=-1"),
        ("train", ["system=grid,waitk", "system.k=0"], r"system\.k=0"),  # of groups, too
        ("train", ["experiment=ablation_lambda", "training.betas=[2,0.9]"], r"training\.betas="),
        ("evaluate", ["policy.theta=0.3,2", "limit=1,2"], r"policy\.theta=2"),
    ],
)
def test_a_sweep_of_which_a_job_has_a_forbidden_value_is_refused_before_the_first(program, name, swept, told):
    with pytest.raises(ValueError, match=told):
        program(name, "-m", *swept)
    program(name, *swept)  # no sweep: Hydra's own words


@pytest.mark.parametrize(
    ("found", "left"),
    [([], False), (["train.log", "train_ddp_process_1.log"], False), (["notes.log"], True), (["metrics/"], True)],
)
@pytest.mark.parametrize("sweep", [False, True])
@pytest.mark.parametrize("why", [ValueError, KeyboardInterrupt])
def test_a_refused_or_interrupted_run_leaves_no_folder_but_where_something_is_in_it(
    tmp_path, monkeypatch, found, left, sweep, why
):
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "runs" / "new"
    folder.mkdir(parents=True)
    for name in found:
        (folder / name).mkdir() if name.endswith("/") else (folder / name).touch()
    if sweep:
        (folder.parent / "multirun.yaml").touch()
    config = OmegaConf.create({"hydra": {"job": {"name": "train"}}})
    monkeypatch.setattr("duplexmt.command_line.HydraConfig.get", lambda: config.hydra)
    with pytest.raises(why, match="wrong"), alone_in(folder):
        raise why("wrong")
    assert (tmp_path / "runs").exists() == folder.exists() == left
    assert not left or {path.name for path in folder.iterdir()} == {name.rstrip("/") for name in found}


def test_only_the_first_process_of_torchrun_has_a_folder_named_by_the_time(monkeypatch):
    given, named = ["policy.lam=1"], ["policy.lam=1", "hydra.run.dir=runs/mine"]
    assert follower_arguments(given) == given
    monkeypatch.setenv("RANK", "0")
    assert follower_arguments(given) == given
    monkeypatch.setenv("RANK", "3")
    assert follower_arguments(named) == named
    hydra = composed("train", *follower_arguments(given), hydra=True).hydra
    assert (hydra.run.dir, hydra.output_subdir) == (".", None)
    assert set(hydra.job_logging.handlers) == {"console"}, "no log file"


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("data.batch_tokens=1000", r"data.batch_tokens=1000: must be a multiple of 128, at least 256"),
        ("data.batch_tokens=128", r"data.batch_tokens=128: must be a multiple of 128, at least 256"),
        ("data.batch_tokens=many", r"data.batch_tokens=many: must be a multiple of 128"),
        ("training.compile=maybe", r"training.compile='maybe': must be auto, true or false"),
    ],
)
def test_sizes_of_packed_lists_that_cannot_be_are_refused(override, message):
    with pytest.raises(ValueError, match=message):
        checked("train", *override.split())


def test_a_translation_is_cut_off_at_the_same_length_by_every_program_and_in_python():
    lengths = [checked("evaluate").policy.max_target_tokens, checked("train").policy.max_target_tokens]
    lengths += [checked("translate").max_target_tokens, checked("serve").engine.max_target_tokens]
    assert lengths == [TARGET_TOKENS] * 4
