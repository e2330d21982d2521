"""Small models and tokenizers that tests build in milliseconds."""

from functools import cache, partial
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedTokenizerFast

from duplexmt.common.pair import Pair
from duplexmt.data.tokenizer import load_tokenizer, save_tokenizer, stream_tokens, train_bpe
from duplexmt.decoder.attention import PackedAttention, capped_attention, seen_within
from duplexmt.decoder.layout import Layout
from duplexmt.decoder.model import DecoderModel
from duplexmt.grid.model import build_grid
from duplexmt.kernels.norm import rms_norm
from duplexmt.model_folder.artifact import save_model_folder
from duplexmt.policy.decoding_options import PAPER_RULE
from duplexmt.policy.path import path_of
from duplexmt.policy.regret import emit_advantages
from duplexmt.streaming.engine import Engine
from duplexmt.streaming.policies import Theta

SENTENCES = (
    ("站在那边的男人曾是棒球手。", "The man standing there was a baseball player."),
    ("我昨天买了一本书。", "I bought a book yesterday."),
    ("她的哥哥在北京工作。", "Her brother works in Beijing."),
    ("孩子们喜欢那只猫。", "The children like that cat."),
    ("老师每天早上喝茶。", "The teacher drinks tea every morning."),
    ("我们明天去学校。", "We go to school tomorrow."),
    ("那本书很有意思。", "That book is very interesting."),
    ("他没有看见那个人。", "He did not see that man."),
    ("你喜欢喝茶还是咖啡？", "Do you like tea or coffee?"),
    ("这只猫昨天睡在桌子上。", "This cat slept on the table yesterday."),
    ("医生告诉我多喝水。", "The doctor told me to drink more water."),
    ("学生们在学校里看书。", "The students read books at school."),
)


# Settings of a file of a dozen pairs.
CORPUS = {
    "corpus": "pairs", "path": None, "train_path": None, "validation_path": None, "test_path": None, "source_field": 0,
    "target_field": 1, "source_language": "zh", "target_language": "en", "tokenizer": None, "vocab_size": 400,
    "max_tokens": 40, "train_size": None, "validation_size": 2, "test_size": 2, "seed": 1,
}  # fmt: skip


def as_pairs(texts):
    """Sentence pairs without a sentence before."""
    return [Pair(*pair) for pair in texts]


def tsv(path, pairs):
    """Write a file of pairs; its name."""
    path.write_text("".join(f"{source}\t{target}\n" for source, target in pairs), encoding="utf-8")
    return str(path)


@cache
def tiny_tokenizer(vocab_size=320):
    """The project's BPE over a dozen sentence pairs: 256 bytes, two special tokens, characters; merges from 400 on."""
    return train_bpe([text for pair in SENTENCES for text in pair], vocab_size)


@cache
def byte_level_tokenizer():
    """A BPE like Qwen2's and GPT-2's: over bytes, so that a token may end inside a character."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=320,
        special_tokens=["</s>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator([text for pair in SENTENCES for text in pair], trainer)
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="</s>")


def unknown_kind(folder):
    """Write a folder's tokenizer, or that of `tiny_tokenizer`, as one whose live tokens cannot be known early."""
    tokenizer = load_tokenizer(str(folder)) if (folder / "tokenizer.json").is_file() else tiny_tokenizer()
    backend = Tokenizer.from_str(tokenizer.backend_tokenizer.to_str())
    backend.normalizer = normalizers.Lowercase()
    special = {"eos_token": tokenizer.eos_token, "bos_token": tokenizer.bos_token}
    save_tokenizer(PreTrainedTokenizerFast(tokenizer_object=backend, **special), folder)


def model_folder(into, model, tokenizer=None, tokens=None, **recorded):
    """A model folder as `train.py` saves one, of a corpus that is gone."""
    tokenizer = tokenizer or tiny_tokenizer()
    usual = {"data": CORPUS | {"path": "gone.tsv", "licence": "CC0"}, "policy": {"lam": 0.1, "theta": 0.5}}
    usual |= {"backbone": None, "training": {}, "scores": {}}
    return save_model_folder(into, model, tokenizer, tokens or stream_tokens(tokenizer), **usual | recorded)


def tiny_backbone(model_type="qwen2", vocab_size=97, layers=3, seed=0, scale=0.3, **values):
    """A random Hugging Face causal language model whose attention is far from uniform.

    Args:
        model_type: qwen2, llama, mistral or qwen3.
        vocab_size, layers: of the model.
        seed: of its weights.
        scale: standard deviation of all weights but those of norms, which stay near 1.
        values: further values of its configuration.
    """
    shape = {
        "hidden_size": 32, "intermediate_size": 48, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8,
        "max_position_embeddings": 256, "bos_token_id": None, "eos_token_id": 0, "pad_token_id": None,
    }  # fmt: skip
    config = AutoConfig.for_model(model_type, **{**shape, **values}, vocab_size=vocab_size, num_hidden_layers=layers)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    draw = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            noise = torch.randn(weight.shape, generator=draw) * scale
            weight.copy_(1 + noise if "norm" in name else noise)
    return model.eval()


def tiny_grid(backbone=None, seed=0, **options):
    """A grid model in evaluation mode; EMIT probabilities spread over (0, 1).

    Args:
        backbone: by default `tiny_backbone(seed=seed)`.
        seed: of all random weights.
        options: of `build_grid`.
    """
    model = build_grid(tiny_backbone(seed=seed) if backbone is None else backbone, **options)
    draw = torch.Generator().manual_seed(seed + 1)
    with torch.no_grad():
        for weight in model.emit_head.parameters():
            weight.copy_(torch.randn(weight.shape, generator=draw) * 0.3)
    return model.eval()


def spoken_grid(seed=0, tokenizer=None, **options):
    """A tiny grid model with the vocabulary of `tiny_tokenizer`, or of the tokenizer given."""
    return tiny_grid(tiny_backbone(vocab_size=len(tokenizer or tiny_tokenizer()), seed=seed), seed=seed, **options)


METRICS_PYTHON = Path(__file__).parents[1] / ".venv-metrics" / "bin" / "python"
needs_metrics_environment = pytest.mark.skipif(
    not METRICS_PYTHON.exists(), reason="needs the metrics environment, .venv-metrics: make metrics"
)


def tiny_prefix(k=None, seed=0, anchor="source_length", **values):
    """A prefix model in evaluation mode around `tiny_backbone`; see `float64` for exact comparisons."""
    return DecoderModel(tiny_backbone(seed=seed, **values), k=k, anchor=anchor).eval()


def grid_system(model, tokens, theta, max_target_tokens, batch_size=64, rule=None, **values):
    """The engine of a grid, which tells it the lengths of whole sentences."""
    limits = {"max_target_tokens": max_target_tokens, "max_streams": batch_size, "policy": Theta(rule)}
    return Engine(model, tokens, theta=theta, told_length=True, **limits, **values)


def trained(model, tokens, rule=PAPER_RULE):
    """What is known of a loaded model."""
    return SimpleNamespace(model=model, tokens=tokens, rule=rule, typical_source_length=9)


def policy_system(policy, model, tokens, setting, max_target_tokens, batch_size=64, adaptive=None, **values):
    """The engine of a prefix model under a policy, which tells it the lengths of whole sentences."""
    limits = {"max_target_tokens": max_target_tokens, "max_streams": batch_size, "told_length": True}
    return Engine(model, tokens, policy=policy(setting, adaptive), **limits | values)


def best_path(heatmap, source_lengths, target_lengths, lam, inner=None):
    """Row exits `[B, X]` of the best path through a heatmap, found as training finds it."""
    worth = emit_advantages(heatmap, source_lengths, target_lengths, lam, inner)
    return path_of(worth, source_lengths, target_lengths)


def naive_attention(layout, q, k, v, scale, window=None, softcap=None):
    """Contexts `[T, H, E]` by one dense mask over the whole list: the oracle of all other ways."""
    groups = q.shape[1] // k.shape[1]
    q, k, v = q.transpose(0, 1), *(states.repeat_interleave(groups, 1).transpose(0, 1) for states in (k, v))
    return capped_attention(q, k, v, seen_within(layout, window), scale, softcap).transpose(0, 1)


class NaivelyPacked(PackedAttention):
    """Attention by one dense mask over the whole list."""

    def __init__(self, layout):
        super().__init__(layout)
        self.wanted = self.first = None

    def __call__(self, layer, q, k, v, scale, window, softcap):
        """See `PackedAttention`."""
        return naive_attention(self.layout, q, k, v, scale, window, softcap)


def prefix_states(model, source, target, length, visible):
    """States `[Y, D]` of one target, each of whose tokens sees so many source tokens, by one dense mask.

    Args:
        source, target: token ids; `length` that of the whole source, which may be longer than what is there.
        visible: for each target token.
    """
    shape = len(source), len(target)
    layout = Layout.of([shape], [[torch.tensor(visible)]], model.anchor, [length])
    tokens = torch.tensor([*source, *target])
    return model.states_of(model.embed(tokens), layout.position, NaivelyPacked(layout))[len(source) :]


def float64(model):
    """The model in float64 throughout: Hugging Face's own RMSNorm computes in float32 whatever it is given."""
    for module in model.double().modules():
        if type(module).__name__.endswith("RMSNorm"):
            own = rms_norm if hasattr(module, "variance_epsilon") else gemma_norm
            module.forward = partial(own, norm=module)
    return model


def gemma_norm(states, norm):
    """Gemma's RMSNorm, whose weight is how far it scales from 1."""
    return states * torch.rsqrt(states.square().mean(-1, keepdim=True) + norm.eps) * (1 + norm.weight)
