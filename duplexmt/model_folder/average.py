"""One model out of several that go on from one another: the mean of their weights.

    python -m duplexmt.model_folder.average runs/first/model runs/second/model runs/mean

Where one was trained from the other, and not for too long, the mean makes fewer errors than either, at the cost of one
(stochastic weight averaging, Izmailov et al., 2018; model soups, Wortsman et al., 2022). Of two trainings that began
apart it makes none that works. So the EMIT head is the last model's, as each training of a grid begins its own. In all
else, too, the mean is like the last model; it says what data any of them has seen.
"""

from collections.abc import Sequence
from pathlib import Path

import torch

from ..common.command import command_parser
from .artifact import ModelFolder, load_model_folder, save_model_folder
from .manifest import trained_on

GO_ON = "give models that go on from one another"


def average(models: Sequence[ModelFolder]) -> ModelFolder:
    """The last model, with the mean of all models' weights in its decoder; an EMIT head stays as it is.

    Raises:
        ValueError: naming the model, and what it has unlike the last: shape, system and its options, or tokens.
    """
    weights = [one.model.state_dict() for one in models]
    alike = [
        {
            "shape": {name: values.shape for name, values in of.items()},
            "system": (one.model.system, one.model.options),
            "tokens": (one.tokens, one.tokenizer.get_vocab()),
        }
        for one, of in zip(models, weights, strict=True)
    ]
    for number, one in enumerate(alike, 1):
        for what, value in one.items():
            if value != alike[-1][what]:
                raise ValueError(f"model {number} of {len(models)} has another {what} than the last one: {GO_ON}")
    mean = {
        name: values if name.startswith("emit_head.") else torch.stack([of[name].double() for of in weights]).mean(0)
        for name, values in weights[-1].items()
    }
    models[-1].model.load_state_dict(mean)
    return models[-1]


def main() -> None:
    """Write the mean of model folders to a model folder."""
    parser = command_parser(__doc__)
    parser.add_argument("models", nargs="+", help="two model folders or more; the last to be trained comes last")
    parser.add_argument("into", type=Path)
    asked = parser.parse_args()
    try:
        if len(asked.models) < 2:
            raise ValueError(f"{asked.models[0]}: one model has no mean; {GO_ON}, and where to write their mean")
        mean = average([load_model_folder(model) for model in asked.models])
        seen = [data for model in asked.models for data in trained_on(model)]
        before = [data for n, data in enumerate(seen[:-1]) if data not in seen[:n]]  # each once
        kept = {name: mean.info[name] for name in ("data", "policy", "training")}
        how = {"backbone": None, "scores": {}, "name": "mean", "trained_before": before} | kept
        save_model_folder(asked.into, mean.model, mean.tokenizer, mean.tokens, **how)
    except (ValueError, OSError) as error:
        parser.error(str(error))
    print(f"{asked.into}: the mean of {len(asked.models)} models")


if __name__ == "__main__":
    main()
