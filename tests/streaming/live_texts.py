"""Live texts for tests, and how they arrive."""

from functools import partial

from data_prep import clean_side
from data_prep.live import settled_side
from duplexmt.streaming.live_text import LiveText
from duplexmt.streaming.settled import SettledTokens


def live_text(tokenizer, language="zh", segmentation="tokens", **values):
    """A text that is cleaned as in training."""
    cleaning = partial(clean_side, language=language), partial(settled_side, language=language)
    return LiveText(SettledTokens(tokenizer, segmentation), *cleaning, language=language, **values)


def cut_at_random(text, draw):
    """A text in pieces of 1 to 6 characters."""
    begin = 0
    while begin < len(text):
        size = draw.randint(1, 6)
        yield text[begin : begin + size]
        begin += size
