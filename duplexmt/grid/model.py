"""The grid model: a Hugging Face decoder whose layers run on the 2D grid of two streams (Section III)."""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint, create_selective_checkpoint_contexts

from ..kernels.lora import linear
from ..kernels.norm import rms_norm
from ..kernels.products import matrix_products, on_rounded
from ..kernels.swiglu import gated
from .attention import approximate_attention, exact_attention
from .cells import Cells
from .knobs import VISIBLE_LENGTH, check_anchor, check_grid, check_rows_stand_alone, rows_stand_alone
from .rope import rotate, signed, target_positions
from .rows import Rows, row_attention

WAIT, EMIT = 0, 1  # classes of the EMIT head
SUPPORTED_BACKBONES = ("qwen2", "llama", "mistral", "qwen3")
# What is computed again in the backward pass rather than kept: nothing; all but matrix products; or whole layers, of
# which only the input is kept.
RECOMPUTE = ("nothing", "elementwise", "layers")
Rotation = tuple[Tensor, Tensor]  # cos and sin
Sizes = tuple[int, int]  # of the source stream and of the target stream, in a list of both
# Versions of a compiled block: parts to project, with gradients or without, in training or not, in which precision.
# By default all but the first 8 would not be compiled.
MOST_VERSIONS = 64
STATIC_ROPE_TYPES = ("default", "linear", "yarn", "llama3")  # frequencies that do not change with the length seen


class GridModel(nn.Module):
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

    def __init__(
        self,
        backbone: nn.Module,
        *,
        attention: str = "approximate",
        input_attends_output: bool = True,
        softmax: str = "joint",
        anchor: str | int = "source_length",
        emit_hidden: int = 0,
    ) -> None:
        super().__init__()
        check_grid(attention, softmax, emit_hidden)
        self.backbone: Any = backbone
        self.attention = attention
        self.input_attends_output = input_attends_output
        self.softmax = softmax
        self.anchor = check_anchor(anchor, naive=True)
        self.window = check_backbone(self.causal_lm.config)
        self.recompute = "nothing"  # one of RECOMPUTE, in training
        self.certainty = 0.0  # weight of the next token's certainty in decoding, see `decide`
        self.k_min = 0  # lag below which decoding reads, see `read_ahead`
        self._project: Callable[..., Any] = project_and_rotate
        self._finish: Callable[..., Any] = finish_block
        self.emit_hidden = emit_hidden
        self.emit_head = emit_head(self.causal_lm.config.hidden_size, emit_hidden)

    def compile_blocks(self) -> None:
        """Have `torch.compile` fuse what runs per position, once for all layers and all numbers of cells."""
        import torch._dynamo.config as dynamo  # takes a while, and is of use here only

        dynamo.recompile_limit = max(dynamo.recompile_limit, MOST_VERSIONS)
        self._project = torch.compile(project_and_rotate, dynamic=True)
        self._finish = torch.compile(finish_block, dynamic=True)

    def _recomputed(self, block: Callable[..., Any], *inputs: Any) -> Any:
        """A block's value, kept for the backward pass as `recompute` says."""
        if self.recompute == "nothing" or not torch.is_grad_enabled():
            return block(*inputs)
        if self.recompute == "layers":
            return checkpoint(block, *inputs, use_reentrant=False)
        kept = partial(create_selective_checkpoint_contexts, matrix_products())
        return checkpoint(block, *inputs, use_reentrant=False, context_fn=kept)

    @property
    def cacheable(self) -> bool:
        """Whether the states of earlier cells stay as they are while a stream grows, and few enough for `GridCache`."""
        return self.attention == "approximate" and self.anchor != VISIBLE_LENGTH

    @property
    def row_cacheable(self) -> bool:
        """Whether no cell reads another row, so that `RowCache` can hold the present one."""
        return rows_stand_alone(self.attention, self.input_attends_output, self.softmax)

    @property
    def device(self) -> torch.device:
        """Where its weights are."""
        return next(self.emit_head.parameters()).device

    @property
    def dtype(self) -> torch.dtype:
        """Precision of what is trained, and so of the residual streams; a frozen backbone's may be lower."""
        return next(self.emit_head.parameters()).dtype

    @property
    def causal_lm(self) -> Any:
        """The Hugging Face causal language model inside (with LoRA layers, where there are any)."""
        return self.backbone.get_base_model() if hasattr(self.backbone, "get_base_model") else self.backbone

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

    def states(self, source: Tensor, target: Tensor, cells: Cells | Rows, source_lengths: Tensor) -> Tensor:
        """Final-normed target states `O[x, y]`, from which logits and EMIT probability of a cell are read.

        Args:
            source: token ids of all pairs `[S]`, end tokens included.
            target: token ids of all pairs `[T]`, each seed token first.
            cells: layout of the batch; of chosen rows only where no row reads another.
            source_lengths: whole length of each source `[B]`.

        Returns:
            `[N, D]`, a state for each cell.

        Raises:
            ValueError: if the streams are longer than a sliding window of the backbone, or for chosen rows of a model
                whose rows read each other.
        """
        self.check_window(*max(cells.shapes, key=sum))  # of a pair: which others stand beside it does not matter
        if isinstance(cells, Rows):
            self.check_rows()
        decoder = self.causal_lm.model
        grow_I = cells.over_rows if self.input_attends_output and isinstance(cells, Cells) else as_it_is
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
            return self._finish(layer, of_cells(states, sizes), contexts)  # type: ignore[no-any-return]

        def last_block(layer: Any, states: Tensor, sizes: Sizes, rope: Rotation) -> Tensor:
            I, O = states.split(sizes)
            ctx_O = self._last_context(layer, cells, I, O, rope)
            return self._finish(layer, cells.over_columns(O), ctx_O)  # type: ignore[no-any-return]

        for layer in decoder.layers[:-1]:
            states = self._recomputed(block, layer, states, sizes, rope)
            rope, sizes = rope_of_cells, (len(states) - len(cells), len(cells))
        return rms_norm(self._recomputed(last_block, decoder.layers[-1], states, sizes, rope), decoder.norm)

    @property
    def text_head(self) -> nn.Linear:
        """The linear layer that gives next-token logits (PEFT's trained copy, where there is one)."""
        head = self.causal_lm.lm_head
        copies = getattr(head, "modules_to_save", None)
        return head if copies is None else copies[head.active_adapters[0]]

    def text_logits(self, hidden: Tensor) -> Tensor:
        """Next-token logits `[..., vocabulary]` of final-normed target states `[..., D]`."""
        return self.text_head(hidden)

    def emit_logits(self, hidden: Tensor) -> Tensor:
        """Logits `[..., 2]` of WAIT and EMIT (in this order) of final-normed target states `[..., D]`."""
        return on_rounded(self.emit_head, hidden)

    def decide(self, hidden: Tensor) -> tuple[Tensor, Tensor | None]:
        """p(EMIT) as decoding compares it with θ, and the most probable next token where that had to be known for it.

        The EMIT head says what writing here is worth given a reference; a decoder lives with the token it writes. With
        `certainty` c above 0 the log-odds of that token's probability q count, too: log p(EMIT)/p(WAIT) + c · log
        q/(1 − q). Not in the paper, whose p(EMIT) is that of the head (c = 0).

        Args:
            hidden: final-normed target states `[n, D]`.

        Returns:
            p(EMIT) `[n]` in float32; token ids `[n]`, None with c = 0.
        """
        logits = self.emit_logits(hidden).float()
        if not self.certainty:
            return logits.softmax(-1)[:, EMIT], None
        text = self.text_logits(hidden)
        q, tokens = text.float().log_softmax(-1).max(-1)
        odds = logits[:, EMIT] - logits[:, WAIT] + self.certainty * (q - torch.log(-torch.expm1(q)))
        return odds.sigmoid(), tokens

    def read_ahead(self, p_emit: Tensor) -> Tensor:
        """p(EMIT) of one pair's grid `[X, Y]` as decoding has it with `k_min`: 0 where fewer than so many source tokens
        more were read than target tokens written, but for the last row, which writes whatever it is.

        Not in the paper, whose policy may write however little was read (`k_min` = 0). With θ = 0 it is wait-k.
        """
        if not self.k_min:
            return p_emit
        x, y = (torch.arange(length, device=p_emit.device) for length in p_emit.shape)
        early = (x[:, None] + 1 - y < self.k_min) & (x[:, None] < len(x) - 1)
        return p_emit.masked_fill(early, 0.0)

    def check_rows(self) -> None:
        """Raise `ValueError` where some rows cannot be computed without the others."""
        check_rows_stand_alone(self.attention, self.input_attends_output, self.softmax)

    def _contexts(self, layer: Any, cells: Cells | Rows, states: Tensor, sizes: Sizes, rope: Rotation) -> Tensor:
        """Attention contexts `[n, H, E]` of the source stream's states, then of the target stream's."""
        (q_I, q_O), (k_I, k_O), (v_I, v_O) = (part.split(sizes) for part in self._project(layer, states, *rope))
        return torch.cat(self._attention(layer, cells)(cells, q_I, k_I, v_I, q_O, k_O, v_O))

    def _last_context(self, layer: Any, cells: Cells | Rows, I: Tensor, O: Tensor, rope: Rotation) -> Tensor:
        """Attention context `[n, H, E]` of the target stream in the last layer, projecting only what it reads.

        Nothing reads the source stream any more but for its keys and values, so it has no queries; and under broadcast
        attention target states attend to those of row x = 0 alone, so only these have keys and values.
        """
        (cos_I, cos_O), (sin_I, sin_O) = (part.split((len(I), len(O))) for part in rope)
        if self.attention == "approximate" and isinstance(cells, Cells):
            (q_O,) = self._project(layer, O, cos_O, sin_O, "q")
            O, cos_O, sin_O = map(cells.row_0, (O, cos_O, sin_O))
            (k_I, k_O), (v_I, v_O) = on_both_streams(
                lambda *states: self._project(layer, *states, "kv"), (I, O), (cos_I, cos_O), (sin_I, sin_O)
            )
        else:
            k_I, v_I = self._project(layer, I, cos_I, sin_I, "kv")
            q_O, k_O, v_O = self._project(layer, O, cos_O, sin_O)
        return self._attention(layer, cells)(cells, None, k_I, v_I, q_O, k_O, v_O)[1]

    def _attention(self, layer: Any, cells: Cells | Rows) -> Callable[..., tuple[Tensor, Tensor]]:
        """Attention of this model's kind, of the layout and the projections of both streams."""
        if isinstance(cells, Rows):
            return partial(row_attention, scale=layer.self_attn.scaling)
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


def emit_head(width: int, hidden: int) -> nn.Module:
    """The EMIT head (`eq:emit-loss`): linear, or with a hidden layer of `hidden` units."""
    classes = nn.Linear(hidden or width, 2)
    nn.init.normal_(classes.weight, std=0.02)
    nn.init.zeros_(classes.bias)
    return nn.Sequential(nn.Linear(width, hidden), nn.SiLU(), classes) if hidden else classes


def on_both_streams(function: Callable[..., Any], *streams: tuple[Tensor, Tensor]) -> Any:
    """Apply a per-position function to both streams at once, as they share all weights.

    Args:
        function: of one list of positions for each pair in `streams`; returns as many positions, or a tuple of such.
        streams: pairs `(I, O)` of states `[n, …]`.

    Returns:
        The function's values for I and for O; a tuple of such pairs where the function returns a tuple.
    """
    sizes = [len(stream) for stream in streams[0]]
    result = function(*(torch.cat(pair) for pair in streams))
    return tuple(part.split(sizes) for part in result) if isinstance(result, tuple) else result.split(sizes)


def join(*rotations: Iterable[Tensor]) -> Rotation:
    """Cosines and sines of the source stream, then of the target stream, as one list of positions."""
    cos, sin = (torch.cat(parts) for parts in zip(*rotations, strict=True))
    return cos, sin


def rotation(decoder: Any, like: Tensor, positions: Tensor) -> Rotation:
    """`(cos, sin)`, `[n, 1, E]` each, of positions `[n]`, as `rotate` takes them."""
    cos, sin = decoder.rotary_emb(like, positions[None])
    return cos[0, :, None], signed(sin[0, :, None])


def as_it_is(states: Tensor) -> Tensor:
    """The states themselves: with I←O off the source stream keeps one state a token."""
    return states


def finish_block(layer: Any, states: Tensor, context: Tensor) -> Tensor:
    """Output projection and MLP of one decoder block, with residuals: `[..., D]` and `[..., H, E]` → `[..., D]`."""
    return add_mlp(layer, states + linear(layer.self_attn.o_proj, context.flatten(-2)))


def add_mlp(layer: Any, states: Tensor) -> Tensor:
    """The second half of a decoder block, with its residual: `[..., D]` → `[..., D]`."""
    mlp, normed = layer.mlp, rms_norm(states, layer.post_attention_layernorm)
    hidden = gated(mlp.act_fn, linear(mlp.gate_proj, normed), linear(mlp.up_proj, normed))
    return states + linear(mlp.down_proj, hidden)


def project_and_rotate(layer: Any, states: Tensor, cos: Tensor, sin: Tensor, parts: str = "qkv") -> tuple[Tensor, ...]:
    """The first half of a decoder block, up to attention.

    Covers what tells the supported decoders apart: biases (Qwen2) sit in the linear layers, per-head norms of queries
    and keys (Qwen3) are applied where the module has them.

    Args:
        layer: a decoder block.
        states: `[n, D]`.
        cos, sin: rotation of each position, as `rotate` takes it.
        parts: which of rotated queries (q), rotated keys (k) and values (v) to compute.

    Returns:
        The parts in their order: queries `[n, H, E]`, keys and values `[n, K, E]`.
    """
    attention, normed = layer.self_attn, rms_norm(states, layer.input_layernorm)
    found = []
    for part in parts:
        heads = linear(getattr(attention, f"{part}_proj"), normed).unflatten(-1, (-1, attention.head_dim))
        if part != "v":
            norm = getattr(attention, f"{part}_norm", None)
            heads = rotate(heads if norm is None else rms_norm(heads, norm), cos, sin)
        found.append(heads)
    return tuple(found)


def check_backbone(config: Any) -> int | None:
    """Refuse a decoder whose attention the grid cannot honour; return its sliding window, if any layer has one.

    Raises:
        ValueError: naming the offending setting and the supported values.
    """
    if config.model_type not in SUPPORTED_BACKBONES:
        supported = ", ".join(SUPPORTED_BACKBONES)
        raise ValueError(f"backbone of type {config.model_type!r}: grid attention supports {supported}")
    rope_type = (getattr(config, "rope_parameters", None) or {}).get("rope_type", "default")
    if rope_type not in STATIC_ROPE_TYPES:
        supported = ", ".join(STATIC_ROPE_TYPES)
        raise ValueError(f"rotary embedding {rope_type!r} changes with the length seen: supported are {supported}")
    if getattr(config, "attention_dropout", 0.0):
        raise ValueError(
            f"attention_dropout={config.attention_dropout} of the backbone: grid attention has no dropout, set it to 0"
        )
    layer_types = getattr(config, "layer_types", None)
    slides = "sliding_attention" in layer_types if layer_types else True
    window = getattr(config, "sliding_window", None)
    return window if slides else None
