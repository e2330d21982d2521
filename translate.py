"""Translate simultaneously: `echo 站在那边的男人曾是棒球手。 | python translate.py theta=0.7`."""

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, closing
from typing import TYPE_CHECKING, Any

import hydra
from omegaconf import DictConfig

from data_prep.arguments import check_arguments, quote_arguments
from duplexmt.command_line import user_errors
from duplexmt.config import SUBTITLES, TranslateSettings, register_schemas, settings

if TYPE_CHECKING:
    from duplexmt.drawing.captions import Clock
    from duplexmt.model_folder.artifact import ModelFolder
    from duplexmt.streaming.live import LiveEvent, LiveTranslator

register_schemas()


@hydra.main(version_base="1.3", config_path="conf", config_name="translate")
def main(cfg: DictConfig) -> None:
    """Show the translation as it grows."""
    with user_errors():
        translate(settings(TranslateSettings, cfg))


def translate(cfg: TranslateSettings) -> None:
    """Translate `text`, or standard input as it arrives: a line out for each line in."""
    if sys.stdout is None or (sys.stdin is None and cfg.text is None and cfg.input is None):
        raise ValueError("standard input or output is closed: give text=…, or another one, such as < FILE and > FILE")
    from duplexmt.drawing.captions import CaptionFile, Clock
    from duplexmt.model_folder.live import load_live_model

    loaded = load_live_model(cfg.model_folder, cfg.device, cfg.anchor, cfg.any_anchor, cfg.quantize, cfg.run_as)
    terminal = Terminal(cfg, loaded)
    translator = live_translator(cfg, loaded, terminal.warn)
    with ExitStack() as ends:  # for an error, or Ctrl-C
        ends.callback(terminal.leave_line)
        clock = Clock()
        chunks = source_of(cfg, loaded.info["data"]["source_language"], clock, terminal.warn_of)
        captions = ends.enter_context(closing(CaptionFile(cfg.captions, clock))) if cfg.captions else None
        for part in by_lines(chunks):
            events = translator.pause() if part is None else translator.feed(part)
            events = events if captions is None else captions.through(events)
            terminal.show(events, line_ends=part is not None and part.endswith("\n"))


class Terminal:
    """What is shown: the translation or its steps on standard output, warnings on standard error."""

    def __init__(self, cfg: TranslateSettings, loaded: "ModelFolder") -> None:
        from data_prep.rules import UNSPACED
        from duplexmt.drawing.staircase import LiveReport

        form = "events" if cfg.events else "steps" if shows_steps(cfg) else "text"
        between = "" if loaded.info["data"]["target_language"] in UNSPACED else " "
        self.report = LiveReport(sys.stdout, loaded.tokenizer, loaded.tokens.end, form, between)
        self.is_one = sys.stdout.isatty() and sys.stderr.isatty()
        self.messages = {
            "max_target_tokens": f"cut off at {cfg.max_target_tokens} tokens",
            "repetition": "cut off where it repeated itself",
        }

    def show(self, events: "Iterable[LiveEvent]", line_ends: bool) -> None:
        """Show what a part of the text has led to."""
        line, stopped = self.report.line, self.report.show(events)
        if line_ends and not self.report.end_line():
            self.warn_of(line, "no text to translate")
        for reason in stopped:
            self.warn_of(line, self.messages[reason])

    def warn(self, message: str) -> None:
        """Warn of the line at hand."""
        self.warn_of(self.report.line, message)

    def warn_of(self, line: int, message: str) -> None:
        """Warn of a line."""
        self.leave_line()
        print(f"line {line}: {message}", file=sys.stderr, flush=True)

    def leave_line(self) -> None:
        """Have what is said next begin a line of its own, where the translation is on the same terminal."""
        if self.is_one and self.report.line_is_open:
            print(file=sys.stderr)
            self.report.line_is_open = False


def shows_steps(cfg: TranslateSettings) -> bool:
    """Whether steps are shown: as asked; else on a terminal, unless one types there."""
    if cfg.steps is not None:
        return cfg.steps
    return sys.stdout.isatty() and (cfg.text is not None or cfg.input is not None or not sys.stdin.isatty())


def live_translator(cfg: TranslateSettings, loaded: "ModelFolder", warn: Callable[[str], None]) -> "LiveTranslator":
    """From text as it arrives to events: a driver with one text."""
    from duplexmt.model_folder.live import live_engine, live_text
    from duplexmt.streaming.live import LiveDriver

    how: dict[str, Any] = {"run_as": cfg.run_as, "setting": cfg.setting, "adaptive": cfg.adaptive}
    engine = live_engine(loaded, cfg.theta, cfg.max_target_tokens, cfg.max_repeats, max_streams=1, **how)
    text = live_text(loaded, engine, cfg.max_sentence_tokens, cfg.cut, warn)
    if cfg.run_as == "alignatt" and cfg.setting > text.limit:
        raise ValueError(
            f"setting={cfg.setting}: f of alignatt is more than the {text.limit} tokens a sentence may have: nothing "
            f"would be written before its end; give at most {text.limit}, or run_as=offline"
        )
    return LiveDriver(engine).join(text)


def source_of(
    cfg: TranslateSettings, language: str, clock: "Clock", warn_of: Callable[[int, str], None]
) -> Iterable[str | None]:
    """The text as it arrives, None for a pause; the clock is told when it does, where the settings say so."""
    from data_prep.rules import UNSPACED
    from duplexmt.drawing.captions import read_cues
    from duplexmt.metrics.units import text_unit
    from duplexmt.streaming.pipe import decoded

    if cfg.input is not None and cfg.input.lower().endswith(SUBTITLES):
        with open(cfg.input, "rb") as file:
            text = "".join(part or "" for part in decoded([file.read()], warn_of))
        between = "" if language in UNSPACED else " "
        return clock.by_cues(read_cues(text, cfg.input, between), between, cfg.pause)
    chunks = chunks_of(cfg, warn_of)
    return chunks if cfg.source_rate is None else clock.by_rate(chunks, text_unit(language), cfg.source_rate)


def chunks_of(cfg: TranslateSettings, warn_of: Callable[[int, str], None]) -> Iterator[str | None]:
    """The characters of the text, the input or standard input as they arrive; None for a pause."""
    from duplexmt.streaming.pipe import arriving, decoded

    if cfg.text is not None:  # in an argument Python lets bytes that are not UTF-8 pass as surrogates
        yield from decoded([cfg.text.encode("utf-8", "surrogateescape")], warn_of)
    elif cfg.input is not None:
        with open(cfg.input, "rb") as file:
            yield from arriving(file.fileno(), cfg.pause, warn_of)
    else:
        yield from arriving(sys.stdin.fileno(), cfg.pause, warn_of)


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


if __name__ == "__main__":
    with user_errors():
        sys.argv[1:] = check_arguments(TranslateSettings, quote_arguments(sys.argv[1:]))
    main()
