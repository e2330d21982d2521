"""Copy tokens (`data.copy_tokens`): one target token stands for a whole identifier, number or name of the source.

A corpus shows an address or a file name once or never, and a small model that writes it piece by piece gets one of them
wrong. With copy tokens it says *that* one is to be copied, and which: token k stands for the k-th run of Latin letters,
digits and their marks in the source, as it is written there (each counts once, and has two characters or more; up to
four words with spaces between them are one, as a name has). The source keeps its own tokens. So the model still sees
what it copies, and may write anything else for it ("10" may be "ten"). In training a run that stands on both sides is
such a token on the target side; in decoding, it is written once the source has gone on behind the run, or has ended.
What has not been written when the source has ended comes before the next full stop, or at the end.

They are bytes that no text in UTF-8 has, so every vocabulary with all bytes holds them already. They are for sources in
another script: of a German sentence each word would be such a run.

Where a source is replaced by another one after a copy token was written, what was written stays, and to the model the
token now means the run of that number in the new source.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from .tokenizer import token_ids

LETTER = "A-Za-zÀ-ÖØ-öø-ɏḀ-ỿ"
LATIN = f"{LETTER}\u0300-\u036f"  # and accents, which begin no word
SIGN = f"[{LATIN}0-9_.,:/@+#&=?~%-]"
BEHIND = f"(?!{SIGN}*[{LATIN}0-9_])"  # the word is over
BEFORE = f"(?<![{LATIN}0-9_])(?<![{LATIN}0-9_][.,:/@+#&=?~%-])"  # no word goes on
NAME = f"[{LETTER}][{LATIN}0-9_+#&-]*(?: [{LETTER}0-9][{LATIN}0-9_+#&-]*){{1,3}}{BEHIND}"  # of two to four words
WORD = re.compile(f"https?://[!-~]+|[{LETTER}0-9_]{SIGN}*")
RUN = re.compile(f"https?://[!-~]+|{NAME}{SIGN}* ?|[{LETTER}]{SIGN}* ?|[0-9_]{SIGN}*")
MARKS = ".,:;/-?!\"'()[]{}<> "  # the sentence's, where they stand at the end of a run
NUMBER = re.compile(r"[0-9]+([.,:/-][0-9]+)*%?")
IN_WORD = re.compile(f"[{LATIN}0-9.,:/-]$")
SHORTEST = 2  # one letter or digit is a token anyway


def copied_runs(text: str, whole: bool = True) -> dict[str, int]:
    """What of a source text copy tokens stand for, in order, and how often each is there.

    Args:
        whole: whether the text is complete; else a run at its end is left out, which may go on.
    """
    found = [run[0].rstrip(MARKS) for run in RUN.finditer(text) if whole or run.end() < len(text)]
    return Counter(run for run in found if len(run) >= SHORTEST)


def found_whole(runs: Iterable[str], text: str) -> Iterator[re.Match[str]]:
    """Where some runs stand in a text, each as a whole: "15" is not in "2015"."""
    texts = "|".join(re.escape(run) for run in sorted(runs, key=len, reverse=True))
    return re.finditer(f"{BEFORE}({texts}){BEHIND}", text) if texts else iter(())


def open_run(text: str) -> str:
    """The run at the end of a text, which may go on; "" where there is none."""
    runs = list(RUN.finditer(text))
    return runs[-1][0] if runs and runs[-1].end() == len(text) else ""


def begins_number(text: str, before: str) -> bool:
    """Whether a text of digits begins a number behind another text, and does not go on with a word or number there."""
    return text.isascii() and text.isdigit() and IN_WORD.search(before) is None


def is_number(run: str) -> bool:
    """Whether a run is a number, a time or a date, perhaps with a percent sign."""
    return NUMBER.fullmatch(run) is not None


def target_ids(
    tokenizer: Any, targets: Sequence[str], sources: Sequence[str], copy_tokens: Sequence[int] = ()
) -> list[list[int]]:
    """Token ids of target texts, with copy tokens for what also stands in their sources.

    Args:
        targets, sources: texts, cleaned.
        copy_tokens: ids; none: `token_ids`.
    """
    if not copy_tokens:
        return token_ids(tokenizer, targets)
    parts: list[tuple[int, str | int]] = []  # with the number of the target: a text, or a copy token
    for number, (target, source) in enumerate(zip(targets, sources, strict=True)):
        tokens, done = dict(zip(copied_runs(source), copy_tokens, strict=False)), 0
        for run in found_whole(tokens, target):
            parts += [(number, target[done : run.start()]), (number, tokens[run[0]])]
            done = run.end()
        parts.append((number, target[done:]))
    encoded = iter(token_ids(tokenizer, [part for _, part in parts if isinstance(part, str)]))
    ids: list[list[int]] = [[] for _ in targets]
    for number, part in parts:
        ids[number] += next(encoded) if isinstance(part, str) else [part]
    return ids
