"""Decisions by words (`policy.words`): a word that was begun is finished, and its other tokens have no decision.

The paper decides before each token. But nobody reads half a word, and a backbone's pieces of one differ from another's.
So a path leaves no row within a word: EMIT is worth what the whole word costs in this row, and decoding reads nothing
while the most probable next token goes on with the word that was written last. Marks at the end of a word have a
decision of their own: a full stop says more than the letters of a name.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from ..data.batch import Batch
from ..data.tokenizer import StreamTokens
from .decoding_options import EmitRule, check_words

MARKS = frozenset(".,;:!?…\"'”’»)]}")


def going_on(tokenizer: Any, entries: int, language: str) -> Tensor:
    """Which tokens go on with a word `[entries]`: those with a text that neither begins with white space, as the first
    token of a word does, nor is made of `MARKS` alone.

    Args:
        entries: of its vocabulary, at least as many as the tokenizer has.

    Raises:
        ValueError: for a language whose words no spaces part.
    """
    check_words(language)
    return torch.tensor([goes_on(text) for text in texts_behind_another(tokenizer)] + [False] * entries)[:entries]


def emit_rule(
    model: Any,
    tokenizer: Any,
    language: str | None,
    certainty: float | None,
    k_min: int | None,
    k_max: int | None,
    words: bool | None,
    beam: int | None,
    lookahead: int | None,
) -> EmitRule:
    """How a system decides, of its settings; None stands for the paper's.

    Raises:
        ValueError: by words, where no spaces part those of the target's `language`; and a k_max below k_min.
    """
    inner = going_on(tokenizer, model.causal_lm.config.vocab_size, language or "") if words else None
    return EmitRule(certainty or 0.0, k_min or 0, k_max or 0, inner, 1 if beam is None else beam, lookahead or 0)


def goes_on(text: str) -> bool:
    """Whether a token with this text goes on with the word before it."""
    return bool(text) and not text[0].isspace() and not MARKS.issuperset(text)


def texts_behind_another(tokenizer: Any) -> Sequence[str]:
    """The text of each token behind another one, as some decoders take the space from the first: "" of special ones,
    and "\N{REPLACEMENT CHARACTER}" of a part of a character."""

    def decoded(tokens: list[list[int]]) -> list[str]:
        return tokenizer.batch_decode(tokens, skip_special_tokens=True, clean_up_tokenization_spaces=False)

    alone = decoded([[token] for token in range(len(tokenizer))])
    first = next(token for token, text in enumerate(alone) if text.isascii() and text.isalpha())
    texts = decoded([[first, token] for token in range(len(tokenizer))])
    # A part of a character makes some decoders give up on what is before it, too.
    return [
        text.removeprefix(alone[first]) if text.startswith(alone[first]) else "\N{REPLACEMENT CHARACTER}"
        for text in texts
    ]


def within_words(words: Tensor | None, batch: Batch, tokens: StreamTokens) -> Tensor | None:
    """Which scored tokens of a batch go on with a word `[B, Y]`; None where decisions are by tokens.

    Args:
        words: which tokens of the vocabulary do so (`EmitRule.words`).
    """
    if words is None:
        return None
    before = tokens.prefixes[1]
    inner = words.to(batch.labels.device)[batch.labels[:, before:]]
    place = torch.arange(inner.shape[1], device=inner.device)
    return inner & (place > 0) & (place < (batch.target_lengths - before)[:, None])


def ends_of_words(inner: Tensor) -> Tensor:
    """Behind which token the word ends that each token belongs to, `[B, Y]`: 1 + the place of its last token.

    Args:
        inner: tokens that go on with a word `[B, Y]`.
    """
    last = F.pad(~inner[:, 1:], (0, 1), value=True)  # token y ends a word where y + 1 begins one
    places = torch.arange(1, inner.shape[1] + 1, device=inner.device)
    return torch.where(last, places, inner.shape[1]).flip(1).cummin(1).values.flip(1)


def has_choice(inner: Tensor, ends: Tensor | None) -> Tensor:
    """Where a word begins that its row can finish, `[B, R, Y]`: elsewhere nothing is decided.

    Args:
        inner: tokens that go on with a word `[B, Y]`.
        ends: of what was computed of each row `[B, R]`; None: all rows are whole, and R is 1.
    """
    begins = ~inner[:, None]
    return begins if ends is None else begins & (ends_of_words(inner)[:, None] <= ends[:, :, None])
