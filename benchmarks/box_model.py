"""The models in the box, made again from the pairs in the box: `make model`, `make model-de`.

    python benchmarks/box_model.py                              # into models/zh-en
    python benchmarks/box_model.py --model de-en                # into models/de-en
    python benchmarks/box_model.py --into somewhere --limit 20 data.train_size=2000 data.batch_size=8   # a trial

Stages: the trainings of `CHAINS`, the last one a grid (conf/experiment/box_*.yaml), the θ at which it lags by AL tokens
on validation pairs, packing (float16), and evaluation of what was packed on held-out pairs. At last the model is packed
into its place, with a card that has these scores and samples chosen by the first of them. Each stage has a folder in
OUT, and a log beside it; killed at any point, the same command goes on. Further arguments go to all trainings.
"""

import argparse
import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))  # works without an installed package, too

from benchmarks.experiment import ROOT, Stage, evaluation, quoted, run, told_in_one_line, training
from benchmarks.measuring import check_counts
from data_prep.cores import usable_cores
from duplexmt.evaluation.samples import record_samples
from duplexmt.model_folder.pack import pack

THETAS = "[0.3,0.5,0.7,0.9]"
# Of each model the beginning of its experiments' names; its trainings in their order, and as what each takes the model
# of the one before; and the data it is evaluated on.
CHAINS: dict[str, tuple[str, dict[str, str | None], tuple[str, ...]]] = {
    "zh-en": (
        "box",
        {"tokenizer": None, "base": "data.tokenizer", "everyday": "model.backbone", "grid": "model.backbone"},
        ("tatoeba", "captions"),
    ),
    "de-en": ("box_de", {"base": None, "grid": "model.backbone"}, ("tatoeba_de",)),
}


def stages(model: str, out: Path, al: float, limit: int | None, extra: list[str]) -> list[Stage]:
    """What is run, in order.

    Args:
        model: one of `CHAINS`.
        out: folder of all stages.
        al: average lagging that the recorded θ is to have.
        limit: sentences of each evaluation; None for all, of the search for θ the first 500.
        extra: further settings of all trainings.
    """
    begin, chain, data = CHAINS[model]
    trainings: list[Stage] = []
    for name, key in chain.items():
        before = [quoted(key, trainings[-1].folder / "model")] if key else []
        trainings.append(training(out / name, [f"experiment={begin}_{name}", *before, *extra]))
    grid = trainings[-1]
    trained, packed = grid.folder / "model", out / "packed"
    theta = evaluated("theta", out, trained, [f"target_al={al:g}", f"limit={limit or 500}"])
    packing = ["-m", "duplexmt.model_folder.pack", str(trained), str(packed)]
    few = [] if limit is None else [f"limit={limit}"]
    return [
        *trainings,
        theta,
        Stage("packing", packed, packing, packing, complete="duplexmt.json", begun="duplexmt.json"),
        *(evaluated(name, out, packed, [f"data={name}", f"policy.theta={THETAS}", *few]) for name in data),
    ]


def evaluated(name: str, out: Path, model: Path, settings: list[str]) -> Stage:
    """A model evaluated."""
    return evaluation(name, out / name, [quoted("model_folder", model), *settings], settings)


def main(arguments: list[str] | None = None) -> None:
    """All stages in order; one line of JSON at the end."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=CHAINS, default="zh-en", help="default: zh-en")
    parser.add_argument("--into", type=Path, help="default: models/MODEL")
    parser.add_argument("--out", type=Path, help="default: runs/box-model, or of another language runs/box-model-MODEL")
    parser.add_argument("--al", type=float, default=3.0, help="average lagging of the recorded θ (default 3)")
    parser.add_argument("--limit", type=int, help="sentences of each evaluation; default: all")
    parser.add_argument("extra", nargs="*", metavar="KEY=VALUE", help="settings of all trainings")
    asked = parser.parse_args(arguments)
    check_counts(parser, asked, "limit")
    if not 0 < asked.al < float("inf"):
        parser.error(f"--al {asked.al:g}: must be above 0")
    other = "" if asked.model == "zh-en" else f"-{asked.model}"
    out = (asked.out or ROOT / "runs" / f"box-model{other}").resolve()
    into = asked.into or ROOT / "models" / asked.model
    chain = stages(asked.model, out, asked.al, asked.limit, asked.extra)
    with told_in_one_line(out):
        out.mkdir(parents=True, exist_ok=True)
        for stage in chain:
            stage.refuse_other_settings()
        seconds = {stage.name: run(stage, usable_cores()) for stage in chain}
        evaluations = [out / name for name in CHAINS[asked.model][2]]
        pack(out / "grid" / "model", into, evaluations)
        record_samples(evaluations[0], into)
    print((into / "README.md").read_text(encoding="utf-8"))
    print(json.dumps({"benchmark": "box_model", "seconds": seconds, "into": str(into)}))


if __name__ == "__main__":
    main()
