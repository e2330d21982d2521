"""What benchmarks of a trained model run on: its grid, and held-out pairs."""

from collections.abc import Sequence
from itertools import repeat
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from duplexmt.common.pair import Pair as TextPair
from duplexmt.data.batch import Batch, Example
from duplexmt.data.builtin import AlignedPair, builtin_corpus
from duplexmt.data.copying import target_ids
from duplexmt.decoder.heads import read_ahead
from duplexmt.evaluation.decoding import DECODING, Decoding
from duplexmt.evaluation.pairs import pairs_for
from duplexmt.model_folder.artifact import ModelFolder
from duplexmt.policy.guide import guide

Pair = AlignedPair | TextPair
BATCH = 25  # pairs


def guided(loaded: ModelFolder, batch: Batch, lam: float) -> tuple[Any, list[Tensor]]:
    """What training makes of a batch by a grid, and of each pair p(EMIT) `[X, Y]` as decoding has it, with the recorded
    certainty and k_min."""
    model: Any = loaded.model
    rule = loaded.rule
    found = guide(model, loaded.tokens, batch, lam, words=rule.words)
    decided = torch.cat([model.decide(states, rule.certainty)[0] for states in found.hidden.split(256)])
    each = zip(found.cells.padded(decided), found.inner or repeat(None), batch.shapes, strict=False)
    return found, [read_ahead(p[:X, :Y], rule.k_min, inner and inner[:Y]) for p, inner, (X, Y) in each]


def held_out_pairs(loaded: ModelFolder, limit: int | None, file: str | None = None) -> list[Pair]:
    """Test pairs: of a file or an evaluation, or of the built-in corpus the model was trained on, with gold alignments.

    Args:
        limit: pairs; None: all.
        file: a source and a target a line, or an evaluation's folder, whose sentences and first references they are.

    Raises:
        ValueError: for a model trained on another corpus where no file is given, a bad file, or an evaluation that has
            not finished.
    """
    data = loaded.info["data"]
    pairs: Sequence[Pair]
    if file is not None and (Path(file) / DECODING).is_file():
        evaluation = Decoding.read(Path(file))
        evaluation.check_complete()
        records = evaluation.sorted(next(iter(evaluation.points)))
        pairs = [TextPair(record["source"], record["references"][0]) for record in records]
    elif file is not None:
        pairs = pairs_for(loaded, file)
    elif data.get("corpus") == "builtin":
        pairs = builtin_corpus(data["train_size"], data["validation_size"], data["test_size"], data["seed"])["test"]
    else:
        raise ValueError(
            f"the model was trained on corpus {data.get('corpus')!r}, which is not kept with it: give test pairs, one "
            "source and target a line, or the folder of an evaluation, with --pairs"
        )
    return list(pairs)[:limit]


def texts(pair: Pair) -> TextPair:
    """The pair without its alignment."""
    return TextPair(pair.source, pair.target) if isinstance(pair, AlignedPair) else pair


def examples(loaded: ModelFolder, pairs: Sequence[Pair]) -> list[Example]:
    """Both streams of each pair.

    Raises:
        ValueError: for no pairs, or one without tokens on either side.
    """
    if not pairs:
        raise ValueError("no sentence pairs: give some with --pairs FILE")
    sources = loaded.sources.ids([pair.source for pair in pairs])
    contexts = loaded.sources.ids([texts(pair).before for pair in pairs])
    both = [pair.target for pair in pairs], [pair.source for pair in pairs]
    targets = target_ids(loaded.tokenizer, *both, loaded.tokens.copy_tokens)
    for number, (source, target) in enumerate(zip(sources, targets, strict=True), 1):
        if not source or not target:
            side = "target" if source else "source"
            raise ValueError(f"pair {number} has a {side} without tokens: {texts(pairs[number - 1])}; take it out")
    return [loaded.tokens.example(*ids) for ids in zip(sources, targets, contexts, strict=True)]
