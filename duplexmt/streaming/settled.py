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

*Cuts.* What follows a settled piece, or settled tokens that end after a letter of a word, is tokenised as it would be
by itself: the patterns look at nothing behind them, a word goes on with letters only (unless it may be a contraction),
and no merge crosses a boundary of settled tokens. So a text that grows is tokenised from its last cut on.

A tokenizer of another kind settles nothing before its text is complete.
"""

import json
from bisect import bisect_right
from functools import lru_cache
from itertools import takewhile
from typing import Any

from data_prep.tokens import PRETOKEN_PATTERN

from ..data.tokenizer import source_ids

GPT2_PATTERN = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
LONGEST_CONTRACTION = 3
KNOWN_PIECES = 2**14
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
        # After a cut a piece is a few characters long, and comes again: half of everyday text's do within 600 lines.
        self._settled_within = lru_cache(KNOWN_PIECES)(self._look_within)
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
                self.of_bytes = "ByteLevel" in json.dumps(description["pre_tokenizer"])
                self.letters: dict[str, bool] = {}

    def after(self, text: str, cut: int) -> tuple[list[int], int, int]:
        """Settled tokens of a text from a cut on; how many of them there are up to the next cut; and that cut.

        Args:
            text: what has arrived, cleaned as in training; characters that normalisation may still change left out.
            cut: 0, or one that was returned for an earlier part of this text.
        """
        rest = text[cut:]
        if self.segmentation == "characters":
            each = source_ids(self.tokenizer, [rest], self.segmentation)[0]
            return each, len(each), len(text)
        if self.holds_everything:
            return [], 0, cut
        tokens: list[int] = []
        if self.added:
            done = max((rest.rfind(token) + len(token) for token in self.added if token in rest), default=0)
            begun = min((at for token in self.added if (at := _begins(rest, token)) is not None), default=len(rest))
            tokens = source_ids(self.tokenizer, [rest[:done]])[0] if done else []
            rest, cut = rest[done : max(begun, done)], cut + done
        before, size = len(tokens), 0
        for piece, (start, end) in self._pieces(rest):
            if not piece_is_settled(rest, start, end):
                if rest[-1] in WHITE_SPACE:  # which may belong to another piece
                    unsettled = self._pieces(rest[start:].rstrip(WHITE_SPACE))
                    return tokens + (self._settled_within(unsettled[0][0])[0] if unsettled else []), before, cut + size
                within, length = self._settled_within(piece)
                tokens += within
                if word := self._word(rest[start:end], length):
                    before, size = len(tokens), start + word
                break
            tokens += self._encode(piece)
            before, size = len(tokens), end
        return tokens, before, cut + size

    def complete(self, text: str) -> list[int]:
        """All tokens of a text that will not go on."""
        return source_ids(self.tokenizer, [text], self.segmentation)[0]

    def _pieces(self, text: str) -> list[tuple[str, tuple[int, int]]]:
        return self.backend.pre_tokenizer.pre_tokenize_str(text)

    def _encode(self, piece: str) -> list[int]:
        return [token.id for token in self.backend.model.tokenize(piece)]

    def _look_within(self, piece: str) -> tuple[list[int], int]:
        """Tokens that all continuations of a piece have in common; characters of the piece that these are, if known."""
        tokens, size = self._encode(piece), len(piece)
        for start in range(len(piece)):
            if self._begins_an_entry(piece[start:]):
                other = self._encode(piece[:start])
                common = [one for one, _ in takewhile(_equal, zip(tokens, other, strict=False))]
                if len(common) < len(tokens):
                    tokens, size = common, start if len(common) == len(other) else 0
                if not tokens:
                    break
        return tokens, size

    def _word(self, text: str, size: int) -> int:
        """Characters of a piece that may be cut off as the beginning of a word; 0 if it may not be cut there.

        Args:
            text: of the piece.
            size: in characters of the model: bytes, where the tokenizer works on bytes.
        """
        if self.of_bytes:
            cut_off = text.encode()[:size]
            size = len(cut_off.decode(errors="ignore"))
            if len(text[:size].encode()) < len(cut_off):
                return 0  # within a character
        return size if size and text[0] != "'" and self._is_letter(text[size - 1]) else 0

    def _is_letter(self, character: str) -> bool:
        """Whether a word goes on with it, in the tokenizer's own eyes."""
        if character not in self.letters:
            self.letters[character] = len(self._pieces("a" + character)) == 1
        return self.letters[character]

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
