"""Translate simultaneously: `echo 站在那边的男人曾是棒球手。 | python translate.py theta=0.7`."""

import json
import sys
from collections.abc import Iterator

import hydra
from omegaconf import DictConfig

from duplexmt.config import TranslateSettings, quote_arguments, register_schemas, settings, user_errors

register_schemas()


@hydra.main(version_base="1.3", config_path="conf", config_name="translate")
def main(cfg: DictConfig) -> None:
    """Show each sentence's translation as it grows."""
    with user_errors():
        translate(settings(TranslateSettings, cfg))


def translate(cfg: TranslateSettings) -> None:
    """Translate `text`, or every line of standard input."""
    from data_prep import clean_side
    from duplexmt.artifact import load_model_folder
    from duplexmt.data.tokenizer import token_ids
    from duplexmt.report.steps import event_line, staircase
    from duplexmt.streaming.events import End, Write
    from duplexmt.streaming.systems import build_system
    from duplexmt.streaming.text import GrowingText
    from duplexmt.training.run import choose_device

    loaded = load_model_folder(cfg.model_folder, choose_device(cfg.device))
    data, tokenizer = loaded.info["data"], loaded.tokenizer
    system = build_system(loaded, "grid", cfg.theta, max_target_tokens=cfg.max_target_tokens)
    for number, line in lines(cfg.text):
        text = clean_side(line, data["source_language"]) if line else ""
        ids = token_ids(tokenizer, [text])[0] if text else []
        if not ids:
            print(f"line {number}: no text to translate", file=sys.stderr)
            if not cfg.events:
                print()
            continue
        if data["max_tokens"] and len(ids) > data["max_tokens"]:
            print(
                f"line {number}: {len(ids)} tokens, the model was trained on at most {data['max_tokens']}: expect a "
                "poor translation, or cut the sentence",
                file=sys.stderr,
            )
        events = system.translate([ids])
        if cfg.events:
            growing = GrowingText(tokenizer)
            for event in events:
                print(
                    json.dumps({"line": number} | event_line(event, tokenizer, growing), ensure_ascii=False), flush=True
                )
        elif cfg.steps:
            print(f"{text}\n{staircase(events, tokenizer, loaded.tokens.end)}\n", flush=True)
        else:
            growing = GrowingText(tokenizer)
            for event in events:
                if isinstance(event, Write):
                    print(growing.add(event.token), end="", flush=True)
                elif isinstance(event, End) and event.reason != "end_token":
                    print(f"line {number}: cut off at {cfg.max_target_tokens} tokens", file=sys.stderr)
            print(growing.finish(), flush=True)


def lines(text: str | None) -> Iterator[tuple[int, str]]:
    """Numbered sentences: the given text, or standard input; a line that is not UTF-8 is reported and left empty."""
    if text is not None:
        yield 1, text
        return
    for number, raw in enumerate(sys.stdin.buffer, start=1):
        try:
            yield number, raw.decode("utf-8").strip("\ufeff\r\n")
        except UnicodeDecodeError as error:
            print(f"line {number}: not UTF-8 ({error.reason} at byte {error.start})", file=sys.stderr)
            yield number, ""


if __name__ == "__main__":
    sys.argv[1:] = quote_arguments(sys.argv[1:])
    main()
