"""What a corpus is made of."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class CorpusSettings:
    """What a corpus is made of; `DataConfig` says what each setting is.

    `tokenizer` is a loaded one, the name or folder of one, or None to train a BPE on the training pairs.
    """

    corpus: str  # builtin, pairs, pairs_folder or wmt21_zhen
    source_field: int | str
    target_field: int | str
    source_language: str
    target_language: str
    tokenizer: Any
    vocab_size: int
    max_tokens: int | None
    train_size: int | None
    validation_size: int
    test_size: int
    seed: int
    path: str | None = None
    train_path: str | None = None
    validation_path: str | None = None
    test_path: str | None = None
    root: str | None = None
    prepared: str | None = None
    cleaning: str = "paper"
    sources: list[str] | None = None
    exclude: list[str] | None = None
    held_out: list[str] | None = None
    segmentation: str = "tokens"
    context_tokens: int = 0
    context_separator: str = ""
    joined_tokens: int | None = None
    copies: float = 0
    train_on_relatives: bool = False

    @property
    def separator(self) -> str | None:
        """What stands between the sentence before and the source; None where no sentence before is read."""
        return self.context_separator if self.context_tokens else None

    @property
    def reading(self) -> dict[str, Any]:
        """How `data_prep` is to read files of pairs."""
        return {
            "source_field": self.source_field,
            "target_field": self.target_field,
            "context_separator": self.separator,
        }
