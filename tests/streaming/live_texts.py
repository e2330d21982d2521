"""Live texts for tests, and how they arrive."""

from functools import cache, partial

from data_prep.incremental import settled_side
from data_prep.rules import clean_side
from duplexmt.data.settled import SettledTokens
from duplexmt.streaming.live import LiveEvent
from duplexmt.streaming.live_text import LiveText

settled_tokens = cache(SettledTokens)


def live_text(tokenizer, language="zh", segmentation="tokens", **values):
    """A text that is cleaned as in training."""
    cleaning = partial(clean_side, language=language), partial(settled_side, language=language)
    return LiveText(settled_tokens(tokenizer, segmentation), *cleaning, language=language, **values)


def cut_at_random(text, draw):
    """A text in pieces of 1 to 6 characters."""
    begin = 0
    while begin < len(text):
        size = draw.randint(1, 6)
        yield text[begin : begin + size]
        begin += size


def feed(translator, text):
    """What characters that arrive lead to, until all texts of the driver wait."""
    return run(translator, translator.text.take(text))


def pause(translator):
    """What follows where nothing arrives for a while."""
    return run(translator, translator.text.pause())


def finish(translator):
    """What follows where the sentence ends, if there is one."""
    return run(translator, translator.text.finish())


def run(translator, parts):
    """The events of one text."""
    translator.give(parts)
    while translator.driver.goes_on:
        yield from (one for who, one in translator.driver.step() if who is translator and isinstance(one, LiveEvent))
