"""Which tokens of a text that is still arriving are settled: no later character can change them.

With `characters` every token is. With `tokens` it follows from what the tokenizer does:

*Pieces.* The tokenizer first cuts a text into pieces by patterns, from left to right (`piece_patterns` has those that
are known). An alternative of a pattern that has not reached the end of what has arrived does the same whatever follows.
So a piece is settled if its alternative ended before that end, and neither it nor one before it can be made to go on
past the end: which is what the module `regex` calls a partial match. The patterns look no further than at the next
character (`\\s+(?!\\S)`), and at nothing behind them. An alternative that goes on later makes a piece longer, and only
the look-ahead makes a run of white space shorter: so the first piece that is not settled is, less white space at its
end, the beginning of its piece in any continuation. A second pattern cuts what the first has cut, in the same way.
SentencePiece's tokenizers cut before spaces, or not at all: the text is one piece then. Some first write grapheme
clusters in other characters, each by itself: the last cluster, which may go on, waits.

*Tokens of a piece.* In any continuation of a piece `w`, let `s` be where the token begins that holds the first
character after `w`, or the end of `w` where a token ends there. Either `s = |w|`, or `w[s:]` begins a longer entry of
the vocabulary. The tokens before a boundary of tokens are the encoding of the text before it, by itself: in a byte-pair
encoding since merges are applied in order of rank, and none crosses such a boundary; in a Unigram model since a part of
the best path is the best path to where it ends. So the tokens that the encodings of `w[:s]` have in common, over all
such `s`, are settled. A model that takes a whole piece for one token where it has it (`ignore_merges`) may do so with
`w` itself, too.

*Cuts.* What follows a settled piece is tokenised as it would be by itself, since patterns look at nothing behind them;
and so is what follows settled tokens that end after a letter of a word, where a word goes on with letters only, and no
merge crosses a boundary of settled tokens. So a text that grows is tokenised from its last cut on.

A tokenizer of another kind settles nothing before its text is complete: `warning` says why.
"""

import json
from bisect import bisect_right
from functools import lru_cache
from itertools import pairwise, takewhile
from typing import Any, NamedTuple

import regex
from tokenizers import Tokenizer, pre_tokenizers

from .tokenizer import source_ids

GPT2_PATTERN = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
KNOWN_PIECES = 2**14
ABOUT = ("", ""), ("a", ""), ("1", ""), (".", ""), (" ", ""), ("", "."), ("", "a")  # that tell what a character is
SPACE = "▁"  # SentencePiece's
BYTES = [f"<0x{byte:02X}>" for byte in range(256)]
WHITE_SPACE = "".join(chr(c) for c in range(0x3001) if chr(c).isspace() and not 0x1C <= c <= 0x1F)  # the patterns' \s

_ALTERNATIVE = regex.compile(r"(?:\\.|(\[(?:\\.|(?1)|[^\[\]\\])*+\])|(\((?:\\.|(?1)|(?2)|[^()\[\\])*+\))|[^|()\[\\])+")
_UP_TO_LAST_CLUSTER = regex.compile(r"(?s:.*?)(?=\X?\Z)")
_CLASS_OR_ESCAPE = regex.compile(r"\[(?:\\.|(?R)|[^\[\]\\])*+\]|\\\W")
_LOOKS_AROUND = regex.compile(r"\(\?(?!:|i:)|[$^]|\\[bBAzZGkKRX1-9]|\)[?*+}]\+")
# Words that go on with any letter, and what does not begin with one: a word may be cut between two letters.
_CUT_IN_WORDS = regex.compile(
    r"(?: \?|\[\^\\r\\n\\p\{L\}\\p\{N\}\]\?\+?)(?:\\p\{L\}|\[\\p\{L\}\\p\{M\}\])\+"
    r"|(?:\(\?i:)?'.*|\\p\{N\}.*| \?\[\^\\s\\p\{L\}.*|\\s.*"
)


class Tail(NamedTuple):
    """What of a text that is still arriving is not settled by some patterns."""

    begin: int  # of the piece
    end: int  # up to which it is the beginning of its piece, whatever follows
    cut: int  # from which on the text may be looked at by itself


class SettledTokens:
    """Settled tokens of growing texts.

    Args:
        tokenizer: a fast Hugging Face tokenizer.
        segmentation: `tokens` or `characters`, as in training.

    Attributes:
        warning: that and why a text is held back to its end with this tokenizer; None where it is not.
    """

    def __init__(self, tokenizer: Any, segmentation: str = "tokens") -> None:
        source_ids(tokenizer, [], segmentation)  # for its check
        self.tokenizer, self.segmentation = tokenizer, segmentation
        # After a cut a piece is a few characters long, and comes again: half of everyday text's do within 600 lines.
        self._settled_within = lru_cache(KNOWN_PIECES)(self._look_within)
        self.warning: str | None = None
        if segmentation == "tokens":
            try:
                self._read(tokenizer)
            except UnknownKind as kind:
                self.warning = (
                    f"this tokenizer's tokens of a live text are settled at sentence ends and pauses only, as {kind}: "
                    "data.segmentation=characters, or another tokenizer, has them read at once"
                )

    def _read(self, tokenizer: Any) -> None:
        """What this tokenizer does.

        Raises:
            UnknownKind: that is not known here.
        """
        if not tokenizer.is_fast:
            raise UnknownKind("it has no tokenizer.json")
        self.backend = tokenizer.backend_tokenizer
        description = json.loads(self.backend.to_str())
        added = [token for token in description["added_tokens"] if not token["special"]]  # special ones are text
        self.added = [token["content"] for token in added]
        if any(token[flag] for token in added for flag in ("single_word", "lstrip", "rstrip")):
            raise UnknownKind("its added tokens take the white space or look at the words around them")
        rewrites = check_normalizer(description["normalizer"])
        self.by_clusters = "Precompiled" in rewrites
        self.patterns, prefixed = piece_patterns(description["pre_tokenizer"])
        self.moves = prefixed or rewrites != set()  # so that places in the text are no places in its pieces
        if self.moves and added:
            raise UnknownKind("it begins anew, with a space, behind its added tokens")
        model = description["model"]
        self.of_bytes = "ByteLevel" in json.dumps(description["pre_tokenizer"])
        entries = model["vocab"]  # of a Unigram model with their scores
        self.vocabulary = sorted(entries if isinstance(entries, dict) else [entry for entry, _ in entries])
        self.longest = max(map(len, self.vocabulary))
        check_model(model, set(self.vocabulary), self.of_bytes)
        self.model = self.merges = self.backend.model
        if ignores := model.get("ignore_merges"):  # its merges alone, for pieces that may go on
            without = description | {"model": model | {"ignore_merges": False}}
            self.merges = Tokenizer.from_str(json.dumps(without)).model
        simple = len(self.patterns) == 1 and self.patterns[0].may_be_cut_in_words and not self.moves
        self.cuts_words = simple and model["type"] == "BPE" and not ignores and not model.get("fuse_unk")
        self.letters: dict[str, bool] = {}
        self.known: dict[str, bool] = {}

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
        if self.warning is not None:
            return [], 0, cut
        tokens: list[int] = []
        if self.added:
            done = max((rest.rfind(token) + len(token) for token in self.added if token in rest), default=0)
            begun = min((at for token in self.added if (at := _begins(rest, token)) is not None), default=len(rest))
            tokens = source_ids(self.tokenizer, [rest[:done]])[0] if done else []
            rest, cut = rest[done : max(begun, done)], cut + done
        before, size = len(tokens), 0
        if self.by_clusters:
            rest = _UP_TO_LAST_CLUSTER.match(rest)[0]
        if self.moves and self.backend.normalizer is not None:
            rest = self.backend.normalizer.normalize_str(rest)
        rest = rest[: next((place for place, one in enumerate(rest) if not self._is_known(one)), len(rest))]
        pieces = self._pieces(rest)
        tail = self._tail(rest)
        for piece, (_, end) in pieces:
            if end > tail.begin:
                break
            tokens += self._encode(piece)
            if end <= tail.cut:
                before, size = len(tokens), end
        if tail.end < len(rest):
            pieces = self._pieces(rest[: tail.end])
        if piece := next((piece for piece, span in pieces if span == (tail.begin, tail.end)), ""):
            within, length = self._settled_within(piece)
            tokens += within
            if tail.cut == tail.begin and (word := self._word(rest[tail.begin : tail.end], length)):
                before, size = len(tokens), tail.begin + word
        return tokens, before, cut + size

    def complete(self, text: str) -> list[int]:
        """All tokens of a text that will not go on."""
        return source_ids(self.tokenizer, [text], self.segmentation)[0]

    def _pieces(self, text: str) -> list[tuple[str, tuple[int, int]]]:
        if self.backend.pre_tokenizer is None:
            return [(text, (0, len(text)))] if text else []
        return self.backend.pre_tokenizer.pre_tokenize_str(text)

    def _encode(self, piece: str) -> list[int]:
        return [token.id for token in self.model.tokenize(piece)]

    def _merged(self, piece: str) -> list[int]:
        return [token.id for token in self.merges.tokenize(piece)]

    def _tail(self, text: str) -> Tail:
        """The first piece that is not settled."""
        begin, end, cut, is_free = 0, len(text), 0, not self.moves
        for pattern in self.patterns:
            inner, length, is_gap = pattern.tail(text[begin:end])
            begin, end = begin + inner, begin + inner + length
            if is_free:
                cut, is_free = begin, is_gap
        return Tail(begin, end, cut)

    def _look_within(self, piece: str) -> tuple[list[int], int]:
        """Tokens that all continuations of a piece have in common; characters of the piece that these are, if known."""
        tokens, size = self._encode(piece), len(piece)
        if self.merges is not self.model:
            tokens = _common(tokens, self._merged(piece))
        for start in range(max(0, len(piece) - self.longest), len(piece)):
            if self._begins_an_entry(piece[start:]):
                other = self._merged(piece[:start])
                common = _common(tokens, other)
                if len(common) < len(tokens):
                    tokens, size = common, start if len(common) == len(other) else 0
                if not tokens:
                    break
        return tokens, size

    def _word(self, text: str, size: int) -> int:
        """Characters of a piece that may be cut off as the beginning of a word; 0 if it may not be cut there.

        Args:
            size: in characters of the model: bytes, where the tokenizer works on bytes.
        """
        if not self.cuts_words:
            return 0
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

    def _is_known(self, character: str) -> bool:
        """Whether `regex` takes a character for what the tokenizer does, which may know another version of Unicode."""
        if character not in self.known:
            texts = [before + character + after for before, after in ABOUT]
            theirs = [[span for _, span in self._pieces(text)] for text in texts]
            self.known[character] = theirs == [self._spans(text) for text in texts]
        return self.known[character]

    def _spans(self, text: str) -> list[tuple[int, int]]:
        spans = [(0, len(text))]
        for pattern in self.patterns:
            spans = [(start + a, start + b) for start, end in spans for a, b in pattern.spans(text[start:end])]
        return spans

    def _begins_an_entry(self, text: str) -> bool:
        """Whether a longer entry of the vocabulary begins so."""
        after = bisect_right(self.vocabulary, text)
        return after < len(self.vocabulary) and self.vocabulary[after].startswith(text)


class UnknownKind(ValueError):
    """A tokenizer does something that is not known here."""


class Pattern:
    """A pattern that cuts texts, by its alternatives.

    Args:
        drops: whether what stands between its matches is left out.

    Raises:
        UnknownKind: it looks further than at the next character.
    """

    def __init__(self, pattern: str, drops: bool = False) -> None:
        self.drops = drops
        alternatives = [found[0] for found in _ALTERNATIVE.finditer(pattern)]
        looks_around = _LOOKS_AROUND.search(_CLASS_OR_ESCAPE.sub("", pattern.replace(r"\s+(?!\S)", "")))
        if looks_around or "|".join(alternatives) != pattern:
            raise UnknownKind(f"its pattern {pattern} looks around, or is of a kind that is not known here")
        version = regex.VERSION1 if "&&" in pattern else regex.VERSION0
        try:
            self.alternatives = [regex.compile(one, version) for one in alternatives]
            self.whole = regex.compile(pattern, version)
        except regex.error as error:
            raise UnknownKind(f"its pattern {pattern} is not known here ({error})") from error
        if any(one.match("") for one in self.alternatives):
            raise UnknownKind(f"its pattern {pattern} matches no text at all")
        self.may_be_cut_in_words = all(map(_CUT_IN_WORDS.fullmatch, alternatives))

    def tail(self, text: str) -> tuple[int, int, bool]:
        """Where the first piece begins that is not settled; how much of it is surely of one piece; and whether that is
        no match, but what stands between two."""
        begin = place = 0
        while place < len(text):
            for one in self.alternatives:
                if one.fullmatch(text, place, partial=True):
                    if begin < place and not self.drops:
                        return begin, place - begin, True
                    return place, self._surely(text[place:]), False
                if found := one.match(text, place):
                    begin = place = found.end()
                    break
            else:
                place += 1
        return (place, 0, True) if self.drops else (begin, place - begin, True)

    def _surely(self, text: str) -> int:
        """How much of what the text begins with is of one piece, whatever follows."""
        found = self.whole.match(text)
        return len(found[0].rstrip(WHITE_SPACE)) if found else 0

    def spans(self, text: str) -> list[tuple[int, int]]:
        """What a complete text is cut into."""
        if self.drops:
            return [found.span() for found in self.whole.finditer(text)]
        bounds = sorted({0, len(text), *(bound for found in self.whole.finditer(text) for bound in found.span())})
        return list(pairwise(bounds))


def piece_patterns(pre_tokenizer: dict[str, Any] | None) -> tuple[list[Pattern], bool]:
    """The patterns by which a tokenizer cuts texts into pieces, one after another; whether it puts a space before.

    Raises:
        UnknownKind: it cuts in another way.
    """
    steps = [] if pre_tokenizer is None else pre_tokenizer.get("pretokenizers", [pre_tokenizer])
    patterns: list[Pattern] = []
    prefixed = False
    for place, step in enumerate(steps):
        kind, is_last = step["type"], step is steps[-1]
        if kind == "Split" and "Regex" in step["pattern"] and step["behavior"] == "Isolated" and not step["invert"]:
            patterns.append(Pattern(step["pattern"]["Regex"]))
        elif kind == "Digits":
            patterns.append(Pattern(r"\p{N}" if step["individual_digits"] else r"\p{N}+"))
        elif kind == "ByteLevel" and is_last and not step["add_prefix_space"]:
            patterns += [Pattern(GPT2_PATTERN)] if step["use_regex"] else []
        elif kind == "WhitespaceSplit" and place == 0:
            patterns.append(Pattern(r"\S+", drops=True))
        elif kind == "Metaspace" and is_last and step["replacement"] == SPACE and all(one.drops for one in patterns):
            patterns += [Pattern(f"[ {SPACE}][^ {SPACE}]*|[^ {SPACE}]+")] if step["split"] else []
            prefixed = True
        else:
            raise UnknownKind(f"its pre-tokenizer {kind} is not known here, as it is set")
    return patterns, prefixed


def check_normalizer(normalizer: dict[str, Any] | None) -> set[str]:
    """What a tokenizer does to a text beside NFC.

    Raises:
        UnknownKind: it may do more than write characters or grapheme clusters in others, each by itself, put a space
            before, and make one space of several.
    """
    steps = [] if normalizer is None else normalizer.get("normalizers", [normalizer])
    for step in steps:
        kind = step["type"]
        replaces = (step["pattern"], step["content"]) if kind == "Replace" else None
        spaces = replaces in (({"String": " "}, SPACE), ({"Regex": " {2,}"}, " "))
        if not (spaces or kind in ("NFC", "Precompiled") or (kind == "Prepend" and step["prepend"] == SPACE)):
            raise UnknownKind(f"its normalizer {kind} is not known here, as it is set")
    return {step["type"] for step in steps} - {"NFC"}


def check_model(model: dict[str, Any], vocabulary: set[str], of_bytes: bool) -> None:
    """Whether a tokenizer's model is a Unigram model, or a byte-pair encoding that looks at nothing past a piece's
    tokens and leaves out no character.

    Raises:
        UnknownKind: it is not.
    """
    kind = model["type"]
    if kind not in ("BPE", "Unigram"):
        raise UnknownKind(f"its model {kind} is not known here")
    for option in ("dropout", "continuing_subword_prefix", "end_of_word_suffix"):
        if model.get(option):
            raise UnknownKind(f"its model's {option}={model[option]} is not known here")
    known = (of_bytes and vocabulary.issuperset(pre_tokenizers.ByteLevel.alphabet())) or (
        model.get("byte_fallback") and vocabulary.issuperset(BYTES)
    )
    if not known and model.get("unk_token" if kind == "BPE" else "unk_id") is None:
        raise UnknownKind("its model leaves out characters that it does not know")


def _begins(text: str, token: str) -> int | None:
    """Where a text's end may be the beginning of a token."""
    return next((len(text) - size for size in range(len(token) - 1, 0, -1) if text.endswith(token[:size])), None)


def _common(tokens: list[int], others: list[int]) -> list[int]:
    return [one for one, _ in takewhile(lambda pair: pair[0] == pair[1], zip(tokens, others, strict=False))]
