"""Translate a file by a live server (python serve.py): python examples/client.py ws://127.0.0.1:8000/v1/live in.txt"""

import sys
from pathlib import Path

import duplexmt


def main(address: str, source: str) -> None:
    with duplexmt.Client(address) as client:
        client.send(Path(source).read_text(encoding="utf-8"))
        client.end()
        for event in client:
            print(event["text"], end="", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
