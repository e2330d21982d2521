"""Which pairs of some corpora are trained on: those that share nothing with held-out ones, in an order of their own."""

import logging
from collections.abc import Iterable, Mapping, Sequence
from itertools import compress

import numpy as np
import pyarrow as pa

from data_prep.relatives import Relatives
from data_prep.report import Report
from data_prep.splitting import Texts, not_to_train_on, rank

from ..common.pair import Pair

log = logging.getLogger(__name__)


def unshared(
    name: str, pairs: Sequence[Pair], known: Mapping[str, Texts], report: Report, relatives: Relatives
) -> list[Pair]:
    """The pairs of a corpus that may be trained on (`not_to_train_on`); the others are counted."""
    sources, targets = (pa.array([pair[side] for pair in pairs], pa.string()) for side in (0, 1))
    free = np.ones(len(pairs), bool)
    for reason, mask in not_to_train_on(sources, targets, known, relatives).items():
        report.add(name, reason, int(mask.sum()))
        free &= ~mask
    report.add(name, "kept", int(free.sum()))
    return list(compress(pairs, free))


def to_train_on(
    corpora: Iterable[tuple[str, Sequence[Pair]]],
    known: Mapping[str, Texts],
    report: Report,
    relatives: Relatives,
    seed: int,
) -> list[Pair]:
    """The `unshared` pairs of some corpora, each once, in an order that the texts and the seed alone decide.

    The first n of them are a uniform sample.

    Raises:
        ValueError: there is none.
    """
    if relatives.pairs:
        log.info("looking for relatives of %s held-out pairs", f"{len(relatives.pairs):,}")
    free = {pair for name, pairs in corpora for pair in unshared(name, pairs, known, report, relatives)}
    if not free:
        raise nothing_left("train", report)
    return sorted(free, key=lambda pair: (rank("\t".join(pair if pair.before else pair[:2]), seed), pair))


def nothing_left(name: str, report: Report, where: str = "") -> ValueError:
    """The error for a split without a pair, which says what became of all."""
    told = report.summary()
    return ValueError(
        f"no {name} pair is left{where and f' of {where}'}; what became of them:\n{told}\n"
        "Check the path, source_field and target_field, the languages, and whether max_tokens is too small"
        + ("; train_on_relatives=true keeps near repetitions of held-out pairs." if "relative_of" in told else ".")
    )
