"""Whether a model was trained on sentences that it is tested on, or on near repetitions of them."""

import json
import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from data_prep.relatives import RELATED, Relatives

from ..common.pair import Pair
from ..common.text import text_key
from .prepared import UNMADE, prepare_corpus

log = logging.getLogger(__name__)

LEAST = 0.3
"""The likeness below which a sentence is taken for new."""

_MOST = 2_000_000  # training pairs looked at: the first ones, as they are in a random order


class _Found(NamedTuple):
    """Of each test pair whether its source was trained on, and how like it is to the training pair most like it."""

    trained_on: np.ndarray
    likest: np.ndarray


_found: dict[tuple[Any, ...], _Found] = {}  # since the command began: jobs and models often share a corpus


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

    A corpus is searched once for the same test pairs, however many models were trained on it.

    Args:
        model: what to call it: its folder, or that it is the base of one.
        corpus: `corpus_settings` of its training pairs, which are read again.
        tokenizer: what counted their tokens, if `max_tokens` limits them.

    Returns:
        A number for each: 1 for a source that was trained on, else a likeness of at least `LEAST`, or 0.
    """
    where = _called(corpus)
    counted_by = None
    if corpus["max_tokens"] is not None:
        counted_by = tokenizer.backend_tokenizer.to_str() if tokenizer.is_fast else tokenizer
    key = json.dumps(corpus, sort_keys=True), counted_by, tuple(pairs)
    if key not in _found:
        log.info("looking for test sentences in %s, which %s was trained on (check_overlap=false: no)", where, model)
        try:
            trained = prepare_corpus(**{**corpus, "tokenizer": tokenizer}).splits["train"]
        except (OSError, ValueError) as error:
            log.info("%s: not checked whether it was trained on test sentences: %s", model, error)
            return None
        _found[key] = _search(where, trained, pairs, (corpus["source_language"], corpus["target_language"]))
    trained_on, likest = _found[key]
    if trained_on.any():
        log.warning(
            "%s was trained on %d of these %d test sentences (%r, for one) in %s, which flatters its scores: test on "
            "others, with data.test_path=FILE",
            model,
            np.count_nonzero(trained_on),
            len(pairs),
            pairs[int(trained_on.argmax())].source,
            where,
        )
    log.info(
        "%s: of %d test sentences %d have a relative among its training pairs of %s (likeness of %g or more), %d one "
        "of %g to %g",
        model,
        len(pairs),
        np.count_nonzero(likest >= RELATED),
        where,
        RELATED,
        np.count_nonzero((likest >= LEAST) & (likest < RELATED)),
        LEAST,
        RELATED,
    )
    return likest


def _search(where: str, trained: Sequence[Pair], pairs: Sequence[Pair], languages: tuple[str, str]) -> _Found:
    """Look for each test pair among training pairs."""
    if len(trained) > _MOST:
        log.info("%s: the first %d of %d training pairs are looked at", where, _MOST, len(trained))
        trained = trained[:_MOST]
    sources = [pair.source for pair in trained]
    keys = set(map(text_key, sources))
    trained_on = np.array([text_key(pair.source) in keys for pair in pairs])
    likest = trained_on.astype(float)
    relatives = Relatives(pairs, languages, LEAST)
    for _, number, likeness in relatives.alike(sources, [pair.target for pair in trained]):
        likest[number] = max(likest[number], likeness)
    return _Found(trained_on, likest)


def _called(corpus: Mapping[str, Any]) -> str:
    """What messages call a corpus: its path, and how many files of it."""
    where = corpus.get("path") or corpus.get("train_path") or corpus.get("root") or "the built-in corpus"
    return f"{where} ({len(corpus['sources'])} files)" if corpus.get("sources") else where
