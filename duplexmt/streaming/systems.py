"""The systems by name: what an evaluation decodes with."""

from typing import Any

from .events import System
from .grid import GridSystem


def build_system(
    loaded: Any, name: str, setting: float | int | None, *, max_target_tokens: int, batch_size: int
) -> System:
    """The system `name` at a setting of its one knob, over a loaded model folder.

    Args:
        loaded: `artifact.ModelFolder`.
        name: `grid`.
        setting: θ of the grid.
        max_target_tokens: length at which a translation is stopped.
        batch_size: streams decoded side by side.

    Raises:
        ValueError: for an unknown name, or a model folder that holds another system.
    """
    held = loaded.info["system"]
    if name != "grid":
        raise ValueError(f"system={name!r}: there is no such system; known is 'grid'")
    if held != "grid":
        raise ValueError(f"system='grid' needs a model folder trained as the grid; this one holds {held!r}")
    return GridSystem(loaded.model, loaded.tokens, float(setting or 0), max_target_tokens, batch_size)
