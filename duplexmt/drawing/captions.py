"""Subtitles, SubRip (.srt) and WebVTT (.vtt): cues as a source that comes at their times, and translations as cues.

A cue has words of one sentence of the source: at most two lines of 42 columns, where a wide character takes two. It
begins when its first word is written and stands for a second at least, so what comes sooner waits. It ends when it has
been read and a second has gone since its last word, or when the next one begins. After three seconds without a word the
next word begins another one.
"""

import html
import re
from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from time import perf_counter
from unicodedata import category

from ..common.text import WIDE
from ..metrics.units import Unit
from ..streaming.events import End, Write
from ..streaming.live import LiveEvent
from ..streaming.live_text import LineEnd
from .table import terminal_width

LINE, LINES = 42, 2  # columns of a line, lines of a cue
LEAST, AFTER = 1.0, 1.0  # seconds that a cue stands in all, and after its last word where no other one comes
PACE = 17  # columns read a second
SILENCE = 3.0  # seconds without a word that end a cue
_TIME = r"(?:(\d+):)?(\d{1,2}):(\d{1,2})[.,](\d{1,3})"
_TIMES = re.compile(rf"\s*{_TIME}\s*-->\s*{_TIME}(?!\S)")
_TAGS = re.compile(r"</?[a-zA-Z\d][^<>\n]*>|</?>|\{\\[^{}\n]*\}")  # <i>, <v Ann>, <00:01.500>, {\an8}
_DASH = re.compile(r"^\s*[-‐–]\s*(?=[^\s\d])", re.MULTILINE)  # another speaker
_PIECES = re.compile(rf"\s*(?:[{WIDE}]|[^\s{WIDE}]{{1,{LINE}}})|\s+")
_WIDE = re.compile(f"[{WIDE}]")


@dataclass
class Cue:
    """A subtitle; its text has a line end before another speaker's words only."""

    begin: float  # seconds, as is the end
    end: float
    text: str


def read_cues(text: str, name: str, between: str) -> list[Cue]:
    """The cues of a SubRip or WebVTT file in the order of their times, without tags.

    Args:
        text: of the file, line ends as \\n.
        between: what stands between two lines of a cue that one speaker says.

    Raises:
        ValueError: for times that are none, naming the line, and for a file without cues. A line is in the place of
            times if it comes after an empty line and the next cue's number, and no cue with times has that number.
    """
    is_vtt = text.startswith("WEBVTT")
    above, following, wrong = ("", ""), "1", ""  # two lines; the next cue's number; the error if it has no times
    found: list[tuple[Cue, list[str]]] = []
    inside = False  # a cue's text; in WebVTT an empty line ends it, and notes or styles may follow
    for number, line in enumerate(text.split("\n"), start=1):
        if "-->" in line:
            if (times := _TIMES.match(line)) is None:
                raise ValueError(f"{name}, line {number}: {line.strip()!r} is no 00:00:01.000 --> 00:00:02.500")
            if wrong and above[1] != following:
                raise ValueError(wrong)
            following, wrong = str(int(above[1]) + 1) if re.fullmatch(r"\d{1,9}", above[1]) else "none", ""
            if found and re.fullmatch(r"\n\d+", "\n".join(found[-1][1][-2:])):
                del found[-1][1][-2:]  # the number of this cue
            begin, end = _seconds(*times.groups()[:4]), _seconds(*times.groups()[4:])
            found.append((Cue(begin, max(begin, end), ""), []))
            inside = True
        elif inside and (line.strip() or not is_vtt):
            found[-1][1].append(line.strip())
        else:
            inside = False
        if "-->" not in line and line.strip() and above == ("", following) and not wrong:
            wrong = (
                f"{name}, line {number}: {line.strip()!r} is no 00:00:01.000 --> 00:00:02.500, which cue {following} "
                "needs; if both lines are text, remove the empty line before them"
            )
        above = above[1], line.strip()
    if wrong:
        raise ValueError(wrong)
    for cue, lines in found:
        plain = _TAGS.sub("", "\n".join(line for line in lines if line))
        spoken = _DASH.sub("\r", html.unescape(plain) if is_vtt else plain)
        cue.text = spoken.replace("\n\r", "\r").replace("\n", between).replace("\r", "\n")
    cues = sorted((cue for cue, _ in found if cue.text.strip()), key=lambda cue: cue.begin)
    if not cues:
        raise ValueError(f"{name} has no subtitles: SubRip (.srt) or WebVTT (.vtt) is read")
    return cues


def _seconds(hours: str | None, minutes: str, seconds: str, fraction: str) -> float:
    return 3600 * int(hours or 0) + 60 * int(minutes) + int(seconds) + float(f"0.{fraction}")


class Clock:
    """When the source had come up to a position: where nothing else is known, now."""

    def __init__(self) -> None:
        self._began = perf_counter()
        self._times: array[float] | None = None  # of each character
        self._let_go = 0.0  # when a pause was noticed

    def at(self, position: int) -> float:
        """Seconds after the beginning."""
        if self._times is None:
            return perf_counter() - self._began
        known = self._times[min(position, len(self._times)) - 1] if position and self._times else 0.0
        return max(known, self._let_go)

    def by_rate(self, chunks: Iterable[str | None], unit: Unit, rate: float) -> Iterator[str | None]:
        """Have a text come at `rate` units a second."""
        self._times, now, is_inside = array("d"), 0.0, False
        for chunk in chunks:
            for character in chunk or "":
                is_space = character.isspace()
                now += (not is_space and not (unit == "word" and is_inside)) / rate
                is_inside = not is_space
                self._times.append(now)
            yield chunk

    def by_cues(self, cues: Iterable[Cue], between: str, pause: float) -> Iterator[str | None]:
        """Have cues come when they are said, each of their characters in its turn; None for a pause between two."""
        self._times, now = array("d"), None
        for cue in cues:
            text = cue.text.removeprefix("\n") if now is None else cue.text
            if now is not None and not text.startswith("\n"):
                text = between + text
            if now is not None and cue.begin - now >= pause:
                self._let_go = now + pause
                yield None
            begin, end = max(cue.begin, now or 0.0), max(cue.end, now or 0.0)
            self._times.extend(begin + (end - begin) * (i + 1) / len(text) for i in range(len(text)))
            now = end
            yield text


class CaptionFile:
    """Writes a translation down as cues, each as soon as the next one is known.

    Args:
        path: of the file; its ending says the format.
    """

    def __init__(self, path: str, clock: Clock) -> None:
        self.clock, self.is_vtt = clock, path.lower().endswith(".vtt")
        self.file = open(path, "w", encoding="utf-8", newline="\n")  # noqa: SIM115, see `close`
        self.file.write("WEBVTT\n\n" if self.is_vtt else "")
        self.number, self._sentence = 0, -1
        self._words: list[tuple[str, float, float]] = []  # of the cue at hand, each with its first and last time
        self._last: Cue | None = None  # its end is known when the next one begins

    def take(self, live: LiveEvent | LineEnd) -> None:
        """Take down what an event writes."""
        if isinstance(live, LiveEvent) and isinstance(live.event, Write | End):
            if live.event.stream != self._sentence:
                self._end_cue()
                self._sentence = live.event.stream
            self.write(live.event.text, self.clock.at(live.position))

    def write(self, text: str, now: float) -> None:
        """Take down what was written of a sentence at a time in seconds."""
        for piece in _PIECES.findall(text):
            if self._words and now - self._words[-1][2] > SILENCE:
                self._end_cue()
            if self._words and joins(self._words[-1][0], piece):
                word, first, _ = self._words[-1]
                self._words[-1] = word + piece, first, now
            else:
                self._words.append((piece, now, now))
            if len(self._words) > 1 and len(broken([word for word, *_ in self._words], LINE)) > LINES:
                *self._words, newest = self._words
                self._end_cue()
                self._words = [newest]

    def _end_cue(self) -> None:
        words, self._words = [one for one in self._words if one[0].strip()], []
        if not words:
            return
        text = "\n".join(balanced([word for word, *_ in words]))
        begin = max(words[0][1], self._last.begin + LEAST if self._last else 0.0)
        self._write_last(begin)
        end = max(words[-1][2] + AFTER, begin + max(LEAST, terminal_width(text) / PACE))
        self._last = Cue(begin, end, text)

    def _write_last(self, before: float = float("inf")) -> None:
        if self._last is None:
            return
        self.number += 1
        begin, end = self._last.begin, min(self._last.end, before)
        text = html.escape(self._last.text, quote=False) if self.is_vtt else self._last.text
        self.file.write(f"{self.number}\n{self._time(begin)} --> {self._time(end)}\n{text}\n\n")
        self.file.flush()

    def _time(self, seconds: float) -> str:
        whole, thousandths = divmod(round(1000 * seconds), 1000)
        mark = "." if self.is_vtt else ","
        return f"{whole // 3600:02}:{whole // 60 % 60:02}:{whole % 60:02}{mark}{thousandths:03}"

    def close(self) -> None:
        """Write the rest down, also where an error or Ctrl-C ended the translation."""
        self._end_cue()
        self._write_last()
        self.file.close()


def joins(word: str, piece: str) -> bool:
    """Whether no line may end between a word and the text behind it."""
    if piece[0].isspace() or terminal_width(word + piece) > LINE:
        return False
    if category(piece[0]) in ("Pe", "Pf", "Po") or category(word[-1]) in ("Ps", "Pi"):
        return True
    return not (_WIDE.match(piece[0]) or _WIDE.match(word[-1]))


def broken(words: Iterable[str], width: int) -> list[str]:
    """Words in lines of at most so many columns; one that is wider has a line of its own."""
    lines = [""]
    for word in words:
        if lines[-1].strip() and terminal_width((lines[-1] + word).strip()) > width:
            lines.append("")
        lines[-1] += word
    return [line.strip() for line in lines]


def balanced(words: list[str]) -> list[str]:
    """Words of a cue in one line where they fit, else in lines as short as they can be."""
    if len(one := broken(words, LINE)) == 1:
        return one
    return next(lines for width in range(1, LINE + 1) if len(lines := broken(words, width)) <= len(one))
