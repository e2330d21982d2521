"""The LightningDataModule: from raw pairs to tokenised batches."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from statistics import fmean
from typing import Any

import lightning as L
from torch.utils.data import DataLoader

from data_prep import Report, clean_side, filter_by_length, finish_splits, read_and_clean, read_pairs
from data_prep.cleaning import Cleaning, check_order, simplify
from data_prep.corpus import CountTokens
from data_prep.rules import check_language
from data_prep.settings import preset
from data_prep.splitting import join_context, split_context

from ..data.batch import Batch, Example, collate
from ..data.grammar import AlignedPair, builtin_corpus
from ..data.loader import StepLoader
from ..data.tokenizer import SourceTokens, StreamTokens, load_tokenizer, save_tokenizer, token_ids, train_bpe
from .corpora import prepared_corpus
from .pairs_folder import BPE_PAIRS, draw, folder_pairs

Pair = tuple[str, str]


@dataclass
class PreparedCorpus:
    """Cleaned, filtered and split pairs with their tokenizer, and an account of what was left out."""

    splits: dict[str, list[Pair]]
    tokenizer: Any
    report: Report
    aligned: dict[str, list[AlignedPair]] = field(default_factory=dict)  # the built-in corpus only, same order
    sources: SourceTokens = field(default=None)  # type: ignore[assignment]

    def __post_init__(self) -> None:
        if self.sources is None:
            self.sources = SourceTokens(self.tokenizer)

    def summary(self) -> str:
        """What was read and left out, by reason, and the size of each split."""
        sizes = ", ".join(f"{len(pairs):,} {name}" for name, pairs in self.splits.items())
        return f"{self.report.summary()}\n{sizes} pairs; vocabulary of {len(self.tokenizer):,}".strip()


STREAM_SETTINGS = ("end_token", "seed_token", "source_prefix", "target_prefix")  # of `stream_tokens`


def corpus_settings(data: Mapping[str, Any]) -> dict[str, Any]:
    """What `prepare_corpus` takes of a configuration's `data`: all but stream tokens, batches and licence."""
    others = (*STREAM_SETTINGS, "licence", "batch_size", "batch_cells")
    return {name: value for name, value in data.items() if name not in others}


def prepare_corpus(
    *,
    corpus: str,
    path: str | None,
    train_path: str | None,
    validation_path: str | None,
    test_path: str | None,
    source_field: int | str,
    target_field: int | str,
    source_language: str,
    target_language: str,
    tokenizer: Any,
    vocab_size: int,
    max_tokens: int | None,
    train_size: int | None,
    validation_size: int,
    test_size: int,
    seed: int,
    root: str | None = None,
    prepared: str | None = None,
    cleaning: str = "paper",
    sources: list[str] | None = None,
    exclude: list[str] | None = None,
    held_out: list[str] | None = None,
    segmentation: str = "tokens",
    context_tokens: int = 0,
    context_separator: str = "",
) -> PreparedCorpus:
    """Read, clean, split, tokenise and filter a corpus; deterministic, so that every process can do it for itself.

    Args:
        corpus: `builtin`, `pairs`, `pairs_folder` or `wmt21_zhen`.
        path, train_path, validation_path, test_path: files of `pairs`; splits without a file of their own are held out.
        source_field, target_field: columns or field names.
        source_language, target_language: codes such as zh, en.
        tokenizer: a loaded tokenizer, the name or folder of one, or None to train a BPE on the training pairs.
        vocab_size: of a trained BPE.
        max_tokens: longest text of either side, in tokens; None for no limit.
        train_size: pairs to sample for training; None for all there are.
        validation_size, test_size: pairs to hold out.
        seed: of generation, split and sample.
        root, prepared, cleaning, sources: of `wmt21_zhen`, see `prepared_corpus`.
        exclude, held_out: of `pairs_folder`, with `path`, `prepared`, `cleaning` and `sources`: see `folder_pairs`.
        segmentation, context_tokens, context_separator: how source texts become tokens, see `SourceTokens`.

    Raises:
        ValueError: for a corpus with nothing left, or settings that do not fit it.
    """
    if corpus == "wmt21_zhen":
        name = tokenizer if isinstance(tokenizer, str) else None
        splits, report = prepared_corpus(
            corpus, root=root or "", prepared=prepared, cleaning=cleaning, sources=sources, tokenizer=name,
            max_tokens=max_tokens, train_size=train_size, validation_size=validation_size, test_size=test_size,
            seed=seed,
        )  # fmt: skip
        tokenizer = load_tokenizer(name) if name else tokenizer
        sources_as = SourceTokens(tokenizer, segmentation, context_separator if context_tokens else None)
        splits = drop_bare_contexts(splits, sources_as, report)
        if segmentation != "tokens":  # they were drawn by their length in tokens
            splits = filter_by_length(splits, max_tokens, *counters(sources_as), report)
        return PreparedCorpus(splits, tokenizer, report, sources=sources_as)
    report = Report()
    separator = context_separator if context_tokens else None
    aligned: dict[str, list[AlignedPair]] = {}
    if corpus == "builtin":
        if train_size is None:
            raise ValueError("data.train_size=null: the built-in corpus is generated, so say how many pairs")
        aligned = builtin_corpus(train_size, validation_size, test_size, seed)
        parts = {name: [(pair.source, pair.target) for pair in pairs] for name, pairs in aligned.items()}
    elif corpus == "pairs_folder":
        parts = folder_pairs(
            path or "", prepared=prepared, cleaning=cleaning, sources=sources, exclude=exclude or [],
            held_out=held_out or [], validation_size=validation_size, test_size=test_size, source_field=source_field,
            target_field=target_field, source_language=source_language, target_language=target_language, seed=seed,
            report=report, context_separator=separator,
        )  # fmt: skip
    else:
        main = path or train_path
        if main is None:
            raise ValueError("give data.path=FILE, or data.train_path=FILE: there are no pairs to train on")
        sizes = {  # a split with a file of its own is taken whole
            "validation_size": None if validation_path else validation_size,
            "test_size": None if test_path else test_size,
        }
        parts = read_and_clean(
            main,
            validation_path,
            test_path,
            source_field=source_field,
            target_field=target_field,
            source_language=source_language,
            target_language=target_language,
            seed=seed,
            report=report,
            context_separator=separator,
            **sizes,
        )
    if tokenizer is None:
        trainable = parts["train"][:BPE_PAIRS] if corpus == "pairs_folder" else parts["train"]
        # The built-in corpus knows its words: merges across them would hide most of its few words in many tokens.
        words_of_sources = [[*pair.source_words] for pair in aligned.get("train", ())] or [
            [pair[0]] for pair in trainable
        ]
        texts = [
            text for words, (_, target) in zip(words_of_sources, trainable, strict=True) for text in (*words, target)
        ]
        tokenizer = train_bpe(texts, vocab_size)
    elif isinstance(tokenizer, str):
        tokenizer = load_tokenizer(tokenizer)
    sources_as = SourceTokens(tokenizer, segmentation, separator)
    count_source, count = counters(sources_as)
    if corpus == "builtin":
        parts = filter_by_length(parts, max_tokens, count_source, count, report)
        texts_kept = {name: set(pairs) for name, pairs in parts.items()}
        aligned = {
            name: [pair for pair in pairs if (pair.source, pair.target) in texts_kept[name]]
            for name, pairs in aligned.items()
        }
        return PreparedCorpus(parts, tokenizer, report, aligned, sources_as)
    parts = drop_bare_contexts(parts, sources_as, report)
    if corpus == "pairs_folder":
        parts["train"] = draw(
            parts["train"], max_tokens=max_tokens, count_source=count_source, count_target=count, train_size=train_size,
            report=report,
        )  # fmt: skip
        return PreparedCorpus(parts, tokenizer, report, sources=sources_as)
    splits = finish_splits(
        parts,
        max_tokens=max_tokens,
        count_source=count_source,
        count_target=count,
        train_size=train_size,
        seed=seed,
        report=report,
        context_separator=separator,
        **sizes,
    )
    return PreparedCorpus(splits, tokenizer, report, sources=sources_as)


def counters(sources: SourceTokens) -> tuple[CountTokens, CountTokens]:
    """How many tokens source texts and target texts have."""
    return (
        lambda texts: [len(ids) for ids in sources.ids(texts)],
        lambda texts: [len(ids) for ids in token_ids(sources.tokenizer, texts)],
    )


def drop_bare_contexts(parts: dict[str, list[Pair]], sources: SourceTokens, report: Report) -> dict[str, list[Pair]]:
    """The pairs that have a source behind the sentence before; the others are counted."""
    if sources.context_separator is None:
        return parts
    kept: dict[str, list[Pair]] = {}
    for name, pairs in parts.items():
        kept[name] = []
        for source, target in pairs:
            if sources.split(source)[1].strip():
                kept[name].append((source, target))
            else:
                report.add_example(f"{name}.context", "no_source_behind_it", f"{source}\t{target}", placed=False)
    return kept


def simplifies_sources(data: Mapping[str, Any]) -> bool:
    """Whether cleaning turned the traditional characters of training sources into simplified ones.

    Args:
        data: settings of a corpus, as a model folder records them.
    """
    if data.get("corpus") not in ("pairs_folder", "wmt21_zhen"):  # cleaned by other rules than the paper's, if asked
        return False
    languages = data["source_language"], data["target_language"]
    return Cleaning(*languages, **preset("cleaning", data.get("cleaning", "paper"))).simplifies[0]


def read_evaluation_file(
    path: str,
    *,
    source_field: int | str,
    target_field: int | str,
    source_language: str,
    target_language: str,
    context_separator: str | None = None,
    simplified: bool = False,
) -> tuple[list[Pair], Report]:
    """The pairs of a test set, whole and in order: sources are cleaned as in training, references left as they are.

    With `simplified`, which `simplifies_sources` tells of a model, traditional characters of sources, too.
    Lines that are no pair (empty, one-sided, not UTF-8, …) are left out and reported, with a `context_separator` also
    those without a source behind it.

    Raises:
        ValueError: for a missing file, an unknown format or language, swapped columns, or a file without any pair.
    """
    check_language(target_language)
    report = Report()
    fields = {"source_field": source_field, "target_field": target_field}
    pairs: list[Pair] = []
    for raw, reference in read_pairs(path, **fields, report=report, stage="evaluation.read"):
        parts = [clean_side(text, source_language) for text in split_context(raw, context_separator)]
        before, source = map(simplify, parts) if simplified else parts
        if source and reference.strip():
            pairs.append((join_context(before, source, context_separator), reference.strip()))
        else:  # nothing but invisible characters
            report.add_example("evaluation.clean", "empty_side", f"{raw}\t{reference}")
    if not pairs:
        raise ValueError(
            f"{path} has no sentence pairs (source_field={source_field}, target_field={target_field}); what became of "
            f"its lines:\n{report.summary()}"
        )
    check_order(path, pairs, source_language, target_language)
    return pairs, report


class GridDataModule(L.LightningDataModule):
    """Batches of a prepared corpus.

    Args:
        prepared: from `prepare_corpus`.
        tokens: end, seed and prefix tokens.
        batch_size: pairs a batch, on each device.
        seed: of the shuffling.
        batch_cells: cells a batch, on each device, in place of a number of pairs.
    """

    def __init__(
        self,
        prepared: PreparedCorpus,
        tokens: StreamTokens,
        *,
        batch_size: int,
        seed: int,
        batch_cells: int | None = None,
    ) -> None:
        super().__init__()
        self.prepared, self.tokens, self.batch_size, self.seed = prepared, tokens, batch_size, seed
        self.batch_cells = batch_cells
        self.loader: StepLoader | None = None
        self.position: dict[str, int] | None = None  # of a run that goes on
        self._examples: dict[str, list[Example]] = {}

    def examples(self, split: str) -> list[Example]:
        """Tokenised pairs of a split; tokenised once."""
        if split not in self._examples:
            pairs, sources = self.prepared.splits[split], self.prepared.sources
            texts = [source for source, _ in pairs]
            targets = token_ids(self.prepared.tokenizer, [target for _, target in pairs])
            parts = zip(sources.ids(texts), targets, sources.contexts(texts), strict=True)
            self._examples[split] = [self.tokens.example(*part) for part in parts]
        return self._examples[split]

    @property
    def typical_source_length(self) -> int:
        """Mean length of a training source, prefix and end token included: what a live source is taken for."""
        return round(fmean(len(example.source) for example in self.examples("train")))

    def train_dataloader(self) -> StepLoader:
        """Shuffled batches of this device, from where a resumed run goes on."""
        trainer = self.trainer
        assert trainer is not None
        self.loader = StepLoader(
            self.examples("train"),
            self.batch_size,
            self.seed,
            accumulate=trainer.accumulate_grad_batches,
            rank=trainer.global_rank,
            world_size=trainer.world_size,
            batch_cells=self.batch_cells,
        )
        if self.position is not None:
            self.loader.load_state_dict(self.position)
        return self.loader

    def state_dict(self) -> dict[str, Any]:
        """Where training stands in its epoch."""
        assert self.loader is not None
        return self.loader.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on there. Lightning itself gives a loader its state back only if nothing has asked for the loader before,
        as a linear schedule does for the number of steps; this comes first."""
        self.position = state_dict

    def val_dataloader(self) -> DataLoader:
        """This device's share of the validation pairs, in batches of similar length."""
        trainer = self.trainer
        assert trainer is not None
        examples = sorted(self.examples("validation"), key=lambda example: example.cells)
        if len(examples) < trainer.world_size:
            raise ValueError(
                f"{len(examples)} validation pairs cannot be shared out to {trainer.world_size} devices: "
                "raise data.validation_size"
            )
        share = examples[trainer.global_rank :: trainer.world_size]
        batches = [collate(share[i : i + self.batch_size]) for i in range(0, len(share), self.batch_size)]
        return DataLoader(batches, batch_size=None)  # type: ignore[arg-type]  # a list is a map-style data set

    def transfer_batch_to_device(self, batch: Batch, device: Any, dataloader_idx: int) -> Batch:
        """Move a batch, and the step it brings along, to a device."""
        return batch.to(device)

    def write_report(self, folder: Path, resumed: bool = False) -> None:
        """Write the tokenizer, and `corpus.json`: what was read, cleaned, dropped and kept.

        Raises:
            ValueError: if a resumed run finds another corpus than it was started with.
        """
        hasher = blake2b(json.dumps(self.prepared.splits).encode(), digest_size=16)
        for split in ("train", "validation"):
            for example in self.examples(split):  # as the tokenizer has them
                hasher.update(repr((example.source, example.target)).encode())
        digest = hasher.hexdigest()
        path = folder / "corpus.json"
        if resumed and path.is_file():
            if json.loads(path.read_text(encoding="utf-8"))["digest"] != digest:
                raise ValueError(
                    f"the corpus or the tokenizer is not the one {folder} was started with (see its corpus.json): "
                    "bring the files back as they were, or start a new run"
                )
            return
        folder.mkdir(parents=True, exist_ok=True)
        save_tokenizer(self.prepared.tokenizer, folder / "tokenizer")
        sizes = {name: len(pairs) for name, pairs in self.prepared.splits.items()}
        content = {"pairs": sizes, "digest": digest, "report": self.prepared.report.as_dict()}
        path.write_text(json.dumps(content, ensure_ascii=False, indent=2), encoding="utf-8")
