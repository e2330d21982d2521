"""The server's end of the engine: starts it, talks to it, and starts it again when it dies or hangs.

Nothing here, nor in the rest of the server, imports torch: only the engine's own process does.
"""

import asyncio
import json
import logging
import multiprocessing
import signal
import socket
from collections.abc import Callable
from multiprocessing import resource_tracker
from typing import Any

from ..protocol.messages import as_json
from .log import log_to_stderr
from .settings import EngineSettings

log = logging.getLogger(__name__)
LONGEST_LINE = 2**26
ABANDONED = 1.0  # seconds that a process has to end when its link is closed, before it is killed
MOST_FAILURES = 3  # engines in a row that did nothing, after which no session begins until there is one


def be_the_engine(settings: EngineSettings, link: socket.socket) -> None:
    """What the engine's process does."""
    if multiprocessing.parent_process() is not None:
        log_to_stderr()
    from .engine_process import run

    run(settings, link)


class EngineLink:
    """Keeps one engine running.

    Args:
        step_deadline: seconds without a sign of life after which it hangs; it gives one every half second.
        start_deadline: seconds it has to load its model.
        ready: is called with its models by name and their fingerprint when an engine is ready, the first or another.
        told: is called with each of its lines.
        ended: is called when an engine has ended, or could not be started.

    Attributes:
        is_ready: whether there is an engine.
        starts: number of engines started so far.
        failures: engines that ended since one worked, which whoever is told its lines has to say.
        failure: what became of the last one that ended.
        failed: why there will be no engine: the first could not be started, or what it said could not be dealt with.
    """

    def __init__(
        self,
        settings: EngineSettings,
        *,
        step_deadline: float,
        start_deadline: float,
        ready: Callable[[dict[str, dict[str, Any]], str], None],
        told: Callable[[dict[str, Any]], None],
        ended: Callable[[], None],
    ) -> None:
        self.settings, self.step_deadline, self.start_deadline = settings, step_deadline, start_deadline
        self.ready, self.told, self.ended = ready, told, ended
        self.is_ready = False
        self.starts = self.failures = 0
        self.failure: str | None = None
        self.failed: str | None = None
        self.process: Any = None
        self._writer: asyncio.StreamWriter | None = None
        self._exit = ""  # how the process of the last engine ended

    @property
    def state(self) -> str:
        """Of the engine, as the protocol has it: `starting`, `ready` or `failed`."""
        if self.failed is None and self.is_ready:
            return "ready"
        return "starting" if self.failed is None and self.failures < MOST_FAILURES else "failed"

    def ask(self, **values: Any) -> None:
        """Tell the engine to do something; nothing without one, who will be told all by `ready`."""
        if self.is_ready and self._writer is not None and not self._writer.transport.is_closing():
            self._writer.write(as_json(values).encode() + b"\n")

    async def keep_running(self) -> None:
        """Run engines one after the other, until this is cancelled or the first one cannot be started."""
        pause = 0.0
        while self.failed is None:
            self._exit = ""
            try:
                await self._run_one()
            except (TimeoutError, EOFError, OSError) as error:
                self.failure = f"{error}{self._exit}"
                self.failures += 1
                if self.failed is None:
                    log.warning("the engine %s; another one is started", self.failure)
            except Exception as error:  # a fault of ours, which another engine would not mend: the server ends
                log.exception("the engine cannot be kept running")
                self.failed = f"the engine cannot be kept running: {error!r}"
            pause = 0.0 if self.is_ready else min(10.0, 2 * pause + 0.5)
            self.is_ready = False
            self.ended()
            await asyncio.sleep(pause)

    async def _run_one(self) -> None:
        ours, theirs = socket.socketpair()
        self.process = multiprocessing.get_context("spawn").Process(
            target=be_the_engine, args=(self.settings, theirs), name="engine", daemon=True
        )
        self.starts += 1
        writer = None
        try:
            await asyncio.to_thread(_start, self.process)
            theirs.close()
            reader, writer = await asyncio.open_connection(sock=ours, limit=LONGEST_LINE)
            first = await self._line(reader, self.start_deadline)
            if "failed" in first:
                if self.starts == 1:
                    self.failed = first["failed"]
                raise EOFError(f"cannot start: {first['failed']}")
            self._writer, self.is_ready = writer, True
            self.ready(first["models"], first["fingerprint"])
            while True:
                self.told(await self._line(reader, self.step_deadline))
        finally:
            if writer is not None:
                writer.transport.abort()  # and not wait for a dead engine to take what was sent
            else:
                ours.close()
            theirs.close()
            self._writer = None
            process = self.process
            if process.pid is not None:
                self._exit = await asyncio.shield(asyncio.to_thread(_end, process))

    async def _line(self, reader: asyncio.StreamReader, deadline: float) -> dict[str, Any]:
        try:
            async with asyncio.timeout(deadline):
                line = await reader.readline()
        except TimeoutError:
            raise TimeoutError(f"has given no sign of life for {deadline:g} s") from None
        except ConnectionError:  # it ended before it had read all that was sent to it
            line = b""
        if not line.endswith(b"\n"):
            raise EOFError("has ended")
        return json.loads(line)  # type: ignore[no-any-return]


def _start(process: Any) -> None:
    """Start a process to which Ctrl-C and SIGTERM say nothing: they are for the server, which ends it."""
    resource_tracker.ensure_running()  # of multiprocessing; where it has to be started, it takes the block away
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})  # of this thread, and its child
    try:
        process.start()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _end(process: Any) -> str:
    """End a process that may hang; how it had ended before."""
    process.join(ABANDONED)
    if (code := process.exitcode) is None:
        process.kill()
        process.join()
    process.close()
    if code is None:
        return ""
    return f" (exit code {code})" if code >= 0 else f" (signal {-code}, {_signal_name(-code)})"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return "of no name"
