"""What happens once a model is trained: a link to it, and a look at what it does."""

import os
from math import isfinite
from pathlib import Path

import torch
from torch import nn

from ..corpus.prepared import PreparedCorpus
from ..drawing.staircase import staircase
from ..model_folder.artifact import load_model_folder
from ..streaming.systems import build_system


def check_finite(module: nn.Module, loss: float) -> None:
    """Refuse to give away a model that has diverged.

    Args:
        loss: of the validation pairs.

    Raises:
        ValueError: naming the first weight that is not finite, or the loss.
    """
    odd = [name for name, weight in module.named_parameters() if not bool(torch.isfinite(weight).all())]
    odd += [f"validation/lm_loss={loss}"] * (not isfinite(loss))
    if odd:
        raise ValueError(
            f"{odd[0]} is not finite: training has diverged, and no model is saved; start again with a lower "
            "training.learning_rate"
        )


def link_latest(folder: Path) -> None:
    """Point `latest`, beside the run's folder, to it; of a job of a sweep also that beside the sweep's."""
    folder = folder.resolve()  # it may have been given as `latest`
    sweep = folder.parent
    for place in [sweep, sweep.parent] if (sweep / "multirun.yaml").is_file() else [sweep]:
        link, temporary = place / "latest", place / f".latest-{os.getpid()}"
        if link.exists() and not link.is_symlink():
            continue  # a user's own folder of that name
        temporary.symlink_to(folder.relative_to(place), target_is_directory=True)
        os.replace(temporary, link)


def demonstrate(
    model_folder: Path,
    prepared: PreparedCorpus,
    count: int,
    system: str,
    setting: float | int | None,
    max_target_tokens: int,
    device: torch.device,
) -> str:
    """Translate held-out sentences with the saved model; each read with what was written after it.

    Args:
        prepared: its corpus; the first `count` test pairs are shown, on the built-in corpus the paper's case study too.
        system, setting: name of the system, and its θ or k, as `build_system` takes them.
    """
    loaded = load_model_folder(model_folder, device)
    pairs = prepared.splits["test"][:count]
    if prepared.case_study and count:
        pairs = [prepared.case_study, *pairs]
    running = build_system(loaded, system, setting, max_target_tokens=max_target_tokens, tokenizer=loaded.tokenizer)
    how = {"grid": f"at θ = {setting}", "waitk": f"by wait-{setting}", "offline": "offline"}[system]
    blocks = [f"held-out sentences {how}: what is written after each source token"]
    for source, target, before in pairs:
        events = running.translate(loaded.sources.ids([source]), loaded.sources.ids([before]))
        steps = staircase(events, loaded.tokenizer, loaded.tokens.end)
        blocks.append(f"{source}\n{steps}\n  reference: {target}")
    return "\n\n".join(blocks)
