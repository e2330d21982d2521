"""Train: `python train.py`, `python train.py system=waitk system.k=3`, `python train.py -m policy.lam=0.1,1`."""

import logging
import os
import sys
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import hydra
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig

from duplexmt.command_line import (
    check_arguments,
    follower_arguments,
    quote_arguments,
    resume_arguments,
    run_label,
    user_errors,
)
from duplexmt.config import TrainSettings, register_schemas, settings

register_schemas()
log = logging.getLogger("train")


@hydra.main(version_base="1.3", config_path="conf", config_name="train")
def main(cfg: DictConfig) -> float | None:
    """Compose, build, train, save the model folder, translate a few held-out sentences."""
    with user_errors():
        checked, hydra_cfg = settings(TrainSettings, cfg), HydraConfig.get()
        return train(checked, Path(hydra_cfg.runtime.output_dir), *run_label(hydra_cfg, checked.logger.group))


def train(cfg: TrainSettings, folder: Path, name: str, group: str | None) -> float | None:
    """The whole run of one configuration in one folder; returns validation BLEU for sweeps."""
    import lightning as L

    from duplexmt.allocator import keep_freed_memory
    from duplexmt.training.processes import other_processes
    from duplexmt.training.run import build_trainer
    from duplexmt.training.sharing import share_batches

    L.seed_everything(cfg.training.seed, verbose=False)
    sizes = {"batch_size": cfg.data.batch_size, "batch_cells": cfg.data.batch_cells}
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
        return run(cfg, folder, trainer, batches)


def run(cfg: TrainSettings, folder: Path, trainer: Any, batches: dict[str, int | None]) -> float | None:
    """What each process of a run does: data, model, training, and in the first one what is left of it."""
    from duplexmt.artifact import save_model_folder, trained_on
    from duplexmt.baselines.mask import shown_delay
    from duplexmt.baselines.model import PrefixModel
    from duplexmt.data.tokenizer import stream_tokens
    from duplexmt.grid.backbone import add_lora, freeze_in, pretrained_backbone, random_backbone
    from duplexmt.grid.model import GridModel
    from duplexmt.training.data import STREAM_SETTINGS, GridDataModule, corpus_settings, prepare_corpus
    from duplexmt.training.finish import demonstrate, link_latest
    from duplexmt.training.loggers import close_loggers, log_model
    from duplexmt.training.module import GridTranslation
    from duplexmt.training.precision import half_precision
    from duplexmt.training.prefix_module import PrefixTranslation
    from duplexmt.training.probes import ProbeCallback, choose_probes
    from duplexmt.training.run import add_callbacks
    from duplexmt.training.sample import sample_callback
    from duplexmt.training.snapshots import Snapshots

    system: tuple[str, float | int | None] = (cfg.system.name, shown_delay(cfg.system.k))
    if cfg.system.name == "grid":
        system = ("grid", cfg.policy.thetas[0])
    stream = {name: getattr(cfg.data, name) for name in (*STREAM_SETTINGS, "context_tokens")}
    data = corpus_settings(asdict(cfg.data))
    if cfg.resume and data["tokenizer"] is None:
        data["tokenizer"] = str(folder / "tokenizer")  # not trained again
    prepared = prepare_corpus(**data)
    tokens = stream_tokens(prepared.tokenizer, **stream)
    datamodule = GridDataModule(prepared, tokens, **batches, seed=cfg.training.seed)
    look = asdict(cfg.probes)
    every, thetas = look.pop("every_n_steps"), look.pop("thetas")
    probes = ProbeCallback(
        choose_probes(prepared, **look),
        folder,
        prepared.tokenizer,
        system=cfg.system.name,
        settings=thetas if cfg.system.name == "grid" else [system[1]],
        max_target_tokens=cfg.policy.max_target_tokens,
        lam=cfg.policy.lam,
        every_n_steps=every,
    )

    vocab_size = len(prepared.tokenizer)
    if cfg.model.backbone is not None:
        backbone = pretrained_backbone(cfg.model.backbone, vocab_size)
    else:
        backbone = random_backbone(cfg.model.architecture or {}, vocab_size, tokens.end)
    if cfg.model.adaptation == "lora":
        backbone = add_lora(backbone, **asdict(cfg.model.lora))
        if half := half_precision(trainer.precision):
            freeze_in(half, backbone)
    optimisation: dict[str, Any] = {
        "learning_rate": cfg.training.learning_rate,
        "warmup_steps": cfg.training.warmup_steps,
        "schedule": cfg.training.schedule,
        "betas": (cfg.training.betas[0], cfg.training.betas[1]),
        "optimizer": cfg.training.optimizer,
        "emit_learning_rate": cfg.training.emit_learning_rate,
        "seed": cfg.training.seed,
    }
    model: GridModel | PrefixModel
    module: GridTranslation | PrefixTranslation
    if cfg.system.name == "grid":
        model = GridModel(
            backbone,
            attention=cfg.model.attention,
            input_attends_output=cfg.model.input_attends_output,
            softmax=cfg.model.softmax,
            anchor=cfg.model.anchor,
            emit_hidden=cfg.model.emit_hidden,
        )
        model.recompute = cfg.training.recompute
        if cfg.training.compile:
            model.compile_blocks()
        losses = {name: getattr(cfg.training, name) for name in ("lm_cells", "emit_loss", "emit_weight")}
        module = GridTranslation(model, tokens, lam=cfg.policy.lam, **losses, **optimisation)
    else:
        model = PrefixModel(backbone, k=cfg.system.k, anchor=cfg.model.anchor)
        if cfg.training.recompute != "nothing":
            model.recompute_layers()
        if cfg.training.compile:
            log.warning("training.compile=true: only the grid's blocks are compiled; %s is trained without", system[0])
        module = PrefixTranslation(model, tokens, **optimisation)
    recipe = {"lam": cfg.policy.lam} if cfg.system.name == "grid" else {}
    save = partial(
        save_model_folder,
        model=model,
        tokenizer=prepared.tokenizer,
        tokens=tokens,
        backbone=None if os.path.isdir(cfg.model.backbone or "") else cfg.model.backbone,
        data=asdict(cfg.data),
        trained_before=trained_on(cfg.model.backbone),
        max_shard_size=cfg.training.max_shard_size,
    )
    training = asdict(cfg.training) | recipe | {"typical_source_length": datamodule.typical_source_length}
    add_callbacks(
        trainer,
        sample_callback(
            prepared, cfg.training.sample_size, cfg.data.target_language, *system, cfg.policy.max_target_tokens
        ),
        probes,
        Snapshots(folder / "snapshots", cfg.training.snapshots, partial(save, training=training, scores={})),
    )
    if trainer.is_global_zero:
        datamodule.write_report(folder, resumed=cfg.resume is not None)
        log.info("corpus\n%s", prepared.summary())
    resumed = folder / "checkpoints" / "last.ckpt" if cfg.resume else None
    trainer.fit(module, datamodule, ckpt_path=resumed, weights_only=True)

    scores = {name: float(value) for name, value in trainer.callback_metrics.items() if name.startswith("validation/")}
    if module.validated_step != trainer.global_step and not trainer.interrupted:  # trained, or resumed, since then
        scores = dict(trainer.validate(module, datamodule, verbose=False)[0])
    if trainer.is_global_zero and not trainer.interrupted:
        model_folder = save(folder / "model", training=training | {"epochs": trainer.current_epoch}, scores=scores)
        link_latest(folder)
        if cfg.logger.artifacts:
            log_model(trainer, model_folder, f"{cfg.name}-model", scores)
        log.info("model folder: %s", os.path.relpath(model_folder))
        if cfg.demonstrate:
            log.info("%s", demonstrate(model_folder, prepared, cfg.demonstrate, *system, cfg.policy.max_target_tokens))
    close_loggers(trainer)
    return scores.get("validation/BLEU")


if __name__ == "__main__":
    with user_errors():
        arguments = resume_arguments(quote_arguments(sys.argv[1:]))
        sys.argv[1:] = follower_arguments(check_arguments(TrainSettings, arguments))
    main()
