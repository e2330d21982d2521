"""The model folder: everything needed to run a trained model, in the layout the Hugging Face hub expects.

README.md                      model card: data, licence, settings, scores
duplexmt.json                  system, its options, stream tokens, data settings, every file's size and fingerprint
emit_head.safetensors          the EMIT head of a grid
model.safetensors, config.json the backbone, where it was trained in full
adapter_model.safetensors, adapter_config.json   LoRA and text head, where it was not
backbone/                      the frozen backbone, where it has no name others could load it by, with the numbers it
                               had in training (a named one is rounded again when loaded: `frozen` in duplexmt.json)
tokenizer.json, …              the tokenizer

Weights may be in shards (`max_shard_size`), with an index, as Hugging Face has them.
"""

import copy
import json
import os
import shutil
import subprocess
import warnings
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from math import inf
from pathlib import Path
from typing import Any

import torch
import yaml
from safetensors.torch import load_file, save_file
from transformers.utils.logging import disable_progress_bar

from .. import __version__
from ..corpus.repository import PREFIX
from ..data.settled import SettledTokens
from ..data.tokenizer import SourceTokens, StreamTokens, load_tokenizer, save_tokenizer
from ..decoder.backbone import backbone_config, pretrained_backbone
from ..decoder.decoder_options import BFLOAT16, MULTI_PATH
from ..decoder.model import DecoderModel
from ..decoder.quantised import dequantise, frozen_as, quantise
from ..grid.grid_options import rows_stand_alone
from ..grid.model import GridModel, build_grid, check_backbone
from ..kernels.int8 import to_int8
from ..policy.decoding_options import PAPER_RULE, EmitRule, recorded_rule
from ..policy.words import emit_rule
from .hugging_face import model_at
from .manifest import (
    FORMAT,
    MANIFEST,
    check_content,
    file_digest,
    found_out,
    partial_folder,
    read_manifest,
    write_manifest,
)
from .weight_files import load_adapter, split_file

EMIT_HEAD = "emit_head.safetensors"


@dataclass
class ModelFolder:
    """A loaded model folder."""

    model: GridModel | DecoderModel
    tokenizer: Any
    tokens: StreamTokens
    info: dict[str, Any]  # the manifest
    rule: EmitRule = PAPER_RULE  # of any system its beam search, the rest of a grid

    @property
    def sources(self) -> SourceTokens:
        """How its source texts become tokens."""
        return SourceTokens(self.tokenizer, self.info["data"].get("segmentation", "tokens"))

    @cached_property
    def settled_tokens(self) -> SettledTokens:
        """Which tokens of a text that is still arriving are settled."""
        return SettledTokens(self.sources.tokenizer, self.sources.segmentation)

    @property
    def context_separator(self) -> str | None:
        """What stands between the sentence before and the source in the files it reads; None for a model without."""
        data = self.info["data"]
        return data["context_separator"] if data.get("context_tokens") else None

    @property
    def typical_source_length(self) -> int:
        """What the length of a source nobody knows is taken for: the mean in training, or half its limit."""
        return self.info["training"].get("typical_source_length") or ((self.info["data"]["max_tokens"] or 32) // 2 + 1)

    def deciding(self, **given: Any) -> "ModelFolder":
        """The same by the recorded `EmitRule`, but for the settings given; None leaves one as recorded.

        Raises:
            ValueError: what `emit_rule` refuses.
        """
        rule = recorded_rule(self.info) | {name: value for name, value in given.items() if value is not None}
        if self.model.system != "grid":  # whose decisions have none
            return replace(self, rule=EmitRule(beam=rule["beam"], lookahead=rule["lookahead"]))
        language = self.info["data"].get("target_language")
        return replace(self, rule=emit_rule(self.model, self.tokenizer, language, **rule))


def save_model_folder(
    folder: str | Path,
    model: GridModel | DecoderModel,
    tokenizer: Any,
    tokens: StreamTokens,
    *,
    backbone: str | None,
    data: dict[str, Any],
    policy: dict[str, float],
    training: dict[str, Any],
    scores: dict[str, float],
    trained_before: list[dict[str, Any]] | None = None,
    max_shard_size: str | None = None,
    name: str | None = None,
) -> Path:
    """Write a model folder, all or nothing: a folder of that name appears only once it is complete.

    Args:
        folder: where to; a complete model folder already there is replaced.
        model: trained model; with LoRA its backbone is a `PeftModel`.
        tokenizer, tokens: what its data was made with.
        backbone: name or folder the frozen backbone can be loaded from; None: its weights are saved along.
        data: settings of its data (languages, licence, …).
        policy: of a grid model `lam`, with which it was trained, and `theta`, to translate at; of others nothing.
        training: settings of its training, for the record.
        scores: validation figures for the model card.
        trained_before: settings of the data its base was trained on, see `trained_on`.
        max_shard_size: of a file of weights, such as 40MB; a tensor is never cut up. None for one file.
        name: what tables call it, and its trainings with other seeds; None for the folder's (`manifest.name_of`).

    Raises:
        ValueError: for a size that is none, and a folder of other things in the way.
    """
    folder = check_replaceable(folder).resolve()  # a link stays one
    sharded = {"max_shard_size": max_shard_size} if max_shard_size else {}
    disable_progress_bar()
    partial = partial_folder(folder)
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    adapted = hasattr(model.backbone, "peft_config")
    if adapted:
        model.backbone.save_pretrained(str(partial), save_embedding_layers=False)
        (partial / "README.md").unlink(missing_ok=True)
        if max_shard_size:
            split_file(partial / "adapter_model.safetensors", max_shard_size)
        adapter = partial / "adapter_config.json"
        settings = json.loads(adapter.read_text(encoding="utf-8"))
        if isinstance(settings["target_modules"], list):
            settings["target_modules"].sort()  # PEFT writes a set, in another order each time
        if backbone is None:
            _frozen_backbone(model).save_pretrained(str(partial / "backbone"), **sharded)
            settings["base_model_name_or_path"] = "backbone"
        adapter.write_text(json.dumps(settings, indent=2), encoding="utf-8")
    else:
        model.causal_lm.save_pretrained(str(partial), **sharded)
    frozen = (
        frozen_as(model.backbone) if adapted and backbone is not None else None
    )  # else it is saved as it was rounded
    system = {"system": model.system, "grid" if model.system == "grid" else "prefix": model.options}
    if model.emit_head is not None:
        save_file({name: w.detach().cpu() for name, w in model.emit_head.state_dict().items()}, partial / EMIT_HEAD)
    save_tokenizer(tokenizer, partial)
    info = {
        "format": FORMAT,
        "duplexmt_version": version(),
        **({"name": name} if name else {}),
        **system,
        "adaptation": "lora" if adapted else "full",
        "backbone": backbone,
        **({"frozen": frozen} if frozen else {}),
        "tokens": asdict(tokens),
        "data": data,
        "policy": policy,
        "training": training,
        "trained_before": trained_before or [],
        "scores": scores,
    }
    files = [path for path in sorted(partial.rglob("*")) if path.is_file()]
    info["files"] = {str(path.relative_to(partial)): path.stat().st_size for path in files}
    info["digests"] = digests = {str(path.relative_to(partial)): file_digest(path) for path in files}
    info |= _found_before(folder, digests)
    (partial / "README.md").write_text(model_card(info), encoding="utf-8")  # not in `files`: people edit their cards
    write_manifest(partial, info)
    for weights in partial.rglob("*.safetensors"):  # safetensors keeps them from all other users
        shutil.copymode(partial / MANIFEST, weights)
    if folder.exists():
        replaced = folder.with_name(f"{folder.name}.replaced")
        shutil.rmtree(replaced, ignore_errors=True)
        os.replace(folder, replaced)
        os.replace(partial, folder)
        shutil.rmtree(replaced, ignore_errors=True)
    else:
        os.replace(partial, folder)
    return folder


def _found_before(folder: Path, digests: Mapping[str, str]) -> dict[str, Any]:
    """What was found out of a model that is about to be replaced by itself, as by a resumed run that had ended."""
    try:
        before = read_manifest(folder)
    except ValueError:  # nothing is there, or what is there is damaged
        return {}
    return found_out(before) if before.get("digests") == digests else {}


def check_replaceable(folder: str | Path) -> Path:
    """The path, if a model folder may be written there: nothing is there yet, or a model folder to replace.

    Raises:
        ValueError: for anything else, which would be lost.
    """
    folder = Path(folder)
    if folder.exists() and not (folder / MANIFEST).is_file() and not (folder.is_dir() and not any(folder.iterdir())):
        raise ValueError(f"{str(folder)!r} is there and is no model folder: remove it, or give another name")
    return folder


def load_model_folder(
    folder: str | Path,
    device: str | torch.device = "cpu",
    quantize: str | None = None,
) -> ModelFolder:
    """Load a model folder for evaluation; LoRA is merged into the backbone.

    Args:
        folder: as written by `save_model_folder`; or, as a text, a name on the hub (`model_at`).
        quantize: `int8` (`kernels.int8`) or `bfloat16` (`TwoHeads.halve`); the manifest that is returned says so then.

    Raises:
        ValueError: for a folder that is missing, incomplete, or written by a newer version, where this machine cannot
            compute in int8, and without bitsandbytes where LoRA was trained over a named backbone rounded by it.
    """
    folder = model_at(folder)
    info = read_manifest(folder)
    check_content(folder, info)
    disable_progress_bar()
    tokenizer = load_tokenizer(str(folder))
    if info["adaptation"] == "lora":
        base = pretrained_backbone(_base(folder, info), len(tokenizer))
        if "frozen" in info:  # LoRA was trained over a base rounded so
            quantise(base, info["frozen"])
            dequantise(base)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*no longer tied.*")  # the text head was trained by itself
            warnings.filterwarnings("ignore", message=".*tie_word_embeddings.*")
            warnings.filterwarnings("ignore", message=".*is_gradient_checkpointing.*")  # PEFT uses the old name
            backbone = load_adapter(base, folder).merge_and_unload()
    else:
        backbone = pretrained_backbone(_base(folder, info), len(tokenizer))
    model: GridModel | DecoderModel
    if info["system"] == "grid":
        model = build_grid(backbone, **info["grid"])
        assert model.emit_head is not None
        model.emit_head.load_state_dict(load_file(folder / EMIT_HEAD))
    else:
        model = DecoderModel(backbone, **info["prefix"])
        model.alignment_heads = info.get("alignment_heads")
    model.eval().to(device)
    if quantize is not None:
        model.halve() if quantize == BFLOAT16 else to_int8(model.backbone)
        info["quantize"] = quantize
    return ModelFolder(model, tokenizer, _stream_tokens(info), info).deciding()


def backbone_to_train(name_or_folder: str, vocab_size: int) -> Any:
    """A backbone to start a training from: a pretrained model, or that of a model folder, whose LoRA is merged.

    Raises:
        ValueError: those of `pretrained_backbone`, or of `load_model_folder`.
    """
    if (Path(name_or_folder) / "adapter_config.json").is_file() and (Path(name_or_folder) / MANIFEST).is_file():
        return load_model_folder(name_or_folder).model.backbone.train()
    return pretrained_backbone(name_or_folder, vocab_size)


def load_without_weights(folder: Path, info: Mapping[str, Any]) -> tuple[Any, StreamTokens, Any, int | None]:
    """Tokenizer, stream tokens, backbone configuration and window (`longest_source`) of a folder with manifest `info`.

    Raises:
        ValueError: for a folder that is damaged, or whose base is gone.
    """
    check_content(folder, info)
    config, grid = backbone_config(_base(folder, info)), info.get("grid")
    alone = grid is None or rows_stand_alone(grid["attention"], grid["input_attends_output"], grid["softmax"])
    return load_tokenizer(str(folder)), _stream_tokens(info), config, None if alone else check_backbone(config)


def _base(folder: Path, info: Mapping[str, Any]) -> str:
    """What the backbone is loaded from: the model folder, or where the base of its LoRA is."""
    if info["adaptation"] != "lora":
        return str(folder)
    return info["backbone"] or str(folder / "backbone")


def _stream_tokens(info: Mapping[str, Any]) -> StreamTokens:
    tokens: Any = {name: tuple(part) if isinstance(part, list) else part for name, part in info["tokens"].items()}
    return StreamTokens(**tokens)


def choose_device(device: str) -> str:
    """The device to decode on: `auto` takes a GPU where there is one. There this process then multiplies in TF32, which
    has the bits of float16 and several times the speed of float32.

    Raises:
        ValueError: for a device this machine does not have.
    """
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        if torch.device(str(device)).type == "meta":
            raise RuntimeError("it has no numbers")
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        raise ValueError(f"device={device!r}: not to be had on this machine ({error}); try device=auto") from error
    if torch.device(device).type == "cuda":
        torch.set_float32_matmul_precision("high")
    return device


def _frozen_backbone(model: GridModel | DecoderModel) -> Any:
    """A copy of the backbone as it was before LoRA, with the text head it had; rounded weights as numbers."""
    adapted = copy.deepcopy(model.backbone)
    head = getattr(adapted.get_base_model().get_output_embeddings(), "original_module", None)
    base = adapted.unload()
    if head is not None:  # PEFT leaves the trained copy in its place, which the adapter's file holds
        base.set_output_embeddings(head)
    dequantise(base)
    return base


def corpus_name(data: Mapping[str, Any]) -> str:
    """What the corpus of a model's data settings is called: its file or folder, or that it is the built-in one."""
    where = data.get("path") or data.get("train_path") or data.get("root")
    if not where:
        return "built-in corpus"
    sources = f" ({', '.join(data['sources'])})" if data.get("sources") else ""
    return Path(where.removeprefix(PREFIX)).name + sources


def version() -> str:
    """This version, in a clone with its commit: `0.1.0+g1a2b3c4`."""
    root = Path(__file__).parents[2]
    if not (root / ".git").exists():
        return __version__
    command = ["git", "-C", str(root), "rev-parse", "--short=7", "HEAD"]
    try:
        commit = subprocess.run(command, capture_output=True, text=True, check=True, timeout=10).stdout.strip()
    except (OSError, subprocess.SubprocessError):  # no git, or not ours to ask
        return __version__
    return f"{__version__}+g{commit}"


def model_card(info: dict[str, Any]) -> str:
    """The model folder's README: front matter for the hub, then data, licence, settings and scores."""
    data, kind, how, recipe, command = info["data"], *_system_lines(info)
    source, target = data["source_language"], data["target_language"]
    adaptation = info["training"].get("adaptation", info["adaptation"])  # LoRA may have been merged since
    length = "any length" if data["max_tokens"] is None else f"at most {data['max_tokens']} tokens"
    front_matter = {
        "language": [source, target],
        "library_name": "duplexmt",
        "pipeline_tag": "translation",
        "tags": ["simultaneous-translation", kind],
        "license": "other",
        "license_name": data["licence"],
        **({"base_model": info["backbone"]} if info["backbone"] else {}),
    }
    before = dict.fromkeys(
        f"- **Its base's data:** {corpus_name(d)}; licence: {d['licence']}." for d in info["trained_before"]
    )
    validation = [
        "At the end of training, of some validation pairs of all its corpora; scores to quote come from `evaluate.py`:",
        "",
        "| validation | |",
        "| --- | --- |",
        *[f"| {name} | {value:.4g} |" for name, value in info["scores"].items()],
        "",
    ]
    lines = [
        "---",
        *[f"{name}: {_in_yaml(value)}" for name, value in front_matter.items()],
        "---",
        f"# Simultaneous translation {source} → {target}",
        "",
        f"A duplexmt {info['system']} model (*Dual-Stream Simultaneous Translation via 2D Grid Attention*). "
        f"Written by duplexmt {info['duplexmt_version']}.",
        "",
        f"- **Data:** {corpus_name(data)}; licence: {data['licence']}.",
        *before,
        how,
        f"- **Training:** {adaptation}, {recipe}texts of {length}.",
        "",
        *(validation if info["scores"] else []),
        "```bash",
        command,
        "```",
        "",
    ]
    return "\n".join(lines)


def _in_yaml(value: str | list[str]) -> str:
    """A value in one line, every text in quotes: to one YAML or another no, y, 1e3 and null are no texts."""
    return yaml.safe_dump(value, default_style='"', default_flow_style=True, allow_unicode=True, width=inf).rstrip()


def _system_lines(info: dict[str, Any]) -> tuple[str, str, str, str]:
    """What the model card says of the system: tag, options, recipe of its training, command."""
    if info["system"] == "grid":
        grid = info["grid"]
        units = grid["emit_hidden"]
        head = f", EMIT head with {units} hidden units" if units else ""
        return (
            "grid-attention",
            f"- **Grid:** attention {grid['attention']}, I←O {'on' if grid['input_attends_output'] else 'off'}, "
            f"softmax {grid['softmax']}, anchor {grid['anchor']}{head}.",
            f"λ = {info['policy']['lam']}, ",
            "python translate.py model_folder=THIS_FOLDER theta=0.7",
        )
    k, anchor = info["prefix"]["k"], info["prefix"]["anchor"]
    if k is None:
        schedule = "the whole source is read before the first token is written"
    else:
        schedule = "wait-k, trained at every k (multi-path)" if k == MULTI_PATH else f"wait-k, k = {k}"
    return (
        info["system"],
        f"- **Baseline:** {schedule}, anchor {anchor}.",
        "",
        "python evaluate.py model_folder=THIS_FOLDER",
    )
