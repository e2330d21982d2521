"""What a preparation is asked to do: the schema of `data_prep/conf`, where the values stand."""

from dataclasses import MISSING, dataclass
from pathlib import Path
from typing import Any

import yaml

from data_prep.cleaning import Cleaning
from data_prep.sampling import Sampling
from data_prep.sources import Source

CONF = Path(__file__).parent / "conf"
STEPS = ("all", "download", "clean", "sample")


@dataclass(frozen=True)
class Preparation:
    """From the files of several sources in `root` to splits in `output`.

    Raises:
        ValueError: a source that is not known, or a number that makes no sense.
    """

    name: str
    sources: dict[str, Source]
    root: Path
    output: Path
    cleaning: Cleaning
    sample: Sampling
    seed: int
    block_bytes: int

    def __post_init__(self) -> None:
        if not self.sources:
            raise ValueError("sources=[]: name at least one")
        if self.block_bytes < 1:
            raise ValueError(f"block_bytes={self.block_bytes}: must be at least 1")


def preset(group: str, name: str) -> dict[str, Any]:
    """The values of `conf/GROUP/NAME.yaml`. ValueError where there is none."""
    path = CONF / group / f"{name}.yaml"
    if not path.is_file():
        known = ", ".join(sorted(each.stem for each in (CONF / group).glob("*.yaml")))
        raise ValueError(f"{group}={name}: must be one of {known}")
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def chosen(sources: dict[str, Source], names: list[str] | None) -> dict[str, Source]:
    """The sources named, in the corpus's own order; all of them where none is. ValueError for an unknown name."""
    unknown = sorted(set(names or []) - set(sources))
    if unknown:
        raise ValueError(f"sources={names}: there is no {', '.join(unknown)}; the corpus has {', '.join(sources)}")
    return {name: source for name, source in sources.items() if not names or name in names}


def plan_of(values: Any) -> Preparation:
    """The preparation that a composed configuration (`conf/prepare.yaml`) asks for."""
    corpus = values["corpus"]
    known = {entry.name for entry in Source.__dataclass_fields__.values()}
    needed = {e.name for e in Source.__dataclass_fields__.values() if e.default is e.default_factory is MISSING}
    for name, source in corpus["sources"].items():
        if wrong := sorted((set(source) - known) | (needed - set(source))):
            raise ValueError(f"corpus.sources.{name}: {', '.join(wrong)} should not be there, or is missing")
    sources = {name: Source(**source) for name, source in corpus["sources"].items()}
    return Preparation(
        name=corpus["name"],
        sources=chosen(sources, values["sources"]),
        root=Path(values["root"]),
        output=Path(values["output"]),
        cleaning=Cleaning(corpus["source_language"], corpus["target_language"], **values["cleaning"]),
        sample=Sampling(**values["sample"]),
        seed=values["seed"],
        block_bytes=values["block_bytes"],
    )


def preparation(corpus: str, cleaning: str, **values: Any) -> Preparation:
    """A preparation of a corpus and with a cleaning preset named in `conf`, for callers without a command line.

    Args:
        corpus, cleaning: files of `conf/corpus` and `conf/cleaning`.
        values: `sources`, `root`, `output`, `seed` and `sample`, as in `conf/prepare.yaml`.
    """
    presets = {"corpus": preset("corpus", corpus), "cleaning": preset("cleaning", cleaning)}
    return plan_of(values | presets | {"block_bytes": preset("", "prepare")["block_bytes"]})
