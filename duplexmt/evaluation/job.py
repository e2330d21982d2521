"""What an evaluation decodes: model folders, each at the settings asked for and at those that were begun."""

import logging
from collections.abc import Callable, Mapping
from functools import lru_cache
from math import inf
from pathlib import Path
from typing import Any

import numpy as np

from ..common.pair import Pair
from ..corpus.overlap import likeness_to_training, read_at_once
from ..corpus.prepared import corpus_settings
from ..model_folder.artifact import ModelFolder, choose_device, load_model_folder
from ..model_folder.hugging_face import writable
from ..model_folder.manifest import read_manifest, write_manifest
from .alike import LIKENESS, read_likeness, write_likeness
from .decoding import Decoding, Point, Setting, TestSet
from .pairs import read_test_pairs
from .points import (
    begun_points,
    check_knobs,
    check_languages,
    check_sources,
    check_test_languages,
    check_told,
    decode_point,
    matching_folders,
    point_of,
    points_of,
)
from .results import score
from .search import TOLERANCE, find_theta

log = logging.getLogger("evaluate")


class Job:
    """Decoding for one evaluation.

    Args:
        cfg: settings of `evaluate.py` (`config.EvaluateSettings`).
        go_on: whether to take the model folders it was begun with: `latest` may be another run by now.
        data_of: data settings from those that a model folder records: of a split as asked for now, of None as recorded.
        begin: called before a point that was accepted is written.
    """

    def __init__(
        self,
        cfg: Any,
        folder: Path,
        go_on: bool,
        data_of: Callable[[Any, str | None], dict[str, Any]],
        begin: Callable[[], None],
    ) -> None:
        self.cfg, self.folder, self.go_on, self.data_of, self.begin = cfg, folder, go_on, data_of, begin
        self.device = choose_device(cfg.device)
        self.how: dict[str, Any] = {"max_target_tokens": cfg.policy.max_target_tokens, "adaptive": cfg.adaptive}
        self.how["told_length"] = cfg.told_length

    def decode(self) -> None:
        """Translate what is not yet translated in the folder."""
        cfg, asked = self.cfg, self.model_folders()
        manifests = {path: read_manifest(path) for path in asked}
        check_told(cfg.told_length, manifests.values())
        check_knobs({"k": cfg.ks, "agreement": cfg.agreement, **cfg.rivals}, manifests.values())
        asked = [path.resolve() for path in asked]
        begun = begun_points(self.folder, asked)
        manifests |= {path: read_manifest(path) for path in begun}
        check_languages(manifests)
        folders = list(dict.fromkeys([*asked, *begun]))
        load = lru_cache(maxsize=1)(self.load)  # of several models only one is held
        test, held_out_from = self.test_pairs(cfg.split, load(folders[0]), manifests)
        decoding = Decoding.start(self.folder, test, asked, self.begin)

        def points(folder: Path) -> list[Point]:
            wanted = points_of(load(folder), cfg.policy.thetas, cfg.ks, cfg.agreement, cfg.rivals)
            every = dict.fromkeys([*(wanted if folder in asked else []), *begun.get(folder, [])])
            return [point_of(test, load(folder), folder, *one, **self.how) for one in every]

        if decoding.points:  # it was begun before, and a refusal must leave it as it was
            for point in [point for folder in folders for point in points(folder)]:
                decoding.check_fresh(point)
        else:
            (self.folder / LIKENESS).unlink(missing_ok=True)  # of an evaluation that ended before its first point
        for folder in folders:
            if cfg.check_overlap and read_likeness(self.folder, len(test.sources)).get(str(folder)) is None:
                self.look_for_overlap(test, load(folder), folder, held_out_from)
            for point in points(folder):
                decode_point(decoding, test, load(folder), point, batch_size=cfg.batch_size, **self.how)
        decoding.finish()

    def choose_theta(self) -> None:
        """Find the θ whose AL on the validation pairs meets `target_al`, and record it in the model folder.

        Raises:
            ValueError: for several model folders, or one that is no grid's; if AL is above the target even at θ = 0, or
                all hypotheses are empty there.
        """
        target = self.cfg.target_al
        (model_folder, *others) = [writable(path).resolve() for path in self.model_folders()]
        loaded = self.load(model_folder)
        if others or loaded.info["system"] != "grid":
            raise ValueError(f"target_al={target:g} needs one model folder of the grid: only it has a θ")
        check_told(self.cfg.told_length, [loaded.info])
        test, _ = self.test_pairs("validation", loaded, {model_folder: loaded.info})
        languages = test.source_language, test.target_language
        decoding = Decoding.start(self.folder, test, [model_folder], self.begin)

        def decode(model: ModelFolder, home: Path, system: str, setting: Setting) -> Point:
            point = point_of(test, model, home, system, setting, **self.how)
            decode_point(decoding, test, model, point, batch_size=self.cfg.batch_size, **self.how)
            return point

        def al_at(theta: float) -> float:
            point = decode(loaded, model_folder, "grid", theta)
            al = score(decoding.sorted(point.digest), *languages, source_rate=self.cfg.source_rate).row["AL"]
            if al is None and theta == 0:
                raise ValueError(
                    f"target_al={target:g}: even at θ = 0 every hypothesis is empty: train the model longer"
                )
            al = inf if al is None else al  # a model that reads on for too long writes nothing
            log.info("θ = %g: AL %.2f", theta, al)
            return al

        found = find_theta(al_at, target)
        for home, begun in begun_points(self.folder, [model_folder]).items():  # by a search for another AL
            model = loaded if home == model_folder else load_model_folder(home, self.device)
            for system, setting in begun:
                decode(model, home, system, setting)
        decoding.finish()
        what = {"theta": found.theta, **loaded.rule.recorded(), "AL": round(found.al, 4)}
        what |= {"told_length": True} if self.cfg.told_length else {}
        further = {"target_al": target, "validation": test.name, "sentences": len(test.sources)}
        write_manifest(model_folder, read_manifest(model_folder) | {"operating_point": what | further})
        log.info("θ = %g has AL %.2f on %s; recorded in %s", found.theta, found.al, test.name, model_folder)
        if found.al < target - TOLERANCE:
            log.warning("target_al=%g: no θ that was tried has an AL between %.2f and that", target, found.al)

    def model_folders(self) -> list[Path]:
        """Those asked for, or those the evaluation was begun with."""
        if self.go_on:
            return list(dict.fromkeys(Path(point.model_folder) for point in Decoding.read(self.folder).points.values()))
        return matching_folders(self.cfg.model_folders)

    def load(self, model_folder: Path) -> ModelFolder:
        """The model as its decisions are asked for now: the policy given in place of what its folder records."""
        loaded = load_model_folder(model_folder, self.device, quantize=self.cfg.quantize)
        return loaded.deciding(**self.cfg.policy.rule)

    def test_pairs(
        self, split: str, loaded: ModelFolder, manifests: Mapping[Path, Any]
    ) -> tuple[TestSet, dict[str, Any]]:
        """The pairs of a split, a file's or a corpus's, and the settings of the corpus they are held out from.

        Raises:
            ValueError: for pairs of other languages than the models', for sources that are longer than one of them
                takes or shorter than an f of AlignAtt, and what `read_test_pairs` raises.
        """
        data, cfg = self.data_of(loaded.info["data"], split), self.cfg
        check_test_languages(next(iter(manifests)), loaded.info["data"], data)
        test, held_out_from = read_test_pairs(data, split, loaded, manifests.values(), cfg.references, cfg.limit)
        check_sources(manifests, test, cfg.policy.max_target_tokens, cfg.rivals["alignatt"])
        return test, held_out_from

    def look_for_overlap(
        self, test: TestSet, loaded: ModelFolder, model_folder: Path, held_out_from: dict[str, Any]
    ) -> None:
        """Find how like each test sentence is to what the model, or one it began as, was trained on, where all of that
        can be read; each corpus is looked at once. The built-in corpus's own are passed over: all its sentences repeat
        a few patterns. So are pairs that are made of training pairs."""
        pairs = [Pair(source, references[0]) for source, references in zip(test.sources, test.references, strict=True)]
        earlier = loaded.info.get("trained_before", [])
        name = f"{model_folder} or a base of it" if earlier else str(model_folder)
        corpora = [corpus_settings(self.data_of(data, None)) for data in (loaded.info["data"], *earlier)]
        found: list[np.ndarray | None] = []
        for corpus in read_at_once(
            corpus for corpus in corpora if corpus["corpus"] != "builtin" or corpus != held_out_from
        ):
            found.append(likeness_to_training(name, corpus, loaded.tokenizer, pairs))
        known = [likeness for likeness in found if likeness is not None]
        if len(known) < len(found):
            log.warning("%s: not all it was trained on can be read, so no test sentence counts as new", model_folder)
            write_likeness(self.folder, model_folder, None, len(pairs))
        elif known:
            write_likeness(self.folder, model_folder, np.max(known, axis=0).tolist(), len(pairs))
