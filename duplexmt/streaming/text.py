"""Target text as it grows."""

from typing import Any


class GrowingText:
    """Detokenises target tokens one by one; text once shown never changes, and half a character is never shown.

    Args:
        tokenizer: a Hugging Face tokenizer.
    """

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer
        self.tokens: list[int] = []
        self.text = ""
        self._settled = 0  # tokens whose text is all shown
        self._anchor = 0  # a token to decode others behind

    def add(self, token: int) -> str:
        """Append a token; return the new characters that are now certain (may be empty)."""
        self.tokens.append(token)
        text = self._decoded()
        if not text.endswith("�"):
            self._settled = len(self.tokens)
        return self._grow(text.rstrip("�"))

    def finish(self) -> str:
        """Return what was still held back, broken bytes as replacement characters."""
        return self._grow(self._decoded())

    def _decoded(self) -> str:
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
