"""Translation quality with sacreBLEU: BLEU and chrF of a corpus, each with the signature that makes it comparable.

COMET and BLEURT need models and packages of their own: see `neural.py`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import zip_longest
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sacrebleu.metrics import BLEU, CHRF

from duplexmt.metrics.units import UNPARTED, primary_language

# sacreBLEU's ja-mecab and ko-mecab need packages that this project does not install. Characters always work, and a
# score must not depend on what happens to be installed.
BLEU_TOKENIZERS = dict.fromkeys((*UNPARTED, "ko"), "char") | {"zh": "zh"}


def bleu_tokenizer(target_language: str) -> str:
    """sacreBLEU's tokenizer for a target language: `zh` for Chinese, `char` for the others whose words no spaces part
    (Japanese, Thai, …) and Korean, else `13a`.

    Raises:
        ValueError: `target_language` is no language code such as `en` or `zh-Hans`.
    """
    return BLEU_TOKENIZERS.get(primary_language(target_language), "13a")


@dataclass
class Statistics:
    """What a corpus score is computed from: each sentence's counts, which add up over any set of sentences."""

    metric: BLEU | CHRF
    table: NDArray[np.int64]  # `[n, counts]`

    @property
    def signature(self) -> str:
        """sacreBLEU's signature of the score."""
        return str(self.metric.get_signature())

    def score(self) -> float:
        """The corpus score, 0..100."""
        return self._score(self.table.sum(0))

    def resampled(self, weights: NDArray[np.float64]) -> NDArray[np.float64]:
        """The corpus score of each resample, `[B]`, from `bootstrap.resample_weights` `[B, n]`."""
        return np.array([self._score(counts) for counts in np.rint(weights @ self.table).astype(np.int64)])

    def _score(self, counts: NDArray[np.int64]) -> float:
        return float(self.metric._compute_score_from_stats(counts.tolist()).score)


def corpus_statistics(
    hypotheses: Sequence[str], references: Sequence[str | Sequence[str]], target_language: str
) -> dict[str, Statistics]:
    """The statistics of BLEU and chrF of a corpus, detokenised text on both sides.

    Args:
        hypotheses: one translation a source sentence. An empty one is scored as such.
        references: for each source sentence its reference, or a list of them; their number may vary.
        target_language: a language code; it chooses BLEU's tokenizer (`bleu_tokenizer`).

    Raises:
        ValueError: no hypotheses; hypotheses and references of different number; a sentence without reference, or
            with an empty one; `target_language` is no language code.
    """
    if len(hypotheses) != len(references):
        raise ValueError(
            f"one entry a sentence is needed, got {len(hypotheses)} hypotheses and {len(references)} references"
        )
    if len(hypotheses) == 0:
        raise ValueError("quality needs at least one sentence, got none")
    references_by_sentence = [[entry] if isinstance(entry, str) else list(entry) for entry in references]
    for index, entries in enumerate(references_by_sentence):
        if not entries or not all(entry.strip() for entry in entries):
            raise ValueError(f"sentence {index} has no reference or an empty one: {entries!r}")

    # sacreBLEU wants one stream for each rank of reference, with None where a sentence has fewer. Its own paired tests
    # work on the statistics taken here; they let scores be resampled without counting again.
    metrics = _metrics(bleu_tokenizer(target_language), tuple(zip_longest(*references_by_sentence)))
    return {
        name: Statistics(metric, np.array(metric._extract_corpus_statistics(hypotheses, None), dtype=np.int64))
        for name, metric in metrics.items()
    }


@lru_cache(maxsize=1)  # several systems are scored against the same references
def _metrics(tokenizer: str, references: tuple[tuple[Any, ...], ...]) -> dict[str, BLEU | CHRF]:
    """BLEU and chrF that know their references."""
    return {"BLEU": BLEU(tokenize=tokenizer, references=references), "chrF": CHRF(references=references)}
