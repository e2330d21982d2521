"""Target text as it grows."""

import json
from functools import lru_cache
from typing import Any


class GrowingText:
    """Detokenises target tokens one by one; text once shown never changes, and half a character is never shown."""

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer
        self.tokens: list[int] = []
        self.text = ""
        self._joins = joins(tokenizer)
        self._settled, self._shown = 0, ""  # tokens whose text is all shown, and that text
        self._anchor = 0  # a token to decode others behind

    def add(self, token: int) -> str:
        """Append a token; return the new characters that are now certain (may be empty)."""
        self.tokens.append(token)
        text = self._decoded()
        if not text.endswith("�"):
            self._settled, self._shown = len(self.tokens), text
        return self._grow(text.rstrip("�"))

    def finish(self) -> str:
        """Return what was still held back, broken bytes as replacement characters."""
        return self._grow(self._decoded())

    def _decoded(self) -> str:
        if self._joins:
            rest = self.tokens[self._settled :]
            return self._shown + (token_text(self.tokenizer, *rest) if len(rest) == 1 else decode(self.tokenizer, rest))
        text = decode(self.tokenizer, self.tokens)
        if not text.startswith(self.text):
            # One broken byte makes tokenizers with byte fallback give up on the characters before it, shown already.
            text = self.text + self._decoded_behind_another(self.tokens[self._settled :])
        return text

    def _decoded_behind_another(self, tokens: list[int]) -> str:
        """Text of tokens that are not the first ones, which some decoders take a space from."""
        while self._anchor < len(self.tokenizer):
            before = decode(self.tokenizer, [self._anchor])
            if before.isalpha() and (text := decode(self.tokenizer, [self._anchor, *tokens])).startswith(before):
                return text[len(before) :]
            self._anchor += 1  # it has no text, or is itself a byte, and broken by those that follow
        return decode(self.tokenizer, tokens)

    def _grow(self, text: str) -> str:
        new, self.text = text[len(self.text) :], text
        return new


def decode(tokenizer: Any, tokens: list[int]) -> str:
    """Text of target tokens, special tokens left out."""
    if not tokenizer.is_fast:
        return tokenizer.decode(tokens, skip_special_tokens=True, clean_up_tokenization_spaces=False)
    return tokenizer.backend_tokenizer.decode(tokens, skip_special_tokens=True)  # by itself, a fifth of the time


@lru_cache(maxsize=2**17)
def token_text(tokenizer: Any, token: int) -> str:
    """Text of a token by itself."""
    return decode(tokenizer, [token])


@lru_cache(maxsize=8)
def joins(tokenizer: Any) -> bool:
    """Whether the text of tokens is that of the first ones and of the rest, where the first end in no half character.

    So it is where bytes are all that a decoder puts together.
    """
    if not tokenizer.is_fast or tokenizer.backend_tokenizer.decoder is None:
        return False
    description = json.loads(tokenizer.backend_tokenizer.decoder.__getstate__())
    kinds = [decoder["type"] for decoder in description.get("decoders", [description])]
    return kinds in (["ByteLevel"], ["ByteFallback", "Fuse"])
