"""The schema of `conf/`: every setting with its type and its rule. Values stand in YAML only.

Nothing here imports torch, so that `--help` and configuration errors are immediate.
"""

import ipaddress
import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from hydra.core.config_store import ConfigStore
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import ConfigKeyError

import data_prep

from .common.addresses import is_loopback
from .common.text import check_language
from .corpus.corpus_settings import CorpusSettings
from .decoder.decoder_options import FROZEN, RECOMPUTE, check_anchor, check_k, check_quantize, check_trained_k
from .grid.grid_options import rows_stand_alone
from .policy.decoding_options import (
    ADAPTIVE_KNOBS,
    Adaptive,
    check_knob,
    check_run_as,
    check_theta,
    check_words,
)
from .serving.settings import EngineOptions, EngineSettings, Limits
from .training.trainer_options import PRECISIONS, ROUND, STRATEGIES


@dataclass
class LoraConfig:
    """LoRA, where `model.adaptation=lora` (`tab:train-hparam`)."""

    rank: int
    alpha: int  # the adapters' outputs are scaled by alpha / rank
    dropout: float  # of their inputs
    target_modules: list[str]  # names of linear layers; [all-linear]: all there are

    def __post_init__(self) -> None:
        _check_limit("model.lora.rank", self.rank)
        if self.alpha < 1:
            raise ValueError(
                f"model.lora.alpha={self.alpha}: must be at least 1 (the paper uses 128); what LoRA adds is multiplied "
                "by alpha over rank, so 0 would leave the backbone as it is"
            )
        _check_share("model.lora.dropout", self.dropout)
        if not self.target_modules:
            raise ValueError("model.lora.target_modules=[]: give names of linear layers, or [all-linear]")


@dataclass
class ModelConfig:
    """Backbone and grid attention."""

    backbone: str | None  # Hugging Face name or folder; null: random weights of `architecture`
    architecture: dict[str, Any] | None  # of random weights: settings of a Hugging Face configuration; else null
    adaptation: str  # full: train all weights; lora: LoRA, text head and EMIT head
    lora: LoraConfig
    frozen: str  # LoRA's frozen matrices: auto (as trainer.precision has them) | int8 | int4, by bitsandbytes
    attention: str  # approximate | exact
    input_attends_output: bool  # I←O: whether the source stream attends to the target stream
    softmax: str  # over the keys of both streams: joint | separate
    anchor: Any  # source_length, a constant position, or visible_length (an ablation)
    emit_hidden: int  # units of a hidden layer in the EMIT head; 0: the paper's linear one

    def __post_init__(self) -> None:
        _check_one_of("model.adaptation", self.adaptation, "full", "lora")
        if (self.backbone is None) == (self.architecture is None):
            raise ValueError(
                "give exactly one of model.backbone (a pretrained model) and model.architecture (random weights); with "
                "a backbone add model.architecture=null, or model=qwen2_5_0_5b, which does and trains LoRA"
            )
        _check_one_of("model.frozen", self.frozen, *FROZEN)
        if self.frozen != "auto" and self.adaptation != "lora":
            raise ValueError(
                f"model.frozen={self.frozen} with model.adaptation={self.adaptation}: nothing is frozen; give "
                "model.adaptation=lora"
            )
        _check_one_of("model.attention", self.attention, "approximate", "exact")
        _check_one_of("model.softmax", self.softmax, "joint", "separate")
        _check_limit("model.emit_hidden", self.emit_hidden, least=0)


@dataclass
class SystemConfig:
    """What is trained: the grid, or a baseline on the same backbone."""

    name: str  # grid | waitk | offline
    k: Any  # waitk: source tokens read before the first is written; multi: trained at every k

    def __post_init__(self) -> None:
        _check_one_of("system.name", self.name, "grid", "waitk", "offline")
        if self.name == "waitk":
            check_trained_k(self.k)
        if self.name != "waitk" and self.k is not None:
            raise ValueError(f"system.k={self.k}: only wait-k has a k; train one by system=waitk system.k={self.k}")


# Settings that say where pairs come from, by the corpora that read them.
OF_CORPUS = {
    "builtin": (),
    "pairs": ("path", "train_path", "validation_path", "test_path"),
    "pairs_folder": ("path", "prepared", "cleaning", "sources", "exclude", "held_out"),
    "wmt21_zhen": ("root", "prepared", "cleaning", "sources"),
}
MOST_COPY_TOKENS = 11  # bytes above 0xF4 are in no UTF-8
CLEANINGS = sorted(path.stem for path in (Path(data_prep.__file__).parent / "conf" / "cleaning").glob("*.yaml"))
WHERE = tuple(dict.fromkeys(name for names in OF_CORPUS.values() for name in names))


@dataclass
class DataConfig(CorpusSettings):
    """Corpus, languages, tokenizer and batches."""

    tokenizer: str | None = None  # folder or Hugging Face name (a backbone's own); null: a BPE trained on the data
    licence: str = "unknown"  # of the data, for the model card
    end_token: str | None = None  # null: the tokenizer's eos
    seed_token: str | None = None  # null: the tokenizer's bos, else <|im_start|>, else eos
    copy_tokens: int = 0  # target tokens for what is copied from the source whole (data/copying.py); with Chinese, 8
    source_prefix: str = ""  # read before the text, and not scored
    target_prefix: str = ""  # likewise
    batch_size: int = 16  # pairs, on each device
    batch_tokens: Any = "auto"  # of the list a batch is packed into; auto: 8192 on CUDA, else null, batch_size pairs

    def __post_init__(self) -> None:
        if self.corpus not in ("builtin", "pairs", "pairs_folder", "wmt21_zhen", "recorded"):
            raise ValueError(f"data.corpus={self.corpus!r}: must be 'builtin', 'pairs', 'pairs_folder' or 'wmt21_zhen'")
        for name in WHERE if self.corpus != "recorded" else ():
            given = getattr(self, name)
            if name not in OF_CORPUS[self.corpus] and given != getattr(DataConfig(corpus="recorded"), name):
                readers = " or ".join(f"data={corpus}" for corpus, names in OF_CORPUS.items() if name in names)
                raise ValueError(
                    f"data.{name}={given}: data={self.corpus} does not read it; leave it out, or add {readers}"
                )
        _check_one_of("data.cleaning", self.cleaning, *CLEANINGS)
        if self.corpus == "wmt21_zhen" and (self.root is None or self.tokenizer is None):
            raise ValueError(
                "data=wmt21_zhen needs data.root=FOLDER of its raw files, and data.tokenizer to count with"
            )
        if self.context_tokens and self.corpus in ("builtin", "wmt21_zhen"):
            raise ValueError(
                f"data.context_tokens={self.context_tokens}: data={self.corpus} has no sentence before a source; "
                "leave it out, or add data=pairs or data=pairs_folder"
            )
        if self.corpus == "pairs":
            if not any((self.path, self.train_path, self.validation_path, self.test_path)):
                raise ValueError("data=pairs needs data.path=FILE, or data.train_path, data.validation_path, …")
            if self.path is not None and self.train_path is not None:
                raise ValueError("give data.path or data.train_path, not both")
        if self.corpus != "recorded" and self.source_field == self.target_field:
            raise ValueError(
                f"data.source_field={self.source_field}, data.target_field={self.target_field}: a text would be its "
                "own translation; give both"
            )
        _check_limit("data.max_tokens", self.max_tokens, null="no limit")
        _check_limit("data.train_size", self.train_size, null="all pairs")
        _check_limit("data.joined_tokens", self.joined_tokens, null="no joined pairs")
        if not 0 <= self.copy_tokens <= MOST_COPY_TOKENS:
            raise ValueError(f"data.copy_tokens={self.copy_tokens}: must be from 0 (none) to {MOST_COPY_TOKENS}")
        if not 0 <= self.copies <= 1:
            raise ValueError(f"data.copies={self.copies}: must be a share of the training pairs, from 0 (none) to 1")
        for name in ("joined_tokens", "copies"):
            if (given := getattr(self, name)) and self.corpus == "builtin":
                raise ValueError(
                    f"data.{name}={given}: the built-in corpus aligns single sentences, and would lack the alignment "
                    "of those made of them; leave it out, or train on pairs of your own"
                )
        if self.joined_tokens is not None and self.max_tokens is not None and self.joined_tokens > self.max_tokens:
            raise ValueError(
                f"data.joined_tokens={self.joined_tokens}: joined texts may not be longer than "
                f"data.max_tokens={self.max_tokens}; lower the one, or raise the other"
            )
        tokens, least = self.batch_tokens, 2 * ROUND
        if tokens not in ("auto", None) and (type(tokens) is not int or tokens < least or tokens % ROUND):
            raise ValueError(
                f"data.batch_tokens={tokens}: must be a multiple of {ROUND}, at least {least}, such as 8192, or auto, "
                "or null for data.batch_size pairs"
            )
        _check_one_of("data.segmentation", self.segmentation, "tokens", "characters")
        if self.context_tokens < 0 or not self.context_separator:
            raise ValueError(
                f"data.context_tokens={self.context_tokens}, data.context_separator={self.context_separator!r}: "
                "must be at least 0, and not empty"
            )
        if any(character.isspace() for character in self.context_separator):
            raise ValueError(
                f"data.context_separator={self.context_separator!r}: cleaning changes white space, so it must have "
                "none; leave it out of the files, too, or put other characters there"
            )
        for name in ("batch_size", "validation_size", "test_size"):
            _check_limit(f"data.{name}", getattr(self, name))
        if self.tokenizer is None:
            _check_limit("data.vocab_size", self.vocab_size, least=300)
        for language in (self.source_language, self.target_language):
            check_language(language)


@dataclass
class PolicyConfig:
    """λ of the path (training), θ of the EMIT head (decoding)."""

    lam: float  # λ: a larger one writes earlier (the paper: 0.1)
    theta: Any  # one threshold, or a list of them; evaluate: `recorded`, the model folder's own
    certainty: float | None  # weight of the next token's certainty beside p(EMIT); null: the model folder's
    k_min: int | None  # least lag (tokens read minus tokens written) at which it writes; null: the model folder's
    k_max: int | None  # lag from which on it writes, whatever θ; 0: no bound; null: the model folder's
    words: bool | None  # decisions by words, in training and decoding (policy/words.py); null: the model folder's
    beam: int | None  # decoding: endings weighed once the source has ended; 1: greedy; null: the model folder's
    lookahead: int | None  # decoding: tokens weighed behind each that is written sooner; null: the model folder's
    max_target_tokens: int  # length at which a translation is stopped

    def __post_init__(self) -> None:
        _check_at_least_0("policy.lam", self.lam, "the paper uses 0.1")
        if self.certainty is not None:
            _check_at_least_0("policy.certainty", self.certainty, "0: p(EMIT) alone, as in the paper")
        _check_limit("policy.k_min", self.k_min, least=0, null="the model folder's")
        _check_limit("policy.k_max", self.k_max, least=0, null="the model folder's")
        _check_limit("policy.beam", self.beam, null="the model folder's")
        _check_limit("policy.lookahead", self.lookahead, least=0, null="the model folder's")
        if not self.thetas:
            raise ValueError("policy.theta=[]: give one threshold between 0 and 1, or a list of them")
        for theta in self.thetas:
            if theta != "recorded":
                check_theta(theta)
        _check_limit("policy.max_target_tokens", self.max_target_tokens)

    @property
    def thetas(self) -> list[float]:
        """θ as a list, whether one or several were given."""
        return list(self.theta) if isinstance(self.theta, list) else [self.theta]

    @property
    def rule(self) -> dict[str, Any]:
        """What else decides (`EmitRule`), by name."""
        return {name: getattr(self, name) for name in ("certainty", "k_min", "k_max", "words", "beam", "lookahead")}


@dataclass
class TrainingConfig:
    """Optimisation."""

    learning_rate: float  # after the warm-up
    warmup_steps: int  # in which it grows from 0
    schedule: str  # of the rate after the warm-up: constant | linear (down to 0)
    optimizer: str  # adam | muon (of the layers' matrices; Adam of all else)
    emit_loss: str  # what the EMIT head learns: mask (eq:emit-loss) | regret
    lm_cells: str  # what the language model of a grid learns: mask (eq:lm-loss) | visits | drawn_visits
    rows: int | None  # how many of each pair's grid a step computes (policy/rows.py); null: all; past_paper and qwen: 4
    emit_learning_rate: float | None  # of the EMIT head; null: learning_rate
    dropout: float  # of what embedding, attention and MLP add to the residual stream
    emit_weight: float  # of L_emit in the grid's loss (eq:total-loss: 1)
    betas: list[float]  # of Adam
    recompute: str  # in the backward pass: nothing | elementwise | layers (least memory)
    compile: Any  # torch.compile the layers: true, false, or auto: on CUDA, where batches are packed
    sample_size: int  # validation sentences translated for BLEU and AL
    checkpoint_every_n_steps: int  # from which resume=RUN goes on; paper and qwen: 1000
    seed: int  # of initial weights and all that is drawn
    max_shard_size: str | None = None  # of a file of the model folder's weights, such as 40MB; null: one file

    def __post_init__(self) -> None:
        if self.rows is not None and self.rows < 2:
            raise ValueError(
                f"training.rows={self.rows}: must be a whole number of at least 2 (the last row and one more: without "
                "a choice between rows there is no policy to learn), or null for all rows"
            )
        _check_one_of("training.emit_loss", self.emit_loss, "mask", "regret")
        _check_one_of("training.lm_cells", self.lm_cells, "mask", "visits", "drawn_visits")
        _check_one_of("training.schedule", self.schedule, "constant", "linear")
        _check_one_of("training.optimizer", self.optimizer, "adam", "muon")
        _check_positive("training.learning_rate", self.learning_rate)
        if self.emit_learning_rate is not None:
            _check_positive("training.emit_learning_rate", self.emit_learning_rate)
        _check_limit("training.warmup_steps", self.warmup_steps, least=0)
        _check_share("training.dropout", self.dropout)
        if len(self.betas) != 2 or not all(0 <= beta < 1 for beta in self.betas):
            raise ValueError(
                f"training.betas={self.betas}: Adam needs two numbers of at least 0 and below 1, such as [0.9, 0.999]"
            )
        _check_positive("training.emit_weight", self.emit_weight)
        if self.compile not in ("auto", True, False):
            raise ValueError(f"training.compile={self.compile!r}: must be auto, true or false")
        _check_one_of("training.recompute", self.recompute, *RECOMPUTE)
        if self.max_shard_size is not None and not re.fullmatch(r"[1-9][0-9]*(KB|MB|GB)", self.max_shard_size):
            raise ValueError(
                f"training.max_shard_size={self.max_shard_size!r}: must be a whole number of KB, MB or GB, such as "
                "40MB, or null for one file"
            )
        if not 0 <= self.seed < 2**32:
            raise ValueError(f"training.seed={self.seed}: must be at least 0 and below 2^32")
        _check_limit("training.checkpoint_every_n_steps", self.checkpoint_every_n_steps)
        _check_limit("training.sample_size", self.sample_size, least=0)


@dataclass
class TrainerConfig:
    """Passed to `lightning.Trainer` as it stands."""

    accelerator: str  # auto | cpu | gpu
    devices: Any  # a number of GPUs; on a CPU also "cores": processes that share each batch
    num_nodes: int  # machines
    strategy: str  # auto | ddp | fsdp | deepspeed_stage_1 | deepspeed_stage_2
    precision: str  # auto: bf16-mixed where the machine multiplies faster in bfloat16, else 32; 16-mixed: fp16
    max_epochs: int | None  # passes over the pairs
    max_steps: int  # optimiser steps; -1: no limit
    accumulate_grad_batches: int  # batches of an optimiser step
    gradient_clip_val: float | None  # largest norm of the gradient; null: as it is
    check_val_every_n_epoch: int | None  # epochs between two validations; null: as val_check_interval says
    val_check_interval: Any  # batches, a share of an epoch, or a time between two validations
    log_every_n_steps: int  # in metrics/
    enable_progress_bar: bool  # on a terminal; else a line a minute
    num_sanity_val_steps: int  # batches of a validation before the first step

    def __post_init__(self) -> None:
        _check_one_of("trainer.strategy", self.strategy, *STRATEGIES)
        if self.strategy == "fsdp" and self.precision in ("16-mixed", "16"):
            raise ValueError(
                f"trainer.strategy=fsdp with trainer.precision={self.precision}: each process would scale its "
                "gradients by itself; give trainer.precision=bf16-mixed, or 32"
            )
        if self.precision not in PRECISIONS:
            raise ValueError(
                f"trainer.precision={self.precision!r}: trained weights stay in float32; must be one of "
                + ", ".join(PRECISIONS)
            )
        if self.log_every_n_steps < 1:
            raise ValueError(
                f"trainer.log_every_n_steps={self.log_every_n_steps}: must be at least 1; to log rarely give a large "
                "number"
            )
        if self.gradient_clip_val is not None and not self.gradient_clip_val >= 0:
            raise ValueError(
                f"trainer.gradient_clip_val={self.gradient_clip_val}: must be at least 0 (0 or null: gradients stay)"
            )
        _check_limit("trainer.accumulate_grad_batches", self.accumulate_grad_batches)
        _check_limit("trainer.check_val_every_n_epoch", self.check_val_every_n_epoch, null="no rule by epochs")
        interval = self.val_check_interval
        if isinstance(interval, int | float) and not interval > 0:  # a text is a time
            raise ValueError(
                f"trainer.val_check_interval={interval}: must be above 0 (a whole number of batches, or a share of an "
                "epoch), or null for the ends of epochs"
            )
        if isinstance(interval, float) and interval > 1:
            raise ValueError(
                f"trainer.val_check_interval={interval}: a share of an epoch is at most 1.0; batches are a whole number"
            )
        if self.check_val_every_n_epoch is None and not isinstance(interval, int | str):
            raise ValueError(
                f"trainer.check_val_every_n_epoch=null, trainer.val_check_interval={interval}: without a rule by "
                "epochs give a whole number of batches, or a time such as 00:01:00:00 (days, hours, minutes, seconds)"
            )


@dataclass
class ProbesConfig:
    """Sentences looked at while training goes on: heatmap, path, EMIT map, and translations at several θ."""

    count: int  # validation pairs, chosen by `seed`; 0: none
    pairs: list[list[str]] | None  # [[source, reference], …] of your own, in place of validation pairs
    every_n_steps: int  # optimiser steps between two looks, beside the one at the end
    thetas: list[float]  # of a grid model's translations
    max_tokens: int  # longest text of either side, in tokens
    seed: int  # of that choice

    def __post_init__(self) -> None:
        _check_limit("probes.count", self.count, least=0)
        if self.every_n_steps < 1:
            raise ValueError(
                f"probes.every_n_steps={self.every_n_steps}: must be at least 1; for no probes give probes.count=0"
            )
        _check_limit("probes.max_tokens", self.max_tokens)
        for pair in self.pairs or []:
            if len(pair) != 2 or not all(text.strip() for text in pair):
                raise ValueError(f"probes.pairs: {pair} must be a source and its reference, neither of them empty")
        if not self.thetas:
            raise ValueError(
                "probes.thetas=[]: give at least one threshold between 0 and 1; for no probes, probes.count=0"
            )
        for theta in self.thetas:
            check_theta(theta, "probes.thetas")


@dataclass
class LoggerConfig:
    """CSV files are always written; W&B on request, offline unless told otherwise."""

    wandb: bool  # whether to log to W&B
    offline: bool  # to a folder, for `wandb sync`
    project: str  # there
    group: str | None  # of the W&B run; null: the sweep's folder, none for a single run
    artifacts: bool  # whether model and results go to W&B, too


@dataclass
class TrainSettings:
    """`python train.py`."""

    name: str  # tables call the model so; seeds of one name are one system
    resume: str | None  # folder of a run to go on with
    demonstrate: int  # held-out sentences translated at the end
    system: SystemConfig
    model: ModelConfig
    data: DataConfig
    policy: PolicyConfig
    training: TrainingConfig
    trainer: TrainerConfig
    probes: ProbesConfig
    logger: LoggerConfig

    def __post_init__(self) -> None:
        if self.data.corpus == "recorded":
            raise ValueError("data=recorded is what a trained model recorded: train with data=builtin or data=pairs")
        if self.data.corpus == "pairs_folder" and self.data.path is None:
            raise ValueError("data=pairs_folder needs data.path=FOLDER of files NAME.tsv.gz")
        if self.data.corpus == "pairs" and self.data.path is None and self.data.train_path is None:
            raise ValueError("no pairs to train on: give data.path=FILE or data.train_path=FILE")
        if self.model.backbone is not None and self.data.tokenizer is None:
            raise ValueError(
                f"model.backbone={self.model.backbone} knows its own tokenizer's tokens only: give "
                f"data.tokenizer={self.model.backbone} (without it, a new one is trained on the data)"
            )
        if self.trainer.max_epochs is None and self.trainer.max_steps == -1:
            raise ValueError("trainer.max_epochs=null without trainer.max_steps: give one of them (-1: no limit)")
        for name in ("max_epochs", "max_steps"):
            if getattr(self.trainer, name) == 0 and self.model.backbone is None:
                raise ValueError(
                    f"trainer.{name}=0: nothing would be trained, and the model's weights are random; give at least 1 "
                    "(-1: no limit), or a model.backbone, to run it as it is"
                )
        if "recorded" in self.policy.thetas:
            raise ValueError("policy.theta=recorded: a model that is still to be trained has none recorded")
        if self.policy.words:
            check_words(self.data.target_language)
        if self.system.name != "grid":
            self.training.rows = None  # a baseline has none; `experiment=qwen system=waitk` is meant to be compared
        if self.trainer.strategy == "fsdp" and self.training.optimizer == "muon":
            raise ValueError(
                "training.optimizer=muon with trainer.strategy=fsdp: its steps take whole matrices, and each process "
                "has a share of them; give training.optimizer=adam, or trainer.strategy=ddp"
            )
        names = ("attention", "input_attends_output", "softmax")
        kind = {name: getattr(self.model, name) for name in names}
        if self.training.rows is not None and not rows_stand_alone(**kind):
            shown = ", ".join(f"model.{name}={value}" for name, value in kind.items())
            raise ValueError(
                f"rows of a grid with {shown} read each other, so all must be computed: give training.rows=null, or "
                "model.attention=exact model.input_attends_output=false model.softmax=joint"
            )
        check_anchor(self.model.anchor, naive=self.system.name == "grid")
        _check_limit("demonstrate", self.demonstrate, least=0)


@dataclass
class QualityConfig:
    """COMET, BLEURT and an aligner, of the metrics environment (`make metrics`); BLEU and chrF are always reported."""

    comet: str | None  # checkpoint: a name on the Hugging Face hub or a local folder; null: leave it out
    bleurt: str | None  # likewise
    alignment: str | None  # AR and HR: file of pairs the aligner learns from, or references; null: left out
    environment: str  # folder of the metrics environment
    batch_size: int  # sentences scored at once
    resamples: int  # of the bootstrap over sentences

    def __post_init__(self) -> None:
        _check_limit("quality.batch_size", self.batch_size)
        _check_limit("quality.resamples", self.resamples, least=100)


@dataclass
class EvaluateSettings:
    """`python evaluate.py`."""

    model_folder: Any  # one, a list of them, or a pattern such as runs/sweep/*/model
    resume: str | None  # folder of an evaluation to go on with
    rescore: Any  # folder (or folders) of finished evaluations, of a sweep or of an earlier rescore: decode nothing
    split: str  # test | validation
    limit: int | None  # first sentences only
    references: list[str]  # files of further references, a line for each test pair
    k: Any  # wait-k: null (as trained), a number or a list
    agreement: list[int]  # local agreement over an offline or multi-path model: hypotheses that must agree
    confidence: Any  # adaptive wait-k on a multi-path model: ρ, a mean threshold; null: none; or a list
    lsg: Any  # LSG on multi-path and offline models: δ, in nats
    alignatt: Any  # AlignAtt on them: f, the last source tokens that what is written must not rest on
    hold: Any  # hold-n on them: tokens of each draft held back
    told_length: bool  # tell models with anchor source_length how long each source is, which nobody live can know
    target_al: float | None  # find θ with this AL on the validation pairs, and record it with the model
    claims: bool  # check the claims of the paper's Section VI-B
    over_seeds: bool  # models of one name, trained with several seeds, as one system: mean and spread
    logs: bool  # write hypotheses as SimulEval and OmniSTEval read them, too
    check_overlap: bool  # find test sentences that a model was trained on, or on near repetitions of: scored apart
    source_rate: float  # source characters (or words) a second, for computation-aware latency
    device: str  # auto, cpu, cuda, …
    quantize: str | None  # int8: smaller and, where weights are large, faster on a CPU; bfloat16; null: as they are
    batch_size: int  # streams decoded side by side
    data: DataConfig
    policy: PolicyConfig
    adaptive: Adaptive
    quality: QualityConfig
    logger: LoggerConfig

    def __post_init__(self) -> None:
        _check_one_of("split", self.split, "test", "validation")
        _check_limit("limit", self.limit, null="all sentences")
        for k in self.ks:
            check_k(k, "k")
        for n in self.agreement:
            _check_limit("agreement", n)
        for name in ADAPTIVE_KNOBS:
            if getattr(self, name) == []:
                raise ValueError(f"{name}=[]: give at least one value, or {name}=null to leave {name} out")
            for value in self.rivals[name]:
                check_knob(name, value)
        if self.target_al is not None and not 0 < self.target_al < float("inf"):
            raise ValueError(f"target_al={self.target_al}: the wanted latency must be above 0 (in model tokens)")
        _check_positive("source_rate", self.source_rate)
        if not self.model_folders:
            raise ValueError("model_folder=[]: give the folder of a trained model, or several")
        check_quantize(self.quantize)
        _check_limit("batch_size", self.batch_size)

    @property
    def model_folders(self) -> list[str]:
        """As a list, whether one or several were given."""
        return _as_list(self.model_folder)

    @property
    def rescored(self) -> list[str]:
        """Folders to score again; none for an ordinary evaluation."""
        return _as_list(self.rescore)

    @property
    def ks(self) -> list[int]:
        """Those given; none for what the model was trained with."""
        return _as_list(self.k)

    @property
    def rivals(self) -> dict[str, list[Any]]:
        """Settings of the adaptive policies, by system; 1.0 is the setting 1."""
        return {name: [_whole(value) for value in _as_list(getattr(self, name))] for name in ADAPTIVE_KNOBS}


@dataclass
class TranslateSettings:
    """`python translate.py`."""

    model_folder: str | None  # null: the latest run's, else the model in the box
    text: str | None  # null: standard input, as it arrives
    input: str | None  # a file in its place; of .srt and .vtt the cues, at their times
    captions: str | None  # where to write subtitles, .srt or .vtt, too
    source_rate: (
        float | None
    )  # at which the source comes, for their times: characters or words a second; null: the clock
    theta: float | None  # null: what `evaluate.py target_al=…` found, else that of its training
    run_as: str | None  # what a model that is no grid is run as: waitk, confidence, …; null: the grid
    setting: Any  # of that system: k of waitk, ρ of confidence, …
    adaptive: Adaptive
    max_target_tokens: int  # of a sentence
    max_repeats: int | None  # how often in a row the same tokens may be written; null: as often as it likes
    max_sentence_tokens: int | None  # of the source, at which it is cut; null: as the model was trained
    cut: bool  # whether sentences end at full stops too, not at line ends only
    pause: float  # seconds without a character that let go what is held back, and end a sentence that is complete
    events: bool  # one JSON line an event
    steps: bool | None  # a line for each source token, with what was written after it; null: on a terminal
    device: str  # auto, cpu, cuda, …
    quantize: str | None  # int8, on a CPU, or bfloat16; null: weights as they are

    def __post_init__(self) -> None:
        if self.theta is not None:
            check_theta(self.theta, "theta")
        check_run_as(self.run_as, self.setting)
        _check_limit("max_target_tokens", self.max_target_tokens)
        _check_limit("max_repeats", self.max_repeats, null="no guard", least=2)
        check_quantize(self.quantize)
        _check_captions(self.text, self.input, self.captions, self.source_rate)
        if self.events and self.steps:
            raise ValueError("steps=true: events=true shows each step as JSON; give one of them")
        if not self.pause > 0:
            raise ValueError(f"pause={self.pause}: must be a number of seconds above 0")


SUBTITLES = (".srt", ".vtt")


def _check_captions(text: str | None, given: str | None, captions: str | None, rate: float | None) -> None:
    if text is not None and given is not None:
        raise ValueError(f"input={given} and text={text[:20]!r}…: give one of them")
    if captions is not None:
        if not captions.lower().endswith(SUBTITLES):
            raise ValueError(f"captions={captions}: must end in .srt or .vtt, which says the format")
        if given is not None and Path(captions).resolve() == Path(given).resolve():
            raise ValueError(f"captions={captions}: is the input itself, which would be lost; give another name")
    if rate is None:
        return
    if captions is None:
        raise ValueError(f"source_rate={rate}: is for the times of captions=FILE.vtt; leave it out")
    if given is not None and given.lower().endswith(SUBTITLES):
        raise ValueError(f"source_rate={rate}: the cues of input={given} have times of their own; leave it out")
    _check_positive("source_rate", rate)


@dataclass
class EngineConfig(EngineOptions):
    """The engine of a server, with its rules; its settings: `duplexmt/serving/settings.py`."""

    def __post_init__(self) -> None:
        for name in ("max_streams", "max_target_tokens", "threads"):
            _check_limit(f"engine.{name}", getattr(self, name))
        _check_limit("engine.max_repeats", self.max_repeats, null="no guard", least=2)
        check_quantize(self.quantize)
        for name in ("text_seconds", "park_after"):
            _check_positive(f"engine.{name}", getattr(self, name))


@dataclass
class LimitsConfig(Limits):
    """What a client of a server may do, with the rules; its settings: `duplexmt/serving/settings.py`."""

    def __post_init__(self) -> None:
        for entry in fields(self):
            _check_positive(f"limits.{entry.name}", getattr(self, entry.name))
        if self.characters_burst < self.message_characters:
            raise ValueError(
                f"limits.characters_burst={self.characters_burst}: must be at least limits.message_characters="
                f"{self.message_characters}, or such a message could never be sent"
            )
        if self.frame_bytes < (least := 6 * self.message_characters + 100):  # a character is up to 6 bytes of JSON
            raise ValueError(
                f"limits.frame_bytes={self.frame_bytes}: must be at least {least}, or a message of "
                f"limits.message_characters={self.message_characters} may not fit into a frame"
            )
        if self.messages_burst < 2:
            raise ValueError(
                f"limits.messages_burst={self.messages_burst}: must be at least 2, the message that begins and one more"
            )
        if self.connections < self.sessions:
            raise ValueError(
                f"limits.connections={self.connections}: must be at least limits.sessions={self.sessions}, or not all "
                "of them could be connected"
            )


@dataclass
class ServeSettings:
    """`python serve.py`."""

    model_folder: Any  # or a list of them, of which a session chooses one; null: the latest run's, else the box's
    run_as: str | None  # this, `setting` and `adaptive`: as for `translate.py`
    setting: Any
    adaptive: Adaptive
    host: str  # address to listen at
    port: int  # 0: any that is free
    token: str | None  # that clients must bring; may be null on loopback only
    hosts: list[str]  # names the server is reached by, beside localhost and plain addresses
    origins: list[str]  # pages of other hosts that may connect and read answers, such as https://example.org
    proxies: list[str]  # addresses whose X-Forwarded-For is believed
    engine: EngineConfig
    limits: LimitsConfig
    step_deadline: float  # seconds without a sign of life after which the engine is started again
    start_deadline: float  # seconds it has to load its model

    def __post_init__(self) -> None:
        check_run_as(self.run_as, self.setting)
        if not 0 <= self.port < 65536:
            raise ValueError(f"port={self.port}: must be at least 0 and below 65536")
        if self.token == "":
            raise ValueError("token='': an empty token protects nothing; give a longer one, or null")
        if self.token is None and self.host != "localhost" and not is_loopback(self.host):
            raise ValueError(
                f"host={self.host}: others than this machine reach that address, so clients must bring a token: set "
                "DUPLEXMT_TOKEN or token=…, or leave host=127.0.0.1"
            )
        for host in self.hosts:
            if re.search(r"[\s/*?#@]|:\d*$", host) and not _is_address(host):
                raise ValueError(f"hosts=[{host}]: a name alone, such as mt.example.org, without scheme and port")
        for proxy in self.proxies:
            if proxy != "*" and not _is_address(proxy):
                raise ValueError(
                    f"proxies=[{proxy}]: the address of a proxy or of its network, such as 127.0.0.1 or 10.0.0.0/24, "
                    "or * for any"
                )
        for origin in self.origins:
            if not re.fullmatch(r"[a-z][a-z0-9+.-]*://[^\s/?#@]+", origin):
                raise ValueError(
                    f"origins=[{origin}]: an origin is scheme://host or scheme://host:port, such as https://example.org"
                )
        for name in ("step_deadline", "start_deadline"):
            _check_positive(name, getattr(self, name))
        if not self.model_folders:
            raise ValueError("model_folder=[]: give the folder of a trained model, or several")

    @property
    def model_folders(self) -> list[str | None]:
        """As a list, whether one, several or none were given."""
        return _as_list(self.model_folder) if self.model_folder is not None else [None]

    def engine_settings(self, folders: Iterable[Path]) -> EngineSettings:
        """What the engine is told.

        Args:
            folders: of the models, which `chosen_models` finds.
        """
        as_run: dict[str, Any] = {"run_as": self.run_as, "setting": self.setting, "adaptive": self.adaptive}
        return EngineSettings(model_folders=[*map(str, folders)], **as_run, **asdict(self.engine))


def _is_address(name: str) -> bool:
    """Whether it is an IP address, or a network's."""
    try:
        return bool(ipaddress.ip_network(name))
    except ValueError:
        return False


def _check_one_of(setting: str, value: str, *choices: str) -> None:
    if value not in choices:
        raise ValueError(f"{setting}={value!r}: must be one of {', '.join(choices)}")


def _check_share(setting: str, value: float) -> None:
    if not 0 <= value < 1:
        raise ValueError(f"{setting}={value}: must be a share, at least 0 and below 1")


def _check_at_least_0(setting: str, value: float, why: str) -> None:
    if not 0 <= value < float("inf"):
        raise ValueError(f"{setting}={value}: must be a finite number of at least 0 ({why})")


def _check_positive(setting: str, value: float) -> None:
    if not 0 < value < float("inf"):
        raise ValueError(f"{setting}={value}: must be a finite number above 0")


def _as_list(value: Any) -> list[Any]:
    if value is None:
        return []
    return list(value) if isinstance(value, list) else [value]


def _whole(value: Any) -> Any:
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _check_limit(setting: str, value: int | None, least: int = 1, null: str | None = None) -> None:
    """Refuse a number below the least one; None stands for what `null` says."""
    if value is not None and value < least:
        raise ValueError(f"{setting}={value}: must be at least {least}" + (f", or null for {null}" if null else ""))


SCHEMAS = {"train": TrainSettings, "evaluate": EvaluateSettings, "translate": TranslateSettings, "serve": ServeSettings}


def register_schemas() -> None:
    """Make the schemas known to Hydra under the names the YAML files refer to."""
    store = ConfigStore.instance()
    for name, schema in SCHEMAS.items():
        store.store(name=f"{name}_schema", node=schema)


def settings(schema: type, cfg: DictConfig) -> Any:
    """Turn a composed configuration into checked dataclasses.

    Raises:
        ValueError: for a value that breaks its rule, one that is missing, or a setting the schema does not know.
    """
    try:
        own = OmegaConf.masked_copy(cfg, [str(key) for key in cfg if key != "hydra"])
        merged = OmegaConf.merge(OmegaConf.structured(schema), OmegaConf.to_container(own))
    except ConfigKeyError as error:  # Hydra lets +name=… through
        raise ValueError(f"{error.full_key}: there is no such setting") from error
    missing = OmegaConf.missing_keys(merged)
    if missing:
        raise ValueError(f"no value for {', '.join(sorted(missing))}: give it as {min(missing)}=…")
    return OmegaConf.to_object(merged)


def recorded_data(recorded: dict[str, Any], given: DataConfig, arguments: Iterable[str] = ()) -> DataConfig:
    """Data settings of a trained model with the settings given now on top.

    Args:
        given: the present settings; with `corpus: recorded`, what differs from the schema's default counts, and
            whatever `arguments` name.
        arguments: of the command line, such as `data.test_path=newstest.tsv`.

    Raises:
        ValueError: for settings that would split the recorded corpus anew.
    """
    if given.corpus != "recorded":
        return given
    defaults = DataConfig(corpus="recorded")
    recorded = {name: value for name, value in recorded.items() if hasattr(defaults, name)}  # but what is none now
    recorded = {"train_on_relatives": True} | recorded  # which models made before December 2026 were
    named = {argument.partition("=")[0].lstrip("+") for argument in arguments}
    changed = {
        entry.name: getattr(given, entry.name)
        for entry in fields(DataConfig)
        if getattr(given, entry.name) != getattr(defaults, entry.name) or f"data.{entry.name}" in named
    }
    splitting = (  # pairs are held out by a hash of the clean source text
        "seed", "max_tokens", "train_size", "validation_size", "test_size", "held_out", "exclude", "sources",
        "cleaning", "source_field", "source_language",
    )  # fmt: skip
    held = {name: recorded.get(name, getattr(defaults, name)) for name in splitting}
    resplit = {name for name in splitting if name in changed and changed[name] != held[name]}
    files = changed.keys() & {"path", "train_path", "validation_path", "test_path"}
    if recorded["corpus"] == "pairs_folder":  # whose path is the same folder, moved
        files -= {"path"}
    if resplit and not files:
        name = min(resplit)
        raise ValueError(
            f"data.{name}={changed[name]}: another split of the recorded corpus would test on pairs the model was "
            "trained on; use limit=… for fewer sentences, or data.test_path=FILE for other ones"
        )
    if files:
        recorded = recorded | {name: getattr(defaults, name) for name in WHERE} | {"corpus": "pairs"}
    return DataConfig(**(recorded | changed))
