"""Many speakers at once, each a line of a file: python examples/many_streams.py models/zh-en talks.txt [rate]

Each speaks so many characters a second. One engine translates for all of them, in one step for all.
"""

import asyncio
import sys
from pathlib import Path

import duplexmt


async def interpret(translator: duplexmt.Translator, text: str, rate: float) -> str:
    async with translator.async_stream() as stream:
        written = ""
        for character in text:
            await asyncio.sleep(1 / rate)
            written += await stream.feed(character)
        return written + await stream.finish()


async def main(model: str, talks: str, rate: str = "20") -> None:
    translator = duplexmt.load(model)
    speakers = Path(talks).read_text(encoding="utf-8").splitlines()
    translations = await asyncio.gather(*(interpret(translator, text, float(rate)) for text in speakers))
    print("".join(translations), end="")


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
