"""Several trainings of one system, with different seeds, as one: means, their spread, and a bootstrap over both.

One system are models of one name (`train.py name=…`), trained with different seeds.

A bootstrap over sentences says how far a difference may be chance of the test set; trained again with another seed, a
model differs, too. Here each resample of the sentences draws trainings as well, with replacement, for each set of
models by itself: alike for all settings of a system, and for all systems run on the same models. With `n` trainings
that understates their variance by a factor (n − 1)/n, as any bootstrap of so few does.
"""

import json
import os
from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean, stdev
from typing import Any

import numpy as np

from ..metrics.bootstrap import SEED, Array
from .decoding import Point
from .scores import QUALITY, Scores

SPREAD = (*QUALITY, "AL")  # columns whose standard deviation over trainings is kept


def mean_over_seeds(scores: Sequence[Scores]) -> list[Scores]:
    """One entry for all models of one name, at each setting.

    Args:
        scores: of single models, each with its `point`.

    Returns:
        Entries in the order of their first models, without names; `spread` and `models` say what they were made from.

    Raises:
        ValueError: if some settings of a system were decoded with other models than the rest, or two models of one name
            were trained with one seed, and so differ in more.
    """
    alike: dict[str, list[Scores]] = {}
    for entry in scores:
        setting = None if entry.point.setting is None else float(entry.point.setting)  # 1 and 1.0 are one
        alike.setdefault(json.dumps([_kind(entry.point), setting]), []).append(entry)
    groups = [sorted(entries, key=lambda entry: entry.point.model_folder) for entries in alike.values()]
    _check_same_models(groups)
    generator = np.random.default_rng([SEED, 1])  # other draws than those of the sentences
    draws: dict[tuple[str, ...], Array] = {}
    means = []
    for entries in groups:
        models = tuple(entry.point.model for entry in entries)
        if models not in draws:
            resamples = max((len(sample) for entry in entries for sample in entry.samples.values()), default=0)
            drawn = generator.integers(0, len(models), size=(resamples, len(models)))
            draws[models] = np.stack([(drawn == number).mean(1) for number in range(len(models))], 1)
        means.append(_mean(entries, draws[models]))
    return means


def _mean(entries: Sequence[Scores], shares: Array) -> Scores:
    """One entry for several; `shares [B, n]` are those of each model in each resample."""
    first = entries[0]
    rows = [entry.row for entry in entries]
    row = {column: _mean_cell([row[column] for row in rows]) for column in rows[0]}
    samples = {
        name: _mean_sample(np.stack([entry.samples[name] for entry in entries], 1), shares) for name in first.samples
    }
    spread = {}
    for name in SPREAD:
        values = [row[name] for row in rows if row.get(name) is not None]
        if len(values) > 1:
            spread[name] = stdev(values)
    models = [os.path.relpath(entry.point.model_folder) for entry in entries]
    return replace(first, row=row, samples=samples, spread=spread, models=models)


def _mean_sample(samples: Array, shares: Array) -> Array:
    """The mean of what is known in each resample, `[B]`, both `[B, n]`; NaN where no model drawn has a score."""
    known = ~np.isnan(samples)
    weights = np.where(known, shares, 0.0).sum(1)
    sums = np.einsum("bn,bn->b", shares, np.where(known, samples, 0.0))
    return np.divide(sums, weights, out=np.full(len(shares), np.nan), where=weights > 0)


def _mean_cell(values: Sequence[Any]) -> Any:
    """The mean of what is known; numbers that are all alike stay as they are."""
    known = [value for value in values if value is not None]
    if not known:
        return None
    return known[0] if len(set(known)) == 1 else fmean(known)


def _check_same_models(groups: Sequence[Sequence[Scores]]) -> None:
    """Whether each model has all settings of its system: a curve is to be one of the same models throughout."""
    found: dict[str, dict[frozenset[str], str]] = {}
    for entries in groups:
        point = entries[0].point
        models = frozenset(entry.point.model for entry in entries)
        if len(models) < len(entries):
            folders = ", ".join(entry.point.model_folder for entry in entries)
            raise ValueError(f"over_seeds=true: one model is there twice ({folders}); name each once")
        seeds = {entry.point.seed: entry.point.model_folder for entry in entries if entry.point.seed is not None}
        for other in (entry.point for entry in entries if entry.point.seed is not None):
            if seeds[other.seed] != other.model_folder:
                raise ValueError(
                    f"over_seeds=true: {other.model_folder} and {seeds[other.seed]} are both named {other.name} and "
                    f"have training.seed={other.seed}, so they differ in more than the seed: train what is another "
                    "system under another name, python train.py name=…"
                )
        if not point.own_model:
            found.setdefault(_kind(point), {}).setdefault(models, f"{point.system} at {point.setting}")
    for sets in found.values():
        if len(sets) > 1:
            raise ValueError(
                f"over_seeds=true: {' and '.join(sets.values())} were decoded with different models "
                f"({' and '.join(str(len(models)) for models in sets)} of them); evaluate every one at every setting"
            )


def _kind(point: Point) -> str:
    """What makes models one system: all but weights, seeds and setting."""
    return json.dumps([point.system, point.options, point.name], sort_keys=True, ensure_ascii=False)
