"""Whether a model was trained on sentences that it is tested on, or on near repetitions of them."""

import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from data_prep.relatives import RELATED, Relatives

from ..common.pair import Pair
from ..common.text import text_key
from .prepared import UNMADE, prepare_corpus

log = logging.getLogger(__name__)

LEAST = 0.3
"""The likeness below which a sentence is taken for new."""

_MOST = 2_000_000  # training pairs looked at: the first ones, as they are in a random order


def read_at_once(corpora: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Corpora to look through in place of these, without made pairs: those that differ in nothing but which files of
    one folder they take, and all of their pairs, are one with all these files.

    Of a file or a folder that was taken whole, pairs that were too long to train on are looked through, too: no test
    sentence loses a relative by that, and no tokens are counted.
    """
    found: list[dict[str, Any]] = []
    for corpus in corpora:
        plain = {"sources": None, **corpus, **UNMADE, "tokenizer": None}
        if plain["corpus"] in ("pairs", "pairs_folder") and plain["train_size"] is None:
            plain["max_tokens"] = None
        whole = plain["corpus"] == "pairs_folder" and plain["train_size"] is None
        alike = [other for other in found if other == plain | ({"sources": other["sources"]} if whole else {})]
        if not alike:
            found.append(plain)
        elif None in (plain["sources"], alike[0]["sources"]):
            alike[0]["sources"] = None
        else:
            alike[0]["sources"] = list(dict.fromkeys([*alike[0]["sources"], *plain["sources"]]))
    return found


def likeness_to_training(
    model: str, corpus: Mapping[str, Any], tokenizer: Any, pairs: Sequence[Pair]
) -> np.ndarray | None:
    """How like each test pair is to the training pair that it is most alike; None where the corpus is not at hand.

    It is said how many test sentences a model was trained on, and how many have relatives (`data_prep.relatives`).

    Args:
        model: what to call it: its folder, or that it is the base of one.
        corpus: `corpus_settings` of its training pairs, which are read again.

    Returns:
        A number for each: 1 for a source that was trained on, else a likeness of at least `LEAST`, or 0.
    """
    try:
        trained = prepare_corpus(**{**corpus, "tokenizer": tokenizer}).splits["train"]
    except (OSError, ValueError) as error:
        log.info("%s: not checked whether it was trained on test sentences: %s", model, error)
        return None
    if len(trained) > _MOST:
        log.info("%s: its first %d of %d training pairs are looked at", model, _MOST, len(trained))
        trained = trained[:_MOST]
    sources = [pair.source for pair in trained]
    keys = set(map(text_key, sources))
    likest = np.array([float(text_key(pair.source) in keys) for pair in pairs])
    if likest.any():
        log.warning(
            "%s was trained on %d of these %d test sentences (%r, for one), which flatters its scores: test on others, "
            "with data.test_path=FILE",
            model,
            np.count_nonzero(likest),
            len(pairs),
            pairs[int(likest.argmax())].source,
        )
    relatives = Relatives(pairs, (corpus["source_language"], corpus["target_language"]), LEAST)
    for _, number, likeness in relatives.alike(sources, [pair.target for pair in trained]):
        likest[number] = max(likest[number], likeness)
    log.info(
        "%s: of %d test sentences %d have a relative among its training pairs (likeness of %g or more), %d one of %g "
        "to %g",
        model,
        len(pairs),
        np.count_nonzero(likest >= RELATED),
        RELATED,
        np.count_nonzero((likest >= LEAST) & (likest < RELATED)),
        LEAST,
        RELATED,
    )
    return likest
