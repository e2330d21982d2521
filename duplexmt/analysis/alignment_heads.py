"""Find the heads of a prefix model that align best, for AlignAtt, and keep them in its model folder.

    python -m duplexmt.analysis.alignment_heads MODEL_FOLDER [--pairs 200] [--heads 4]

Training pairs say which source token brings each target token: the one whose reading lowers its loss most. A head is
as good as the share of target tokens for which it attends to that source token most, where they are predicted. Only
tokens count that are brought clearly, by `CLEAR` nats or more.
"""

import sys
from collections.abc import Sequence

import torch
from torch import Tensor

from ..common.command import command_parser, one_line_errors
from ..corpus.prepared import UNMADE, corpus_settings, prepare_corpus
from ..data.copying import target_ids
from ..data.tokenizer import StreamTokens
from ..decoder.cache import TARGET, Append, DecoderCache, Run
from ..decoder.layout import SOURCE
from ..decoder.model import DecoderModel
from ..model_folder.artifact import choose_device, corpus_name, load_model_folder
from ..model_folder.hugging_face import writable
from ..model_folder.manifest import read_manifest, write_manifest
from ..policy.heatmap import losses_of_head

CLEAR = 1.0  # nats


@torch.no_grad()
def brought_by(
    model: DecoderModel, tokens: StreamTokens, source: Sequence[int], text: Sequence[int]
) -> tuple[Tensor, Tensor]:
    """How many nats of each target token's loss the reading of one source token takes away at most, and which.

    Args:
        model, tokens: in evaluation mode, and what it was trained with.
        source, text: text tokens of a pair.

    Returns:
        Two tensors `[len(text)]`.
    """
    before, device = len(tokens.source_prefix), model.device
    whole = torch.tensor([*tokens.prefix(()), *source, tokens.end], device=device)
    target = torch.tensor([tokens.seed, *tokens.target_prefix, *text], device=device)
    n, first = len(source) + 1, len(target) - len(text) - 1
    # From no text token to all, a target each.
    layout = model.layout([(len(whole), len(target))], [[torch.full((len(target),), before + x) for x in range(n)]])
    states = model.states(torch.cat((whole, target)), layout).view(n, len(target), -1)
    cells, labels = states[:, first:-1].flatten(0, 1), target[first + 1 :].repeat(n)
    losses = losses_of_head(cells, model.text_head, labels, model.logit_cap).view(n, -1)
    drops, places = (losses[:-1] - losses[1:]).max(0)
    return drops, places


@torch.no_grad()
def attended(model: DecoderModel, tokens: StreamTokens, source: Sequence[int], text: Sequence[int]) -> Tensor:
    """What all heads attend to where each target token is predicted, the whole source read.

    Returns:
        Weights `[layers · heads, len(text), len(source)]`.
    """
    before, whole = len(tokens.source_prefix), [*tokens.prefix(()), *source, tokens.end]
    target = [tokens.seed, *tokens.target_prefix, *text]
    anchor = len(whole) if model.anchor == "source_length" else int(model.anchor)
    runs = [Run(SOURCE, 0, whole, 0), Run(TARGET, 0, target, anchor, len(whole))]
    append = Append(runs, attended=slice(before, before + len(source)))
    DecoderCache(model).append([append])
    return torch.cat(append.weights)[:, len(append) - len(text) - 1 : -1]


def best_heads(
    model: DecoderModel, tokens: StreamTokens, pairs: Sequence[tuple[Sequence[int], Sequence[int]]], count: int
) -> tuple[list[list[int]], list[float]]:
    """The heads that align best.

    Args:
        model, tokens: in evaluation mode, and what it was trained with.
        pairs: text tokens of sources and their translations.

    Returns:
        Layer and head of each, the best first, and the share of clearly brought tokens that each finds.

    Raises:
        ValueError: where no token is brought clearly, or more heads are wanted than there are.
    """
    heads = model.causal_lm.config.num_attention_heads
    hits, clear = torch.zeros(heads * model.causal_lm.config.num_hidden_layers), 0
    if not 1 <= count <= len(hits):
        raise ValueError(f"--heads {count}: the model has {len(hits)} heads: give a number from 1 to that")
    for source, text in pairs:
        drops, places = brought_by(model, tokens, source, text)
        chosen = drops >= CLEAR
        found = attended(model, tokens, source, text).argmax(-1) == places
        hits += found[:, chosen].sum(1).cpu()
        clear += int(chosen.sum())
    if not clear:
        raise ValueError(
            f"no target token of {len(pairs)} pairs depends on one source token by {CLEAR:g} nats: train on"
        )
    shares, best = (hits / clear).sort(descending=True, stable=True)
    return [[int(at) // heads, int(at) % heads] for at in best[:count]], shares[:count].tolist()


def main() -> None:
    """The command."""
    parser = command_parser(__doc__, "python -m duplexmt.analysis.alignment_heads")
    parser.add_argument("model_folder")
    parser.add_argument("--pairs", type=int, default=200, help="training pairs to look at")
    parser.add_argument("--heads", type=int, default=4)
    arguments = parser.parse_args()
    with one_line_errors():
        if arguments.pairs < 1:
            raise ValueError(f"--pairs {arguments.pairs}: must be at least 1")
        folder = writable(arguments.model_folder)
        loaded = load_model_folder(folder, choose_device("auto"))
        if not isinstance(loaded.model, DecoderModel) or loaded.model.rows:
            raise ValueError(f"{arguments.model_folder} holds a grid: AlignAtt is for wait-k and offline models")
        settings = corpus_settings(loaded.info["data"]) | UNMADE | {"tokenizer": loaded.tokenizer}
        print(f"preparing {corpus_name(settings)}", file=sys.stderr, flush=True)
        pairs = prepare_corpus(**settings).splits["train"][: arguments.pairs]
        sources = loaded.sources.ids([pair.source for pair in pairs])
        both = [pair.target for pair in pairs], [pair.source for pair in pairs]
        targets = target_ids(loaded.tokenizer, *both, loaded.tokens.copy_tokens)
        tokens = [*zip(sources, targets, strict=True)]
        heads, shares = best_heads(loaded.model, loaded.tokens, tokens, arguments.heads)
        write_manifest(folder, read_manifest(folder) | {"alignment_heads": heads})
    for (layer, head), share in zip(heads, shares, strict=True):
        print(f"layer {layer}, head {head}: aligns {100 * share:.0f} % of the tokens that one source token brings")


if __name__ == "__main__":
    main()
