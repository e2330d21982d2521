"""Subtitles from lines "seconds<TAB>what was said": python examples/subtitles.py models/zh-en said.tsv out.srt

A sentence is shown from its first word on, for a second at least, until the next one has its own. Words come when the
line was said that the model needed for them, so the times are those of a live talk (of a computer that takes no time).
"""

import sys
from pathlib import Path

import duplexmt


def clock(seconds: float) -> str:
    whole, thousandths = divmod(round(1000 * seconds), 1000)
    return f"{whole // 3600:02}:{whole // 60 % 60:02}:{whole % 60:02},{thousandths:03}"


def main(model: str, said: str, out: str) -> None:
    shown: dict[int, tuple[float, str]] = {}  # by sentence: since when, and its text
    seconds = 0.0
    with duplexmt.load(model).stream() as stream:
        for line in [*filter(None, Path(said).read_text(encoding="utf-8").splitlines()), ""]:
            time, _, text = line.partition("\t")
            seconds = float(time) if line else seconds
            stream.feed(text) if line else stream.finish()
            for one in stream.events:
                if isinstance(one, duplexmt.LiveEvent) and one.text.strip():
                    earliest = max((since + 1 for since, _ in shown.values()), default=seconds)
                    since, before = shown.get(one.event.stream, (max(seconds, earliest), ""))
                    shown[one.event.stream] = since, before + one.text
    ends = [*[since for since, _ in shown.values()][1:], seconds + 3]
    cues = zip(shown.values(), ends, strict=True)
    spans = ((clock(t), clock(max(end, t + 1)), text.strip()) for (t, text), end in cues)
    blocks = (f"{n}\n{begin} --> {end}\n{text}\n" for n, (begin, end, text) in enumerate(spans, 1))
    Path(out).write_text("\n".join(blocks), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
