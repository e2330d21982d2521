"""Target text as it grows."""

from functools import lru_cache
from typing import Any

from ..data.tokenizer import decode, joins


class GrowingText:
    """Detokenises target tokens one by one; text once shown never changes, and half a character is never shown."""

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer
        self.tokens: list[int] = []
        self.text = ""
        self._joins = joins(tokenizer)
        self._settled, self._shown = 0, ""  # tokens whose text is all shown, and that text
        self._anchor = 0  # a token to decode others behind

    def add(self, token: int, copied: str | None = None) -> str:
        """Append a token; return the new characters that are now certain (may be empty).

        Args:
            copied: of a copy token (`data.copying`), what it stands for.
        """
        if copied is not None:
            text = self._decoded() + copied
        self.tokens.append(token)
        if copied is None:
            text = self._decoded()
            if text.endswith("�"):
                return self._grow(self._shown + text[len(self._shown) :].rstrip("�"))
        self._settled, self._shown = len(self.tokens), text
        return self._grow(text)

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


@lru_cache(maxsize=2**17)
def token_text(tokenizer: Any, token: int) -> str:
    """Text of a token by itself."""
    return decode(tokenizer, [token])
