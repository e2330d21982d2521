"""Which tokens of a text that is still arriving are settled: no later character can change them.

With `characters` every token is. With `tokens`, for byte-pair encodings over the word patterns below:

*Pieces.* The tokenizer first cuts a text into pieces by a pattern, from left to right, and encodes each by itself.
Where a piece ends depends on characters after it only as follows. All loops of the patterns are over one class of
characters, and greedy: one that was stopped by a character that has arrived stays where it stopped. Only runs of white
space look ahead, past their end, and contractions ('re) are up to three characters. So a piece that has a character
after it is settled if it does not end in white space, or a character that is none has arrived after it; and if it
begins with an apostrophe, once three characters from there have arrived. The first piece that is not settled is, less
white space at its end, the beginning of its piece in any continuation.

*Tokens of a piece.* Merges within a piece are applied in order of rank, and none crosses a boundary of the final
tokens; so the tokens before a boundary are the encoding of the text before it, by itself. In any continuation of a
piece `w`, let `s` be where the token begins that holds the first character after `w`, or the end of `w` where a token
ends there. Either `s = |w|`, or `w[s:]` begins a longer entry of the vocabulary. So the tokens that the encodings of
`w[:s]` have in common, over all such `s`, are settled.

A tokenizer of another kind settles nothing before its text is complete.
"""

import json
from bisect import bisect_right
from itertools import takewhile
from typing import Any

from data_prep.tokens import PRETOKEN_PATTERN

from ..data.tokenizer import source_ids

GPT2_PATTERN = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
LONGEST_CONTRACTION = 3
WHITE_SPACE = "".join(chr(c) for c in range(0x3001) if chr(c).isspace() and not 0x1C <= c <= 0x1F)  # the patterns' \\s


class SettledTokens:
    """Settled tokens of growing texts.

    Args:
        tokenizer: a fast Hugging Face tokenizer.
        segmentation: `tokens` or `characters`, as in training.

    Attributes:
        holds_everything: whether this tokenizer's rules are unknown here, so that a text is held back to its end.
    """

    def __init__(self, tokenizer: Any, segmentation: str = "tokens") -> None:
        source_ids(tokenizer, [], segmentation)  # for its check
        self.tokenizer, self.segmentation = tokenizer, segmentation
        self.holds_everything = False
        if segmentation == "tokens":
            self.backend = tokenizer.backend_tokenizer
            description = json.loads(self.backend.to_str())
            added = [token for token in description["added_tokens"] if not token["special"]]  # special ones are text
            self.added = [token["content"] for token in added]
            plain_added = not any(token[flag] for token in added for flag in ("single_word", "lstrip", "rstrip"))
            self.holds_everything = not (plain_added and known_pieces(description) and plain_bpe(description["model"]))
            if not self.holds_everything:
                self.vocabulary = sorted(description["model"]["vocab"])

    def __call__(self, text: str) -> list[int]:
        """Settled tokens of a text.

        Args:
            text: what has arrived, cleaned as in training; characters that normalisation may still change left out.
        """
        if self.segmentation == "characters":
            return source_ids(self.tokenizer, [text], self.segmentation)[0]
        if self.holds_everything:
            return []
        done = max((text.rfind(token) + len(token) for token in self.added if token in text), default=0)
        begun = min((at for token in self.added if (at := _begins(text, token)) is not None), default=len(text))
        settled = source_ids(self.tokenizer, [text[:done]])[0] if done else []
        text = text[done : max(begun, done)]
        for piece, (start, end) in self._pieces(text):
            if not piece_is_settled(text, start, end):
                if text[-1] in WHITE_SPACE:  # which may belong to another piece
                    unsettled = self._pieces(text[start:].rstrip(WHITE_SPACE))
                    return settled + (self._settled_within(unsettled[0][0]) if unsettled else [])
                return settled + self._settled_within(piece)
            settled += self._encode(piece)
        return settled

    def complete(self, text: str) -> list[int]:
        """All tokens of a text that will not go on."""
        return source_ids(self.tokenizer, [text], self.segmentation)[0]

    def _pieces(self, text: str) -> list[tuple[str, tuple[int, int]]]:
        return self.backend.pre_tokenizer.pre_tokenize_str(text)

    def _encode(self, piece: str) -> list[int]:
        return [token.id for token in self.backend.model.tokenize(piece)]

    def _settled_within(self, piece: str) -> list[int]:
        """Tokens that all continuations of a piece have in common."""
        tokens = self._encode(piece)
        for start in range(len(piece)):
            if self._begins_an_entry(piece[start:]):
                other = self._encode(piece[:start])
                tokens = [one for one, _ in takewhile(_equal, zip(tokens, other, strict=False))]
                if not tokens:
                    break
        return tokens

    def _begins_an_entry(self, text: str) -> bool:
        """Whether a longer entry of the vocabulary begins so."""
        after = bisect_right(self.vocabulary, text)
        return after < len(self.vocabulary) and self.vocabulary[after].startswith(text)


def piece_is_settled(text: str, start: int, end: int) -> bool:
    """Whether the piece `[start, end)` of a text is one whatever follows the text, given that `start` is."""
    if end == len(text) or (text[start] == "'" and start + LONGEST_CONTRACTION > len(text)):
        return False
    return text[end - 1] not in WHITE_SPACE or text[end:].strip(WHITE_SPACE) != ""


def known_pieces(description: dict[str, Any]) -> bool:
    """Whether a tokenizer cuts texts into pieces by a pattern looked at above, and does no more to them than NFC."""
    if description["normalizer"] not in (None, {"type": "NFC"}):
        return False
    pre = description["pre_tokenizer"] or {}
    steps = pre.get("pretokenizers", [pre])
    byte_level = [step for step in steps if step.get("type") == "ByteLevel"]
    splits = [step for step in steps if step.get("type") == "Split"]
    if len(byte_level) + len(splits) != len(steps) or len(byte_level) > 1 or len(splits) > 1:
        return False
    if byte_level and (byte_level[0]["add_prefix_space"] or byte_level[0]["use_regex"] == bool(splits)):
        return False
    if splits:
        split = splits[0]
        pattern = split["pattern"].get("Regex")
        return pattern in (PRETOKEN_PATTERN, GPT2_PATTERN) and split["behavior"] == "Isolated" and not split["invert"]
    return True


def plain_bpe(model: dict[str, Any]) -> bool:
    """Whether a tokenizer's model is a byte-pair encoding without options that look past a piece's tokens."""
    odd = ("dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix", "fuse_unk", "ignore_merges")
    return model["type"] == "BPE" and not any(model.get(option) for option in odd)


def _begins(text: str, token: str) -> int | None:
    """Where a text's end may be the beginning of a token."""
    return next((len(text) - size for size in range(len(token) - 1, 0, -1) if text.endswith(token[:size])), None)


def _equal(pair: tuple[int, int]) -> bool:
    return pair[0] == pair[1]
