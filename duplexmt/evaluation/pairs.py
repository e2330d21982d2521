"""The pairs that systems are compared on: of a file, or held out from a corpus."""

import logging
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..common.files import check_there
from ..common.pair import Pair
from ..common.streams import chunks, text
from ..corpus.evaluation_files import read_evaluation_file, simplifies_sources
from ..corpus.prepared import corpus_settings, prepare_corpus
from ..model_folder.artifact import ModelFolder, corpus_name
from .decoding import TestSet

log = logging.getLogger(__name__)


def read_test_pairs(
    data: Mapping[str, Any],
    split: str,
    loaded: ModelFolder,
    manifests: Collection[Mapping[str, Any]],
    further: Sequence[str] = (),
    limit: int | None = None,
) -> tuple[TestSet, dict[str, Any]]:
    """A test set, and the settings of the corpus that holds it out, if one does.

    All models get the same sources: simplified, where those of one of them were in training, and without the sentence
    before, where one of them reads that by itself.

    Args:
        data: data settings: those of a model, with what is asked for now on top.
        split: `test` or `validation`.
        loaded: the model whose tokenizer counts.
        further: files of further references.
        limit: first pairs only.

    Raises:
        ValueError: for a file that is missing or unusable.
    """
    own_file, held_out_from = data[f"{split}_path"], {}
    contexts = [info["data"] for info in manifests if info["data"].get("context_tokens")]
    separator = contexts[0]["context_separator"] if contexts else None
    if own_file:
        simplified = any(simplifies_sources(info["data"]) for info in manifests)
        pairs, report = read_evaluation_file(own_file, data, separator, simplified)
        log.info("%s: %d pairs\n%s", own_file, len(pairs), report.summary())
        name = Path(own_file).name
    else:
        held_out_from = corpus_settings(data)
        if separator is not None:
            held_out_from |= {name: contexts[0][name] for name in ("context_tokens", "context_separator")}
        pairs = prepare_corpus(train=False, **held_out_from | {"tokenizer": loaded.tokenizer}).splits[split]
        name = f"{corpus_name(data)}, {split} split"
    references = further_references([pair.target for pair in pairs], further)[:limit]
    sources, befores = [pair.source for pair in pairs][:limit], [pair.before for pair in pairs][:limit]
    languages = data["source_language"], data["target_language"]
    return TestSet(name, sources, references, *languages, befores if any(befores) else []), held_out_from


def pairs_for(loaded: ModelFolder, file: str) -> list[Pair]:
    """The pairs of a file as this model was trained to read them; raises what `read_evaluation_file` does."""
    data = loaded.info["data"]
    return read_evaluation_file(file, data, loaded.context_separator, simplifies_sources(data))[0]


def further_references(references: Sequence[str], files: Sequence[str]) -> list[list[str]]:
    """Each sentence's reference and those of further files, of which an empty line gives none.

    Args:
        files: texts (.gz, .xz or .zst, too) with a line for each test pair, in order.

    Raises:
        ValueError: for a file that is missing, not UTF-8, or has another number of lines.
    """
    found = [[reference] for reference in references]
    check_there("references", files)
    for name in files:
        lines = _lines(name, alone=b" ")
        if len(lines) != len(references):
            lines = _lines(name)  # a carriage return alone may end a line, or stand in one
        if len(lines) != len(references):
            raise ValueError(
                f"references={name} has {len(lines)} lines for {len(references)} test pairs: a line is needed for each "
                "(pairs that were left out as unusable are not counted)"
            )
        for texts, line in zip(found, lines, strict=True):
            if line.strip():
                texts.append(line.strip())
    return found


def _lines(name: str, alone: bytes = b"\n") -> list[str]:
    """The lines of a text file, see `duplexmt.common.streams.text`."""
    try:
        return b"".join(text(chunks([Path(name)]), name, alone)).decode("utf-8").removesuffix("\n").split("\n")
    except UnicodeDecodeError as error:
        raise ValueError(f"references={name}: not UTF-8 ({error})") from error
    except ValueError as error:
        raise ValueError(f"references={name}: {error}") from error
