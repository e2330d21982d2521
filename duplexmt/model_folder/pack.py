"""Make of a trained model folder one that is given away: LoRA merged, float16, a card that says what it is.

    python -m duplexmt.model_folder.pack runs/box/grid/model models/zh-en --results runs/box/tatoeba runs/box/captions

Loaded again it has float32 weights. The card names every corpus with its licence and whom it is owed to, and the scores
of the evaluations, with their intervals.
"""

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from ..common.command import command_parser, one_line_errors
from ..common.files import write_whole
from ..corpus.repository import PREFIX, ROOT
from ..policy.decoding_options import unusual_in
from .hugging_face import model_at
from .manifest import MANIFEST, found_out, read_manifest, write_manifest

LARGEST = 20e6  # bytes: what a repository bears
COLUMNS = ("system", "setting", "BLEU", "BLEU ±", "chrF", "chrF ±", "AL", "YAAL", "YAAL %", "SWF")


def pack(source: str | Path, into: Path, results: Sequence[Path] = (), *, largest: float = LARGEST) -> Path:
    """Write the model folder to give away, all or nothing; one already there is replaced. The card has the results of
    evaluations.

    Raises:
        ValueError: for a folder that is none, the same one twice, one of other things in the way, weights that float16
            does not hold, or a folder that gets too large.
        FileNotFoundError: for an evaluation without results.
    """
    import torch

    from .artifact import check_replaceable, load_model_folder, save_model_folder

    check_replaceable(into)
    if Path(into).resolve() == model_at(source).resolve():
        raise ValueError(f"{into}: would take the place of the model itself; give another folder")
    tables = [scores_of(folder) for folder in results]
    loaded = load_model_folder(source)
    info = loaded.info
    for folder in results:
        check_evaluated(folder, model_at(source), info)
    parameters = sum(weight.numel() for weight in loaded.model.parameters())
    size = 2 * parameters
    if size > largest:
        raise ValueError(
            f"{source}: {size / 1e6:.1f} MB in float16, and {largest / 1e6:g} MB are the most (--largest MB)"
        )
    half = loaded.model.half()
    if odd := [name for name, weight in half.named_parameters() if not bool(torch.isfinite(weight).all())]:
        raise ValueError(f"{source}: {odd[0]} is not finite in float16, which ends at 65,504")
    save_model_folder(
        into,
        half,
        loaded.tokenizer,
        loaded.tokens,
        backbone=info["backbone"],
        data=for_others(info["data"]),
        policy=info["policy"],
        training=info["training"] | {"adaptation": info["adaptation"]},
        scores=info["scores"],
        trained_before=[for_others(data) for data in info["trained_before"]],
        name=info.get("name"),
    )
    write_manifest(into, read_manifest(into) | found_out(info))
    card = into / "README.md"
    written, corpora = card.read_text(encoding="utf-8"), [info["data"], *info["trained_before"]]
    write_whole(card, box_card(written, parameters, corpora, tables, info.get("operating_point")))
    return into


# --- the data, as another clone finds it -------------------------------------------------------------------------


def for_others(data: Mapping[str, Any]) -> dict[str, Any]:
    """Data settings without paths of this machine: pairs of the box are those of anybody's repository."""
    found = dict(data)
    if (box := box_of(data)) is not None:
        ours = ("path", "prepared") if data["path"] == box["path"] else ("path", "prepared", "licence")
        found |= {name: box[name] for name in ours}
    for name in ("path", "train_path", "validation_path", "test_path", "root", "prepared", "tokenizer"):
        if found.get(name) and Path(found[name]).is_absolute():
            found[name] = None if name in ("prepared", "tokenizer") else Path(found[name]).name
    return found


def box_of(data: Mapping[str, Any]) -> dict[str, Any] | None:
    """The data settings of the box that pairs are from: of its folder, or of one with the same files. None where the
    package was installed without the repository."""
    path = data.get("path") or ""
    files = {file.name: file for file in Path(path).glob("*.tsv.gz")} if path and Path(path).is_dir() else {}
    for name in BOXES if (ROOT / "pyproject.toml").is_file() else ():
        box: dict[str, Any] = yaml.safe_load((ROOT / "conf" / "data" / f"{name}.yaml").read_text(encoding="utf-8"))
        ours = {file.name: file for file in box_folder(box).glob("*.tsv.gz")}
        same = files.keys() == ours.keys() and all(files[one].read_bytes() == ours[one].read_bytes() for one in ours)
        if path == box["path"] or (ours and same):
            return box | {"name": name}
    return None


def box_folder(box: Mapping[str, Any]) -> Path:
    """Where the pairs of a box are, if this is the repository."""
    return ROOT / str(box["path"]).removeprefix(PREFIX)


# --- the card ----------------------------------------------------------------------------------------------------


def scores_of(evaluation: Path) -> dict[str, Any]:
    """The main table of an evaluation, `{caption, rows, footnotes}`, and as `relatives` the rows of its scores by
    likeness to the training pairs, where it has them (see `alike`).

    Raises:
        FileNotFoundError: it has no scores.
        ValueError: they are damaged.
    """
    file, apart = evaluation / "results.json", evaluation / "relatives.json"
    if not file.is_file():
        raise FileNotFoundError(f"{evaluation} has no results.json: give the folder of a finished python evaluate.py")
    try:
        table: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        table["relatives"] = json.loads(apart.read_text(encoding="utf-8"))["rows"] if apart.is_file() else []
        score_table(table)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        what = f"{evaluation}: results.json or relatives.json is damaged ({error!r})"
        raise ValueError(f"{what}: write it again with python evaluate.py rescore=…") from error
    return table


def check_evaluated(evaluation: Path, source: Path, info: Mapping[str, Any]) -> None:
    """Refuse an evaluation that is not finished, or of other models only: none of its model folders that are still
    there is of this model's training, whose scores in training a packed folder keeps. Of a folder of several
    evaluations, such as a sweep's, nothing is known.

    Raises:
        ValueError: for these.
    """
    if not (evaluation / "decoding.json").is_file():
        return
    try:
        content = json.loads((evaluation / "decoding.json").read_text(encoding="utf-8"))
        complete, folders = content["complete"], {Path(point["model_folder"]) for point in content["points"].values()}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{evaluation}: decoding.json is damaged ({error!r}): evaluate into a new folder") from error
    if not complete:
        raise ValueError(f"{evaluation} is not finished: go on with python evaluate.py resume={evaluation}")
    others = [read_manifest(folder) for folder in folders if (folder / MANIFEST).is_file()]
    if others and all((one["system"], one["scores"]) != (info["system"], info["scores"]) for one in others):
        raise ValueError(f"{evaluation} is no evaluation of {source}, but of {', '.join(map(str, sorted(folders)))}")


def box_card(
    card: str,
    parameters: int,
    corpora: Sequence[Mapping[str, Any]],
    tables: Sequence[Mapping[str, Any]],
    point: Mapping[str, Any] | None = None,
) -> str:
    """The card that `save_model_folder` writes, with what one must know of a model that is given away: its size, the
    threshold recorded in it, scores of its evaluations, and what is owed for the corpora of its training and of its
    bases."""
    parts = [card.rstrip(), f"It has {parameters / 1e6:.1f} million parameters, {parameters / 5e5:.0f} MB in float16."]
    if point is not None:
        rule = ", ".join(f"`policy.{name}={value}`" for name, value in unusual_in(point).items())
        parts.append(
            f"Where no θ is given it takes {point['theta']:.2g}, which has AL {point['AL']:.2f} on "
            f"{point['sentences']} sentences ({point['validation']})."
            + (f" At any θ it decodes with {rule}." if rule else "")
        )
    parts += map(score_table, tables)
    most = corpora[0]["max_tokens"]
    limits = LIMITS.format(longer="longer than its positions" if most is None else f"of more than {most} tokens")
    boxes = [(box, data) for data in corpora if (box := box_of(data)) is not None]
    if boxes:
        theirs = {text for box, data in boxes for text in attributions(box, data.get("sources"))}
        owed = dict.fromkeys(text for box, _ in boxes for text in attributions(box, None) if text in theirs)
        command, own_limits = BOXES[boxes[0][0]["name"]]
        parts += [OWED + SHARE_ALIKE * any("BY-SA" in text for text in owed), *owed]
        parts += [COMMANDS.format(command=command), f"{limits}\n{own_limits}"]
    else:
        parts.append(limits)
    return "\n\n".join(parts) + "\n"


def score_table(table: Mapping[str, Any]) -> str:
    """An evaluation as a Markdown table."""
    columns = [name for name in COLUMNS if any(name in row for row in table["rows"])]
    lines = [f"## Scores: {table['caption']}", "", f"| {' | '.join(columns)} |", f"|{' --- |' * len(columns)}"]
    for row in table["rows"]:
        lines.append(f"| {' | '.join(shown(row.get(name)) for name in columns)} |")
    lines += ["", *[f"{note}." for note in table["footnotes"]]]
    return "\n".join([*lines, *told_apart(table["relatives"])])


def told_apart(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """How many test sentences have a relative in training, and the scores of those that are least alike any pair;
    nothing where the training pairs are not known."""
    if not rows or rows[0]["sentences ≥ 0.5"] is None:
        return []
    first, scores = rows[0], [shown(row["BLEU < 0.3"]) for row in rows]
    all_, alike, new = (f"{first[name]:,}" for name in ("sentences", "sentences ≥ 0.5", "sentences < 0.3"))
    told = (
        f"Of {all_} sentences {alike} have a relative in its training or that of its bases (likeness of 0.5 or more)."
    )
    if first["sentences < 0.3"]:
        told += f" The {new} least alike any pair (below 0.3) have {', '.join(scores)} BLEU, in the order of the table."
    return [told]


def shown(value: Any) -> str:
    """A cell."""
    return "" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)


def attributions(box: Mapping[str, Any], sources: Sequence[str] | None) -> list[str]:
    """Of corpora of a box (None for all) what its README says: origin, attribution, licence, changes."""
    text = (box_folder(box) / "README.md").read_text(encoding="utf-8")
    text = text.replace("](LICENSES.md", "](../../data/LICENSES.md")
    sections = re.findall(r"^## (\S+)\n(.*?)(?=^## |\Z)", text, flags=re.MULTILINE | re.DOTALL)
    return [f"### {name}\n{body.strip()}" for name, body in sections if sources is None or name in sources]


OWED = """## Data, and whom it is owed to
The pairs are in the repository's folder data/. Each corpus keeps its licence. All these licences allow commercial use,
and all but CC0 ask for attribution: give this card along with the model. The authors of this software claim no further
rights in the weights."""

SHARE_ALIKE = """ Some are share-alike (xquad, xsid,
python-packaging-guide, cc-cedict); whether such terms reach the weights of a model is not settled. Who must be sure
keeps to CC BY-SA 4.0, or trains without these corpora (`data.sources`)."""

COMMANDS = """## Make it again
```bash
{command}
```"""

LIMITS = """## What it cannot do
- Sentences {longer} are cut; it has seen none. It reads each sentence without the one before.
- It writes before it has read all: what it has written stays, also where a later word shows that it was wrong.
- Nobody should decide anything of weight by its translations."""

BOXES = {  # by the name of their settings in conf/data: how a model of such pairs is made, and what it cannot do
    "permissive": (
        "make model   # all stages, conf/experiment/box_*.yaml; it replaces models/zh-en, but for INTO=runs/mine",
        """- It is small, and has seen everyday sentences, image captions and documentation of software.
  Of anything else (news, law, medicine, poetry, names and large numbers in words) it makes fluent errors, and does not
  say so.
- Chinese to English only; traditional characters are read as simplified ones.""",
    ),
    "tatoeba_de": (
        "make model-de   # all stages, conf/experiment/box_de_*.yaml; it replaces models/de-en, but for INTO=runs/mine",
        """- It is small, and has seen short everyday sentences alone.
  Of anything else (news, law, medicine, poetry, names and large numbers in words) it makes fluent errors, and does not
  say so.
- German to English only.""",
    ),
}


def main() -> None:
    """Pack."""
    parser = command_parser(__doc__, "python -m duplexmt.model_folder.pack")
    parser.add_argument("source", help="a trained model folder, or owner/name on the hub")
    parser.add_argument("into", type=Path, help="folder to write, such as models/zh-en")
    parser.add_argument("--results", type=Path, nargs="+", default=[], help="folders of evaluations, for the card")
    parser.add_argument("--largest", type=float, default=LARGEST / 1e6, help="MB of weights (%(default)g)")
    arguments = parser.parse_args()
    with one_line_errors():
        folder = pack(arguments.source, arguments.into, arguments.results, largest=1e6 * arguments.largest)
    print(f"{folder}: {sum(file.stat().st_size for file in folder.iterdir()) / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
