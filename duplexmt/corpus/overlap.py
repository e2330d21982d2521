"""Whether a model was trained on sentences that it is tested on."""

import logging
from collections.abc import Mapping
from typing import Any

from .prepared import prepare_corpus

log = logging.getLogger(__name__)


def warn_of_overlap(model: str, corpus: Mapping[str, Any], tokenizer: Any, sources: list[str]) -> None:
    """Say how many test sentences a model was trained on, or that its corpus is not at hand to tell.

    Args:
        model: what to call it: its folder, or that it is the base of one.
        corpus: `corpus_settings` of its training pairs, which are read again.
        tokenizer: the model's.
        sources: of the test set.
    """
    try:
        prepared = prepare_corpus(**{**corpus, "tokenizer": tokenizer})
    except (OSError, ValueError) as error:
        log.info("%s: not checked whether it was trained on test sentences: %s", model, error)
        return
    trained_on = {pair.source for pair in prepared.splits["train"]}
    shared = [source for source in sources if source in trained_on]
    if shared:
        log.warning(
            "%s was trained on %d of these %d test sentences (%r, for one), which flatters its scores: test on others, "
            "with data.test_path=FILE",
            model,
            len(shared),
            len(sources),
            shared[0],
        )
