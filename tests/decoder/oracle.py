"""What the decoder is compared with: Hugging Face's own model under a dense mask, and streams written in loops."""

import torch

from duplexmt.decoder.layout import Layout

# Values of types of backbone, that the decoder knows by name, and others.
KNOWN = {"qwen2": {}, "llama": {"attention_bias": True}, "mistral": {"sliding_window": 4}, "qwen3": {}}
# Sliding windows, soft caps, two rotary bases, layers without rotary positions, rotary positions of half a head.
GEMMA2 = {
    "query_pre_attn_scalar": 8, "sliding_window": 4,
    "attn_logit_softcapping": 2.0, "final_logit_softcapping": 3.0,
}  # fmt: skip
GEMMA3 = {
    "query_pre_attn_scalar": 8, "sliding_window": 4,
    "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
}  # fmt: skip
OTHERS = {
    "gemma": {}, "gemma2": GEMMA2, "gemma3_text": GEMMA3, "smollm3": {"no_rope_layers": [1, 0, 1]},
    "phi": {"partial_rotary_factor": 0.5}, "phi3": {}, "olmo2": {}, "glm": {}, "gpt_neox": {},
}  # fmt: skip


def hugging_face_logits(causal_lm, source, target, sees, first):
    """Logits `[Y, vocabulary]` of one target, by Hugging Face's attention under a dense mask.

    Args:
        causal_lm: whose attention is `eager` or `sdpa`.
        source, target: token ids `[X]` and `[Y]`.
        sees: source tokens that each target token sees, `[Y]`.
        first: rotary position of the target.
    """
    X, Y = len(source), len(target)
    seen = torch.zeros(X + Y, X + Y, dtype=torch.bool)
    for query in range(X + Y):
        for key in range(query + 1):
            seen[query, key] = key < X if query < X else key >= X or key < sees[query - X]
    additive = torch.zeros(seen.shape, dtype=causal_lm.dtype).masked_fill(~seen, torch.finfo(causal_lm.dtype).min)
    positions = torch.cat((torch.arange(X), first + torch.arange(Y)))
    # The mask is given, as transformers would take a jump of the positions for packed sequences.
    return causal_lm(
        input_ids=torch.cat((source, target))[None], attention_mask=additive[None, None], position_ids=positions[None],
        use_cache=False,
    ).logits[0, X:]  # fmt: skip


def some_tokens(shapes, vocabulary=97, seed=1):
    """Source and target tokens of pairs of `shapes`, each in a row `[S]`, `[T]`."""
    draw = torch.Generator().manual_seed(seed)
    return tuple(torch.randint(1, vocabulary, (sum(sizes),), generator=draw) for sizes in zip(*shapes, strict=True))


def streams_in_loops(shapes, rows, anchor):
    """(pair, stream, place, position, sees, token) of each token, written in loops."""
    found, source_before, target_before = [], 0, sum(X for X, _ in shapes)
    for pair, ((X, Y), own) in enumerate(zip(shapes, rows, strict=True)):
        found += [(pair, 0, x, x, x + 1, source_before + x) for x in range(X)]
        for stream, sees in enumerate(own, start=1):
            for y, seen in enumerate(sees.tolist()):
                start = {"source_length": X, "visible_length": seen}.get(anchor, anchor)
                found.append((pair, stream, y, start + y, seen, target_before + y))
        source_before, target_before = source_before + X, target_before + Y
    return found


def drawn_layout(seed, anchor="source_length", pairs=3):
    """A layout of pairs with targets of random lengths and views, as a policy might have them; and its rows."""
    draw = torch.Generator().manual_seed(seed)

    def number(least, most):
        return int(torch.randint(least, most + 1, (), generator=draw))

    shapes = [(number(1, 9), number(1, 8)) for _ in range(pairs)]
    rows = [[torch.randint(1, X + 1, (number(1, Y),), generator=draw) for _ in range(number(1, 4))] for X, Y in shapes]
    return Layout.of(shapes, rows, anchor), shapes, rows
