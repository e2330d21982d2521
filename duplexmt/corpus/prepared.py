"""A corpus as training takes it: read, cleaned, split, tokenised and filtered, a function for each kind of corpus."""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import compress
from typing import Any

from data_prep.relatives import Relatives
from data_prep.report import Report
from data_prep.splitting import Texts
from data_prep.tokens import CountTokens, fits

from ..common.pair import Pair
from ..data.builtin import CASE_STUDY, builtin_corpus
from ..data.tokenizer import SourceTokens, load_tokenizer, source_ids, token_ids, train_bpe
from .copies import copies
from .corpus_settings import CorpusSettings
from .joined import joined_pairs
from .pairs_file import file_pairs
from .pairs_folder import folder_pairs
from .prepared_files import prepared_corpus
from .training_pairs import nothing_left, unshared

log = logging.getLogger(__name__)

_BATCH = 5_000  # pairs in one call of a token counter
BPE_PAIRS = 300_000
"""Training pairs a BPE is trained on at most: the first ones, as they are in a random order."""

Splits = dict[str, list[Pair]]
UNMADE = {"copies": 0, "joined_tokens": None}  # settings of a corpus without the pairs that are made of others
STREAM_SETTINGS = ("end_token", "seed_token", "source_prefix", "target_prefix", "copy_tokens")  # of `stream_tokens`


@dataclass
class PreparedCorpus:
    """Cleaned, filtered and split pairs with their tokenizer, and an account of what was left out."""

    splits: Splits
    tokenizer: Any
    report: Report
    segmentation: str = "tokens"  # of sources, see `source_ids`
    case_study: Pair | None = None  # shown beside held-out pairs
    excluded: Sequence[Pair] = ()  # of test files (`data.exclude`)

    @property
    def sources(self) -> SourceTokens:
        """How source texts become tokens."""
        return SourceTokens(self.tokenizer, self.segmentation)

    @property
    def counters(self) -> tuple[CountTokens, CountTokens]:
        """What counts the tokens of source texts, and of target texts."""
        return counters(self.tokenizer, self.segmentation)

    def summary(self) -> str:
        """What was read and left out, by reason, and the size of each split."""
        sizes = ", ".join(f"{len(pairs):,} {name}" for name, pairs in self.splits.items())
        return f"{self.report.summary()}\n{sizes} pairs; vocabulary of {len(self.tokenizer):,}".strip()


def announce(doing: str, pairs: Sequence[Pair]) -> None:
    """Say what is done with pairs, if they are so many that it takes a while."""
    if len(pairs) > _BATCH:
        log.info("%s %s pairs", doing, f"{len(pairs):,}")


def counters(tokenizer: Any, segmentation: str) -> tuple[CountTokens, CountTokens]:
    """What counts the tokens of source texts, and of target texts."""
    return (
        lambda texts: [len(ids) for ids in source_ids(tokenizer, texts, segmentation)],
        lambda texts: [len(ids) for ids in token_ids(tokenizer, texts)],
    )


def corpus_settings(data: Mapping[str, Any]) -> dict[str, Any]:
    """What `prepare_corpus` takes of a configuration's `data`: all but stream tokens, batches and licence."""
    return {entry.name: data[entry.name] for entry in fields(CorpusSettings) if entry.name in data}


def prepare_corpus(train: bool = True, **settings: Any) -> PreparedCorpus:
    """Read, clean, split, tokenise and filter a corpus, of the fields of `CorpusSettings`.

    It is deterministic, so that every process can do it for itself.

    Args:
        train: without it only what is held out, in a fraction of the time: there is no split "train", and the others
            are the same. A tokenizer must be given, as there is nothing to train one on.

    Raises:
        ValueError: for a corpus with nothing left, or settings that do not fit it.
    """
    asked = CorpusSettings(**settings)
    assert train or asked.tokenizer is not None
    try:
        corpus = KINDS[asked.corpus](asked, train)
        if train and asked.copies:
            add_copies(asked, corpus)
        if train and asked.joined_tokens is not None:
            add_joined(asked, corpus, asked.joined_tokens)
        return corpus
    except ValueError as error:
        where = asked.path or asked.train_path or asked.root
        if where is None or where in str(error):
            raise
        raise ValueError(f"{where}: {error}") from error


def add_made(asked: CorpusSettings, corpus: PreparedCorpus, name: str, made: Sequence[Pair]) -> None:
    """Add training pairs that were made, but for those that share a text with held-out ones or are relatives."""
    held = [*corpus.splits["test"], *corpus.splits["validation"], *corpus.excluded]
    near = Relatives(() if asked.train_on_relatives else held, (asked.source_language, asked.target_language))
    free = unshared(f"train.{name}", made, {"shares_held_out": Texts(held)}, corpus.report, near)
    corpus.report.add("train", name, len(free))
    corpus.splits["train"] = corpus.splits["train"] + free


def add_copies(asked: CorpusSettings, corpus: PreparedCorpus) -> None:
    """Add training pairs with something drawn on both sides, as far as they are short enough; see `copies`."""
    announce("making copies of", corpus.splits["train"])
    made = copies(corpus.splits["train"], asked.copies, (asked.source_language, asked.target_language), asked.seed)
    add_made(asked, corpus, "copies", list(compress(made, fits(made, asked.max_tokens, *corpus.counters))))


def add_joined(asked: CorpusSettings, corpus: PreparedCorpus, most: int) -> None:
    """Add training pairs made of two each, of at most `most` tokens; see `joined_pairs`."""
    announce("joining", corpus.splits["train"])
    languages = asked.source_language, asked.target_language
    pairs = joined_pairs(corpus.splits["train"], most, languages, *corpus.counters, asked.seed)
    add_made(asked, corpus, "joined", pairs)


def prepare_builtin(asked: CorpusSettings, train: bool) -> PreparedCorpus:
    """The built-in pairs.

    Raises:
        ValueError: for no number of pairs.
    """
    if asked.train_size is None:
        raise ValueError("data.train_size=null: say how many of the built-in pairs, such as 38000")
    made = builtin_corpus(asked.train_size if train else 0, asked.validation_size, asked.test_size, asked.seed)
    parts = {name: [Pair(pair.source, pair.target) for pair in pairs] for name, pairs in made.items()}
    # The corpus knows its words: merges across them would hide most of its few words in many tokens.
    tokenizer, report = tokenizer_for(asked, parts["train"], [pair.source_words for pair in made["train"]]), Report()
    if not train:
        del parts["train"]
    parts = fitting(asked, parts, tokenizer, report)
    return PreparedCorpus(parts, tokenizer, report, asked.segmentation, CASE_STUDY)


def prepare_pairs(asked: CorpusSettings, train: bool) -> PreparedCorpus:
    """A file of pairs, or one for each split, see `file_pairs`; a folder of corpora, see `folder_pairs`."""
    report = Report()
    if asked.corpus == "pairs":
        splits, excluded = file_pairs(asked, report, train), list[Pair]()
    else:
        splits, excluded = folder_pairs(asked, report, train)
    tokenizer = tokenizer_for(asked, splits.get("train", [])[:BPE_PAIRS])
    filtered = ("train", "validation") if train else ("validation",)  # test pairs are what they are
    splits = splits | fitting(asked, {name: splits[name] for name in filtered}, tokenizer, report, asked.train_size)
    return PreparedCorpus(splits, tokenizer, report, asked.segmentation, excluded=excluded)


def prepare_raw(asked: CorpusSettings, train: bool) -> PreparedCorpus:
    """Raw files that `data_prep` prepares, see `prepared_corpus`."""
    splits, report = prepared_corpus(asked, train)
    tokenizer = tokenizer_for(asked, [])
    if asked.segmentation != "tokens":  # they were drawn by their length in tokens
        splits = fitting(asked, splits, tokenizer, report)
    return PreparedCorpus(splits, tokenizer, report, asked.segmentation)


KINDS: dict[str, Callable[[CorpusSettings, bool], PreparedCorpus]] = {
    "builtin": prepare_builtin,
    "pairs": prepare_pairs,
    "pairs_folder": prepare_pairs,
    "wmt21_zhen": prepare_raw,
}


def tokenizer_for(asked: CorpusSettings, pairs: Sequence[Pair], words: Sequence[list[str]] | None = None) -> Any:
    """The tokenizer asked for, or a BPE trained on these pairs, of whose sources the words may be known."""
    if asked.tokenizer is None:
        announce(f"training a vocabulary of {asked.vocab_size:,} on", pairs)
        known = words or [[pair.before, pair.source] if pair.before else [pair.source] for pair in pairs]
        texts = [text for source, pair in zip(known, pairs, strict=True) for text in (*source, pair.target)]
        return train_bpe(texts, asked.vocab_size)
    return load_tokenizer(asked.tokenizer) if isinstance(asked.tokenizer, str) else asked.tokenizer


def fitting(
    asked: CorpusSettings, splits: Splits, tokenizer: Any, report: Report, train_size: int | None = None
) -> Splits:
    """Of each split the pairs with at most `max_tokens` tokens on either side, of "train" the first `train_size` such.

    Of pairs in a random order they are a uniform sample of all that fit, and the rest needs no tokens counted. The
    paper keeps ≤ 32 on both sides.

    Raises:
        ValueError: there are fewer, or none.
    """
    most, count, found = asked.max_tokens, counters(tokenizer, asked.segmentation), dict[str, list[Pair]]()
    for name, pairs in splits.items():
        size = train_size if name == "train" else None
        wanted, looked_at, chosen = len(pairs) if size is None else size, 0, list[Pair]()
        if most is not None:
            announce("counting tokens of", pairs[:size])
        while looked_at < len(pairs) and len(chosen) < wanted:
            batch = pairs[looked_at : looked_at + _BATCH]
            looked_at += len(batch)
            short = fits(batch, most, *count)
            if most is not None:
                report.add(f"{name}.length", f"over_{most}_tokens", short.count(False))
            chosen += compress(batch, short)
        if pairs and not chosen:
            raise nothing_left(name, report)
        if len(chosen) < wanted and size is not None:
            raise ValueError(
                f"data.{name}_size={size}: only {len(chosen):,} pairs have at most {most} tokens a side; "
                f"ask for fewer, or raise data.max_tokens\n{report.summary()}"
            )
        if left_out := len(pairs) - looked_at + max(0, len(chosen) - wanted):
            report.add(f"{name}.length", "not_sampled", left_out)
        found[name] = chosen[:wanted]
    return found
