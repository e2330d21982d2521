"""What is written when, as an SVG that moves: python examples/moving_picture.py models/zh-en 0.3 TEXT out.svg

The text comes at three characters a second, and each word appears where the model wrote it.
"""

import sys
from html import escape
from pathlib import Path

import duplexmt

Parts = list[tuple[float, str]]  # seconds, and what came then
RATE, PAUSE = 3.0, 4.0  # characters a second; seconds at the end
STYLE = "text{font:22px system-ui,sans-serif;fill:#1f2328;white-space:pre} .label{font-size:13px;fill:#6a737d}"
DARK = "@media (prefers-color-scheme:dark){text{fill:#e6edf3} .label{fill:#9198a1}}"
APPEAR = '<animate attributeName="fill-opacity" calcMode="discrete" values="0;1" repeatCount="indefinite"'


def line(y: int, label: str, parts: Parts, whole: float) -> str:
    keys = [f'{APPEAR} dur="{whole:.2f}s" keyTimes="0;{seconds / whole:.4f}"/>' for seconds, _ in parts]
    spans = "".join(f"<tspan>{escape(text)}{key}</tspan>" for (_, text), key in zip(parts, keys, strict=True) if text)
    return f'<text class="label" x="12" y="{y - 26}">{label}</text><text x="12" y="{y}">{spans}</text>'


def main(model: str, theta: str, text: str, out: str) -> None:
    heard: Parts = [(number / RATE, character) for number, character in enumerate(text, 1)]
    with duplexmt.load(model).stream(theta=float(theta)) as stream:
        written = [(seconds, stream.feed(character)) for seconds, character in heard]
        written.append(((len(text) + 1) / RATE, stream.finish()))
    written = [(seconds, "".join(filter(str.isprintable, part))) for seconds, part in written]  # XML has no others
    whole, translation = written[-1][0] + PAUSE, "".join(part for _, part in written)
    lines = line(48, "heard", heard, whole) + line(104, "written meanwhile", written, whole)
    size = f'width="{40 + 12 * max(2 * len(text), len(translation))}" height="118"'
    title = f"<title>{escape(text)}: {escape(translation)}</title><style>{STYLE}{DARK}</style>"
    Path(out).write_text(f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">{title}{lines}</svg>\n', "utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
