"""What the search for relatives is compared with: two pairs at a time, as `data_prep.relatives` defines likeness."""

from data_prep.relatives import bigrams, jaccard


def likeness(one, other, languages):
    """Of two pairs, from 0 to 1."""
    sides = zip(one[:2], other[:2], languages, strict=True)
    return max(jaccard(bigrams(a, code, way), bigrams(b, code, way)) for a, b, code in sides for way in (0, 1))
