"""Points of a plot or table told apart by what their models were trained with."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from .decoding import Point

PATHS = ("path", "train_path", "root")  # of the corpus
MOST_NAMED = 3  # entries of a recipe in a name


def named_apart(points: Sequence[Point]) -> list[Point]:
    """Points to be named: to their options is added in what the recipes of a system's models differ. Where that is more
    than `MOST_NAMED` settings, names would be too long, and runs tell models apart."""
    found = []
    for point in points:
        recipes = [other.recipe for other in points if other.system == point.system and other.recipe]
        names = dict.fromkeys(name for recipe in recipes for name in recipe)
        differing = [name for name in names if any(recipe.get(name) != recipes[0].get(name) for recipe in recipes)]
        shown = {
            name: _shown(name, point.recipe[name], [recipe.get(name) for recipe in recipes])
            for name in differing
            if name in point.recipe and len(differing) <= MOST_NAMED
        }
        found.append(replace(point, options=point.options | shown))
    return found


def _shown(name: str, value: Any, among: Sequence[Any]) -> Any:
    """Of a list its members, of a path its last part, where that tells it from the others."""
    if isinstance(value, list | dict):
        return ",".join(map(str, value)) if isinstance(value, list) else json.dumps(value, ensure_ascii=False)
    others = {other for other in among if other and other != value} if name in PATHS else set()
    alone = name in PATHS and Path(value).name not in {Path(other).name for other in others}
    return Path(value).name if alone else value
