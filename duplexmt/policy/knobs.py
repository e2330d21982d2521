"""The numbers of a policy and their rules: λ and rows (training), θ of the EMIT head (decoding); no torch."""

from collections.abc import Mapping
from typing import Any


def check_lam(lam: float) -> float:
    """Return λ if it is a finite number ≥ 0, else raise `ValueError`."""
    if not 0.0 <= lam < float("inf"):
        raise ValueError(f"policy.lam={lam}: λ must be a finite number of at least 0 (the paper uses 0.1)")
    return lam


def check_theta(theta: Any, setting: str = "policy.theta") -> float:
    """Return θ if it is a number in [0, 1], else raise `ValueError` that names the setting it was given by."""
    if isinstance(theta, bool) or not isinstance(theta, int | float) or not 0 <= theta <= 1:
        raise ValueError(f"{setting}={theta}: the EMIT threshold must be a number between 0 and 1")
    return theta


def check_rows(rows: int | None) -> int | None:
    """Return the rows to compute of a pair if they are a whole number of at least 2, or None for all.

    Raises:
        ValueError: for anything else.
    """
    if rows is not None and (isinstance(rows, bool) or not isinstance(rows, int) or rows < 2):
        raise ValueError(
            f"training.rows={rows}: must be a whole number of at least 2 (the last row and one more: without a choice "
            "between rows there is no policy to learn), or null for all rows"
        )
    return rows


def recorded_theta(info: Mapping[str, Any]) -> float:
    """The θ a grid model is run at where none is given: what `evaluate.py target_al=…` has found, else that of its
    training.

    Args:
        info: the manifest of its model folder.
    """
    return float(info.get("operating_point", info["policy"])["theta"])
