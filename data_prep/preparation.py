"""What a preparation is asked to do: the schema of `data_prep/conf`, where the values stand."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from data_prep.cleaning import Cleaning
from data_prep.sources import Source

CONF = Path(__file__).parent / "conf"


@dataclass
class Corpus:
    """`conf/corpus`: where pairs come from, and the languages they are in; each source as such, or by its values.

    Raises:
        ValueError: a source with a value that is not known, or without one that it needs.
    """

    name: str
    source_language: str
    target_language: str
    sources: dict[str, Any]

    def __post_init__(self) -> None:
        for name, source in self.sources.items():
            try:
                self.sources[name] = source if isinstance(source, Source) else Source(**source)
            except TypeError as error:
                raise ValueError(f"corpus.sources.{name}: {str(error).removeprefix('Source.__init__() ')}") from None


@dataclass
class Sampling:
    """Sizes of the splits, and how many tokens either side of a pair may have.

    `train_size` None takes all pairs, `max_tokens` None is no limit. `train_on_relatives` keeps training pairs that are
    relatives of held-out ones (`relatives`), as splits did before December 2026.

    Raises:
        ValueError: a size below 0, no training pairs, no tokens.
    """

    train_size: int | None
    validation_size: int
    test_size: int
    max_tokens: int | None
    train_on_relatives: bool = False

    def __post_init__(self) -> None:
        for name, least in (("train_size", 1), ("validation_size", 0), ("test_size", 0), ("max_tokens", 1)):
            value = getattr(self, name)
            if value is not None and value < least:
                raise ValueError(f"sample.{name}={value}: must be at least {least}")


@dataclass
class Preparation:
    """From the files of a corpus in `root` to splits in `output`; `sources` names some of them, None takes all.

    Raises:
        ValueError: a source that is not known, or a number that makes no sense.
    """

    corpus: Corpus
    cleaning: Cleaning
    sample: Sampling
    root: Path
    output: Path
    sources: list[str] | None
    seed: int
    block_bytes: int

    def __post_init__(self) -> None:
        known = self.corpus.sources
        if unknown := sorted(set(self.sources or []) - set(known)):
            raise ValueError(
                f"sources={self.sources}: there is no {', '.join(unknown)}; the corpus has {', '.join(known)}"
            )
        if self.sources == []:
            raise ValueError(f"sources=[]: names none; give some of {', '.join(known)}, or null for all")
        if self.block_bytes < 1:
            raise ValueError(f"block_bytes={self.block_bytes}: must be at least 1")

    @property
    def chosen(self) -> dict[str, Source]:
        """The sources to use, in the corpus's own order."""
        names = self.sources or self.corpus.sources
        return {name: source for name, source in self.corpus.sources.items() if name in names}

    def clean(self, name: str) -> Path:
        """The folder of a source, once cleaned."""
        return self.output / "clean" / name


def preset(group: str, name: str) -> dict[str, Any]:
    """The values of `conf/GROUP/NAME.yaml`. ValueError where there is none."""
    path = CONF / group / f"{name}.yaml"
    if not path.is_file():
        known = ", ".join(sorted(each.stem for each in (CONF / group).glob("*.yaml")))
        raise ValueError(f"{group}={name}: must be one of {known}")
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def preparation(corpus: str | Corpus, cleaning: str, **values: Any) -> Preparation:
    """A preparation by presets, for callers without a command line: files of `conf/corpus` and `conf/cleaning`."""
    if isinstance(corpus, str):
        corpus = Corpus(**preset("corpus", corpus))
    rules = Cleaning(corpus.source_language, corpus.target_language, **preset("cleaning", cleaning))
    return Preparation(corpus, rules, **values, block_bytes=preset("", "prepare")["block_bytes"])
