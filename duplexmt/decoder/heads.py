"""A Hugging Face causal language model with two heads over its states: text, and where there is a policy EMIT."""

from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn

from ..kernels.products import on_rounded

WAIT, EMIT = 0, 1  # classes of the EMIT head


class TwoHeads(nn.Module):
    """What every model here has.

    Args:
        backbone: a Hugging Face causal language model, or a `PeftModel` around one.
        emit_hidden: units of a hidden layer in the EMIT head, 0 for the paper's linear one; None for no EMIT head.

    Attributes:
        halved: whether all but the heads is in bfloat16 (`halve`).
        logit_cap: that the backbone's text logits are squashed to lie within, where it does that.
    """

    def __init__(self, backbone: nn.Module, emit_hidden: int | None) -> None:
        super().__init__()
        self.backbone: Any = backbone
        self.emit_hidden = emit_hidden
        config = self.causal_lm.config
        self.emit_head = None if emit_hidden is None else emit_head(config.hidden_size, emit_hidden)
        self.logit_cap: float | None = getattr(config, "final_logit_softcapping", None)
        self.halved = False

    @property
    def device(self) -> torch.device:
        """Where its weights are."""
        return self.causal_lm.get_input_embeddings().weight.device  # type: ignore[no-any-return]

    @property
    def dtype(self) -> torch.dtype:
        """Precision of what is trained, and so of the residual streams; a frozen backbone's may be lower."""
        if self.halved:
            return torch.bfloat16
        head = self.text_head if self.emit_head is None else self.emit_head
        return next(chain(head.parameters(), self.decoder.parameters())).dtype

    @property
    def causal_lm(self) -> Any:
        """The Hugging Face causal language model inside (with LoRA layers, where there are any)."""
        return self.backbone.get_base_model() if hasattr(self.backbone, "get_base_model") else self.backbone

    @property
    def decoder(self) -> Any:
        """Its layers, without the text head."""
        return self.causal_lm.get_decoder()

    @property
    def text_head(self) -> nn.Linear:
        """The linear layer that gives next-token logits (PEFT's trained copy, where there is one)."""
        head: Any = self.causal_lm.get_output_embeddings()
        copies = getattr(head, "modules_to_save", None)
        return head if copies is None else copies[head.active_adapters[0]]  # type: ignore[no-any-return]

    def text_logits(self, hidden: Tensor) -> Tensor:
        """Next-token logits `[..., vocabulary]` of final-normed target states `[..., D]`."""
        logits = self.text_head(hidden.float() if self.halved else hidden)
        return logits if self.logit_cap is None else torch.tanh(logits / self.logit_cap) * self.logit_cap

    def emit_logits(self, hidden: Tensor) -> Tensor:
        """Logits `[..., 2]` of WAIT and EMIT (in this order) of final-normed target states `[..., D]`."""
        assert self.emit_head is not None, "asked of a model with a policy only"
        return on_rounded(self.emit_head, hidden.float() if self.halved else hidden)

    def halve(self) -> None:
        """Keep the weights in bfloat16, for decoding, but for the heads: near a threshold, and between two words, it is
        they that decide. Positions, norms and softmax are in float32 as ever."""
        head, self.halved = self.text_head, True
        precise = [None if own is None else nn.Parameter(own.detach().float()) for own in (head.weight, head.bias)]
        for weight in self.backbone.parameters():
            weight.data = weight.data.bfloat16()
        if self.emit_head is not None:
            self.emit_head.float()
        head.weight, head.bias = precise  # type: ignore[assignment]  # a copy, where it was the embedding's

    def decide(self, hidden: Tensor, certainty: float = 0.0) -> tuple[Tensor, Tensor | None]:
        """p(EMIT) as decoding compares it with θ, and the most probable next token where that had to be known for it.

        The EMIT head says what writing here is worth given a reference; a decoder lives with the token it writes. With
        a `certainty` c above 0 the log-odds of that token's probability q count, too: log p(EMIT)/p(WAIT) + c · log
        q/(1 − q). Not in the paper, whose p(EMIT) is that of the head (c = 0).

        Args:
            hidden: final-normed target states `[n, D]`.

        Returns:
            p(EMIT) `[n]` in float32; token ids `[n]`, None with c = 0.
        """
        logits = self.emit_logits(hidden).float()
        if not certainty:
            return logits.softmax(-1)[:, EMIT], None
        text = self.text_logits(hidden)
        q, tokens = text.float().log_softmax(-1).max(-1)
        odds = logits[:, EMIT] - logits[:, WAIT] + certainty * (q - torch.log(-torch.expm1(q)))
        return odds.sigmoid(), tokens


def bound_lag(p_emit: Tensor, k_min: int, k_max: int, inner: Tensor | None = None) -> Tensor:
    """p(EMIT) of one pair's grid `[X, Y]` as decoding has it with `k_min` and `k_max`, where the lag is source tokens
    read minus target tokens written: 0 of a lag below k_min, but for the last row, which writes whatever it is, and 1
    of a lag of k_max or more (0: no bound); and as it has it by words: 1 of tokens that go on with a word, `inner [Y]`.

    Not in the paper, whose policy may write however little was read and wait however long. With θ = 0 and k_min it is
    wait-k.
    """
    x, y = (torch.arange(length, device=p_emit.device) for length in p_emit.shape)
    lag = x[:, None] + 1 - y  # below 0 where more is written than read
    if k_min:
        p_emit = p_emit.masked_fill((lag < k_min) & (x[:, None] < len(x) - 1), 0.0)
    if k_max:
        p_emit = p_emit.masked_fill(lag >= k_max, 1.0)
    return p_emit if inner is None else p_emit.masked_fill(inner, 1.0)


def emit_head(width: int, hidden: int) -> nn.Module:
    """The EMIT head (`eq:emit-loss`): linear, or with a hidden layer of `hidden` units."""
    classes = nn.Linear(hidden or width, 2)
    nn.init.normal_(classes.weight, std=0.02)
    nn.init.zeros_(classes.bias)
    return nn.Sequential(nn.Linear(width, hidden), nn.SiLU(), classes) if hidden else classes
