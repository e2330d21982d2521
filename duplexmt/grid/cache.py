"""The incremental cache (Section V-D and V-E): one more row or column of the grid, without computing the rest again.

Both steps are one computation with the two streams' roles exchanged. A step appends one token to one stream, the *new*
stream N, and computes one line of cells along the other stream, the *line* stream L:

    EMIT  appends a target token (N = O): a column, cells (x', y) for all rows x' read so far      (L = I)
    WAIT  appends a source token (N = I): a row, cells (x, y') for all columns y' written so far   (L = O)

On that line, at each layer:

    L's self attention   does not change along N (broadcast): its context is in the cache, by position on the line
    L's cross attention  gains one key, N's state of the same cell: a running prefix softmax, by position on the line
    N's self attention   is that of the line's first cell (broadcast): its query over N's cached keys and values
    N's cross attention  is a prefix softmax along the line from empty; its last value is kept for the next steps

So a layer keeps `tab:kvcache-entries` for each stream: keys and values of self attention, and context and log-sum-exp
(in place of `(m, Z, S)`) of self and of cross attention. At layer 0 neither stream depends on the other yet: queries
are kept there too, and a step projects its one new token. With I←O off the source stream is one state a token: a WAIT
computes one, an EMIT none, and the cross attention reads its cached keys and values.

What a step computes depends on tensors and on two sizes only, the longest line and the longest stream
(`GridCache.advance`), with no value read back from the device: rounded up, they give shapes that a CUDA graph can
replay (`graphs.py`).
"""

import os
from typing import Any

import torch
from torch import Tensor

from .model import GridModel, finish_block, project_qkv, rms_norm
from .packed import FEWEST_ROWS, packed_blocks
from .prefix import merge, prefix_softmax
from .rope import rotate
from .scan import hadamard_scores

I, O = 0, 1  # streams, as index into the cache


class LayerCache:
    """`tab:kvcache-entries` of one layer for a number of slots; the first dimension is the stream.

    Attributes:
        k, v: self-attention keys and values `[2, slots, length, K, E]`, of column 0 (I) and of row 0 (O).
        self_ctx, self_lse: `[2, slots, length, H, E]` and `[2, slots, length, H]`, I→I and O→O.
        cross_ctx, cross_lse: likewise I←O by row and O←I by column, over the whole other stream so far.
    """

    NAMES = ("k", "v", "self_ctx", "self_lse", "cross_ctx", "cross_lse")

    def __init__(self, slots: int, length: int, K: int, H: int, E: int, like: Tensor) -> None:
        statistics = torch.promote_types(like.dtype, torch.float32)
        self.k = like.new_zeros(2, slots, length, K, E)
        self.v = like.new_zeros(2, slots, length, K, E)
        self.self_ctx = like.new_zeros(2, slots, length, H, E)
        self.cross_ctx = like.new_zeros(2, slots, length, H, E)
        self.self_lse = like.new_zeros(2, slots, length, H, dtype=statistics)
        self.cross_lse = like.new_zeros(2, slots, length, H, dtype=statistics)

    def resize(self, slots: int, length: int) -> None:
        """Keep everything in larger tensors."""
        for name in self.NAMES:
            setattr(self, name, resized(getattr(self, name), slots, length))

    @property
    def bytes(self) -> int:
        """Memory of all entries."""
        return sum(getattr(self, name).nbytes for name in self.NAMES)


class StepCells:
    """The cells of a step in a padded layout, of which only those that exist go through the linear layers.

    Args:
        shape: of the padded layout.
        exist: which of them exist, booleans of that shape; None for all, or where shapes must not depend on values.
        last: index `[n]` of each stream's last cell in the flattened layout.
    """

    def __init__(self, shape: tuple[int, ...], exist: Tensor | None, last: Tensor) -> None:
        self.shape, self.last = shape, last
        self.index = None
        if exist is not None:
            exist = exist.flatten()
            self.index = exist.nonzero()[:, 0]
            self.last = (exist.cumsum(0) - 1)[last]

    def take(self, padded: Tensor) -> Tensor:
        """`[*shape, …]` → `[m, …]`, the cells that exist."""
        flat = padded.flatten(0, len(self.shape) - 1)
        return flat if self.index is None else flat[self.index]

    def spread(self, values: Tensor) -> Tensor:
        """`[m, …]` → `[*shape, …]`, zeros where there is no cell."""
        if self.index is None:
            return values.unflatten(0, self.shape)
        padded = values.new_zeros(torch.Size(self.shape).numel(), *values.shape[1:])
        padded[self.index] = values
        return padded.unflatten(0, self.shape)


class GridCache:
    """States of many independent streams, each at its own `(x, y)`; a step takes any of them one token further.

    Args:
        model: an approximate-attention grid model in evaluation mode.
        slots: streams held at the start.
        length: tokens of either stream held at the start. Both grow by doubling.
        max_bytes: memory the cache may take; by default what is free on its device when it grows.

    Raises:
        ValueError: for exact attention, which would need keys and values of every cell, and for a cache larger than
            the memory.
    """

    def __init__(self, model: GridModel, slots: int = 1, length: int = 64, max_bytes: int | None = None) -> None:
        if not model.cacheable:
            raise ValueError(
                "exact attention keeps no cache, nor does anchor visible_length: decode such a model by recomputation"
            )
        self.model, self.max_bytes = model, max_bytes
        self.decoder: Any = model.causal_lm.model
        attention = self.decoder.layers[0].self_attn
        weight = model.emit_head.weight.detach()
        self.device = weight.device
        E = attention.head_dim
        K = attention.k_proj.out_features // E
        H = attention.q_proj.out_features // E
        statistics = torch.promote_types(weight.dtype, torch.float32).itemsize
        a_layer = 2 * (2 * K * E + 2 * H * E) * weight.itemsize + 4 * H * statistics
        self.bytes_per_token = len(self.decoder.layers) * a_layer + 2 * H * E * weight.itemsize  # of both streams
        self._check_memory(slots, length)
        self.layers = [LayerCache(slots, length, K, H, E, weight) for _ in self.decoder.layers]
        self.first_q = weight.new_zeros(2, slots, length, H, E)  # layer 0's queries, which no step changes
        self.tokens = torch.zeros(2, slots, length, dtype=torch.int64, device=self.device)
        self.count = torch.zeros(2, slots, dtype=torch.int64)  # tokens of each stream; on the CPU, for the sizes
        self.start = torch.zeros(slots, dtype=torch.int64)  # first position of each target stream; likewise
        self.cos, self.sin = self._rotation_table(2 * length)
        self.generation = 0  # counts how often the tensors were replaced
        self.packed = packed_blocks(self.decoder.layers, free_bytes(self.device))

    @property
    def bytes(self) -> int:
        """Memory of the cached states."""
        return sum(layer.bytes for layer in self.layers) + self.first_q.nbytes

    @torch.no_grad()
    def open(self, slots: Tensor, source: Tensor, seed: Tensor, source_lengths: Tensor) -> Tensor:
        """Start streams afresh with their first source token and the seed: cell (0, 0).

        Args:
            slots: which slots `[n]`, on the CPU as all arguments; more than there are make the cache grow.
            source, seed: token ids `[n]`.
            source_lengths: whole length of each source, end token included `[n]`; read with anchor `source_length`.

        Returns:
            Final-normed target state of cell (0, 0), `[n, D]`.
        """
        anchor = self.model.anchor
        start = source_lengths if anchor == "source_length" else torch.full_like(source_lengths, int(anchor))
        self.make_room(int(slots.max()) + 1, 1, int(start.max()))
        self.count[:, slots], self.start[slots] = 1, start
        slots, source, seed, start = (t.to(self.device) for t in (slots, source, seed, start))
        self.tokens[I, slots, 0], self.tokens[O, slots, 0] = source, seed
        states = self.decoder.embed_tokens(torch.stack((source, seed)))  # [2, n, D]
        rope = self._rotation(torch.stack((torch.zeros_like(start), start)))
        for index, (layer, cache) in enumerate(zip(self.decoder.layers, self.layers, strict=True)):
            q, k, v = project_qkv(layer.self_attn, rms_norm(states, layer.input_layernorm))
            q, k = rotate(q, *rope), rotate(k, *rope)
            if index == 0:
                self.first_q[:, slots, 0] = q
            scale, groups = layer.self_attn.scaling, q.shape[-2] // k.shape[-2]
            # One key each: a context is its value, a log-sum-exp its score.
            self_ctx, cross_ctx = v.repeat_interleave(groups, -2), v.flip(0).repeat_interleave(groups, -2)
            self_lse, cross_lse = hadamard_scores(q, k, scale), hadamard_scores(q, k.flip(0), scale)
            for name, value in zip(LayerCache.NAMES, (k, v, self_ctx, self_lse, cross_ctx, cross_lse), strict=True):
                getattr(cache, name)[:, slots, 0] = value
            context = merge(self_ctx, self_lse, cross_ctx, cross_lse, self.model.softmax)
            if not self.model.input_attends_output:
                context = torch.stack((self_ctx[I], context[O]))
            states = finish_block(layer, states, context)
        return rms_norm(states[O], self.decoder.norm)

    @torch.no_grad()
    def step(self, slots: Tensor, emit: Tensor, tokens: Tensor) -> Tensor:
        """Take streams one token further, WAITs and EMITs mixed.

        Args:
            slots: distinct open slots `[n]`, on the CPU as all arguments.
            emit: whether the token is appended to the target (EMIT) or to the source (WAIT), booleans `[n]`.
            tokens: token ids `[n]`.

        Returns:
            Final-normed target state of each stream's present cell, its last row and column, `[n, D]`.

        Raises:
            ValueError: if a stream outgrows a sliding window of the backbone, or the cache the memory.
        """
        inputs, W, T = self.append(slots, emit, tokens)
        ragged = len(slots) > 1 or not self.model.input_attends_output
        emits = bool(emit.any()), not emit.all()
        return self.advance(inputs.to(self.device), W, T, pack=ragged, kinds=emits)

    def append(self, slots: Tensor, emit: Tensor, tokens: Tensor) -> tuple[Tensor, int, int]:
        """Account for one more token each; the arguments `advance` needs to compute it.

        Returns:
            `[6, n]`: slots, emit, tokens, length of the line, position of the token, start of the target; the longest
            line; and the longest stream with its new token.
        """
        line, new = torch.where(emit, I, O), torch.where(emit, O, I)
        lengths, at = self.count[line, slots], self.count[new, slots]
        if self.model.window is not None:
            for X, Y in (self.count[:, slots] + torch.stack((~emit, emit))).T.tolist():
                self.model.check_window(X, Y)
        T = int(at.max()) + 1
        self.make_room(0, T, int(self.start[slots].max()))
        self.count[new, slots] = at + 1
        return torch.stack((slots, emit.long(), tokens, lengths, at, self.start[slots])), int(lengths.max()), T

    @torch.no_grad()
    def advance(
        self, inputs: Tensor, W: int, T: int, *, pack: bool = False, kinds: tuple[bool, bool] = (True, True)
    ) -> Tensor:
        """Compute one line of cells for each stream; reads nothing back from the device unless `pack` is set.

        Args:
            inputs: from `append`, on the device.
            W, T: at least the longest line, and the longest stream with its new token.
            pack: whether to leave cells that do not exist out of the linear layers.
            kinds: whether there may be EMITs, and WAITs; what cannot be needed is left out.

        Returns:
            Final-normed target state of each stream's present cell, `[n, D]`.
        """
        slots, emit, tokens, lengths, at, start = inputs
        emit = emit.bool()
        self.tokens[torch.where(emit, O, I), slots, at] = tokens
        along = torch.arange(W, device=slots.device)
        advance = self._both_streams if self.model.input_attends_output else self._target_stream
        hidden = advance(slots, emit, tokens, lengths, at, start, along, T, pack, kinds)
        return rms_norm(hidden, self.decoder.norm)

    def _both_streams(
        self,
        slots: Tensor,
        emit: Tensor,
        tokens: Tensor,
        lengths: Tensor,
        at: Tensor,
        start: Tensor,
        along: Tensor,
        T: int,
        pack: bool,
        kinds: tuple[bool, bool],
    ) -> Tensor:
        """I←O on: both streams on each stream's line of cells, `[2, n, W]`, line stream first."""
        n, W = len(slots), len(along)
        line, new = torch.where(emit, I, O), torch.where(emit, O, I)
        target = emit.long()  # which of the two computed streams is O
        order = torch.arange(n, device=slots.device)
        exist = (along < lengths[:, None]).expand(2, n, W) if pack else None
        cells = StepCells((2, n, W), exist, (target * n + order) * W + lengths - 1)
        positions = torch.stack(
            (
                torch.where(emit, 0, start)[:, None] + along,
                (torch.where(emit, start, 0) + at)[:, None].expand(n, W),
            )
        )
        rope = self._rotation(positions)
        line_tokens = self.tokens[line, slots, :W]
        states = self.decoder.embed_tokens(cells.take(torch.stack((line_tokens, tokens[:, None].expand(n, W)))))
        last = order, lengths - 1

        for index, (layer, cache) in enumerate(zip(self.decoder.layers, self.layers, strict=True)):
            scale = layer.self_attn.scaling
            if index == 0:
                at_new = rope[0][1, :, 0], rope[1][1, :, 0]
                first = self._first(new, slots, at, tokens, *at_new)
                q_N, k_N, v_N = (part[:, None].expand(-1, W, -1, -1) for part in first)
                q_L, k_L, v_L = self.first_q[line, slots, :W], cache.k[line, slots, :W], cache.v[line, slots, :W]
            else:
                q, k, v = map(cells.spread, project_qkv(layer.self_attn, rms_norm(states, layer.input_layernorm)))
                (q_L, q_N), (k_L, k_N), (v_L, v_N) = rotate(q, *rope), rotate(k, *rope), v

            ctx_LL, lse_LL = cache.self_ctx[line, slots, :W], cache.self_lse[line, slots, :W]
            ctx_LN, lse_LN = add_key(
                cache.cross_ctx[line, slots, :W],
                cache.cross_lse[line, slots, :W],
                hadamard_scores(q_L, k_N, scale),
                v_N,
            )
            cache.cross_ctx[line, slots, :W], cache.cross_lse[line, slots, :W] = ctx_LN, lse_LN

            ctx_NN, lse_NN = self_attention(cache, new, slots, at, T, q_N[:, 0], k_N[:, 0], v_N[:, 0], scale)
            ctx_NL, lse_NL = prefix_softmax(hadamard_scores(q_N, k_L, scale), v_L)
            cache.cross_ctx[new, slots, at], cache.cross_lse[new, slots, at] = ctx_NL[last], lse_NL[last]

            softmax = self.model.softmax
            context = torch.stack(
                (
                    merge(ctx_LL, lse_LL, ctx_LN, lse_LN, softmax),
                    merge(ctx_NN[:, None], lse_NN[:, None], ctx_NL, lse_NL, softmax),
                )
            )
            context = cells.take(context)
            if index == len(self.layers) - 1:  # only the present cell's target state is read
                return self._finish(index, states[cells.last], context[cells.last])
            states = self._finish(index, states, context)
        raise AssertionError("a decoder has at least one layer")

    def _target_stream(
        self,
        slots: Tensor,
        emit: Tensor,
        tokens: Tensor,
        lengths: Tensor,
        at: Tensor,
        start: Tensor,
        along: Tensor,
        T: int,
        pack: bool,
        kinds: tuple[bool, bool],
    ) -> Tensor:
        """I←O off: the target stream on the line, and, where a source token arrives, its one state; `[n, W + 1]`."""
        n, W = len(slots), len(along)
        some_emit, some_wait = kinds
        order = torch.arange(n, device=slots.device)
        exist = torch.cat((along < lengths[:, None], ~emit[:, None]), 1) if pack else None
        cells = StepCells((n, W + 1), exist, order * (W + 1) + lengths - 1)
        column = torch.where(emit[:, None], at[:, None], along)
        row = torch.where(emit, 0, at)
        positions = torch.cat((start[:, None] + column, row[:, None]), 1)
        rope = self._rotation(positions)
        line_tokens = torch.where(emit[:, None], tokens[:, None], self.tokens[O, slots, :W])
        states = self.decoder.embed_tokens(cells.take(torch.cat((line_tokens, tokens[:, None]), 1)))
        new = torch.where(emit, O, I)
        emits = emit[:, None, None]
        last = order, lengths - 1
        # A WAIT leaves the cross entry of its last column as it was computed; an EMIT sets its new column's.
        entry = torch.where(emit, at, lengths - 1)

        for index, (layer, cache) in enumerate(zip(self.decoder.layers, self.layers, strict=True)):
            scale = layer.self_attn.scaling
            if index == 0:
                where = torch.where(emit, 0, W)  # either's position is that of the new token
                q_N, k_N, v_N = self._first(new, slots, at, tokens, rope[0][order, where], rope[1][order, where])
                q_O = torch.where(emits[..., None], q_N[:, None], self.first_q[O, slots, :W])
                k_I, v_I = k_N, v_N
            else:
                q, k, v = map(cells.spread, project_qkv(layer.self_attn, rms_norm(states, layer.input_layernorm)))
                q, k = rotate(q, *rope), rotate(k, *rope)
                q_O, k_I, v_I = q[:, :W], k[:, W], v[:, W]
                q_N, k_N, v_N = (torch.where(emits, part[:, 0], part[:, W]) for part in (q, k, v))

            ctx_NN, lse_NN = self_attention(cache, new, slots, at, T, q_N, k_N, v_N, scale)
            if some_wait:  # the line is a row: cached self context, one more source key
                ctx_oo, lse_oo = cache.self_ctx[O, slots, :W], cache.self_lse[O, slots, :W]
                before = cache.cross_ctx[O, slots, :W], cache.cross_lse[O, slots, :W]
                ctx_oi, lse_oi = add_key(*before, hadamard_scores(q_O, k_I[:, None], scale), v_I[:, None])
            if some_emit:  # the line is a column: one self context, and all source keys from the cache
                keys, values = cache.k[I, slots, :W], cache.v[I, slots, :W]
                column_ctx, column_lse = prefix_softmax(hadamard_scores(q_O, keys, scale), values)
                if some_wait:
                    kept = [torch.where(emits[..., None], before[0], ctx_oi), torch.where(emits, before[1], lse_oi)]
                    ctx_oi = torch.where(emits[..., None], column_ctx, ctx_oi)
                    lse_oi = torch.where(emits, column_lse, lse_oi)
                    ctx_oo = torch.where(emits[..., None], ctx_NN[:, None], ctx_oo)
                    lse_oo = torch.where(emits, lse_NN[:, None], lse_oo)
                else:
                    ctx_oi, lse_oi, ctx_oo, lse_oo = column_ctx, column_lse, ctx_NN[:, None], lse_NN[:, None]
            else:
                kept = [ctx_oi, lse_oi]
            if some_wait:
                cache.cross_ctx[O, slots, :W], cache.cross_lse[O, slots, :W] = kept
            if some_emit:
                cache.cross_ctx[O, slots, entry], cache.cross_lse[O, slots, entry] = ctx_oi[last], lse_oi[last]

            ctx_O = merge(ctx_oo, lse_oo, ctx_oi, lse_oi, self.model.softmax)
            context = cells.take(torch.cat((ctx_O, ctx_NN[:, None]), 1))
            if index == len(self.layers) - 1:
                return self._finish(index, states[cells.last], context[cells.last])
            states = self._finish(index, states, context)
        raise AssertionError("a decoder has at least one layer")

    def _finish(self, index: int, states: Tensor, context: Tensor) -> Tensor:
        """The second half of a block, with reordered weights where there are any and they help."""
        if self.packed is not None and len(states) >= FEWEST_ROWS:
            return self.packed[index](states, context)
        return finish_block(self.decoder.layers[index], states, context)

    def _first(
        self, new: Tensor, slots: Tensor, at: Tensor, tokens: Tensor, cos: Tensor, sin: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Layer 0's query, key and value of the new tokens, `[n, H or K, E]`: the same at every cell of the line."""
        layer = self.decoder.layers[0]
        normed = rms_norm(self.decoder.embed_tokens(tokens), layer.input_layernorm)
        q, k, v = project_qkv(layer.self_attn, normed)
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        self.first_q[new, slots, at] = q
        return q, k, v

    def _rotation(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """`(cos, sin)` of positions, broadcastable over heads: `[…]` → `[…, 1, E]`."""
        return self.cos[positions][..., None, :], self.sin[positions][..., None, :]

    def _rotation_table(self, positions: int) -> tuple[Tensor, Tensor]:
        cos, sin = self.decoder.rotary_emb(self.first_q, torch.arange(positions, device=self.device)[None])
        return cos[0], sin[0]

    def make_room(self, slots: int, length: int, start: int = 0) -> None:
        """Double slots, length or rotary table until there are so many slots, tokens, and positions from `start` on.

        Raises:
            ValueError: for more than the memory can hold.
        """
        have_slots, have_length = self.tokens.shape[1:]
        new_slots, new_length = have_slots, have_length
        while new_slots < slots:
            new_slots *= 2
        while new_length < length:
            new_length *= 2
        if len(self.cos) < start + new_length:
            self.cos, self.sin = self._rotation_table(2 * (start + new_length))
            self.generation += 1
        if (new_slots, new_length) == (have_slots, have_length):
            return
        self._check_memory(new_slots, new_length)
        for cache in self.layers:
            cache.resize(new_slots, new_length)
        self.first_q = resized(self.first_q, new_slots, new_length)
        self.tokens = resized(self.tokens, new_slots, new_length)
        self.count = torch.cat((self.count, self.count.new_zeros(2, new_slots - have_slots)), 1)
        self.start = torch.cat((self.start, self.start.new_zeros(new_slots - have_slots)))
        self.generation += 1

    def _check_memory(self, slots: int, length: int) -> None:
        needed = slots * length * self.bytes_per_token
        free = free_bytes(self.device) if self.max_bytes is None else self.max_bytes
        if needed > free:
            raise ValueError(
                f"a cache of {slots} streams of {length} tokens takes {needed / 2**20:,.0f} MiB, and there are "
                f"{free / 2**20:,.0f} MiB: decode fewer streams at once (batch_size), or shorter ones"
            )


def free_bytes(device: torch.device) -> int:
    """Memory that may still be taken on a device."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def resized(old: Tensor, slots: int, length: int) -> Tensor:
    """`[2, slots, length, …]` in a larger tensor, zeros where there was nothing."""
    new = old.new_zeros(2, slots, length, *old.shape[3:])
    new[:, : old.shape[1], : old.shape[2]] = old
    return new


def self_attention(
    cache: LayerCache,
    stream: Tensor,
    slots: Tensor,
    at: Tensor,
    T: int,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    scale: float,
) -> tuple[Tensor, Tensor]:
    """Append a key and value at position `at`, attend to all up to it, and cache the context.

    `q [n, H, E]`, `k, v [n, K, E]` → context `[n, H, E]` and its log-sum-exp `[n, H]`; `T` is past every `at`.
    """
    cache.k[stream, slots, at], cache.v[stream, slots, at] = k, v
    keys, values = cache.k[stream, slots, :T], cache.v[stream, slots, :T]  # [n, T, K, E]
    H, K = q.shape[-2], k.shape[-2]
    scores = (q * scale).unflatten(-2, (K, H // K)) @ keys.permute(0, 2, 3, 1)  # [n, K, G, T]
    scores = scores.to(torch.promote_types(scores.dtype, torch.float32))
    later = torch.arange(T, device=at.device) > at[:, None]
    scores = scores.masked_fill(later[:, None, None], float("-inf"))
    lse = scores.logsumexp(-1)
    weights = (scores - lse[..., None]).exp().to(values.dtype)
    context = (weights @ values.transpose(1, 2)).flatten(1, 2)
    lse = lse.flatten(1)
    cache.self_ctx[stream, slots, at], cache.self_lse[stream, slots, at] = context, lse
    return context, lse


def add_key(ctx: Tensor, lse: Tensor, score: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """One step of the online prefix softmax (Section III-E), with normalised context and log-sum-exp.

    Args:
        ctx, lse: so far, `[..., H, E]` and `[..., H]`.
        score: of the new key, `[..., H]`.
        v: value of the new key, `[..., K, E]`.
    """
    new = torch.logaddexp(lse, score)
    value = v.repeat_interleave(ctx.shape[-2] // v.shape[-2], -2)
    keep, add = (lse - new).exp()[..., None].to(ctx.dtype), (score - new).exp()[..., None].to(ctx.dtype)
    return keep * ctx + add * value, new
