"""One model for all but the paper's approximations: a Hugging Face decoder over packed streams."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import create_selective_checkpoint_contexts

from ..kernels.products import matrix_products
from .attention import NAME, Packed, PackedAttention, register
from .blocks import KNOWN, Blocks, patch, repeated
from .heads import TwoHeads
from .layout import Layout

STATIC_ROPE_TYPES = ("default", "linear", "yarn", "llama3")  # frequencies that do not change with the length seen
LAYER_TYPES = ("full_attention", "sliding_attention")
PROOF = 8  # tokens by which an unknown type is compared with Hugging Face's own attention


class DecoderModel(TwoHeads):
    """A causal language model on `[source, end; seed, target; …]`, run by the backbone's own modules.

    With an EMIT head it is the grid of exact attention with I←O off: row x is a stream that sees x + 1 source tokens.
    Without one it is a prefix model, whose schedule says what each target token sees: wait-k, multi-path, offline. With
    the whole source visible and the anchor `source_length` it is the backbone as it was pretrained.

    Args:
        backbone: any Hugging Face causal language model with rotary positions, or a `PeftModel` around one.
        emit_hidden: units of a hidden layer in the EMIT head, 0 for the paper's linear one; None for a prefix model.
        k: the wait-k schedule a prefix model is trained with; `multi` for all of them, None for the whole source.
        anchor: first rotary position of the target: `source_length`, a constant, or, with an EMIT head, the ablation
            `visible_length`.
        fast: whether modules of known types are given faster ways to compute the same (`blocks`).

    Attributes:
        alignment_heads: layer and head of those that align best, where somebody has found out (AlignAtt).

    Raises:
        ValueError: for a backbone that does not compute what the rule of `layout` asks.
    """

    attention, input_attends_output, softmax = "exact", False, "joint"  # of the grid it is, with an EMIT head

    def __init__(
        self,
        backbone: nn.Module,
        *,
        emit_hidden: int | None = None,
        k: int | str | None = None,
        anchor: str | int = "source_length",
        fast: bool = True,
    ) -> None:
        super().__init__(backbone, emit_hidden)
        self.k, self.anchor = k, anchor
        self.alignment_heads: list[list[int]] | None = None
        self.blocks = Blocks()
        check_decoder(self.causal_lm.config)
        self.causal_lm.config._attn_implementation = register()
        self.patched = fast and patch(self.decoder, self.blocks)
        if self.causal_lm.config.model_type not in KNOWN:
            self._prove_itself()

    @property
    def rows(self) -> bool:
        """Whether the states of the target are taken anew at each read, as rows of a grid are."""
        return self.emit_head is not None

    @property
    def system(self) -> str:
        """The system it was made for: `grid`, `waitk` or `offline`."""
        return "grid" if self.rows else "offline" if self.k is None else "waitk"

    @property
    def options(self) -> dict[str, Any]:
        """What a model folder records of it, as its grid (`build_grid`) or its schedule."""
        if not self.rows:
            return {"k": self.k, "anchor": self.anchor}
        names = ("attention", "input_attends_output", "softmax", "anchor", "emit_hidden")
        return {name: getattr(self, name) for name in names}

    def states(self, tokens: Tensor, layout: Layout) -> Tensor:
        """Final-normed states of the target tokens, from which the next one's logits are read.

        Args:
            tokens: ids of all sources, end tokens included, then of all targets, seed tokens first, `[S + Σ Y]`; more
                behind them are not looked at.

        Returns:
            `[N, D]`, of the targets of all pairs, row after row.
        """
        # A token is looked up once, however many rows it is in: so dropout leaves out the same of it in all of them.
        embedded = repeated(self.embed(tokens), layout.token)
        found = self.states_of(embedded, layout.position, PackedAttention(layout))
        return found if self.patched else found.index_select(0, layout.targets)

    def states_of(self, embedded: Tensor, positions: Tensor, packed: Packed) -> Tensor:
        """Final-normed states of a packed list `[T, D]` that is embedded already, at rotary positions `[T]`: `[T, D]`,
        of a patched decoder only those that `packed` wants."""
        states: Tensor = self.decoder(
            inputs_embeds=embedded[None], position_ids=positions[None], use_cache=False, packed=packed
        ).last_hidden_state
        return states[0]

    def layout(
        self, shapes: Sequence[tuple[int, int]], rows: Sequence[Sequence[Tensor]], source_lengths: Any = None
    ) -> Layout:
        """`Layout.of`, with this model's anchor and on its device."""
        return Layout.of(shapes, rows, self.anchor, source_lengths, self.device)

    def forward(self, source: Tensor, target: Tensor, source_lengths: Tensor | None = None) -> Tensor:
        """Final-normed target states of whole grids, all rows of pairs of one size: as `GridModel` has them.

        Args:
            source: token ids `[B, X]`, end token included.
            target: token ids `[B, Y]`, seed token first.
            source_lengths: whole length of each source `[B]`; `X` for all where not given.

        Returns:
            `[B, X, Y, D]`.
        """
        (B, X), Y = source.shape, target.shape[1]
        rows = [[torch.full((Y,), x + 1) for x in range(X)]] * B
        layout = self.layout([(X, Y)] * B, rows, None if source_lengths is None else source_lengths.tolist())
        return self.states(torch.cat((source.flatten(), target.flatten())), layout).view(B, X, Y, -1)

    def embed(self, tokens: Tensor) -> Tensor:
        """Embedded tokens `[..., D]`, where the residual stream begins: ≥ float32, even if frozen weights are not."""
        embedded = self.causal_lm.get_input_embeddings()(tokens)
        return embedded.to(torch.promote_types(embedded.dtype, self.dtype))

    def compile_blocks(self, constant: bool = False) -> None:
        """Have `torch.compile` fuse what runs per position, or whole layers of lists of a constant length, where the
        modules are known."""
        self.blocks.compile(constant)

    def recompute(self, what: str) -> None:
        """Keep less for the backward pass, by Hugging Face's own switch; `what` is one of `RECOMPUTE`."""
        if what == "nothing":
            self.causal_lm.activation_checkpointing_disable()
            return
        options: dict[str, Any] = {"use_reentrant": False}
        if what == "elementwise":
            options["context_fn"] = partial(create_selective_checkpoint_contexts, matrix_products())
        self.causal_lm.activation_checkpointing_enable(activation_checkpointing_kwargs=options)

    @torch.no_grad()
    def _prove_itself(self) -> None:
        """Compare logits on a few tokens with those by Hugging Face's own attention, and refuse a type that differs,
        or whose layers do not all attend here, or do not say how far they look back."""
        config, lm, was_training = self.causal_lm.config, self.causal_lm, self.causal_lm.training
        tokens = torch.arange(PROOF, device=self.device) % config.vocab_size
        half = PROOF // 2
        # A stream beside the one that is compared must not change it.
        rows = [[torch.ones(half, dtype=torch.int64), torch.full((half,), half)]]
        layout = Layout.of([(half, half)], rows, "source_length", device=self.device)
        packed = WatchedAttention(layout)
        narrow = next((w.dtype for w in lm.parameters() if w.is_floating_point() and w.dtype.itemsize < 4), None)
        name = f"backbone of type {config.model_type!r}"
        lm.eval()
        try:
            with torch.autocast(self.device.type, narrow, enabled=narrow is not None):
                states = self.states_of(self.embed(tokens[layout.token]), layout.position, packed)
                found = self.text_logits(states[-half:])
                config._attn_implementation = "eager"
                every = torch.ones_like(tokens)[None]
                expected = lm(input_ids=tokens[None], attention_mask=every, use_cache=False).logits[0, half:]
        except TypeError as error:
            raise ValueError(f"{name}: {error}, so it cannot be run here") from error
        finally:
            config._attn_implementation = NAME
            lm.train(was_training)
        kinds = getattr(config, "layer_types", None) or ["full_attention"] * config.num_hidden_layers
        for layer, kind in enumerate(kinds):
            if layer not in packed.windows:
                raise ValueError(f"{name}: its layer {layer} does not attend as others do, so it cannot be run here")
            if kind == "sliding_attention" and packed.windows[layer] is None:
                raise ValueError(
                    f"{name}: its layer {layer} does not tell its sliding window, so it cannot be run here"
                )
        off, largest = (found - expected).abs().max(), expected.abs().max()
        if not off <= (1e-2 if narrow is None else 1e-1) * largest:
            raise ValueError(
                f"{name}: its logits differ by {off:.2g} (of {largest:.2g}) from those "
                "by Hugging Face's own attention, so it asks for something that is unknown here; known are "
                f"{', '.join(KNOWN)}, and others that only have sliding windows, soft caps or several rotary bases"
            )


class WatchedAttention(PackedAttention):
    """Attention of whole packed lists, and a note of the layers that came for it: their windows, and heads and width of
    their keys and of their values, which types have under names of their own."""

    def __init__(self, layout: Layout) -> None:
        super().__init__(layout)
        self.windows: dict[int, int | None] = {}
        self.sizes: dict[int, tuple[torch.Size, torch.Size]] = {}

    def __call__(
        self, layer: int, q: Tensor, k: Tensor, v: Tensor, scale: float, window: int | None, softcap: float | None
    ) -> Tensor:
        """See `PackedAttention`."""
        self.windows[layer], self.sizes[layer] = window, (k.shape[1:], v.shape[1:])
        return super().__call__(layer, q, k, v, scale, window, softcap)


def check_decoder(config: Any) -> None:
    """Refuse a decoder whose attention the rule of `layout` cannot honour.

    Raises:
        ValueError: naming the offending setting and the supported values.
    """
    check_rotary(config)
    name = f"backbone of type {config.model_type!r}"
    if odd := set(getattr(config, "layer_types", None) or ()) - {*LAYER_TYPES}:
        raise ValueError(f"{name} has layers of type {min(odd)!r}: supported are {', '.join(LAYER_TYPES)}")
    parameters = config.rope_parameters
    for own in parameters.values() if all(isinstance(own, dict) for own in parameters.values()) else (parameters,):
        if (rope_type := own.get("rope_type", "default")) not in STATIC_ROPE_TYPES:
            raise ValueError(
                f"rotary embedding {rope_type!r} changes with the length seen: supported are "
                f"{', '.join(STATIC_ROPE_TYPES)}"
            )
    if getattr(config, "attention_dropout", 0.0):
        raise ValueError(
            f"attention_dropout={config.attention_dropout} of the backbone: attention here has no dropout, set it to 0"
        )


def check_rotary(config: Any) -> None:
    """Refuse a type whose positions are not rotary: what a token sees would move it."""
    if not getattr(config, "rope_parameters", None):
        raise ValueError(
            f"backbone of type {config.model_type!r} has no rotary positions: give one that has, such as qwen2, llama, "
            "mistral or gemma3_text"
        )
