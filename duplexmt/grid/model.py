"""The grid model: a Hugging Face decoder whose layers run on the 2D grid of two streams (Section III)."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint, create_selective_checkpoint_contexts

from ..decoder.blocks import KNOWN, Blocks, Rotation, join, rotation
from ..decoder.decoder_options import VISIBLE_LENGTH
from ..decoder.heads import TwoHeads
from ..decoder.model import DecoderModel, check_decoder
from ..decoder.rope import target_positions
from ..kernels.norm import rms_norm
from ..kernels.products import matrix_products
from .cells import Cells
from .dual_attention import approximate_attention, exact_attention
from .grid_options import rows_stand_alone

PAPER: dict[str, Any] = {"attention": "approximate", "input_attends_output": True, "softmax": "joint"}
Sizes = tuple[int, int]  # of the source stream and of the target stream, in a list of both


class GridModel(TwoHeads):
    """Both streams' hidden states at every cell `(x, y)`, computed with the weights of a causal language model.

    Args:
        backbone: a `Qwen2ForCausalLM` (or Llama, Mistral, Qwen3), or a `PeftModel` around one.
        attention: `approximate` (the paper's) or `exact` (the form it approximates).
        input_attends_output: whether the source stream attends to the target stream (I←O).
        softmax: `joint` (one denominator for self and cross keys) or `separate` (the rejected variant).
        anchor: first rotary position of the target stream: `source_length`, a constant, or `visible_length` (the
            naive `x_vis + y`, an ablation: every read moves the whole target, so nothing can be cached).
        emit_hidden: units of a hidden layer in the EMIT head; 0 for the paper's linear one.

    Raises:
        ValueError: for an unknown option, or a backbone whose attention the grid cannot honour.
    """

    system, k, rows, patched = "grid", None, False, True  # see `DecoderModel`

    def __init__(
        self,
        backbone: nn.Module,
        *,
        attention: str = PAPER["attention"],
        input_attends_output: bool = PAPER["input_attends_output"],
        softmax: str = PAPER["softmax"],
        anchor: str | int = "source_length",
        emit_hidden: int = 0,
    ) -> None:
        super().__init__(backbone, emit_hidden)
        self.attention = attention
        self.input_attends_output = input_attends_output
        self.softmax = softmax
        self.anchor = anchor
        self.window = check_backbone(self.causal_lm.config)
        self.recomputed = "nothing"
        self.blocks = Blocks()

    def compile_blocks(self, constant: bool = False) -> None:
        """Have `torch.compile` fuse what runs per position, once for all layers; of constant lists in their sizes."""
        self.blocks.compile(constant, whole=False)

    def recompute(self, what: str) -> None:
        """Keep less for the backward pass; `what` is one of `RECOMPUTE`."""
        self.recomputed = what

    def _recomputed(self, block: Callable[..., Any], *inputs: Any) -> Any:
        """A block's value, kept for the backward pass as `recompute` has said."""
        if self.recomputed == "nothing" or not torch.is_grad_enabled():
            return block(*inputs)
        if self.recomputed == "layers":
            return checkpoint(block, *inputs, use_reentrant=False)
        kept = partial(create_selective_checkpoint_contexts, matrix_products())
        return checkpoint(block, *inputs, use_reentrant=False, context_fn=kept)

    @property
    def cacheable(self) -> bool:
        """Whether the states of earlier cells stay as they are while a stream grows, and few enough for `GridCache`."""
        return self.attention == "approximate" and self.anchor != VISIBLE_LENGTH

    @property
    def options(self) -> dict[str, Any]:
        """The keyword arguments that build this model again around the same backbone."""
        names = ("attention", "input_attends_output", "softmax", "anchor", "emit_hidden")
        return {name: getattr(self, name) for name in names}

    def forward(self, source: Tensor, target: Tensor, source_lengths: Tensor | None = None) -> Tensor:
        """Final-normed target states `O[x, y]` of whole grids, pairs of one size side by side.

        Args:
            source: token ids `[B, X]`, end token included.
            target: token ids `[B, Y]`, seed token first.
            source_lengths: whole length of each source `[B]`; `X` for all where not given. It may exceed `X` while
                the source is still arriving.

        Returns:
            `[B, X, Y, D]`. No cell depends on a later token, so padding on the right changes no cell of a pair.

        Raises:
            ValueError: if the streams are longer than a sliding window of the backbone.
        """
        (B, X), Y = source.shape, target.shape[1]
        if source_lengths is None:
            source_lengths = torch.full((B,), X, device=source.device)
        cells = Cells.of([(X, Y)] * B, source.device)
        return self.states(source.flatten(), target.flatten(), cells, source_lengths).view(B, X, Y, -1)

    def states(self, source: Tensor, target: Tensor, cells: Cells, source_lengths: Tensor) -> Tensor:
        """Final-normed target states `O[x, y]`, from which logits and EMIT probability of a cell are read.

        Args:
            source: token ids of all pairs `[S]`, end tokens included.
            target: token ids of all pairs `[T]`, each seed token first.
            source_lengths: whole length of each source `[B]`.

        Returns:
            `[N, D]`, a state for each cell.

        Raises:
            ValueError: if the streams are longer than a sliding window of the backbone.
        """
        self.check_window(*max(cells.shapes, key=sum))  # of a pair: which others stand beside it does not matter
        decoder = self.causal_lm.model
        grow_I = cells.over_rows if self.input_attends_output else lambda tokens: tokens  # one state a token
        # eq:grid-init: I does not depend on y yet, nor O on x. So layer 0 projects each token once; after it O has a
        # state for each cell, and so has I where it attends to O.
        # The residual stream has the precision of what is trained, even where the frozen backbone is in half precision.
        # One lookup for both streams: each has a gradient of the size of the whole embedding.
        states = decoder.embed_tokens(torch.cat((source, target))).to(self.dtype)
        if self.anchor == VISIBLE_LENGTH:
            states = torch.cat((states[: len(source)], cells.over_columns(states[len(source) :])))
            positions = cells.x[cells.source_token] + 1 + cells.y[cells.target_token]
        else:
            positions = target_positions(self.anchor, source_lengths[cells.target_pair], cells.y)
        sizes = len(source), len(positions)
        ropes_I, ropes_O = (rotation(decoder, states, places) for places in (cells.x, positions))
        rope = join(ropes_I, ropes_O)  # of one list, as the layers share all weights between the streams
        rope_of_cells = join(map(grow_I, ropes_I), map(cells.over_columns, ropes_O))

        def of_cells(states: Tensor, sizes: Sizes) -> Tensor:
            I, O = states.split(sizes)
            grown = grow_I(I), cells.over_columns(O)
            return states if tuple(map(len, grown)) == sizes else torch.cat(grown)

        def block(layer: Any, states: Tensor, sizes: Sizes, rope: Rotation) -> Tensor:
            contexts = self._contexts(layer, cells, states, sizes, rope)
            return self.blocks.finish(layer, of_cells(states, sizes), contexts)  # type: ignore[no-any-return]

        def last_block(layer: Any, states: Tensor, sizes: Sizes, rope: Rotation) -> Tensor:
            I, O = states.split(sizes)
            ctx_O = self._last_context(layer, cells, I, O, rope)
            return self.blocks.finish(layer, cells.over_columns(O), ctx_O)  # type: ignore[no-any-return]

        for layer in decoder.layers[:-1]:
            states = self._recomputed(block, layer, states, sizes, rope)
            rope, sizes = rope_of_cells, (len(states) - len(cells), len(cells))
        return rms_norm(self._recomputed(last_block, decoder.layers[-1], states, sizes, rope), decoder.norm)

    def _contexts(self, layer: Any, cells: Cells, states: Tensor, sizes: Sizes, rope: Rotation) -> Tensor:
        """Attention contexts `[n, H, E]` of the source stream's states, then of the target stream's."""
        (q_I, q_O), (k_I, k_O), (v_I, v_O) = (part.split(sizes) for part in self.blocks.project(layer, states, *rope))
        return torch.cat(self._attention(layer)(cells, q_I, k_I, v_I, q_O, k_O, v_O))

    def _last_context(self, layer: Any, cells: Cells, I: Tensor, O: Tensor, rope: Rotation) -> Tensor:
        """Attention context `[n, H, E]` of the target stream in the last layer, projecting only what it reads.

        Nothing reads the source stream any more but for its keys and values, so it has no queries; and under broadcast
        attention target states attend to those of row x = 0 alone, so only these have keys and values.
        """
        (cos_I, cos_O), (sin_I, sin_O) = (part.split((len(I), len(O))) for part in rope)
        if self.attention == "approximate":
            (q_O,) = self.blocks.project(layer, O, cos_O, sin_O, "q")
            O, cos_O, sin_O = map(cells.row_0, (O, cos_O, sin_O))
            both = (torch.cat(pair) for pair in ((I, O), (cos_I, cos_O), (sin_I, sin_O)))
            (k_I, k_O), (v_I, v_O) = (p.split((len(I), len(O))) for p in self.blocks.project(layer, *both, "kv"))
        else:
            k_I, v_I = self.blocks.project(layer, I, cos_I, sin_I, "kv")
            q_O, k_O, v_O = self.blocks.project(layer, O, cos_O, sin_O)
        return self._attention(layer)(cells, None, k_I, v_I, q_O, k_O, v_O)[1]

    def _attention(self, layer: Any) -> Callable[..., tuple[Tensor, Tensor]]:
        """Attention of this model's kind, of the layout and the projections of both streams."""
        return partial(
            approximate_attention if self.attention == "approximate" else exact_attention,
            scale=layer.self_attn.scaling,
            input_attends_output=self.input_attends_output,
            softmax=self.softmax,
        )

    def check_window(self, X: int, Y: int) -> None:
        """Raise `ValueError` where streams of `X` and `Y` tokens exceed a sliding window of the backbone."""
        if self.window is not None and self.window < X + Y:
            raise ValueError(
                f"streams of {X} + {Y} tokens exceed the backbone's sliding window of {self.window}, which grid "
                "attention cannot honour: shorten the sentences (data.max_tokens) or take a backbone without it"
            )


def build_grid(backbone: nn.Module, **options: Any) -> "GridModel | DecoderModel":
    """The model of a grid: where no row reads another, a plain decoder over rows, else the grid of the paper.

    Arguments as for `GridModel`.
    """
    kind = {name: options.get(name, default) for name, default in PAPER.items()}
    if not rows_stand_alone(**kind):
        return GridModel(backbone, **options)
    return DecoderModel(backbone, **{"emit_hidden": 0} | {n: value for n, value in options.items() if n not in kind})


def check_backbone(config: Any) -> int | None:
    """Refuse a decoder whose layers the grid cannot run; return its sliding window, if any layer has one.

    Raises:
        ValueError: naming the offending setting and the supported values.
    """
    if config.model_type not in KNOWN:
        raise ValueError(
            f"backbone of type {config.model_type!r}: grid attention supports {', '.join(KNOWN)}; rows that stand "
            "alone (model.attention=exact model.input_attends_output=false) and baselines take other types, too"
        )
    check_decoder(config)
    layer_types = getattr(config, "layer_types", None)
    slides = "sliding_attention" in layer_types if layer_types else True
    window = getattr(config, "sliding_window", None)
    return window if slides else None
