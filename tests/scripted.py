"""A system that writes what it is told, and its records."""

from dataclasses import asdict

from duplexmt.data.tokenizer import StreamTokens, token_ids
from duplexmt.evaluation.decoding import Decoding, Point, TestSet, digest
from duplexmt.evaluation.translation import tokenise, translate, translate_pairs
from duplexmt.model_folder.manifest import name_of
from duplexmt.streaming.events import End, Read, Write
from duplexmt.streaming.growing_text import GrowingText

from .helpers import as_pairs, tiny_tokenizer

CUT = "max_target_tokens"  # of such a text, as many tokens as have a delay


class Scripted:
    """A system that writes given texts, each of its tokens after a given number of source tokens.

    Half a second of computing goes into each token.
    """

    tokens = StreamTokens(end=0, seed=1)

    def __init__(self, tokenizer, script):
        self.tokenizer, self.script = tokenizer, script

    def translate(self, sources):
        for index, (text, delays, reason) in reversed(list(enumerate(self.script))):  # longest last, as real systems do
            yield Read(index, sources[index][0])
            written, growing = token_ids(self.tokenizer, [text])[0], GrowingText(self.tokenizer)
            for number, (token, delay) in enumerate(
                zip(written[: len(delays)] if reason == CUT else written, delays, strict=True), start=1
            ):
                yield Write(index, token, delay, 0.75, number / 2, growing.add(token))
            yield End(index, reason, len(written) / 2, growing.finish(), calls=10)


PAIRS = [("人好", "a cat"), ("我们是人", "the man")]


def records():
    """Two hypotheses: the second is empty. Letters, spaces and 人, 我, 们, 是 are tokens; 好 is three bytes."""
    system = Scripted(tiny_tokenizer(), [("a cat", [1, 1, 4, 4, 4], "end_token"), ("", [], "max_target_tokens")])
    return translate_pairs(system, as_pairs(PAIRS), tiny_tokenizer())


SENTENCES = [
    ("人好", "a cat"), ("我们是人", "the man"), ("我是人", "I am a man"), ("我们好", "we are well"),
    ("人是人", "a man is a man"), ("我好", "I am well"),
]  # fmt: skip
TEST = TestSet("six sentences", [s for s, _ in SENTENCES], [[t] for _, t in SENTENCES], "zh", "en")


def point(system="grid", setting=0.5, folder="runs/one/model", model="m1", test=TEST, name=None, seed=None, **options):
    key = digest([model, system, setting, folder, test.digest])
    return Point(system, setting, folder, model, options, key, name or name_of(folder, {}), seed)


def system_like(name, setting):
    """Translations that get better and later with the setting: words of the reference are left out at first."""
    script = []
    for source, reference in SENTENCES:
        length = len(token_ids(tiny_tokenizer(), [source])[0])
        kept = len(reference.split()) if name == "offline" else max(1, round(len(reference.split()) * setting))
        text = " ".join(reference.split()[:kept])
        tokens = len(token_ids(tiny_tokenizer(), [text])[0])
        first = length if name == "offline" else max(1, round(length * setting))
        script.append((text, [min(length, first + i // 4) for i in range(tokens)], "end_token"))
    return Scripted(tiny_tokenizer(), script)


def evaluated(folder, points, stop_after=None, finish=True):
    """An evaluation of scripted systems in a folder, killed after some records if told so."""
    decoding = Decoding.start(folder, TEST)
    for entry in points:
        decoding.add(entry)
        missing = decoding.missing(entry)
        sentences = tokenise(
            [TEST.sources[i] for i in missing], [TEST.references[i] for i in missing], tiny_tokenizer(), missing
        )
        system = system_like(entry.system, entry.setting)
        system.script = [system.script[i] for i in missing]
        for count, _ in enumerate(decoding.decode(entry, translate(system, sentences, tiny_tokenizer())), start=1):
            if stop_after is not None and count == stop_after:
                return decoding
    if finish:
        decoding.finish()
    return decoding


def unlike(entry, **changes):
    """A point with some fields changed."""
    return Point(**(asdict(entry) | changes))
