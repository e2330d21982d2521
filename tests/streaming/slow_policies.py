"""Policies of prefix models literally from their definitions: no cache, no batch, all recomputed at every state."""

import torch

from duplexmt.decoder.layout import Layout, naive_seen
from duplexmt.policy.decoding_options import Adaptive
from duplexmt.streaming.events import End, Read, Write

from ..helpers import NaivelyPacked, prefix_states


@torch.no_grad()
def distribution(model, source, target, length, visible):
    """Log-probabilities of the next token by one forward over the whole sequence."""
    return model.text_logits(prefix_states(model, source, target, length, visible)[-1]).log_softmax(-1)


def as_if_whole(model, tokens, text, committed):
    """The same, of a source text that is taken for whole."""
    source = [*tokens.source_prefix, *text, tokens.end]
    target = [tokens.seed, *tokens.target_prefix, *committed]
    return distribution(model, source, target, len(source), [len(source)] * len(target))


def kl(now, reference, which):
    first, second = (now, reference) if which == "paper" else (reference, now)
    return sum(float(p.exp() * (p - q)) for p, q in zip(first, second, strict=True))


def rho_of(lag, rho, adaptive):
    """The two runs of the paper's thresholds, with one knob."""
    first, last = (2 * rho, 0) if rho <= 0.5 else (1, 2 * rho - 1)
    share = (lag - adaptive.k_min) / (adaptive.k_max - adaptive.k_min)
    return first * (1 - share) + last * share


def token_by_token(model, tokens, text, adaptive, limit, doubtful, beam=None):
    """Read below k_min, write from k_max on and once the source has ended; in between `doubtful` says whether to write,
    of the next token's distribution, the tokens read (end counted, prefix not), and the target. All but drafting.
    `beam`: how many are weighed, of how many tokens more, before one is written sooner."""
    source, before = [*tokens.source_prefix, *text, tokens.end], len(tokens.source_prefix)
    target, visible, events, written, read = [tokens.seed, *tokens.target_prefix], [], [], 0, before
    while True:
        while read < len(source) and read - before - written < adaptive.k_min:
            events.append(Read(0, source[read]))
            read += 1
        seen = [*visible, *[read] * (len(target) - len(visible))]
        now = distribution(model, source[:read], target, len(source), seen)
        token, lag = int(now.argmax()), read - before - written
        write = lag >= adaptive.k_max or doubtful(now, read - before, target)
        if read < len(source) and (token == tokens.end or not write):
            events.append(Read(0, source[read]))
            read += 1
            continue
        if token == tokens.end or written == limit:
            return [*events, End(0, "end_token" if token == tokens.end else "max_target_tokens")]
        if beam and read < len(source):

            def log_probs(chosen, target=target, seen=seen, read=read):
                return distribution(
                    model, source[:read], [*target, *chosen], len(source), [*seen, *[read] * len(chosen)]
                )

            token = look_ahead(log_probs, *beam, tokens.end, limit - written)
        events.append(Write(0, token, min(read - before, len(text)), None))
        visible, written = seen, written + 1
        target.append(token)


def wait_k(model, tokens, text, k, limit, beam=None):
    """Ma et al. 2019; offline, which reads the whole source first, for k=None."""
    k = len(text) + 1 if k is None else k
    return token_by_token(model, tokens, text, Adaptive(k, k, 1, "paper"), limit, lambda *_: False, beam)


def confidence(model, tokens, text, rho, adaptive, limit, beam=None):
    """Zheng et al. 2020."""

    def doubtful(now, read, target):
        written = len(target) - 1 - len(tokens.target_prefix)
        least = rho_of(read - written, rho, adaptive)
        return least < 1 and float(now.max().exp()) >= least

    return token_by_token(model, tokens, text, adaptive, limit, doubtful, beam)


def lsg(model, tokens, text, delta, adaptive, limit, told=None, beam=None):
    """Guo et al. 2025 on a model that knows prefixes."""
    source, before, forced = [*tokens.source_prefix, *text, tokens.end], len(tokens.source_prefix), tokens.target_prefix

    def doubtful(now, read, target):
        visible = [min(before + 1 + max(0, y - len(forced)), len(source)) for y in range(len(target))]
        reference = distribution(model, source[: max(visible)], target, len(source), visible)
        found = kl(now, reference, adaptive.divergence)
        if told is not None:
            told.append(found)
        return found > delta or float(now.max().exp()) > adaptive.alpha

    return token_by_token(model, tokens, text, adaptive, limit, doubtful, beam)


def drafting(model, tokens, text, limit, safe):
    """Each prefix of the source translated from the start as a sentence of its own; `safe` says how many tokens of a
    draft may stand, of the source text read, the draft, and what was written."""
    committed, events = [], []
    for read in range(1, len(text) + 1):
        events.append(Read(0, text[read - 1]))
        draft, reason = list(committed), "max_target_tokens"
        while True:
            token = int(as_if_whole(model, tokens, text[:read], draft).argmax())
            if token == tokens.end:
                reason = "end_token"
                break
            if len(draft) == limit:
                break
            draft.append(token)
        new = draft[len(committed) : safe(text[:read], draft, committed)]
        events += [Write(0, token, read, None) for token in new]
        committed += new
    events.append(Read(0, tokens.end))
    return [*events, *(Write(0, token, len(text), None) for token in draft[len(committed) :]), End(0, reason)]


def local_agreement(model, tokens, text, n, limit):
    """LA-n: what the last n drafts begin with."""
    drafts = []

    def safe(read, draft, committed):
        drafts.append(draft)
        stand = len(committed) if len(drafts) < n else len(draft)
        while any(other[:stand] != draft[:stand] for other in drafts[-n:]):
            stand -= 1
        return stand

    return drafting(model, tokens, text, limit, safe)


def hold(model, tokens, text, n, limit):
    """Hold-n: all but the last n."""
    return drafting(model, tokens, text, limit, lambda read, draft, committed: max(0, len(draft) - n))


def lsg_of_whole_sources(model, tokens, text, delta, adaptive, limit, told=None):
    """Guo et al. 2025 on a model that knows whole sources."""

    def safe(read, draft, committed):
        stand = len(committed)
        while stand < len(draft) and len(read) - stand >= adaptive.k_min:
            now = as_if_whole(model, tokens, read, draft[:stand])
            if len(read) - stand < adaptive.k_max and float(now.max().exp()) <= adaptive.alpha:
                wait_1 = as_if_whole(model, tokens, read[: stand + 1], draft[:stand])
                found = kl(now, wait_1, adaptive.divergence)
                if told is not None:
                    told.append(found)
                if found <= delta:
                    break
            stand += 1
        return stand

    return drafting(model, tokens, text, limit, safe)


class Weighed(NaivelyPacked):
    """Attention by one dense mask, which keeps its weights."""

    def __init__(self, layout):
        super().__init__(layout)
        self.weights = []

    def __call__(self, layer, q, k, v, scale, window, softcap):
        shared, position = k.repeat_interleave(q.shape[1] // k.shape[1], 1), self.layout.position
        scores, seen = torch.einsum("qhe,khe->hqk", q, shared) * scale, naive_seen(self.layout)
        if softcap is not None:
            scores = softcap * (scores / softcap).tanh()
        if window is not None:
            seen = seen & (position[:, None] - position < window)
        self.weights.append(scores.masked_fill(~seen, float("-inf")).softmax(-1))
        return super().__call__(layer, q, k, v, scale, window, softcap)


@torch.no_grad()
def attention(model, source, target):
    """Weights of all heads `[layers · heads, Y, X]`, of target over source tokens: softmax over all a query sees."""
    X, Y = len(source), len(target)
    layout = Layout.of([(X, Y)], [[torch.full((Y,), X)]], model.anchor)
    packed = Weighed(layout)
    model.states_of(model.embed(torch.tensor([*source, *target])), layout.position, packed)
    return torch.cat(packed.weights)[:, X:, :X]


def rests_on(model, tokens, read, draft):
    """Which source text token each token of a draft rests on, and the attention that says so."""
    source, before = [*tokens.source_prefix, *read, tokens.end], len(tokens.source_prefix)
    target = [tokens.seed, *tokens.target_prefix, *draft]
    first = len(target) - len(draft) - 1  # predicts the draft's first token
    weights = attention(model, source, target)[:, first:, before : before + len(read)]
    if model.alignment_heads is not None:
        heads = model.causal_lm.config.num_attention_heads
        score = sum(weights[layer * heads + head] for layer, head in model.alignment_heads)
    else:
        mean = weights.mean(1, keepdim=True)
        spread = ((weights - mean) ** 2).mean(1, keepdim=True) ** 0.5
        score = ((weights - mean) / (spread + 0.01)).sum(0)
    return score.argmax(-1).tolist(), weights


def alignatt(model, tokens, text, frames, limit):
    """Papi et al. 2023."""

    def safe(read, draft, committed):
        places, _ = rests_on(model, tokens, read, draft)
        stand = len(committed)
        while stand < len(draft) and places[stand] not in range(len(read) - frames, len(read)):
            stand += 1
        return stand

    return drafting(model, tokens, text, limit, safe)


def beam_search(log_probs, width, end, room):
    """The ending of the highest log-probability by length, of each ending's likeliest continuations, step by step.

    Args:
        log_probs: of the next token, of what was chosen so far.
        room: tokens that may be written.
    """

    def worth(ending):
        return ending[0] / max(1, len(ending[1])) ** 1.5

    going, ended = [(0.0, [])], []
    while going and len(ended) < width:
        longer = []
        for score, chosen in going:
            likeliest = sorted(enumerate(log_probs(chosen).tolist()), key=lambda one: -one[1])[: width + 1]
            longer += [(score + p, [*chosen, token]) for token, p in likeliest]
        going = []
        for score, chosen in sorted(longer, key=lambda one: -one[0])[: 2 * width]:
            if chosen[-1] == end or len(chosen) > room:
                ended.append((score, chosen))
            else:
                going.append((score, chosen))
            if len(going) == width:
                break
    return max(ended, key=lambda one: (one[1][-1] == end, worth(one)))[1]


def look_ahead(log_probs, width, more, end, room):
    """The first token of the likeliest way to go on by so many tokens more than one, or fewer where it ends; ways that
    are ten times less likely than the likeliest are left, and if one is left it is taken."""
    going, ended = [(0.0, [])], []
    for depth in range(more + 1):
        longer = [
            (score + p, [*chosen, token])
            for score, chosen in going
            for token, p in sorted(enumerate(log_probs(chosen).tolist()), key=lambda one: -one[1])[: width + 1]
            if token != end or depth
        ]
        going = []
        for score, chosen in sorted(longer, key=lambda one: -one[0])[: 2 * width]:
            (ended if chosen[-1] == end or len(chosen) > room else going).append((score, chosen))
            if len(going) == width:
                break
        going = [one for one in going if one[0] >= going[0][0] - 2.3]
        if not going or len([*going, *ended]) == 1:
            break
    return max([*going, *ended])[1][0]


def ended_by_beam(events, model, tokens, text, width, limit, whole):
    """What a policy did up to the source's end, and the best ending; `whole`: all of the target sees all of it."""
    last = max(place for place, event in enumerate(events) if isinstance(event, Read))
    source, before = [*tokens.source_prefix, *text, tokens.end], len(tokens.source_prefix)
    if sum(isinstance(event, Read) for event in events) <= len(text):  # it was stopped before
        return events
    written, visible, read = [], [], before
    for event in events[: last + 1]:
        if isinstance(event, Read):
            read += 1
        else:
            forced = 1 + len(tokens.target_prefix) if not visible else 1
            visible += [read] * forced
            written.append(event.token)

    def log_probs(chosen):
        target = [tokens.seed, *tokens.target_prefix, *written, *chosen]
        seen = [] if whole else visible
        return distribution(model, source, target, len(source), [*seen, *[len(source)] * (len(target) - len(seen))])

    chosen = beam_search(log_probs, width, tokens.end, limit - len(written))
    reason = "end_token" if chosen[-1] == tokens.end else "max_target_tokens"
    return [*events[: last + 1], *(Write(0, token, len(text), None) for token in chosen[:-1]), End(0, reason)]
