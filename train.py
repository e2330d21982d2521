"""Train: `python train.py`, `python train.py system=waitk system.k=3`, `python train.py -m policy.lam=0.1,1`."""

import logging
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import cache, partial
from pathlib import Path
from typing import Any

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig

from duplexmt.command_line import (
    alone_in,
    check_data,
    check_first,
    check_new,
    first_process,
    follower_arguments,
    given_anew,
    model_name,
    options_first,
    resume_arguments,
    run_label,
    user_errors,
    write_record,
)
from duplexmt.common.arguments import check_arguments, in_quotes, quote_arguments
from duplexmt.config import TrainSettings, register_schemas, settings

register_schemas()
OF_NO_STEP = (  # settings that change no training
    "trainer.", "logger", "probes.", "demonstrate=", "resume=", "name=", "policy.theta=", "policy.max_target_tokens=",
    "training.max_shard_size=", "training.sample_size=", "training.checkpoint_every_n_steps=",
)  # fmt: skip
log = logging.getLogger("train")


@hydra.main(version_base="1.3", config_path="conf", config_name="train")
def main(cfg: DictConfig) -> float | None:
    """Compose, build, train, save the model folder, translate a few held-out sentences."""
    hydra_cfg = HydraConfig.get()
    folder = Path(hydra_cfg.runtime.output_dir)
    with user_errors(), alone_in(folder):
        checked = check(cfg, folder)
        if hydra_cfg.mode == RunMode.MULTIRUN:  # which the other processes of a job would name by their own second
            sys.argv += [one for one in [f"hydra.sweep.dir={in_quotes(hydra_cfg.sweep.dir)}"] if one not in sys.argv]
        checked.name = model_name(hydra_cfg, checked.name)
        label = run_label(hydra_cfg, checked.logger.group)
        anew = given_anew(folder) if checked.resume else []
        return train(checked, folder, *label, begin=partial(write_record, folder, cfg), anew=anew)


def check(cfg: DictConfig, folder: Path) -> TrainSettings:
    """The settings, if a run with them may be in a folder; ValueError if not."""
    checked: TrainSettings = settings(TrainSettings, cfg)
    check_data(checked.data)
    if checked.resume is None and first_process():
        check_new(folder)
    return checked


def train(
    cfg: TrainSettings,
    folder: Path,
    name: str,
    group: str | None,
    begin: Callable[[], None] = lambda: None,
    anew: Sequence[str] = (),
) -> float | None:
    """The whole run of one configuration in one folder; returns validation BLEU for sweeps.

    Args:
        begin: called once nothing is refused any more, before anything is written; of a run that goes on, once its
            checkpoint has been accepted and there is something left to train.
        anew: arguments that a run which goes on was not begun with.
    """
    import lightning as L

    from duplexmt.kernels.allocator import keep_freed_memory
    from duplexmt.training.processes import other_processes, share_batches
    from duplexmt.training.run import build_trainer

    L.seed_everything(cfg.training.seed, verbose=False)
    sizes = {name: getattr(cfg.data, name) for name in ("batch_size", "batch_tokens")}
    sizes["batch_tokens"] = packed_tokens(cfg)
    trainer_settings, batches = share_batches(asdict(cfg.trainer), sizes)
    trainer = build_trainer(
        folder,
        trainer=trainer_settings,
        logger=asdict(cfg.logger),
        name=name,
        group=group,
        settings=asdict(cfg),
        checkpoint_every_n_steps=cfg.training.checkpoint_every_n_steps,
        resumed=cfg.resume is not None,
    )
    if trainer.strategy.root_device.type == "cpu":
        keep_freed_memory()
    with other_processes(trainer):
        return run(cfg, folder, trainer, batches, begin, anew)


def run(
    cfg: TrainSettings,
    folder: Path,
    trainer: Any,
    batches: dict[str, int | None],
    begin: Callable[[], None],
    anew: Sequence[str],
) -> float | None:
    """What each process of a run does: data, model, training, and in the first one what is left of it."""
    from duplexmt.data.settled import SettledTokens
    from duplexmt.model_folder.artifact import check_replaceable, save_model_folder
    from duplexmt.model_folder.hugging_face import base_at
    from duplexmt.model_folder.manifest import trained_on
    from duplexmt.training.data import GridDataModule
    from duplexmt.training.finish import check_finite, demonstrate, link_latest
    from duplexmt.training.loggers import close_loggers, log_model, open_loggers
    from duplexmt.training.processes import CORES
    from duplexmt.training.run import AtStart, add_callbacks
    from duplexmt.training.sample import spared
    from duplexmt.training.sharded import trained_model

    if trainer.is_global_zero:  # only it has the run's folder for sure
        check_replaceable(folder / "model")
    base = cache(base_at)  # so that the hub is asked once: both are mostly one name
    for settings_of, setting in ((cfg.model, "backbone"), (cfg.data, "tokenizer")):
        if getattr(settings_of, setting) is not None:
            setattr(settings_of, setting, base(getattr(settings_of, setting)))
    prepared, tokens = corpus_of(cfg, folder)
    seed, packed = cfg.training.seed, batches["batch_tokens"]
    backbone = backbone_of(cfg, len(prepared.tokenizer), tokens.end, trainer.precision)
    module = module_of(cfg, backbone, prepared.tokenizer, tokens)
    planner = None if packed is None else module.planner
    datamodule = GridDataModule(prepared, tokens, **batches, seed=seed, planner=planner)
    datamodule.check_validation(trainer)
    compile_layers(cfg, module.model, packed is not None, trainer.strategy.root_device.type)
    training = asdict(cfg.training) | {"typical_source_length": datamodule.typical_source_length}
    training |= {name: getattr(cfg.trainer, name) for name in ("max_steps", "accumulate_grad_batches")}
    training["gradient_clip_val"] = cfg.trainer.gradient_clip_val or "off"
    training["whole_batches"] = 1 if cfg.trainer.devices == CORES else trainer.world_size  # at a time
    trained_before = trained_on(cfg.model.backbone)  # its folder may be gone in the end
    theta = cfg.policy.thetas[0]
    policy = {"lam": cfg.policy.lam, "theta": theta} | module.rule.recorded() if cfg.system.name == "grid" else {}
    start = AtStart(begin)
    add_callbacks(trainer, start, *looks_of(cfg, folder, prepared, tokens))
    if not cfg.resume:
        start.act()
    open_loggers(trainer)
    if trainer.is_global_zero:
        datamodule.write_report(folder, resumed=cfg.resume is not None)
        log.info("corpus\n%s", prepared.summary())
        if warning := SettledTokens(prepared.tokenizer, cfg.data.segmentation).warning:
            log.warning("%s", warning)
        if cfg.trainer.precision == "auto":
            why = "with which the run was begun" if cfg.resume else "in which this machine is fastest"
            log.info("trainer.precision=auto: %s, %s", trainer.precision, why)
        if packed is not None and cfg.data.batch_tokens == "auto":
            pairs = len(datamodule.examples("train")) / len(datamodule.train_dataloader()) / trainer.world_size
            log.info(
                "data.batch_tokens=auto: %d, some %.0f pairs a batch; data.batch_tokens=null for data.batch_size=%d",
                packed, pairs, cfg.data.batch_size,
            )  # fmt: skip

    resumed = folder / "checkpoints" / "last.ckpt" if cfg.resume else None
    trainer.fit(module, datamodule, ckpt_path=resumed, weights_only=True)
    idle = [one for one in anew if not one.lstrip("+~").startswith(OF_NO_STEP)]
    saved = (folder / "model" / "duplexmt.json").is_file()
    if idle and saved and not start.acted:
        raise ValueError(
            f"{', '.join(idle)}: the run is complete, and no step would be trained with it; go on by a larger "
            "trainer.max_epochs or trainer.max_steps, or leave it out"
        )

    scores = {name: float(value) for name, value in trainer.callback_metrics.items() if name.startswith("validation/")}
    if module.validated_step != trainer.global_step:  # trained, or resumed, since then
        scores = dict(trainer.validate(module, datamodule, verbose=False)[0])
    if trainer.is_global_zero:
        model = trained_model(trainer, module)
        check_finite(model, scores.get("validation/lm_loss", 0.0))
        model_folder = save_model_folder(
            folder / "model",
            model=model,
            tokenizer=prepared.tokenizer,
            tokens=tokens,
            backbone=None if os.path.isdir(cfg.model.backbone or "") else cfg.model.backbone,
            data=asdict(cfg.data) | {"batch_tokens": packed_tokens(cfg)},
            training=training | {"epochs": datamodule.epochs(trainer.global_step)},
            policy=policy,
            scores=scores,
            trained_before=trained_before,
            max_shard_size=cfg.training.max_shard_size,
            name=cfg.name,
        )
        link_latest(folder)
        if cfg.logger.artifacts:
            log_model(trainer, model_folder, f"{cfg.name}-model", scores)
        log.info("model folder: %s", os.path.relpath(model_folder))
        if cfg.demonstrate:
            device, longest = trainer.strategy.root_device, cfg.policy.max_target_tokens
            with spared(f"demonstrate={cfg.demonstrate}"):
                log.info("%s", demonstrate(model_folder, prepared, cfg.demonstrate, *shown_as(cfg), longest, device))
    close_loggers(trainer)
    return scores.get("validation/BLEU")


def corpus_of(cfg: TrainSettings, folder: Path) -> tuple[Any, Any]:
    """The prepared corpus, and the tokens its streams need; a run that goes on keeps its tokenizer."""
    from duplexmt.corpus.prepared import STREAM_SETTINGS, corpus_settings, prepare_corpus
    from duplexmt.data.tokenizer import check_tokens_of, stream_tokens

    data = corpus_settings(asdict(cfg.data))
    if cfg.resume and data["tokenizer"] is None:
        data["tokenizer"] = str(folder / "tokenizer")  # not trained again
    prepared = prepare_corpus(**data)
    if cfg.model.backbone is not None:
        check_tokens_of(cfg.model.backbone, prepared.tokenizer)
    stream = {name: getattr(cfg.data, name) for name in (*STREAM_SETTINGS, "context_tokens")}
    return prepared, stream_tokens(prepared.tokenizer, **stream)


def backbone_of(cfg: TrainSettings, vocab_size: int, end: int, precision: str) -> Any:
    """The decoder to train: pretrained or with random weights, in full or by LoRA over weights that stay."""
    import torch

    from duplexmt.decoder.backbone import add_lora, freeze_in, random_backbone
    from duplexmt.decoder.quantised import quantise
    from duplexmt.model_folder.artifact import backbone_to_train
    from duplexmt.training.precision import half_precision

    if cfg.model.backbone is not None:
        backbone = backbone_to_train(cfg.model.backbone, vocab_size)
    else:
        backbone = random_backbone(cfg.model.architecture or {}, vocab_size, end)
    if cfg.model.adaptation == "lora":
        half = half_precision(precision)
        if cfg.model.frozen != "auto":
            quantise(backbone, cfg.model.frozen, half or torch.float32)
        backbone = add_lora(backbone, **asdict(cfg.model.lora))
        if half:
            freeze_in(half, backbone)
    return backbone


def module_of(cfg: TrainSettings, backbone: Any, tokenizer: Any, tokens: Any) -> Any:
    """The grid, or a baseline, over a backbone, as a module that trains it."""
    from duplexmt.decoder.model import DecoderModel
    from duplexmt.grid.model import build_grid
    from duplexmt.policy.words import emit_rule
    from duplexmt.training.module import GridTranslation
    from duplexmt.training.prefix_module import PrefixTranslation

    names = ("learning_rate", "warmup_steps", "schedule", "optimizer", "emit_learning_rate", "dropout", "seed")
    optimisation: dict[str, Any] = {name: getattr(cfg.training, name) for name in names}
    optimisation["betas"] = (cfg.training.betas[0], cfg.training.betas[1])
    if cfg.system.name == "grid":
        names = ("attention", "input_attends_output", "softmax", "anchor", "emit_hidden")
        model: Any = build_grid(backbone, **{name: getattr(cfg.model, name) for name in names})
    else:
        model = DecoderModel(backbone, k=cfg.system.k, anchor=cfg.model.anchor)
    model.recompute(cfg.training.recompute)
    if cfg.system.name == "grid":
        losses = {name: getattr(cfg.training, name) for name in ("lm_cells", "emit_loss", "emit_weight", "rows")}
        rule = emit_rule(model, tokenizer, cfg.data.target_language, **cfg.policy.rule)
        return GridTranslation(model, tokens, lam=cfg.policy.lam, rule=rule, **losses, **optimisation)
    return PrefixTranslation(model, tokens, **optimisation)


def packed_tokens(cfg: TrainSettings) -> int | None:
    """The length of the lists that whole batches are packed into, `auto` on CUDA; None for batches by pairs.

    Raises:
        ValueError: where a length is given, and the grid's attention is by padded grids.
    """
    import torch

    from duplexmt.grid.grid_options import rows_stand_alone
    from duplexmt.training.trainer_options import PACKED

    model, asked = cfg.model, cfg.data.batch_tokens
    alone = rows_stand_alone(model.attention, model.input_attends_output, model.softmax)
    if cfg.system.name == "grid" and model.attention == "exact" and not alone:
        if asked not in ("auto", None):
            raise ValueError(
                f"data.batch_tokens={asked}: exact attention of rows that read each other pads its pairs; give "
                "data.batch_tokens=null, or model.attention=approximate, or model.input_attends_output=false "
                "model.softmax=joint"
            )
        return None
    if asked != "auto":
        return asked  # type: ignore[no-any-return]
    cuda = torch.cuda.is_available() and cfg.trainer.accelerator in ("auto", "gpu", "cuda")
    return PACKED if cuda else None


def compile_layers(cfg: TrainSettings, model: Any, packed: bool, device: str) -> None:
    """Have the layers compiled, where that was asked for; `auto` does on CUDA, of packed lists."""
    auto = cfg.training.compile == "auto"
    if not (packed and device == "cuda" and cfg.trainer.strategy != "fsdp" if auto else cfg.training.compile):
        return
    if model.patched:
        model.compile_blocks(packed)
    elif not auto:
        kind = model.causal_lm.config.model_type
        log.warning("training.compile=true: the layers of a %s are not compiled; it is trained without", kind)


def shown_as(cfg: TrainSettings) -> tuple[str, float | int | None]:
    """The system, with the θ or k, that sentences are translated by while it trains and afterwards."""
    from duplexmt.decoder.schedules import shown_delay

    return cfg.system.name, cfg.policy.thetas[0] if cfg.system.name == "grid" else shown_delay(cfg.system.k)


def looks_of(cfg: TrainSettings, folder: Path, prepared: Any, tokens: Any) -> tuple[Any, Any]:
    """The callbacks that translate validation sentences: for scores, and for a close look at a few."""
    from duplexmt.corpus.evaluation_files import clean_source
    from duplexmt.training.probes import ProbeCallback, choose_probes
    from duplexmt.training.sample import SimultaneousSample

    system, setting = shown_as(cfg)
    limit = cfg.policy.max_target_tokens
    sample = SimultaneousSample(prepared, cfg.training.sample_size, cfg.data.target_language, system, setting, limit)
    look = asdict(cfg.probes)
    every, thetas = look.pop("every_n_steps"), look.pop("thetas")
    if look["pairs"] is not None:
        look["pairs"] = [(clean_source(source, asdict(cfg.data)), target) for source, target in look["pairs"]]
    probes = ProbeCallback(
        choose_probes(prepared, copy_tokens=tokens.copy_tokens, **look),
        folder,
        prepared.tokenizer,
        system=system,
        settings=thetas if system == "grid" else [setting],
        max_target_tokens=limit,
        lam=cfg.policy.lam,
        every_n_steps=every,
    )
    return sample, probes


if __name__ == "__main__":
    with user_errors():
        arguments = resume_arguments(quote_arguments(sys.argv[1:]))
        conf = Path(__file__).resolve().parent / "conf"
        arguments = check_arguments(TrainSettings, arguments, conf)
        check_first(check, arguments, conf)
        sys.argv[1:] = options_first(follower_arguments(arguments))  # to which Lightning adds settings
        main()
