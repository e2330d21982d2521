"""Token counters of pretrained tokenizers, by the tokenizers library alone."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

CountTokens = Callable[[list[str]], list[int]]


@dataclass(frozen=True)
class TokenCounter:
    """How many tokens texts have, and which tokenizer says so."""

    count: CountTokens
    name: str
    sha256: str  # of the tokenizer as JSON


def fits(
    pairs: Sequence[Any], max_tokens: int | None, count_source: CountTokens | None, count_target: CountTokens | None
) -> list[bool]:
    """Which pairs have at most `max_tokens` tokens on either side: all where that is None."""
    if max_tokens is None or count_source is None or count_target is None:
        return [True] * len(pairs)
    sizes = count_source([pair.source for pair in pairs]), count_target([pair.target for pair in pairs])
    return [max(both) <= max_tokens for both in zip(*sizes, strict=True)]


def token_counter(name_or_folder: str) -> TokenCounter:
    """The counter of a folder's tokenizer (tokenizer.json, or vocab.json and what belongs to it), or of the hub's.

    Special tokens are not added, and one spelt out in a text counts as what its characters come to.

    Raises:
        ValueError: there is no such tokenizer, or it cannot be had offline.
    """
    tokenizer = _load(name_or_folder)
    tokenizer.no_truncation()
    tokenizer.no_padding()
    tokenizer.encode_special_tokens = True

    def count(texts: list[str]) -> list[int]:
        return [len(encoding.ids) for encoding in tokenizer.encode_batch_fast(texts, add_special_tokens=False)]

    return TokenCounter(count, name_or_folder, sha256(tokenizer.to_str().encode()).hexdigest())


def _load(name_or_folder: str) -> Tokenizer:
    folder = Path(name_or_folder)
    if (folder / "tokenizer.json").is_file():
        try:
            return Tokenizer.from_file(str(folder / "tokenizer.json"))
        except Exception as error:  # the library raises no kind of its own
            raise ValueError(f"{folder / 'tokenizer.json'} is damaged ({error}): copy or save it again") from error
    try:
        if not (folder / "vocab.json").is_file():
            return Tokenizer.from_pretrained(name_or_folder)
        from transformers import AutoTokenizer  # seconds to import, and only an older layout needs it

        return AutoTokenizer.from_pretrained(name_or_folder).backend_tokenizer
    except Exception as error:  # the hub's client raises its own kinds
        raise ValueError(
            f"tokenizer={name_or_folder}: no tokenizer could be loaded from there ({error}); give a folder with its "
            "tokenizer.json, or null for no length limit"
        ) from error
