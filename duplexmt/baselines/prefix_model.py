"""The prefix model: a Hugging Face decoder over one sequence, source and then target, each target token seeing a prefix
of the source."""

from typing import Any

import torch
from torch import Tensor, nn

from ..decoder.knobs import check_anchor, check_trained_k
from ..grid.model import check_backbone


class PrefixModel(nn.Module):
    """A causal language model on `[source, end, seed, target]`, run by the backbone's own modules.

    With the whole source visible and the anchor `source_length` this is the backbone as it was pretrained. Wait-k
    narrows what target tokens see; the EMIT head of the grid has no counterpart, as the schedule decides.

    Args:
        backbone: a `Qwen2ForCausalLM` (or Llama, Mistral, Qwen3), or a `PeftModel` around one.
        k: the wait-k schedule it is trained with; `multi` for all of them (multi-path), None for the whole source
            (offline).
        anchor: first rotary position of the target: `source_length` or a constant, as in the grid.

    Attributes:
        alignment_heads: layer and head of those that align best, where somebody has found out (AlignAtt).

    Raises:
        ValueError: for k < 1, an unknown anchor, or a backbone that the grid would refuse too.
    """

    def __init__(self, backbone: nn.Module, *, k: int | str | None = None, anchor: str | int = "source_length") -> None:
        super().__init__()
        self.backbone: Any = backbone
        self.k = None if k is None else check_trained_k(k)
        self.anchor = check_anchor(anchor)
        self.window = check_backbone(self.causal_lm.config)
        self.alignment_heads: list[list[int]] | None = None

    @property
    def causal_lm(self) -> Any:
        """The Hugging Face causal language model inside (with LoRA layers, where there are any)."""
        return self.backbone.get_base_model() if hasattr(self.backbone, "get_base_model") else self.backbone

    @property
    def system(self) -> str:
        """The system it was made for: `waitk` or `offline`."""
        return "offline" if self.k is None else "waitk"

    @property
    def options(self) -> dict[str, Any]:
        """The keyword arguments that build this model again around the same backbone."""
        return {"k": self.k, "anchor": self.anchor}

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return self.causal_lm.model.embed_tokens.weight.device

    def forward(self, source: Tensor, target: Tensor, source_lengths: Tensor, visible: Tensor) -> Tensor:
        """Final-normed states of the target tokens, from which the next one's logits are read.

        Args:
            source: token ids `[B, X]`, end token included; padding, if any, on the right.
            target: token ids `[B, Y]`, seed token first; padding, if any, on the right.
            source_lengths: whole length of each source `[B]`; it may exceed `X` while the source is still arriving.
            visible: source tokens each target token sees `[B, Y]`, at least 1 and at most what is there.

        Returns:
            `[B, Y, D]`. Padding holds finite values that mean nothing.

        Raises:
            ValueError: if the sequence is longer than a sliding window of the backbone.
        """
        (B, X), Y = source.shape, target.shape[1]
        self.check_window(X + Y)
        rows, columns = (torch.arange(size, device=source.device) for size in (X, Y))
        first = source_lengths[:, None] if self.anchor == "source_length" else int(self.anchor)
        positions = torch.cat((rows.expand(B, -1), (first + columns).expand(B, -1)), dim=1)
        decoder = self.causal_lm.model
        embedded = self.embed(torch.cat((source, target), dim=1))
        # An explicit 4-D mask: left to itself, transformers takes a jump in the positions for packed sequences.
        mask = additive(prefix_mask(visible, X), embedded.dtype)
        states = decoder(inputs_embeds=embedded, attention_mask=mask, position_ids=positions, use_cache=False)
        return states.last_hidden_state[:, X:]

    def recompute_layers(self) -> None:
        """Keep only each layer's input for the backward pass, and compute the rest again there."""
        self.causal_lm.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})

    def embed(self, tokens: Tensor) -> Tensor:
        """Embedded tokens `[..., D]`, where the residual stream begins: ≥ float32, even if frozen weights are not."""
        embedded = self.causal_lm.model.embed_tokens(tokens)
        return embedded.to(torch.promote_types(embedded.dtype, torch.float32))

    def text_logits(self, hidden: Tensor) -> Tensor:
        """Next-token logits `[..., vocabulary]` of final-normed target states `[..., D]`."""
        return self.causal_lm.lm_head(hidden)

    def check_window(self, length: int) -> None:
        """Raise `ValueError` where a sequence of `length` tokens exceeds a sliding window of the backbone."""
        if self.window is not None and self.window < length:
            raise ValueError(
                f"a source and target of {length} tokens exceed the backbone's sliding window of {self.window}, which "
                "the prefix mask cannot honour: shorten the sentences (data.max_tokens) or take a backbone without it"
            )


def prefix_mask(visible: Tensor, X: int) -> Tensor:
    """Attention mask over `[source ; target]`, true where a query (row) sees a key (column).

    A source token sees itself and the source before it. A target token sees itself, the target before it, and the
    first `visible` source tokens. No source state depends on the target or on source to come: reading on changes no
    state that is there already, and one pass over the sequence trains every prefix.

    Args:
        visible: `[B, Y]`, from `visible_source`.
        X: source tokens of the batch, padding included.

    Returns:
        `[B, X + Y, X + Y]`, boolean.
    """
    B, Y = visible.shape
    place = torch.arange(X + Y, device=visible.device)
    source_seen = torch.cat((visible.new_full((B, X), X), visible), dim=1)  # by query
    return (place <= place[:, None]) & ((place >= X) | (place < source_seen[..., None]))


def additive(mask: Tensor, dtype: torch.dtype) -> Tensor:
    """A boolean mask `[B, queries, keys]` as what every attention implementation adds to scores: `[B, 1, …]`."""
    return torch.zeros(mask.shape, dtype=dtype, device=mask.device).masked_fill(~mask, torch.finfo(dtype).min)[:, None]
