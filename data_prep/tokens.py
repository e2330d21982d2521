"""Token counters of pretrained tokenizers, by the tokenizers library alone."""

from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from tokenizers import Tokenizer

from data_prep.corpus import CountTokens

PRETOKEN_PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
"""Qwen2's split of text into words, runs of marks and single digits; BPE merges stay within a piece."""


@dataclass(frozen=True)
class TokenCounter:
    """How many tokens texts have, and which tokenizer says so."""

    count: CountTokens
    name: str
    sha256: str  # of the tokenizer as JSON


def token_counter(name_or_folder: str) -> TokenCounter:
    """The counter of a folder with tokenizer.json, or with vocab.json and merges.txt; or of a hub's tokenizer.

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
    try:
        if (folder / "tokenizer.json").is_file():
            return Tokenizer.from_file(str(folder / "tokenizer.json"))
        if (folder / "vocab.json").is_file():
            from transformers import AutoTokenizer  # a second to import, and only this layout needs it

            return AutoTokenizer.from_pretrained(name_or_folder).backend_tokenizer
        return Tokenizer.from_pretrained(name_or_folder)
    except Exception as error:  # the hub's client raises its own kinds
        raise ValueError(
            f"tokenizer={name_or_folder}: no tokenizer could be loaded from there ({error}); give a folder with its "
            "tokenizer.json, or null for no length limit"
        ) from error
