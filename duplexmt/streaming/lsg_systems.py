"""LSG: writes where the source read so far tells more of the next token than wait-1 would have known.

Guo et al., "Large Language Models Are Read/Write Policy-Makers for Simultaneous Generation", AAAI 2025.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from ..baselines.prefix_cache import REFERENCE, SOURCE, TARGET, PrefixCache, Slot
from ..policy.knobs import check_lsg
from .draft_systems import Draft, DraftSystem
from .prefix_systems import Stream, WaitKSystem


class LsgSystem(WaitKSystem):
    """LSG on a model that knows prefixes.

    With lag k: read while k < k_min, write when k ≥ k_max or the source has ended, and in between write if what has
    been read beyond wait-1 tells something about the next token, or if it is certain: if KL(p_now ‖ p_ref) > δ or
    max p_now > α (of an end token: read). p_now is the next token's distribution by all that is read, p_ref that of the
    wait-1 view: the same translation, each token of which has seen what wait-1 had read when it wrote it. That is how
    the paper's text has it; its code takes KL(p_ref ‖ p_now), `adaptive.divergence=code`.

    The wait-1 view is a second copy of the target tokens in the cache, over the same source tokens. The setting is δ,
    in nats; the model a multi-path one.
    """

    check_setting = staticmethod(check_lsg)

    def last_slots(self, stream: Stream, first: int, again: bool = False) -> list[Slot]:
        """Target tokens in both views, the wait-1 view first; in that one no token is ever appended again."""
        last = super().last_slots(stream, first)
        if again:
            return last
        before = len(self.tokens.target_prefix)  # forced tokens after the seed, for which no source is read
        wait_1 = [
            slot._replace(kind=REFERENCE, sees=self.prefix + 1 + max(0, y - before))
            for y, slot in enumerate(last, start=first)
        ]
        return [*wait_1, *last]

    def predict(
        self, cache: PrefixCache, slots: Sequence[Sequence[Slot]], streams: Sequence[Stream]
    ) -> list[tuple[int, bool]]:
        """As for wait-k; what may be written differs from the wait-1 view's prediction, or is certain."""
        states = cache.append_all(slots)
        now = self.model.text_logits(_last(states, slots, TARGET, range(len(slots)))).log_softmax(-1)
        new = [row for row, own in enumerate(slots) if any(slot.kind == REFERENCE for slot in own)]
        if new:
            wait_1 = self.model.text_logits(_last(states, slots, REFERENCE, new)).log_softmax(-1)
            for row, reference in zip(new, wait_1, strict=True):
                streams[row].references = {streams[row].written: reference}
        reference = torch.stack([stream.references[stream.written] for stream in streams])
        likely, told = now.max(-1), divergence(now, reference, self.adaptive.divergence)
        certain = (told > self.setting) | (likely.values.exp() > self.adaptive.alpha)
        return [
            (token, tells or self.lag(stream) >= self.adaptive.k_max)
            for token, tells, stream in zip(likely.indices.tolist(), certain.tolist(), streams, strict=True)
        ]


class WholeLsgSystem(DraftSystem):
    """LSG (`LsgSystem`) on a model that knows whole sentences only: each view is of a source that is taken for whole.

    p_now is the draft's next token's distribution, the source read so far taken for whole; p_ref is that of the same
    translation where what wait-1 had read is taken for whole. A draft is written up to the first token whose lag is
    below k_min, or which neither differs enough from p_ref nor is certain, at a lag below k_max.
    """

    check_setting = staticmethod(check_lsg)

    def observe(self, draft: Draft, stream: Stream, logits: Tensor) -> None:
        """Of the tokens that may be written, the distributions in doubt."""
        if self.lag(stream, stream.written + len(draft.likely)) >= self.adaptive.k_min:
            draft.likely.append(logits.log_softmax(-1))

    def lag(self, stream: Stream, written: int) -> int:
        """Source tokens read minus target tokens written."""
        return stream.read - self.prefix - written

    def safe(self, cache: PrefixCache, streams: list[Stream], drafts: list[Draft]) -> list[int]:
        """Up to the first token that is not to be written; all streams look at their next token at once."""
        safe = [stream.written for stream in streams]
        active = list(range(len(streams)))
        while active:
            in_doubt: list[int] = []
            going_on: list[int] = []
            for row in active:
                lag = self.lag(streams[row], safe[row])
                if safe[row] == len(drafts[row].text) or lag < self.adaptive.k_min:
                    continue
                likely = drafts[row].likely[safe[row] - streams[row].written].max().exp()
                sure = lag >= self.adaptive.k_max or bool(likely > self.adaptive.alpha)
                (going_on if sure else in_doubt).append(row)
            self.look_back(cache, streams, drafts, safe, in_doubt)
            for row in in_doubt:
                now = drafts[row].likely[safe[row] - streams[row].written]
                told = divergence(now, streams[row].references[safe[row]], self.adaptive.divergence)
                going_on += [row] if told > self.setting else []
            for row in going_on:
                safe[row] += 1
            active = going_on
        return safe

    def look_back(
        self, cache: PrefixCache, streams: list[Stream], drafts: list[Draft], safe: list[int], rows: list[int]
    ) -> None:
        """Find out what the wait-1 view predicts after so many tokens, unless that is known of a stream."""
        rows = [row for row in rows if safe[row] not in streams[row].references]
        if not rows:
            return
        slots: list[list[Slot]] = [[] for _ in streams]
        for row in rows:
            read = self.prefix + 1 + safe[row]
            target = [*self.first_target(), *drafts[row].text[: safe[row]]]
            own = [Slot(self.tokens.end, SOURCE, read), *self.target_slots(target, read + 1)]
            slots[row] = [slot._replace(kind=REFERENCE, sees=read) for slot in own]
        length = cache.length
        with self.called([streams[row] for row in rows]):
            found = self.model.text_logits(cache.append(slots)).log_softmax(-1)
        cache.crop(length)
        for row in rows:
            streams[row].references = {safe[row]: found[row]}


def _last(states: Tensor, slots: Sequence[Sequence[Slot]], kind: int, rows: Sequence[int]) -> Tensor:
    """Of `states` `[n, m, D]` those at some rows' last slot of a kind, `[rows, D]`."""
    places = [max(place for place, slot in enumerate(slots[row]) if slot.kind == kind) for row in rows]
    chosen = torch.tensor([list(rows), places], device=states.device)
    return states[chosen[0], chosen[1]]


def divergence(now: Tensor, reference: Tensor, which: str) -> Tensor:
    """KL(now ‖ reference) as in the paper's text, or KL(reference ‖ now) as in its code.

    Args:
        now, reference: log-probabilities `[…, vocabulary]`.
        which: `paper` or `code`.

    Returns:
        `[…]`, in nats.
    """
    first, second = (now, reference) if which == "paper" else (reference, now)
    return (first.exp() * (first - second)).sum(-1)
