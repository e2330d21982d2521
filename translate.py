"""Translate simultaneously: `echo 站在那边的男人曾是棒球手。 | python translate.py theta=0.7`."""

import sys
from collections.abc import Iterable, Iterator

import hydra
from omegaconf import DictConfig

from duplexmt.command_line import check_arguments, quote_arguments, user_errors
from duplexmt.config import TranslateSettings, register_schemas, settings

register_schemas()


@hydra.main(version_base="1.3", config_path="conf", config_name="translate")
def main(cfg: DictConfig) -> None:
    """Show the translation as it grows."""
    with user_errors():
        translate(settings(TranslateSettings, cfg))


def translate(cfg: TranslateSettings) -> None:
    """Translate `text`, or standard input as it arrives: a line out for each line in."""
    from data_prep import clean_side
    from data_prep.cleaning import simplify_as_read
    from data_prep.live import settled_side
    from data_prep.rules import UNSPACED, invisible
    from duplexmt.corpus.evaluation_files import simplifies_sources
    from duplexmt.drawing.live_report import LiveReport
    from duplexmt.model_folder.artifact import load_model_folder
    from duplexmt.model_folder.devices import choose_device
    from duplexmt.policy.knobs import recorded_theta
    from duplexmt.streaming.engine import Engine
    from duplexmt.streaming.live import LiveTranslator, longest_sentence
    from duplexmt.streaming.pipe import arriving, decoded

    loaded = load_model_folder(cfg.model_folder, choose_device(cfg.device), cfg.anchor, cfg.any_anchor)
    data, tokenizer = loaded.info["data"], loaded.tokenizer
    if loaded.info["system"] != "grid":
        raise ValueError(
            f"model_folder={cfg.model_folder} holds a {loaded.info['system']} model: live translation needs a grid "
            "model; python evaluate.py decodes the others"
        )
    form = "events" if cfg.events else "steps" if cfg.steps else "text"
    between = "" if data["target_language"] in UNSPACED else " "
    report = LiveReport(sys.stdout, tokenizer, loaded.tokens.end, form, between)

    one_terminal = sys.stdout.isatty() and sys.stderr.isatty()

    def leave_line() -> None:
        """Have what is said next begin a line of its own, where the translation is on the same terminal."""
        if one_terminal and report.line_is_open:
            print(file=sys.stderr)
            report.line_is_open = False

    def warn(line: int, message: str) -> None:
        leave_line()
        print(f"line {line}: {message}", file=sys.stderr, flush=True)

    engine = Engine(
        loaded.model,
        loaded.tokens,
        theta=recorded_theta(loaded.info) if cfg.theta is None else cfg.theta,
        max_target_tokens=cfg.max_target_tokens,
        max_streams=1,
        max_repeats=cfg.max_repeats,
        typical_source_length=loaded.typical_source_length,
        tokenizer=tokenizer,
    )
    simplified = simplifies_sources(data)

    def clean(text: str) -> str:
        text = clean_side(text, data["source_language"])
        return simplify_as_read(text) if simplified else text

    def settled(text: str) -> str:
        text = settled_side(text, data["source_language"])
        return simplify_as_read(text) if simplified else text

    as_trained = min(data["max_tokens"], longest_sentence(engine))
    translator = LiveTranslator(
        engine,
        loaded.sources,
        clean,
        settled,
        max_sentence_tokens=as_trained if cfg.max_sentence_tokens is None else cfg.max_sentence_tokens,
        cut=cfg.cut,
        warn=lambda message: warn(report.line, message),
        invisible=lambda character: invisible(character, data["source_language"]),
    )
    messages = {
        "max_target_tokens": f"cut off at {cfg.max_target_tokens} tokens",
        "repetition": "cut off where it repeated itself",
    }
    whole = cfg.whole or cfg.text is not None
    if cfg.text is None:
        chunks = arriving(sys.stdin.fileno(), cfg.pause, warn)
    else:  # in an argument Python lets bytes that are not UTF-8 pass as surrogates
        chunks = decoded([cfg.text.encode("utf-8", "surrogateescape")], warn)
    try:
        for part in whole_lines(chunks) if whole else by_lines(chunks):
            if part is None:
                events = translator.pause()
            else:
                events = translator.whole(part.removesuffix("\n")) if whole else translator.feed(part)
            line, stopped = report.line, report.show(events)
            if part is not None and part.endswith("\n") and not report.end_line():
                warn(line, "no text to translate")
            for reason in stopped:
                warn(line, messages[reason])
    finally:
        leave_line()  # for an error, or Ctrl-C


def by_lines(chunks: Iterable[str | None]) -> Iterator[str | None]:
    """Chunks of text cut behind line ends, which stay; the last line ends, too, if there is one."""
    open_line = False
    for chunk in chunks:
        if chunk is None:
            yield None
            continue
        for part in chunk.splitlines(keepends=True):
            yield part
            open_line = not part.endswith("\n")
    if open_line:
        yield "\n"


def whole_lines(chunks: Iterable[str | None]) -> Iterator[str | None]:
    """The same, but no line before it has ended."""
    line = ""
    for part in by_lines(chunk for chunk in chunks if chunk is not None):
        line += part or ""
        if line.endswith("\n"):
            yield line
            line = ""


if __name__ == "__main__":
    with user_errors():
        sys.argv[1:] = check_arguments(TranslateSettings, quote_arguments(sys.argv[1:]))
    main()
