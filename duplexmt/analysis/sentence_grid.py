"""What a trained grid model makes of one sentence pair, for figures."""

from collections.abc import Sequence
from typing import Any

import torch

from ..data.batch import collate
from ..decoder.heads import bound_lag
from ..drawing.grid_figures import SentenceGrid
from ..drawing.style import END
from ..policy.guide import guide
from ..streaming.systems import Trained


@torch.no_grad()
def sentence_grid(
    trained: Trained,
    tokenizer: Any,
    source: Sequence[int],
    target: Sequence[int],
    lam: float,
    context: Sequence[int] = (),
    taken_for: int | None = None,
) -> SentenceGrid:
    """Heatmap, EMIT probabilities, most probable tokens and best path of one pair (`fig:dp-path`, `fig:grid-output`).

    The EMIT probabilities are those that decoding compares with θ by a rule (`TwoHeads.decide`, `bound_lag`), and
    1 within words where decisions are by words.

    Args:
        trained: a grid, in evaluation mode, on its device; rows and columns of prefixes are left out, as in training.
        source, target: text tokens of the pair, without end tokens.
        context: text tokens of the previous sentence, for a model trained with context.
        taken_for: length that the anchor `source_length` takes the source to have, as decoding does; None for its own,
            as in training.
    """
    model, tokens, rule = trained.model, trained.tokens, trained.rule
    batch = collate([tokens.example(source, target, context)]).to(model.device)
    guided = guide(model, tokens, batch, lam, taken_for=taken_for, words=rule.words)
    some = guided.hidden.split(256)
    top = torch.cat([model.text_logits(states).argmax(-1) for states in some])
    emit = torch.cat([model.decide(states, rule.certainty)[0] for states in some])
    copied = {token: f"⧉{number}" for number, token in enumerate(tokens.copy_tokens, start=1)}
    shown = {*top.tolist(), *source, *target, tokens.end}
    names = {index: token_text(tokenizer, index, tokens.end) for index in shown} | copied
    X, Y = guided.cells.shapes[0]
    return SentenceGrid(
        source=[names[index] for index in (*source, tokens.end)],
        target=[names[index] for index in (*target, tokens.end)],
        heatmap=guided.heatmap.view(X, Y).tolist(),
        emit=bound_lag(
            emit.view(X, Y), rule.k_min, rule.k_max, None if guided.inner is None else guided.inner[0]
        ).tolist(),
        top=[[names[index] for index in row] for row in top.view(X, Y).tolist()],
        y_at=guided.y_at[0].tolist(),
        lam=lam,
    )


def token_text(tokenizer: Any, token: int, end: int) -> str:
    """Text of one token by itself: `■` for the end token, its name for a special token or a part of a character."""
    if token == end:
        return END
    text = tokenizer.decode([token], skip_special_tokens=True, clean_up_tokenization_spaces=False)
    return tokenizer.convert_ids_to_tokens(token) if not text or "�" in text else text
