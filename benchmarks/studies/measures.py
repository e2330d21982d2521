"""The error study's measurements: by sentence as sums, so that ratios over a test set have bootstrap intervals."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from duplexmt.data.batch import Example, collate
from duplexmt.data.tokenizer import StreamTokens
from duplexmt.grid.model import EMIT, GridModel
from duplexmt.metrics.bootstrap import interval, resample_weights
from duplexmt.policy.guide import guide

from .attention_error import (
    STREAMS,
    Attention,
    StreamStates,
    attention,
    both_streams,
    corrected_bound,
    layer_inputs,
    printed_bound,
    score_errors,
    with_attention,
)

Sums = dict[str, tuple[float, float]]  # name: numerator and denominator
ROUNDING = 32  # units in the last place of the largest score, by which rounding may break a bound
EXACT = 1e-10  # an error below this share of what it is an error of is rounding


def streams_of(example: Example, device: torch.device) -> tuple[Tensor, Tensor]:
    """Token ids of source `[X]` and target `[Y]`, seed token first, of one pair."""
    return torch.tensor(example.source, device=device), torch.tensor(example.target[:-1], device=device)


@torch.no_grad()
def layer_errors(model: GridModel, example: Example, bound: bool = True) -> dict[tuple[int, str], Sums]:
    """Errors of each layer and stream on one pair; the layer after the last stands for the model's output.

    *Local* errors are those of one layer alone: exact and approximate attention on the same states, those of the model
    under the attention it was trained with. *Accumulated* ones compare the states of two runs of the whole model.

    Args:
        model: with the attention it was trained with.
        example: the pair.
        bound: whether to compare with `eq:hadamard-error-bound`.

    Returns:
        Sums by name. Squared, as ratio of sums of squares (take the root): `self_context` (broadcast),
        `cross_context` (Hadamard), `context` (as the layer uses it), `accumulated_context`, `states` (accumulated, at
        the entrance of the layer); `self_scores`, `cross_scores` (mean squares, nats²), `cross_spread` (of the exact
        scores of a query around their mean). Plain ratios: `cross_share`, `bound_used` (mean error over mean bound),
        `violations` and `printed_violations` (shares of scores), `largest_use` (numerator: the largest measured error
        over its bound).
    """
    source, target = streams_of(example, model.device)
    runs = {kind: layer_inputs(with_attention(model, kind), source, target) for kind in ("approximate", "exact")}
    found: dict[tuple[int, str], Sums] = {}
    layers = len(model.causal_lm.model.layers)
    for index, (of_approximate, of_exact) in enumerate(zip(runs["approximate"], runs["exact"], strict=True)):
        layer, *states_a = of_approximate
        _, *states_e = of_exact
        for stream, a, e in zip(STREAMS, states_a, states_e, strict=True):
            if index < layers:
                found[index, stream] = {"states": _squares(a.states - e.states, e.states)}
            elif stream == "target":
                found[index, stream] = {"states": _squares(a.normed - e.normed, e.normed)}
        if layer is None:
            break
        inputs = {"approximate": states_a, "exact": states_e}
        at = {kind: both_streams(model, layer, *inputs[kind], approximate=kind == "approximate") for kind in inputs}
        own = inputs[model.attention]
        local = dict(at)
        other = "exact" if model.attention == "approximate" else "approximate"
        local[other] = both_streams(model, layer, *own, approximate=other == "approximate")
        for number, stream in enumerate(STREAMS):
            if stream == "source" and index == layers - 1:
                del found[index, stream]  # nothing reads what the last layer makes of it
                continue
            sums = found[index, stream]
            cross = stream == "target" or model.input_attends_output
            sums |= _attention_errors(local["exact"][number], local["approximate"][number], cross)
            sums["accumulated_context"] = _squares(
                at["approximate"][number].context - at["exact"][number].context, at["exact"][number].context
            )
            if bound and cross:
                sums |= _bounds(
                    layer, own[number], own[1 - number], local["exact"][number], local["approximate"][number]
                )
    return found


def _attention_errors(exact: Attention, approximate: Attention, cross: bool) -> Sums:
    kinds = ("self", "cross") if cross else ("self",)
    sums = {"context": _squares(exact.context - approximate.context, exact.context)}
    for kind in kinds:
        context, scores = getattr(exact, f"{kind}_context"), getattr(exact, f"{kind}_scores")
        sums[f"{kind}_context"] = _squares(context - getattr(approximate, f"{kind}_context"), context)
        keys = ~scores.isneginf()
        errors = score_errors(scores, getattr(approximate, f"{kind}_scores"))
        sums[f"{kind}_scores"] = (errors.square().sum().item(), keys.sum().item())
        mean = torch.where(keys, scores, 0.0).sum(2, keepdim=True) / keys.sum(2, keepdim=True)
        spread = torch.where(keys, scores - mean, 0.0).square().sum().item()
        sums[f"{kind}_spread"] = (spread, keys.sum().item())
    if cross:
        sums["cross_share"] = (exact.cross_share.sum().item(), exact.cross_share.numel())
    return sums


def _bounds(layer: Any, own: StreamStates, other: StreamStates, exact: Attention, approximate: Attention) -> Sums:
    measured = score_errors(exact.cross_scores, approximate.cross_scores).abs()
    keys = ~exact.cross_scores.isneginf()
    corrected, printed = corrected_bound(layer, own, other), printed_bound(layer, own, other)
    slack = ROUNDING * torch.finfo(measured.dtype).eps * exact.cross_scores[keys].abs().max()
    count = keys.sum().item()
    use = torch.where(keys & (corrected > slack), measured / corrected.clamp(min=1e-30), 0.0)
    return {
        "bound_used": (measured.sum().item(), torch.where(keys, corrected, 0.0).sum().item()),
        "largest_use": (use.max().item(), 1.0),
        "violations": ((keys & (measured > corrected + slack)).sum().item(), count),
        "printed_violations": ((keys & (measured > printed + slack)).sum().item(), count),
    }


def _squares(error: Tensor, whole: Tensor) -> tuple[float, float]:
    return error.square().sum().item(), whole.square().sum().item()


ROOTS = (
    "states", "self_context", "cross_context", "context", "accumulated_context", "self_scores", "cross_scores",
    "self_spread", "cross_spread",
)  # fmt: skip


def over_sentences(sums: Sequence[Sums], resamples: int = 1000) -> dict[str, Any]:
    """Ratios of the sums over sentences: each a number, and under `NAME_interval` its middle 95 % of a bootstrap."""
    result: dict[str, Any] = {}
    weights = resample_weights(len(sums), resamples)
    for name in sums[0]:
        over, under = (np.array([entry[name][side] for entry in sums], dtype=np.float64) for side in (0, 1))
        if name == "largest_use":
            result[name] = float(over.max())
            continue
        if not under.sum():  # a bound of zero, nothing in common
            result[name] = result[f"{name}_interval"] = None
            continue
        total, drawn = over.sum() / under.sum(), np.divide(weights @ over, weights @ under)
        if name in ROOTS:
            total, drawn = np.sqrt(total), np.sqrt(drawn)
        result[name], result[f"{name}_interval"] = float(total), interval(drawn)
    return result


def errors_by_layer(model: GridModel, found: Sequence[Example], bound: bool = True) -> list[dict[str, Any]]:
    """`layer_errors` over sentences: a row for each layer and stream, and one for the output."""
    gathered: dict[tuple[int, str], list[Sums]] = defaultdict(list)
    for example in found:
        for key, sums in layer_errors(model, example, bound).items():
            gathered[key].append(sums)
    return [
        {"layer": layer, "stream": stream, **over_sentences(sums)} for (layer, stream), sums in sorted(gathered.items())
    ]


@torch.no_grad()
def output_differences(model: GridModel, tokens: StreamTokens, example: Example, lam: float) -> Sums:
    """What the approximation changes in the end: the same weights run exactly against run approximately.

    Returns:
        Plain ratios over cells: `kl` (nats, exact from approximate), `same_top` (share of cells with the same most
        probable token), `emit_difference` (mean |Δp(EMIT)|), `same_emit` (decisions at θ = 0.5), `heatmap_difference`
        (mean |ΔL|, nats), `loss_exact`, `loss_approximate` (mean L over the cells both masks hold), `same_mask`; over
        sentences: `area_exact`, `area_approximate`, `same_path`. And `largest_logit_difference` (numerator).
    """
    batch = collate([example]).to(model.device)
    runs = {kind: with_attention(model, kind) for kind in ("exact", "approximate")}
    guided = {kind: guide(run, tokens, batch, lam) for kind, run in runs.items()}
    exact, approximate = guided["exact"], guided["approximate"]
    cells = len(exact.mask)
    kl = same = 0.0
    largest = 0.0
    for one, two in zip(exact.hidden.split(256), approximate.hidden.split(256), strict=True):
        e, a = (model.text_logits(hidden) for hidden in (one, two))
        largest = max(largest, (e - a).abs().max().item())
        e_log, a_log = e.log_softmax(-1), a.log_softmax(-1)
        kl += (e_log.exp() * (e_log - a_log)).sum().item()
        same += (e.argmax(-1) == a.argmax(-1)).sum().item()
    p_e, p_a = (model.emit_logits(g.hidden).softmax(-1)[:, EMIT] for g in (exact, approximate))
    both = exact.mask & approximate.mask
    return {
        "kl": (kl, cells),
        "same_top": (same, cells),
        "largest_logit_difference": (largest, 1.0),
        "emit_difference": ((p_e - p_a).abs().sum().item(), cells),
        "same_emit": (((p_e > 0.5) == (p_a > 0.5)).sum().item(), cells),
        "heatmap_difference": ((exact.heatmap - approximate.heatmap).abs().sum().item(), cells),
        "loss_exact": (exact.heatmap[both].sum().item(), both.sum().item()),
        "loss_approximate": (approximate.heatmap[both].sum().item(), both.sum().item()),
        "same_mask": ((exact.mask == approximate.mask).sum().item(), cells),
        "area_exact": (exact.area.item(), 1.0),
        "area_approximate": (approximate.area.item(), 1.0),
        "same_path": (float(torch.equal(exact.y_at, approximate.y_at)), 1.0),
    }


def differences_over(
    model: GridModel, tokens: StreamTokens, found: Iterable[Example], lam: float, resamples: int = 1000
) -> dict[str, Any]:
    """`output_differences` over sentences, with intervals."""
    sums = [output_differences(model, tokens, example, lam) for example in found]
    largest = max(entry.pop("largest_logit_difference")[0] for entry in sums)
    return {**over_sentences(sums, resamples), "largest_logit_difference": largest}


CURVES = (
    "cross", "cross_norm", "random_signs", "premises", "self", "self_norm", "context", "context_norm",
    "score",
)  # fmt: skip


@torch.no_grad()
def decay_curves(
    model: GridModel, found: Sequence[Example], every: int = 8, streams: Sequence[str] = STREAMS, seed: int = 1
) -> dict[tuple[int, str], Mapping[str, Any]]:
    """Mean squared context errors (local) by the number of cross keys, of documents of one length.

    Args:
        model: with the attention it was trained with.
        found: documents; for the source stream all with as many target tokens, and the other way round.
        every: distance of the own tokens looked at, beginning with token `every − 1`; all cross keys are.
        streams: to be looked at.
        seed: of the random signs.

    Returns:
        For each layer and stream the curves `[documents, keys]`, mean squares over own tokens and heads:
        `cross` (the normalised context of the cross keys: what the paper's `O(1/√y)` is about), `self` (broadcast),
        `context` (merged), each with the `_norm` of the exact one; `score` (squared score errors of the keys);
        `random_signs`: the error if every score error had a random sign, as the paper's argument supposes; `premises`:
        all that the argument needs: random signs, score errors of one size, and exact scores all equal, so that no key
        weighs more than another.
    """
    draw = torch.Generator().manual_seed(seed)
    gathered: dict[tuple[int, str], dict[str, list[Any]]] = defaultdict(lambda: {name: [] for name in CURVES})
    layers = len(model.causal_lm.model.layers)
    for example in found:
        for index, (layer, I, O) in enumerate(layer_inputs(model, *streams_of(example, model.device))):
            if layer is None:
                break
            for stream, own, other in (("source", I, O), ("target", O, I)):
                if stream not in streams or (
                    stream == "source" and (index == layers - 1 or not model.input_attends_output)
                ):
                    continue
                at = torch.arange(every - 1, len(own.states), every)
                exact, approximate = (
                    attention(own, other, layer.self_attn.scaling, model.softmax, approximate=kind, cross=True, at=at)
                    for kind in (False, True)
                )
                curves = _curves(exact, approximate, other.v[:, at].transpose(0, 1), draw)
                for name, values in curves.items():
                    gathered[index, stream][name].append(values.cpu().numpy())
    return {key: {name: np.stack(rows) for name, rows in curves.items()} for key, curves in gathered.items()}


def _curves(exact: Attention, approximate: Attention, values: Tensor, draw: torch.Generator) -> dict[str, Tensor]:
    """Of one document, `[T]` each; `values [A, U, H, E]` are those of the cross keys."""
    keys = ~exact.cross_scores.isneginf()
    errors = score_errors(exact.cross_scores, approximate.cross_scores)
    signs = (torch.randint(0, 2, errors.shape, generator=draw) * 2 - 1).to(errors)

    def context(scores: Tensor) -> Tensor:
        return torch.einsum("atuh,auhe->athe", scores.softmax(2), values)

    def mean_square(difference: Tensor) -> Tensor:
        return difference.square().sum(-1).mean((0, 2))

    flat = torch.where(keys, 0.0, exact.cross_scores)
    size = (errors.square().sum() / keys.expand_as(errors).sum()).sqrt()
    return {
        "cross": mean_square(exact.cross_context - approximate.cross_context),
        "cross_norm": mean_square(exact.cross_context),
        "random_signs": mean_square(exact.cross_context - context(exact.cross_scores - signs * errors)),
        "premises": mean_square(context(flat) - context(flat - signs * size)),
        "self": mean_square(exact.self_context - approximate.self_context),
        "self_norm": mean_square(exact.self_context),
        "context": mean_square(exact.context - approximate.context),
        "context_norm": mean_square(exact.context),
        "score": (errors.square().sum(2) / keys.sum(2)).mean((0, 2)),
    }
