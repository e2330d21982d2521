"""Translate simultaneously: `echo 站在那边的男人曾是棒球手。 | python translate.py theta=0.7`."""

import errno
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, closing
from functools import partial
from itertools import chain, islice
from pathlib import Path
from stat import S_ISREG
from typing import TYPE_CHECKING

import hydra
from omegaconf import DictConfig

from duplexmt.command_line import user_errors
from duplexmt.common.arguments import check_arguments, quote_arguments
from duplexmt.config import SUBTITLES, TranslateSettings, register_schemas, settings

if TYPE_CHECKING:
    from duplexmt import LineEnd, LiveEvent, Translator
    from duplexmt.drawing.captions import Clock
    from duplexmt.model_folder.artifact import ModelFolder

register_schemas()
SIDE_BY_SIDE = 64  # lines of a file
NONSENSE = "expect nonsense"  # ends the warning that a text is in another script


@hydra.main(version_base="1.3", config_path="conf", config_name="translate")
def main(cfg: DictConfig) -> None:
    """Show the translation as it grows."""
    with user_errors(stops=True):
        try:
            translate(settings(TranslateSettings, cfg))
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
            places = "standard output" if cfg.captions is None else f"standard output or captions={cfg.captions}"
            raise OSError(
                f"the translation could not be written: no space left where {places} goes; make room, or write it "
                "elsewhere"
            ) from error


def translate(cfg: TranslateSettings) -> None:
    """Translate `text`, a file, or standard input as it arrives: a line out for each line in."""
    if sys.stdout is None or (sys.stdin is None and cfg.text is None and cfg.input is None):
        raise ValueError("standard input or output is closed: give text=…, or another one, such as < FILE and > FILE")
    check_files(cfg.input, cfg.captions)
    from duplexmt.model_folder.default_model import chosen_model
    from duplexmt.model_folder.manifest import check_runs_as, read_manifest

    model_folder = chosen_model(cfg.model_folder)
    check_runs_as(model_folder, read_manifest(model_folder), cfg.run_as)  # before torch is loaded

    import duplexmt
    from duplexmt.drawing.captions import CaptionFile, Clock

    names = ("device", "quantize", "run_as", "setting", "adaptive", "cut")
    limits = ("max_target_tokens", "max_repeats", "max_sentence_tokens")
    how = {name: getattr(cfg, name) for name in (*names, *limits)}
    is_there = is_file(cfg)
    translator = duplexmt.load(model_folder, max_streams=SIDE_BY_SIDE if is_there else 1, **how)
    terminal = Terminal(cfg, translator.loaded)
    with ExitStack() as ends:  # for an error, Ctrl-C or SIGTERM
        ends.callback(terminal.leave_line)
        clock = Clock()
        chunks = iter(source_of(cfg, translator.source_language, clock, terminal.warn_of))
        if is_there and not translator.loaded.tokens.context:  # which a line has of the one before
            translate_lines(translator, lines_of(chunks), cfg.theta, terminal)
            return
        captions: CaptionFile | None = None

        def show(event: "LiveEvent | LineEnd") -> None:
            if captions is not None:
                captions.take(event)
            terminal.show(event)

        live = translator.stream(cfg.theta, on_event=show, on_warning=terminal.warn)
        first = [*islice(chunks, 1)]  # a text that cannot be read is refused before captions are overwritten
        captions = ends.enter_context(closing(CaptionFile(cfg.captions, clock))) if cfg.captions else None
        stream = ends.enter_context(live)
        for chunk in chain(first, chunks):
            if chunk is None:
                stream.pause()
                terminal.tell_cut_off()
            for line in (chunk or "").splitlines(keepends=True):  # so that a warning is of the line at hand
                stream.feed(line)
                terminal.tell_cut_off()
        stream.finish()
        terminal.tell_cut_off()


def is_file(cfg: TranslateSettings) -> bool:
    """Whether all of the text is there, in a file, and nothing is asked for but its translation."""
    if cfg.text is not None or cfg.captions is not None or cfg.events or shows_steps(cfg):
        return False
    if cfg.input is not None:
        return Path(cfg.input).is_file() and not cfg.input.lower().endswith(SUBTITLES)
    return S_ISREG(os.fstat(sys.stdin.fileno()).st_mode)


def lines_of(chunks: Iterable[str | None]) -> Iterator[str]:
    """The lines of a text that comes in pieces, each with its end."""
    rest = ""
    for chunk in chunks:
        *lines, rest = (rest + (chunk or "")).split("\n")
        yield from (f"{line}\n" for line in lines)
    if rest:
        yield rest


def translate_lines(translator: "Translator", lines: Iterable[str], theta: float | None, terminal: "Terminal") -> None:
    """Translate the lines of a text side by side, and show what becomes of each in its turn."""
    from duplexmt.translator.translator import side_by_side

    once, said = (NONSENSE, translator.loaded.settled_tokens.warning), set[str]()

    def warn(message: str) -> None:
        """Warn of the line at hand, as each is a text of its own; of what holds for all, once."""
        kind = NONSENSE if message.endswith(NONSENSE) else message
        if kind not in said:
            terminal.warn(message)
        if kind in once:
            said.add(kind)

    streams = partial(translator.stream, theta, on_event=terminal.show, on_warning=warn)
    with closing(side_by_side(translator, lines, streams)) as translated:
        for _ in translated:
            terminal.tell_cut_off()


def check_files(source: str | None, captions: str | None) -> None:
    """Refuse (ValueError) a file that is not there, and a folder in place of one, before a model is loaded."""
    if source is not None and (not source or not Path(source).exists() or Path(source).is_dir()):
        why = "is no name" if not source else "is a folder" if Path(source).is_dir() else "there is no such file"
        raise ValueError(f"input={source}: {why}; give a file with text, .srt or .vtt, or none for standard input")
    if captions is not None and (Path(captions).is_dir() or not Path(captions).parent.is_dir()):
        where = Path(captions).parent
        raise ValueError(f"captions={captions}: must be a file in a folder that exists; make {where}, or give another")


class Terminal:
    """What is shown: the translation or its steps on standard output, warnings on standard error."""

    def __init__(self, cfg: TranslateSettings, loaded: "ModelFolder") -> None:
        from duplexmt.drawing.staircase import LiveReport

        form = "events" if cfg.events else "steps" if shows_steps(cfg) else "text"
        self.report = LiveReport(sys.stdout, loaded.tokenizer, loaded.tokens.end, form)
        self.cut_off: list[tuple[int, str]] = []  # lines of sentences that were, and why
        self.is_one = sys.stdout.isatty() and sys.stderr.isatty()
        self.messages = {
            "max_target_tokens": f"cut off at {cfg.max_target_tokens} tokens",
            "repetition": "cut off where it repeated itself",
        }

    def show(self, event: "LiveEvent | LineEnd") -> None:
        """Show what the text has led to."""
        from duplexmt import LiveEvent

        line = self.report.line
        if isinstance(event, LiveEvent):
            self.cut_off += [(line, reason) for reason in self.report.show([event])]
        elif not self.report.end_line():
            self.warn_of(line, "no text to translate")

    def tell_cut_off(self) -> None:
        """Warn of sentences whose translation was."""
        for line, reason in self.cut_off:
            self.warn_of(line, self.messages[reason])
        self.cut_off.clear()

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


def source_of(
    cfg: TranslateSettings, language: str, clock: "Clock", warn_of: Callable[[int, str], None]
) -> Iterable[str | None]:
    """The text as it arrives, None for a pause; the clock is told when it does, where the settings say so."""
    from duplexmt.common.text import UNSPACED
    from duplexmt.drawing.captions import read_cues
    from duplexmt.metrics.units import text_unit
    from duplexmt.translator.pipe import decoded

    if cfg.input is not None and cfg.input.lower().endswith(SUBTITLES):
        with open(cfg.input, "rb") as file:
            text = "".join(part or "" for part in decoded([file.read()], warn_of, cfg.input))
        between = "" if language in UNSPACED else " "
        return clock.by_cues(read_cues(text, cfg.input, between), between, cfg.pause)
    chunks = chunks_of(cfg, warn_of)
    return chunks if cfg.source_rate is None else clock.by_rate(chunks, text_unit(language), cfg.source_rate)


def chunks_of(cfg: TranslateSettings, warn_of: Callable[[int, str], None]) -> Iterator[str | None]:
    """The characters of the text, the input or standard input as they arrive; None for a pause."""
    from duplexmt.translator.pipe import arriving, decoded

    if cfg.text is not None:  # in an argument Python lets bytes that are not UTF-8 pass as surrogates
        yield from decoded([cfg.text.encode("utf-8", "surrogateescape")], warn_of)
    elif cfg.input is not None:
        with open(cfg.input, "rb") as file:
            yield from arriving(file.fileno(), cfg.pause, warn_of)
    else:
        yield from arriving(sys.stdin.fileno(), cfg.pause, warn_of)


if __name__ == "__main__":
    with user_errors():
        sys.argv[1:] = check_arguments(TranslateSettings, quote_arguments(sys.argv[1:]))
    main()
