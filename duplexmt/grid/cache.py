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
(in place of `(m, Z, S)`) of self and of cross attention. With I←O off the source stream is one state a token: a WAIT
computes one, an EMIT none, and the cross attention reads its cached keys and values.
"""

from typing import Any

import torch
from torch import Tensor

from .model import GridModel, finish_block, project_qkv, rms_norm
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
            old = getattr(self, name)
            new = old.new_zeros(2, slots, length, *old.shape[3:])
            new[:, : old.shape[1], : old.shape[2]] = old
            setattr(self, name, new)

    @property
    def bytes(self) -> int:
        """Memory of all entries."""
        return sum(getattr(self, name).nbytes for name in self.NAMES)


class GridCache:
    """States of many independent streams, each at its own `(x, y)`; a step takes any of them one token further.

    Args:
        model: an approximate-attention grid model in evaluation mode.
        slots: streams held at the start.
        length: tokens of either stream held at the start. Both grow by doubling.

    Raises:
        ValueError: for exact attention, which would need keys and values of every cell.
    """

    def __init__(self, model: GridModel, slots: int = 1, length: int = 64) -> None:
        if model.attention != "approximate":
            raise ValueError("exact attention keeps no cache: decode such a model by recomputation")
        self.model = model
        self.decoder: Any = model.causal_lm.model
        attention = self.decoder.layers[0].self_attn
        weight = model.emit_head.weight
        E = attention.head_dim
        K = attention.k_proj.out_features // E
        H = attention.q_proj.out_features // E
        self.layers = [LayerCache(slots, length, K, H, E, weight.detach()) for _ in self.decoder.layers]
        self.tokens = torch.zeros(2, slots, length, dtype=torch.int64, device=weight.device)
        self.count = torch.zeros(2, slots, dtype=torch.int64, device=weight.device)  # tokens of each stream
        self.start = torch.zeros(2, slots, dtype=torch.int64, device=weight.device)  # first position of each stream

    @property
    def bytes(self) -> int:
        """Memory of the cached tensors."""
        return sum(layer.bytes for layer in self.layers)

    @torch.no_grad()
    def open(self, slots: Tensor, source: Tensor, seed: Tensor, source_lengths: Tensor) -> Tensor:
        """Start streams afresh with their first source token and the seed: cell (0, 0).

        Args:
            slots: which slots `[n]`; more than there are make the cache grow.
            source, seed: token ids `[n]`.
            source_lengths: whole length of each source, end token included `[n]`; read with anchor `source_length`.

        Returns:
            Final-normed target state of cell (0, 0), `[n, D]`.
        """
        self._make_room(int(slots.max()) + 1, 1)
        self.tokens[I, slots, 0], self.tokens[O, slots, 0] = source, seed
        self.count[:, slots] = 1
        anchor = self.model.anchor
        self.start[O, slots] = source_lengths if anchor == "source_length" else int(anchor)
        states = self.decoder.embed_tokens(torch.stack((source, seed)))  # [2, n, D]
        cos, sin = self.decoder.rotary_emb(states, self.start[:, slots])
        rope = cos[:, :, None], sin[:, :, None]
        for layer, cache in zip(self.decoder.layers, self.layers, strict=True):
            q, k, v = project_qkv(layer.self_attn, rms_norm(states, layer.input_layernorm))
            q, k = rotate(q, *rope), rotate(k, *rope)
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
            slots: distinct open slots `[n]`.
            emit: whether the token is appended to the target (EMIT) or to the source (WAIT), booleans `[n]`.
            tokens: token ids `[n]`.

        Returns:
            Final-normed target state of each stream's present cell, its last row and column, `[n, D]`.

        Raises:
            ValueError: if a stream outgrows a sliding window of the backbone.
        """
        line, new = torch.where(emit, I, O), torch.where(emit, O, I)
        lengths, at = self.count[line, slots], self.count[new, slots]
        self._make_room(0, int(at.max()) + 1)
        self.tokens[new, slots, at] = tokens
        self.count[new, slots] = at + 1
        if self.model.window is not None:
            for X, Y in self.count[:, slots].T.tolist():
                self.model.check_window(X, Y)
        advance = self._step if self.model.input_attends_output else self._step_without_io
        return rms_norm(advance(slots, line, new, lengths, at, tokens), self.decoder.norm)

    def _step(self, slots: Tensor, line: Tensor, new: Tensor, lengths: Tensor, at: Tensor, tokens: Tensor) -> Tensor:
        """Both streams on each stream's line of cells. Shapes: `n` streams, `W` the longest line."""
        n, W = len(slots), int(lengths.max())
        embed = self.decoder.embed_tokens
        states = torch.stack((embed(self.tokens[line, slots, :W]), embed(tokens)[:, None].expand(n, W, -1)))
        along = torch.arange(W, device=slots.device)
        positions = torch.stack(
            (self.start[line, slots][:, None] + along, (self.start[new, slots] + at)[:, None].expand(n, W))
        )  # [2, n, W]: line stream, new stream
        cos, sin = self.decoder.rotary_emb(states, positions.flatten(0, 1))
        rope = cos.view(2, n, W, 1, -1), sin.view(2, n, W, 1, -1)
        last = torch.arange(n, device=slots.device), lengths - 1
        target = torch.where(new == O, 1, 0)  # which of the two computed streams is O

        for layer, cache in zip(self.decoder.layers, self.layers, strict=True):
            q, k, v = project_qkv(layer.self_attn, rms_norm(states, layer.input_layernorm))
            q, k = rotate(q, *rope), rotate(k, *rope)
            scale = layer.self_attn.scaling

            ctx_LL, lse_LL = cache.self_ctx[line, slots, :W], cache.self_lse[line, slots, :W]
            ctx_LN, lse_LN = add_key(
                cache.cross_ctx[line, slots, :W],
                cache.cross_lse[line, slots, :W],
                hadamard_scores(q[0], k[1], scale),
                v[1],
            )
            cache.cross_ctx[line, slots, :W], cache.cross_lse[line, slots, :W] = ctx_LN, lse_LN

            ctx_NN, lse_NN = self._self_attention(cache, new, slots, at, q[1, :, 0], k[1, :, 0], v[1, :, 0], scale)
            ctx_NL, lse_NL = prefix_softmax(hadamard_scores(q[1], k[0], scale), v[0])
            cache.cross_ctx[new, slots, at], cache.cross_lse[new, slots, at] = ctx_NL[last], lse_NL[last]

            softmax = self.model.softmax
            context = torch.stack(
                (
                    merge(ctx_LL, lse_LL, ctx_LN, lse_LN, softmax),
                    merge(ctx_NN[:, None], lse_NN[:, None], ctx_NL, lse_NL, softmax),
                )
            )
            if layer is self.decoder.layers[-1]:  # only the present cell's target state is read
                return finish_block(layer, states[target, *last], context[target, *last])
            states = finish_block(layer, states, context)
        raise AssertionError("a decoder has at least one layer")

    def _step_without_io(
        self, slots: Tensor, line: Tensor, new: Tensor, lengths: Tensor, at: Tensor, tokens: Tensor
    ) -> Tensor:
        """The target stream on the line, and, where a source token arrives, its one state.

        Source states are computed for EMITs too, and thrown away: one position, so that the batch keeps one shape.
        """
        n, W = len(slots), int(lengths.max())
        embed = self.decoder.embed_tokens
        emit = new == O
        target_tokens = torch.where(emit[:, None], tokens[:, None], self.tokens[O, slots, :W])
        states = torch.cat((embed(target_tokens), embed(tokens)[:, None]), 1)  # [n, W + 1, D]: line of O, one of I
        along = torch.arange(W, device=slots.device)
        column = torch.where(emit[:, None], at[:, None], along)
        row = torch.where(emit, lengths - 1, at)  # of the last cell
        positions = torch.cat((self.start[O, slots][:, None] + column, row[:, None]), 1)
        cos, sin = self.decoder.rotary_emb(states, positions)
        rope = cos[:, :, None], sin[:, :, None]
        last = torch.arange(n, device=slots.device), lengths - 1
        emitting, waiting = slots[emit], slots[~emit]

        for layer, cache in zip(self.decoder.layers, self.layers, strict=True):
            q, k, v = project_qkv(layer.self_attn, rms_norm(states, layer.input_layernorm))
            q, k = rotate(q, *rope), rotate(k, *rope)
            scale, (q_O, k_O, v_O) = layer.self_attn.scaling, (part[:, :W] for part in (q, k, v))
            ctx = torch.zeros_like(q)
            source = torch.zeros_like(slots[~emit]) + I
            ctx_ii, _ = self._self_attention(
                cache, source, waiting, at[~emit], q[~emit, W], k[~emit, W], v[~emit, W], scale
            )
            ctx[~emit, W] = ctx_ii
            if len(waiting):  # O: cached self context, one more source key
                ctx_oi, lse_oi = add_key(
                    cache.cross_ctx[O, waiting, :W],
                    cache.cross_lse[O, waiting, :W],
                    hadamard_scores(q_O[~emit], k[~emit, W, None].expand_as(k_O[~emit]), scale),
                    v[~emit, W, None].expand_as(v_O[~emit]),
                )
                cache.cross_ctx[O, waiting, :W], cache.cross_lse[O, waiting, :W] = ctx_oi, lse_oi
                own = cache.self_ctx[O, waiting, :W], cache.self_lse[O, waiting, :W]
                ctx[~emit, :W] = merge(*own, ctx_oi, lse_oi, self.model.softmax)
            if len(emitting):  # O: own keys from the cache, and all source keys from the cache
                target = torch.zeros_like(emitting) + O
                ctx_oo, lse_oo = self._self_attention(
                    cache, target, emitting, at[emit], q_O[emit, 0], k_O[emit, 0], v_O[emit, 0], scale
                )
                scores = hadamard_scores(q_O[emit], cache.k[I, emitting, :W], scale)
                ctx_oi, lse_oi = prefix_softmax(scores, cache.v[I, emitting, :W])
                end = torch.arange(len(emitting), device=slots.device), lengths[emit] - 1
                cache.cross_ctx[O, emitting, at[emit]] = ctx_oi[end]
                cache.cross_lse[O, emitting, at[emit]] = lse_oi[end]
                ctx[emit, :W] = merge(ctx_oo[:, None], lse_oo[:, None], ctx_oi, lse_oi, self.model.softmax)
            if layer is self.decoder.layers[-1]:
                return finish_block(layer, states[last], ctx[last])
            states = finish_block(layer, states, ctx)
        raise AssertionError("a decoder has at least one layer")

    def _self_attention(
        self,
        cache: LayerCache,
        stream: Tensor,
        slots: Tensor,
        at: Tensor,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        scale: float,
    ) -> tuple[Tensor, Tensor]:
        """Append a key and value at position `at`, attend to all up to it, and cache the context.

        `q [n, H, E]`, `k, v [n, K, E]` → context `[n, H, E]` and its log-sum-exp `[n, H]`.
        """
        cache.k[stream, slots, at], cache.v[stream, slots, at] = k, v
        T = int(at.max()) + 1 if len(at) else 0
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

    def _make_room(self, slots: int, length: int) -> None:
        """Double the slots or the length until there are so many."""
        have_slots, have_length = self.tokens.shape[1:]
        new_slots, new_length = have_slots, have_length
        while new_slots < slots:
            new_slots *= 2
        while new_length < length:
            new_length *= 2
        if (new_slots, new_length) == (have_slots, have_length):
            return
        for cache in self.layers:
            cache.resize(new_slots, new_length)
        tokens = self.tokens.new_zeros(2, new_slots, new_length)
        tokens[:, :have_slots, :have_length] = self.tokens
        self.tokens = tokens
        for name in ("count", "start"):
            old = getattr(self, name)
            setattr(self, name, torch.cat((old, old.new_zeros(2, new_slots - have_slots)), 1))


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
