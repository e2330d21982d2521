"""What a corpus is made of."""

from dataclasses import dataclass, field
from typing import Any


@dataclass
class CorpusSettings:
    """What decides which pairs a corpus has. The defaults are those of `conf/`, and fit older model folders.

    `tokenizer` may be a loaded one.
    """

    corpus: str  # builtin | pairs | pairs_folder | wmt21_zhen | recorded (evaluate: as the model folder says)
    path: str | None = None  # one corpus, of which validation and test pairs are held out
    train_path: str | None = None  # or a file each
    validation_path: str | None = None  # used whole, as test_path is
    test_path: str | None = None  # evaluate: another test set
    root: str | None = None  # wmt21_zhen: folder of the raw files
    prepared: str | None = None  # folder for the cleaned files; null: ROOT/prepared
    cleaning: str = "paper"  # a preset of data_prep/conf/cleaning: paper | strict
    sources: list[str] | None = None  # of wmt21_zhen or pairs_folder, by name; null: all
    exclude: list[str] = field(default_factory=list)  # pairs_folder: patterns of test files, never trained on
    held_out: list[str] = field(default_factory=list)  # pairs_folder: files to hold test_size, validation_size pairs of
    source_field: Any = 0  # column number, or field name (dotted path) of JSONL and data sets
    target_field: Any = 1  # likewise
    source_language: str = "zh"  # of two letters
    target_language: str = "en"  # likewise
    tokenizer: Any = None  # folder or Hugging Face name (a backbone's own); null: a BPE trained on the data
    vocab_size: int = 8000  # of a trained BPE
    segmentation: str = "tokens"  # of the source: the tokenizer's tokens, or characters (each tokenised by itself)
    context_tokens: int = 0  # of the previous sentence, read before the source and not scored
    context_separator: str = "|||"  # with context_tokens: "previous sentence|||source" in the source column
    max_tokens: int | None = 32  # of either text, without end and seed token
    train_size: int | None = None  # uniform sample; null: all
    joined_tokens: int | None = None  # also train on two short pairs as one, of at most so many tokens; null: on none
    copies: float = 0  # also train on so many pairs for each one with something drawn to be copied (corpus/copies.py)
    train_on_relatives: bool = False  # true: on near repetitions of held-out pairs, too, to repeat an older table
    validation_size: int = 1000  # pairs held out
    test_size: int = 1000  # likewise
    seed: int = 1  # of what is held out, drawn and mixed

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
