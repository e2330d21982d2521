"""The paper's equations written as loops in float64: the oracle of the fast attention.

One pair, one layer. Queries, keys and values are nested by `[x][y]`, each `[heads, E]`. Where the paper carries the
running statistics `(m, Z, S)` of a prefix softmax, so does this.
"""

import math

import torch
from torch import Tensor


def statistics(scores: list[Tensor], values: list[Tensor]) -> tuple[Tensor, Tensor, Tensor]:
    """`(m, Z, S)` of the online update of Section III-E over a list of keys; one head."""
    m, Z, S = torch.tensor(-math.inf, dtype=torch.float64), torch.tensor(0.0, dtype=torch.float64), 0.0
    for score, value in zip(scores, values, strict=True):
        new = torch.maximum(m, score)
        Z = Z * torch.exp(m - new) + torch.exp(score - new)
        S = S * torch.exp(m - new) + torch.exp(score - new) * value
        m = new
    return m, Z, S


def merged(own: tuple, cross: tuple | None, softmax: str) -> Tensor:
    """`S_j / Z_j` of the joint softmax (Section III-D), or the plain sum of two normalised contexts."""
    (m_s, Z_s, S_s) = own
    if cross is None:
        return S_s / Z_s
    (m_c, Z_c, S_c) = cross
    if softmax == "separate":
        return S_s / Z_s + S_c / Z_c
    m = torch.maximum(m_s, m_c)
    return (S_s * torch.exp(m_s - m) + S_c * torch.exp(m_c - m)) / (Z_s * torch.exp(m_s - m) + Z_c * torch.exp(m_c - m))


def attention(q_I, k_I, v_I, q_O, k_O, v_O, scale, input_attends_output, softmax, exact) -> tuple[Tensor, Tensor]:
    """Contexts of both streams `[X, Y, H, E]` from `[X, Y, heads, E]` tensors, cell by cell and head by head."""
    X, Y, H, _ = q_I.shape
    group = H // k_I.shape[2]
    ctx_I, ctx_O = [], []
    for x in range(X):
        for y in range(Y):
            for h in range(H):
                k = h // group  # the key/value head this query head shares

                def dot(query, key):
                    return scale * (query * key).sum()

                if exact:
                    column = [(x_, y) for x_ in range(x + 1)]
                    row = [(x, y_) for y_ in range(y + 1)]
                    ii = [dot(q_I[x, y, h], k_I[c][k]) for c in column], [v_I[c][k] for c in column]
                    io = [dot(q_I[x, y, h], k_O[c][k]) for c in row], [v_O[c][k] for c in row]
                    oo = [dot(q_O[x, y, h], k_O[c][k]) for c in row], [v_O[c][k] for c in row]
                    oi = [dot(q_O[x, y, h], k_I[c][k]) for c in column], [v_I[c][k] for c in column]
                else:
                    # eq:broadcast-approx: column y = 0 for I→I, row x = 0 for O→O.
                    ii = (
                        [dot(q_I[x, 0, h], k_I[x_, 0, k]) for x_ in range(x + 1)],
                        [v_I[x_, 0, k] for x_ in range(x + 1)],
                    )
                    oo = (
                        [dot(q_O[0, y, h], k_O[0, y_, k]) for y_ in range(y + 1)],
                        [v_O[0, y_, k] for y_ in range(y + 1)],
                    )
                    # eq:io-hadamard: the query stands at the key's own cell.
                    io = (
                        [dot(q_I[x, y_, h], k_O[x, y_, k]) for y_ in range(y + 1)],
                        [v_O[x, y_, k] for y_ in range(y + 1)],
                    )
                    oi = (
                        [dot(q_O[x_, y, h], k_I[x_, y, k]) for x_ in range(x + 1)],
                        [v_I[x_, y, k] for x_ in range(x + 1)],
                    )
                ctx_I.append(merged(statistics(*ii), statistics(*io) if input_attends_output else None, softmax))
                ctx_O.append(merged(statistics(*oo), statistics(*oi), softmax))
    return torch.stack(ctx_I).view(q_I.shape), torch.stack(ctx_O).view(q_I.shape)
