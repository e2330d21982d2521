"""A sentence pair, which all rooms pass on."""

from typing import NamedTuple


class Pair(NamedTuple):
    """A sentence pair."""

    source: str
    target: str
    before: str = ""  # the sentence before the source, where a corpus has that
