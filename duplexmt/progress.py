"""Progress bars for terminals and for logs."""

import sys
from typing import Any

from tqdm import tqdm

LOG_SECONDS = 10.0  # between two states of a bar that is written into a file, where each of them stays


def progress_bar(*arguments: Any, **named: Any) -> Any:
    """A tqdm bar; arguments are its own."""
    return tqdm(*arguments, mininterval=0.1 if sys.stderr.isatty() else LOG_SECONDS, **named)
