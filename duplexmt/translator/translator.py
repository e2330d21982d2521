"""A model that translates: whole texts, and texts that are still arriving; see docs/reference/api.md.

    translator = duplexmt.load("models/zh-en")
    with translator.stream(theta=0.7) as stream:
        for part in ("站在那边的男人", "曾是棒球手。"):
            print(stream.feed(part), end="", flush=True)
        print(stream.finish(), end="")

One thread of its own steps the engine, for all texts at once; whoever has given one text waits for what it brings.
"""

import asyncio
import logging
import os
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from functools import partial
from itertools import count, islice
from pathlib import Path
from queue import SimpleQueue
from threading import Lock
from typing import Any, Self
from weakref import WeakKeyDictionary

from ..common.text import check_position, check_text
from ..decoder.decoder_options import check_quantize
from ..model_folder.artifact import ModelFolder
from ..model_folder.live_model import live_engine, live_text, load_live_model
from ..policy.decoding_options import TARGET_TOKENS, Adaptive, check_run_as, check_theta, check_whole
from ..streaming.engine import Engine
from ..streaming.events import End
from ..streaming.live import LiveDriver, LiveEvent, LiveTranslator
from ..streaming.live_text import LINE_ENDS, LineEnd

log = logging.getLogger("duplexmt")
ADAPTIVE = Adaptive(k_min=1, k_max=4, alpha=0.6, divergence="paper")  # as conf/adaptive/default.yaml has them
Give = Callable[[LiveTranslator], None]  # gives a text what has come for it; ValueError where that cannot be
Tell = Callable[[Any], object]  # takes what a text brings, one by one, errors too; and then what gave it


def load(
    model_folder: str | Path,
    *,
    device: str = "auto",
    quantize: str | None = None,
    run_as: str | None = None,
    setting: float | None = None,
    adaptive: Adaptive | None = None,
    max_streams: int = 64,
    max_target_tokens: int = TARGET_TOKENS,
    max_repeats: int | None = 8,
    max_sentence_tokens: int | None = None,
    cut: bool = True,
) -> "Translator":
    """Load a trained model.

    Args:
        model_folder: its folder, or `owner/name` or `owner/name@revision` on the Hugging Face hub.
        device: `auto` takes a GPU where there is one.
        quantize: `int8`, on a CPU, or `bfloat16`; None for weights as they are.
        run_as: what a model that is no grid is run as: waitk, offline, local_agreement, confidence, lsg, alignatt or
            hold.
        setting: of that system: k of waitk, n of local_agreement and hold, ρ of confidence, δ of lsg, f of alignatt.
        adaptive: what confidence and LSG have beside it.
        max_streams: sentences translated side by side; further ones wait for their turn.
        max_target_tokens: at which the translation of a sentence is cut off.
        max_repeats: how often in a row the same tokens may be written; None for as often as the model likes.
        max_sentence_tokens: at which a sentence is cut; None for as long ones as the model was trained on.
        cut: whether sentences end at full stops too, not at line ends only.

    Raises:
        ValueError: for a folder or name without a whole model, and a value that breaks its rule.
    """
    if not isinstance(model_folder, str | Path) or not str(model_folder):
        raise ValueError(
            f"model_folder={model_folder!r}: must be a folder, such as models/zh-en, or a hub's owner/name"
        )
    check_run_as(run_as, setting)
    check_whole("max_streams", max_streams)
    check_whole("max_target_tokens", max_target_tokens)
    if not isinstance(cut, bool):
        raise ValueError(f"cut={cut!r}: must be True or False")
    if not isinstance(adaptive, Adaptive | None):
        raise ValueError(f"adaptive={adaptive!r}: must be an Adaptive of duplexmt.policy.decoding_options, or None")
    check_quantize(quantize)
    loaded = load_live_model(model_folder, device, quantize, run_as)
    how: dict[str, Any] = {"run_as": run_as, "setting": setting, "adaptive": adaptive or ADAPTIVE}
    engine = live_engine(loaded, max_target_tokens, max_repeats, max_streams=max_streams, **how)
    translator = Translator(loaded, engine, max_sentence_tokens, cut)
    if run_as == "alignatt" and setting > translator.max_sentence_tokens:  # type: ignore[operator]
        raise ValueError(
            f"setting={setting}: f of alignatt is more than the {translator.max_sentence_tokens} tokens a sentence may "
            f"have: nothing would be written before its end; give at most {translator.max_sentence_tokens}, or "
            "run_as=offline"
        )
    return translator


class Translator:
    """A loaded model; made by `load`. Its methods may be called from any thread.

    Attributes:
        source_language, target_language: such as zh and en.
        theta: EMIT threshold where none is given; None for a model that is no grid.
        max_sentence_tokens: at which a sentence of the source is cut.
        loaded: the model folder, of which nothing is promised.
    """

    def __init__(self, loaded: ModelFolder, engine: Engine, max_sentence_tokens: int | None, cut: bool) -> None:
        self.loaded, self.theta = loaded, engine.theta
        self.source_language = loaded.info["data"]["source_language"]
        self.target_language = loaded.info["data"]["target_language"]
        self._cut_at = max_sentence_tokens, cut
        self._failures: deque[str] = deque()
        # A stream that has nothing to do is lent at once: so whoever waits for one is never left waiting.
        self._driver = LiveDriver(engine, park_after=0.0, failed=self._failures.append)
        self._thread = ThreadPoolExecutor(1, "duplexmt")
        self._process = os.getpid()  # whose thread it is
        self._lock, self._works = Lock(), False
        self._asked: list[Callable[[], None]] = []
        self._told: dict[LiveTranslator, Give] = {}  # texts at work, and what they were given; the thread's alone
        # Whom to tell of each text that was given something: another θ may make one write that nobody waits for.
        self._tells: WeakKeyDictionary[LiveTranslator, Tell] = WeakKeyDictionary()
        self.max_sentence_tokens = self._join(None, lambda message: None).text.limit  # and its checks

    def translate(self, texts: Iterable[str], theta: float | None = None) -> list[str]:
        """The translations of texts, in their order; each is cut into lines and sentences as a stream is.

        Args:
            texts: any number, of any length; what of one could not be translated whole is logged.
            theta: EMIT threshold, 0 to 1; None for the model's own.

        Raises:
            ValueError: for a text that is none, and θ outside [0, 1].
        """
        return list(self.translate_each(texts, theta))

    def translate_each(self, texts: Iterable[str], theta: float | None = None) -> Iterator[str]:
        """The same one by one: of `texts`, which may go on for ever, only so many are taken as are needed to keep the
        engine busy."""
        if isinstance(texts, str | bytes) or not isinstance(texts, Iterable):
            raise ValueError(f"texts={str(texts)[:40]!r}: give a list of texts, such as [{str(texts)[:10]!r}]")
        numbers = count(1)

        def opened() -> Stream:
            return self.stream(theta, on_warning=partial(log.warning, "text %d: %s", next(numbers)))

        with closing(side_by_side(self, texts, opened)) as translated:
            for text, stream, translation in translated:
                for event in stream.events:
                    end = event.event if isinstance(event, LiveEvent) else None
                    if isinstance(end, End) and end.reason != "end_token":
                        stream._warn(f"the translation of a sentence was cut off ({end.reason})")
                yield translation if text.endswith(tuple(LINE_ENDS)) else translation.removesuffix("\n")

    def stream(
        self,
        theta: float | None = None,
        *,
        on_event: Callable[[LiveEvent | LineEnd], None] | None = None,
        on_warning: Callable[[str], None] = log.warning,
    ) -> "Stream":
        """A text that is still arriving; use it in a `with` block, which forgets it at the end.

        Args:
            theta: EMIT threshold, 0 to 1; None for the model's own.
            on_event: is called with each event as soon as it is there, by who waits for the text.
            on_warning: is told, likewise, what goes wrong with the text, such as that a sentence is too long.

        Raises:
            ValueError: for θ outside [0, 1], or of a model that has none.
        """
        return Stream(self, theta, on_event, on_warning)

    def async_stream(
        self,
        theta: float | None = None,
        *,
        on_event: Callable[[LiveEvent | LineEnd], None] | None = None,
        on_warning: Callable[[str], None] = log.warning,
    ) -> "AsyncStream":
        """The same for asyncio."""
        return AsyncStream(self, theta, on_event, on_warning)

    # --- what streams call -------------------------------------------------------------------------------------------

    def _join(self, theta: float | None, warn: Callable[[str], None]) -> LiveTranslator:
        text = live_text(self.loaded, self._driver.engine, *self._cut_at, warn)
        return self._driver.join(text, theta=None if theta is None else self._checked(theta))

    def _checked(self, theta: float) -> float:
        if self.theta is None:
            raise ValueError(f"theta={theta}: only a grid has a θ; this model is run as another system: leave it out")
        return check_theta(theta, "theta")

    def _give(self, live: LiveTranslator, give: Give, tell: Tell) -> None:
        """Have a text given something, and tell what comes of it until it waits for more."""

        def do() -> None:
            self._told[live], self._tells[live] = give, tell
            try:
                give(live)
            except CannotReplace as refusal:
                refusal.give = give
                self._tell(live, refusal)

        self._ask(do)

    def _forget(self, live: LiveTranslator) -> None:
        def forget() -> None:
            live.close()
            self._end(live)

        if self._process == os.getpid():
            self._ask(forget)

    def _ask(self, do: Callable[[], None]) -> None:
        """Have the thread do something before its next step."""
        if self._process != os.getpid():
            raise ValueError(
                "this model was loaded before a fork, and threads are not forked: load it in the child process, or "
                'start that by multiprocessing.get_context("spawn")'
            )
        with self._lock:
            self._asked.append(do)
            if not self._works:
                self._works = True
                self._thread.submit(self._work)

    # --- the thread --------------------------------------------------------------------------------------------------

    def _work(self) -> None:
        """Step until no text that was given something can go on."""
        while True:
            with self._lock:
                asked, self._asked = self._asked, []
                self._works = bool(asked or self._told)
                if not self._works:
                    return
            try:
                for do in asked:
                    do()
                for live, found in self._driver.step():
                    self._tell(live, found)
                    if isinstance(found, LiveEvent) and isinstance(found.event, End) and found.event.reason == "failed":
                        self._tell(live, ValueError(self._failures.popleft()))
                over = [live for live in self._told if not self._goes_on(live)]
            except Exception as error:  # whatever it is, those who wait for it are told
                for live in self._told:
                    self._tell(live, error)
                    live.close()
                over = [*self._told]
            for live in over:
                self._end(live)

    def _goes_on(self, live: LiveTranslator) -> bool:
        return live in self._driver.due or live in self._driver.queue or live.can_step()

    def _tell(self, live: LiveTranslator, one: Any) -> None:
        try:
            if (tell := self._tells.get(live)) is not None:
                tell(one)
        except RuntimeError:  # the event loop of who waited has been closed
            live.close()

    def _end(self, live: LiveTranslator) -> None:
        """Whoever waits for a text need wait no longer."""
        if live in self._told:
            self._tell(live, self._told.pop(live))


def side_by_side(
    translator: Translator, texts: Iterable[str], opened: Callable[[], "Stream"]
) -> Generator[tuple[str, "Stream", str], None, None]:
    """Translate texts, each in a stream that `opened` makes of the translator; whole ones, in their order. What the
    streams tell is told in this order, too, by who waits for the translations."""
    waiting: deque[tuple[str, Stream, Give]] = deque()
    coming = iter(texts)
    try:
        while True:
            for text in islice(coming, 2 * translator._driver.engine.max_streams - len(waiting)):
                stream = opened()
                give = stream._ended(text)
                waiting.append((text, stream, give))
                stream._begin(give, stream._found.put)
            if not waiting:
                return
            text, stream, give = waiting[0]
            translation = stream._answer(give)
            waiting.popleft()
            yield text, stream, translation
    finally:
        for _, stream, _ in waiting:
            stream.close()


class CannotReplace(ValueError):
    """The source may not be replaced from that position on; the stream goes on."""

    give: Give | None = None  # the call that wanted it


def _replace(position: int, text: str, live: LiveTranslator) -> None:
    if places := live.replace(position, text):
        earliest, end = places[0], places[-1]
        raise CannotReplace(
            f"replace={position}: must be from {earliest} to {end}: what is before {earliest} has been translated, and "
            f"the text ends at {end}"
        )


class _Text:
    """What streams have in common: a text, and what it has brought."""

    _queue: Callable[[], Any]

    def __init__(
        self,
        translator: Translator,
        theta: float | None,
        on_event: Callable[[LiveEvent | LineEnd], None] | None,
        on_warning: Callable[[str], None],
    ) -> None:
        self.events: list[LiveEvent | LineEnd] = []  # that the last call has brought
        self._translator, self._on_event, self._warn = translator, on_event, on_warning
        self._error: Exception | None = None
        self._found: Any = self._queue()
        self._over, self._returned = False, True  # whether the last call has returned what it had to
        self._in_call = Lock()
        self._live = translator._join(theta, on_warning)
        self._live.text.warn = lambda message: translator._tell(self._live, message)
        self._theta = self._live.theta

    @property
    def theta(self) -> float | None:
        """EMIT threshold; may be set at any time."""
        return self._theta

    @theta.setter
    def theta(self, theta: float) -> None:
        self._theta = self._translator._checked(theta)
        self._translator._ask(lambda: setattr(self._live, "theta", theta))

    def close(self) -> None:
        """Forget the text, whatever is still to be written."""
        self._over = True
        self._translator._forget(self._live)

    def _taken(self, text: str, replace: int | None = None) -> Give:
        check_text(text)
        if replace is None:
            return lambda live: live.give(live.text.take(text))
        check_position(replace)
        return partial(_replace, replace, text)

    def _ended(self, text: str = "") -> Give:
        take = self._taken(text)

        def give(live: LiveTranslator) -> None:
            take(live)
            live.give(live.text.end())

        return give

    @contextmanager
    def _one_call(self) -> Iterator[None]:
        """While a call waits for the text, none other may: it would be told in its place."""
        if not self._in_call.acquire(blocking=False):
            raise ValueError("a stream takes one call at a time: wait for that before, or open another stream")
        try:
            yield
        finally:
            self._in_call.release()

    def _begin(self, give: Give, tell: Tell) -> None:
        if self._over:
            raise ValueError("the stream is finished or closed: open another one for further text")
        if self._returned:
            self.events = []
        self._returned, self._error = False, None
        self._translator._give(self._live, give, tell)

    def _note(self, one: Any) -> None:
        if isinstance(one, str):
            self._warn(one)
        elif isinstance(one, Exception):
            self._error = one
        elif isinstance(one, LiveEvent | LineEnd):
            self.events.append(one)
            if self._on_event is not None:
                self._on_event(one)

    def _written(self) -> str:
        if self._error is not None:
            if not isinstance(self._error, CannotReplace):  # after which all is as it was
                self.close()
            raise self._error
        self._returned = True
        return "".join(event.text for event in self.events)


class Stream(_Text):
    """A text that is still arriving; made by `Translator.stream`. One thread at a time gives it something.

    Attributes:
        events: what the last call has brought, in order.
    """

    _queue = SimpleQueue

    def feed(self, text: str, *, replace: int | None = None) -> str:
        """Take characters that have arrived; returns what is written until more is needed.

        Args:
            text: that follows what was fed before; or, with `replace`, the source from that position of the whole text
                on, in place of what was fed for it. What was written of the sentence at hand stays.
            replace: not before the sentence at hand.

        Raises:
            ValueError: for what is no text, after `finish`, while another call waits, and where memory is short; for a
                position that may not be replaced, after which the stream goes on as it was.
        """
        return self._run(self._taken(text, replace))

    def pause(self) -> str:
        """Nothing has arrived for a while: let go what is held back, and end a sentence that is complete."""
        return self._run(lambda live: live.give(live.text.pause()))

    def finish(self) -> str:
        """The text is complete: returns the rest of its translation."""
        written = self._run(self._ended())
        self._over = True
        return written

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _run(self, give: Give) -> str:
        with self._one_call():
            self._begin(give, self._found.put)
            return self._answer(give)

    def _answer(self, give: Give) -> str:
        while (one := self._found.get()) is not give:
            self._note(one)
        return self._written()


class AsyncStream(_Text):
    """The same for asyncio; made by `Translator.async_stream`. The event loop goes on while the model computes.
    What a call that was cancelled had to return, the next one returns."""

    _queue = asyncio.Queue
    _loop: asyncio.AbstractEventLoop | None = None  # that of the first call

    async def feed(self, text: str, *, replace: int | None = None) -> str:
        """See `Stream.feed`."""
        return await self._run(self._taken(text, replace))

    async def pause(self) -> str:
        """See `Stream.pause`."""
        return await self._run(lambda live: live.give(live.text.pause()))

    async def finish(self) -> str:
        """See `Stream.finish`."""
        written = await self._run(self._ended())
        self._over = True
        return written

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exception: object) -> None:
        self.close()

    async def _run(self, give: Give) -> str:
        loop = self._loop = self._loop or asyncio.get_running_loop()
        if loop is not asyncio.get_running_loop():
            raise ValueError("an async stream stays in the event loop of its first call: open another one in this loop")
        with self._one_call():
            self._begin(give, lambda one: loop.call_soon_threadsafe(self._found.put_nowait, one))
            while (one := await self._found.get()) is not give:  # first what a call that was cancelled did not take
                if isinstance(one, CannotReplace) and one.give is not give:
                    self._warn(f"a call that was cancelled failed: {one}")
                else:
                    self._note(one)
            return self._written()
