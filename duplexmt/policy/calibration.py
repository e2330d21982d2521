"""Whether p(EMIT) means what it says: of the cells where it is 0.7, the path should have passed 7 in 10."""

import torch
from torch import Tensor

BINS = 10  # of equal width in [0, 1]


def calibration_sums(probabilities: Tensor, mask: Tensor) -> Tensor:
    """Cells, their sum of p(EMIT), and how many are EMIT, for each bin of p(EMIT): `[BINS, 3]`, float32 or better.

    Sums may be added up over batches and devices.

    Args:
        probabilities: p(EMIT) of each cell `[N]`.
        mask: the EMIT mask, booleans `[N]`.
    """
    p = probabilities.to(torch.promote_types(probabilities.dtype, torch.float32))
    of = (p * BINS).long().clamp(0, BINS - 1)
    return p.new_zeros(BINS, 3).index_add_(0, of, torch.stack((torch.ones_like(p), p, mask.to(p.dtype)), -1))


def calibration_error(sums: Tensor) -> Tensor:
    """Expected calibration error: mean over cells of |mean p(EMIT) − share of EMIT| of their bin, in [0, 1]."""
    cells, probability, emitted = sums.unbind(-1)
    return (probability - emitted).abs().sum() / cells.sum()
