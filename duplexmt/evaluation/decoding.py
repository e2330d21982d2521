"""From systems and a test set to hypotheses: decoding that can be killed at any point and goes on where it was.

An evaluation's folder holds `decoding.json`, which says what is decoded, and `hypotheses.jsonl`, a line for each
sentence and point, written as soon as its translation has ended. A point is one system at one setting of its knob.
Each line carries its point's digest, made from the model, the settings and the test set: hypotheses of another model,
say, are never taken for those asked for.
"""

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Any

from huggingface_hub import try_to_load_from_cache

from ..common.files import write_whole
from ..decoder.decoder_options import MULTI_PATH
from ..metrics.neural import cut_half_line, whole_lines
from ..model_folder.manifest import file_digest, read_manifest
from .translation import Record

Setting = float | int | None  # θ of grid, k of waitk, n of local_agreement, …; None for offline
TRAINED_AS, TRAINED_K = "trained as", "trained k"  # options of a point: system and k its model was trained with
TOLD_LENGTH = "told length"  # option of a point that asks for its sources' lengths: whether it was told them

DECODING, HYPOTHESES = "decoding.json", "hypotheses.jsonl"
SCORED = "scored.json"  # written last, and only where everything asked for could be scored


def digest(value: Any) -> str:
    """A short fingerprint of anything JSON can hold."""
    return blake2b(json.dumps(value, sort_keys=True, ensure_ascii=False).encode(), digest_size=8).hexdigest()


@dataclass(frozen=True)
class TestSet:
    """Sources with one or several references each."""

    __test__ = False  # no tests in here, whatever pytest thinks

    name: str
    sources: list[str]
    references: list[list[str]]
    source_language: str
    target_language: str
    befores: list[str] = field(default_factory=list)  # the sentence before each source, where models read it

    @property
    def digest(self) -> str:
        """Fingerprint of the texts."""
        return digest_of_texts(self.sources, self.references, self.befores)

    def sentences(self, chosen: Sequence[int]) -> tuple[list[str], list[list[str]], list[str]]:
        """Sources, references and sentences before of some numbers."""
        before = self.befores or [""] * len(self.sources)
        return [self.sources[i] for i in chosen], [self.references[i] for i in chosen], [before[i] for i in chosen]


def digest_of_texts(sources: Sequence[str], references: Sequence[Sequence[str]], befores: Sequence[str]) -> str:
    """Fingerprint of a test set: of the sentences before, too, where there is any."""
    return digest([sources, references, *([befores] if any(befores) else [])])


@dataclass(frozen=True)
class Point:
    """One system at one setting, over one model."""

    system: str  # of `streaming.systems.SYSTEMS`
    setting: Setting
    model_folder: str  # resolved, so that `latest` stays the run it was
    model: str  # its fingerprint
    options: dict[str, Any] = field(default_factory=dict)  # how it is run beside the setting, by name
    digest: str = ""
    name: str = ""  # of the model (`manifest.name_of`)
    seed: int | None = None  # of its training, where that is recorded

    @property
    def own_model(self) -> bool:
        """Whether each setting has a model of its own: that is so for wait-k, unless trained at every k."""
        return self.system == "waitk" and self.options.get(TRAINED_K) != MULTI_PATH


def model_digest(folder: Path, info: Mapping[str, Any]) -> str:
    """Fingerprint of a model folder: its weights, tokenizer and options, but neither its card nor its records."""
    return digest_by({name: file_digest(folder / name) for name in info["files"]}, info)


def digest_by(digests: Mapping[str, str], info: Mapping[str, Any]) -> str:
    """The same by those of its files, which a model that was loaded has in its manifest, and was compared with."""
    contents = [{name: info[name] for name in ("system", "grid", "prefix", "backbone", "tokens") if name in info}]
    contents += [{name: digests[name]} for name in sorted(info["files"])]
    if info.get("backbone") is not None:
        contents.append({"base": base_digest(info["backbone"])})
    return digest(contents)


def base_digest(backbone: str) -> str | None:
    """Which weights a base outside of the model folder has: of a folder their fingerprint, of a name on the hub the
    commit this machine has of it; None where it has none."""
    if os.path.isdir(backbone):
        return digest([file_digest(path) for path in sorted(Path(backbone).glob("*.safetensors"))])
    cached = try_to_load_from_cache(backbone, "config.json")
    return Path(cached).parent.name if isinstance(cached, str) else None


# --- the folder of an evaluation ---------------------------------------------------------------------------------


class Decoding:
    """What an evaluation has decoded, and what is left to do.

    Args:
        test: name, fingerprint, number of sentences and languages of its test set.
        points: by digest; `complete` says whether they are all.
        model_folders: those it was begun with, None where nobody said.
    """

    def __init__(
        self,
        folder: Path,
        test: dict[str, Any],
        points: dict[str, Point],
        complete: bool,
        model_folders: list[str] | None = None,
    ) -> None:
        self.folder, self.test, self.points, self.complete = folder, test, points, complete
        self.model_folders = model_folders
        self.records: dict[str, dict[int, Record]] = {key: {} for key in points}
        self.begin: Callable[[], None] = lambda: None

    @classmethod
    def start(
        cls,
        folder: Path,
        test: TestSet,
        model_folders: Iterable[Path] | None = None,
        begin: Callable[[], None] = lambda: None,
    ) -> "Decoding":
        """A new evaluation, or the one that was begun in the folder; the `model_folders` asked for are remembered with
        its first point, None leaves them as they are. `begin` is called before a point that was accepted is written.

        Raises:
            ValueError: if what was begun there has another test set, or its files are damaged.
        """
        described = {
            "name": test.name,
            "digest": test.digest,
            "sentences": len(test.sources),
            "source_language": test.source_language,
            "target_language": test.target_language,
        }
        known = None if model_folders is None else [str(path) for path in model_folders]
        if not (folder / DECODING).is_file():
            folder.mkdir(parents=True, exist_ok=True)
            decoding = cls(folder, described, {}, complete=False, model_folders=known)
            decoding.begin = begin
            return decoding
        cut_half_line(folder / HYPOTHESES)
        decoding = cls.read(folder)
        if decoding.test["digest"] != test.digest:
            raise ValueError(
                f"{folder} holds hypotheses for another test set ({decoding.test['name']}, "
                f"{decoding.test['sentences']} sentences) than {test.name} ({len(test.sources)} sentences): "
                "evaluate into a new folder"
            )
        decoding.complete, decoding.begin = False, begin
        decoding.model_folders = decoding.model_folders if known is None else known
        return decoding

    @classmethod
    def read(cls, folder: Path) -> "Decoding":
        """The evaluation in a folder, which another process may be writing.

        Raises:
            ValueError: if there is none, or its files are damaged.
        """
        if not (folder / DECODING).is_file():
            raise ValueError(f"{folder} holds no evaluation: it has no {DECODING}; decode with python evaluate.py")
        try:
            content = json.loads((folder / DECODING).read_text(encoding="utf-8"))
            points = {key: Point(**values | {"name": values["name"]}) for key, values in content["points"].items()}
            decoding = cls(folder, content["test"], points, content["complete"], content.get("model_folders"))
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(
                f"{folder / DECODING} is damaged, or of an older version ({error!r}): evaluate into a new folder"
            ) from error
        decoding._read_hypotheses()
        return decoding

    def check_fresh(self, point: Point) -> None:
        """Refuse (ValueError) a point whose hypotheses in the folder another model, or other settings, made."""
        for known in self.points.values():
            one, other = ((p.system, p.setting, p.model_folder) for p in (known, point))
            if one == other and known.digest != point.digest:
                what = "model has" if known.model != point.model else "settings have"
                if known.options.get(TOLD_LENGTH) != point.options.get(TOLD_LENGTH):
                    raise ValueError(
                        f"the hypotheses of {point.system} {point.setting} in {self.folder} were decoded with "
                        f"told_length={str(known.options.get(TOLD_LENGTH)).lower()}: give that to go on, or evaluate "
                        "into a new folder"
                    )
                raise ValueError(
                    f"the hypotheses of {point.system} {point.setting} in {self.folder} are stale: the {what} changed "
                    f"since ({point.model_folder}): evaluate into a new folder"
                )

    def add(self, point: Point) -> None:
        """Make a point part of the evaluation; where something of it is missing, it is no longer scored.

        Raises:
            ValueError: what `check_fresh` refuses.
        """
        self.check_fresh(point)
        self.begin()
        self.points[point.digest] = point
        self.records.setdefault(point.digest, {})
        if self.missing(point):
            (self.folder / SCORED).unlink(missing_ok=True)
        self.save()

    def save(self) -> None:
        """Write `decoding.json`, all or nothing."""
        points = {key: asdict(point) for key, point in self.points.items()}
        content = {"test": self.test, "complete": self.complete, "model_folders": self.model_folders, "points": points}
        write_whole(self.folder / DECODING, json.dumps(content, ensure_ascii=False, indent=2) + "\n")

    def missing(self, point: Point) -> list[int]:
        """Ids of the sentences that are still to be translated."""
        done = self.records[point.digest]
        return [number for number in range(self.test["sentences"]) if number not in done]

    def begun(self) -> list[Point]:
        """Points that lack sentences."""
        return [point for point in self.points.values() if self.missing(point)]

    def decode(self, point: Point, records: Iterable[Record]) -> Iterator[Record]:
        """Write records of a point as they come, each on its line at once, and pass them on."""
        with open(self.folder / HYPOTHESES, "a", encoding="utf-8") as file:
            for found in records:
                line = {"point": point.digest, "system": point.system, "setting": point.setting} | found
                file.write(json.dumps(line, ensure_ascii=False) + "\n")
                file.flush()
                self.records[point.digest][found["id"]] = line
                yield found

    def finish(self) -> None:
        """Sort the lines by point and sentence, once everything is decoded; complete if that is so."""
        lines = [json.dumps(line, ensure_ascii=False) + "\n" for key in self.points for line in self.sorted(key)]
        write_whole(self.folder / HYPOTHESES, "".join(lines))
        self.complete = not self.begun()
        self.save()

    def sorted(self, key: str) -> list[Record]:
        """Records of a point in the order of the test set."""
        return [self.records[key][number] for number in sorted(self.records[key])]

    def check_complete(self) -> None:
        """Refuse to score what is not all there, or not what it says.

        Raises:
            ValueError: sentences are missing, texts are not those of the recorded test set, or a model folder holds
                another model by now.
        """
        wanted = self.test["sentences"] * len(self.points)
        found = sum(len(records) for records in self.records.values())
        if not self.complete or found != wanted:
            raise ValueError(
                f"{self.folder} holds {found} hypotheses and is not finished: go on with "
                f"python evaluate.py resume={self.folder}"
            )
        for key, point in self.points.items():
            lines = self.sorted(key)
            befores = [line.get("before", "") for line in lines]
            texts = [line["source"] for line in lines], [line["references"] for line in lines], befores
            if digest_of_texts(*texts) != self.test["digest"]:
                raise ValueError(
                    f"{self.folder / HYPOTHESES}: sources and references of {point.system} {point.setting} are not "
                    f"those of the test set it was decoded from ({self.test['name']}): decode again"
                )

    def _read_hypotheses(self) -> None:
        path = self.folder / HYPOTHESES
        for number, line in enumerate(whole_lines(path), start=1):
            place = f"{path}:{number}"
            try:
                found = json.loads(line)
                key, sentence = found["point"], found["id"]
            except (ValueError, KeyError, TypeError) as error:
                raise ValueError(f"{place} is damaged ({error!r}): remove the line and resume") from error
            if key not in self.points:
                raise ValueError(
                    f"{place} is stale: it belongs to no point of {DECODING} (another model, setting or test set): "
                    "evaluate into a new folder"
                )
            if not 0 <= sentence < self.test["sentences"]:
                raise ValueError(f"{place}: id {sentence} is none of the {self.test['sentences']} sentences")
            if sentence in self.records[key]:
                raise ValueError(f"{place}: id {sentence} is there twice for {found['system']} {found['setting']}")
            self.records[key][sentence] = found


def data_of_models(points: Iterable[Point]) -> list[dict[str, Any]]:
    """The data settings of each model folder that is still there."""
    folders = dict.fromkeys(Path(point.model_folder) for point in points)
    return [read_manifest(folder)["data"] for folder in folders if folder.is_dir()]


def check_models(decoding: Decoding) -> None:
    """Refuse hypotheses whose model folder holds another model by now; one that is gone cannot be asked.

    Raises:
        ValueError: naming the folder.
    """
    checked = set()
    for point in decoding.points.values():
        folder = Path(point.model_folder)
        if (folder, point.model) in checked or not folder.is_dir():
            continue
        checked.add((folder, point.model))
        if model_digest(folder, read_manifest(folder)) != point.model:
            raise ValueError(
                f"the hypotheses in {decoding.folder} are stale: {folder} holds another model by now; "
                f"decode again: python evaluate.py model_folder={folder}"
            )
