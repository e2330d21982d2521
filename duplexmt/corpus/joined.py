"""Two training pairs as one, so that a corpus of short sentences has longer ones, too: `data.joined_tokens`."""

import random
from collections.abc import Sequence
from itertools import compress

from data_prep.tokens import CountTokens, fits

from ..common.pair import Pair
from ..common.text import UNSPACED

COMMAS = {"ja": "、", "zh": "，"}  # what may stand between two sentences in place of "。"


def joined_pairs(
    pairs: Sequence[Pair],
    most: int,
    languages: tuple[str, str],
    count_source: CountTokens,
    count_target: CountTokens,
    seed: int,
) -> list[Pair]:
    """Each short pair followed by another one, drawn at random.

    Chinese joins sentences by a comma where English ends them: half of the joined sources have a comma where the first
    sentence ended with "。".

    `most` is about the number of tokens of a joined text: pairs of at most half as many on either side are joined.

    Returns:
        As many as are short enough; none where one alone is.
    """
    short = list(compress(pairs, fits(pairs, most // 2, count_source, count_target)))
    rng = random.Random(seed)
    second = rng.sample(short, len(short))
    space = ["" if language in UNSPACED else " " for language in languages]
    found = []
    for one, other in zip(short, second, strict=True):
        if one == other:
            continue
        source = one.source
        if languages[0] in COMMAS and source.endswith("。") and rng.random() < 0.5:
            source = source[:-1] + COMMAS[languages[0]]
        found.append(Pair(source + space[0] + other.source, one.target + space[1] + other.target, one.before))
    return found
