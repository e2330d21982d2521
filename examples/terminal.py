"""Translate what is typed, or piped in, as it comes: python examples/terminal.py models/zh-en [theta]"""

import sys

import duplexmt


def show(event: duplexmt.LiveEvent | duplexmt.LineEnd) -> None:
    print(event.text, end="", flush=True)


def main(model: str, theta: str | None = None) -> None:
    translator = duplexmt.load(model)
    print(f"{translator.source_language} → {translator.target_language}", file=sys.stderr)
    with translator.stream(None if theta is None else float(theta), on_event=show) as stream:
        for line in sys.stdin:
            stream.feed(line)
        stream.finish()


if __name__ == "__main__":
    main(*sys.argv[1:])
