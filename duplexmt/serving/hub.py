"""All sessions of a server: admission, events from the engine to their clients, and what time brings about."""

import asyncio
import logging
from collections import Counter
from time import monotonic
from typing import Any

from ..common.addresses import is_loopback
from ..protocol.messages import Close, Resume, Start
from .engine_link import EngineLink
from .limits import Guesses, Refused
from .metrics import Metrics
from .session import Client, Session
from .settings import EngineSettings, Limits

log = logging.getLogger(__name__)
TICK = 0.5  # seconds between two looks at all sessions
LAG = 0.1  # seconds between two looks at the event loop
DRAIN_LOOK = 0.02
MOST_ENGINES = 5  # that may end, one after the other, at the text of one session
SUSPICIOUS = 2  # engines after which the next one is given the texts one by one, to find the one that they end at
ANSWERS = 10  # steps of the engine after which a text that brings nothing is not the one


class Hub:
    """Sessions over one engine.

    Args:
        step_deadline, start_deadline: see `EngineLink`.
    """

    def __init__(self, engine: EngineSettings, limits: Limits, *, step_deadline: float, start_deadline: float) -> None:
        self.limits, self.metrics, self.max_streams = limits, Metrics(), engine.max_streams
        self.link = EngineLink(
            engine,
            step_deadline=step_deadline,
            start_deadline=start_deadline,
            ready=self._engine_is_ready,
            told=self._engine_told,
            ended=self._tell_engine,
        )
        self.guesses = Guesses()
        self.models: dict[str, dict[str, Any]] = {}  # of the last engine, by name; the default comes first
        self._fingerprint = ""  # of those models
        self._state_told = self.link.state
        self.sessions: dict[str, Session] = {}
        self.connections: set[Client] = set()
        self.watchers: dict[str, set[Client]] = {}  # by channel
        self.draining = False
        self._taken = False  # whether the engine has taken all that it was told when it began
        self._lost: Counter[str] = Counter()  # engines that have ended since, by session with open text
        self._suspects: list[Session] = []  # whose text may be why; the engine has that of the first one
        self._answers = 0  # of the engine since it was given that
        self._idle = False  # whether every text waits for its speaker
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Start the engine and the clock."""
        for work in (self.link.keep_running(), self._watch_time(), self._watch_lag()):
            self._tasks.append(asyncio.create_task(work))

    async def stop(self) -> None:
        """End the engine and the clock."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @property
    def why_not_ready(self) -> str | None:
        """Why no session can begin now; None if one can."""
        if self.draining:
            return "the server stops"
        return None if self.link.state == "ready" else self._no_engine()

    def engine(self) -> dict[str, Any]:
        """The protocol's message of how the engine is."""
        told = {"type": "engine", "state": self.link.state}
        return told | {"reason": self._no_engine()} if told["state"] == "failed" else told

    def _no_engine(self) -> str:
        if self.link.state == "starting":
            return "the model is being loaded"
        in_a_row = f"{self.link.failures} engines in a row have failed; the last one {self.link.failure}"
        return self.link.failed or in_a_row

    def _tell_engine(self) -> None:
        if self.link.state == self._state_told:
            return
        self._state_told = self.link.state
        for session in self.sessions.values():
            if session.connection is not None:
                session.connection.tell(self.engine())

    # --- who comes and goes ------------------------------------------------------------------------------------------

    def begin(self, connection: Client, start: Start) -> Session:
        """A new session.

        Raises:
            Refused: where there is no room for it.
        """
        if self.draining:
            raise self._restart()
        if self.link.state == "failed":
            told, retry = self._no_engine(), self.limits.retry_seconds
            raise Refused(Close.BUSY, f"{told}: try again in {retry:g} s", retry, code="engine")
        if not self.models:
            raise self._busy(self._no_engine())
        there = [session for session in self.sessions.values() if not session.done]
        if len(there) >= self.limits.sessions:
            raise self._busy(f"{self.limits.sessions} sessions are open")
        self.check_streams()
        same = sum(session.address == connection.address for session in there)
        if same >= self.limits.sessions_per_address and not is_loopback(connection.address):
            told = f"{same} sessions from one address are all there may be: close one"
            raise Refused(Close.RATE, told, self.limits.retry_seconds)
        if done := [session for session in self.sessions.values() if session.done][: -self.limits.sessions]:
            self.forget(done[0])  # whose client has not come back for the end of it
        model = next(iter(self.models)) if start.model is None else start.model
        if model not in self.models:
            told = f"model={model}: there is no such model here; there are {', '.join(self.models)}"
            raise Refused(Close.BAD_MESSAGE, told)
        self.check_theta(start.theta, model)
        session = Session(self.limits, connection.address, model, start.theta, start.source_length, start.channel)
        session.attach(connection, None)
        self.sessions[session.name] = session
        for watcher in self.watchers.get(session.channel or "", ()):
            watcher.tell(self.watching(session.channel))
        self._give(session)
        self.metrics.sessions.set(len(self.sessions))
        return session

    def check_theta(self, theta: float | None, model: str) -> None:
        """Refuse a θ where the model has none."""
        if theta is not None and self.models[model]["theta"] is None:
            raise Refused(Close.BAD_MESSAGE, "theta: this model is no grid and has none: leave it out")

    def resume(self, connection: Client, resume: Resume) -> Session:
        """Go on with a session.

        Raises:
            Refused: where there is none of that name, or its key is another one.
        """
        if self.draining:
            raise self._restart()
        session = self.sessions.get(resume.session)
        if session is None:
            raise Refused(Close.UNKNOWN_SESSION, "no such session, or not its key: start anew")
        if not session.attach(connection, resume.key):
            reused = Refused(Close.UNKNOWN_SESSION, "a key was used twice: the session has ended")
            if session.connection is not None:
                session.connection.leave(reused)
            self.forget(session)
            raise reused
        if resume.seq > session.seq:
            self.detach(session, connection)
            raise Refused(Close.BAD_MESSAGE, f"seq={resume.seq}: the last frame is {session.seq}")
        self.metrics.resumed.inc()
        return session

    def check_streams(self) -> None:
        """Refuse one more text, where the engine has as many at work as it can take."""
        now = monotonic()
        if sum(session.is_active(now) for session in self.sessions.values()) >= self.max_streams:
            raise self._busy(f"{self.max_streams} sessions are being translated")

    def _busy(self, why: str) -> Refused:
        retry = self.limits.retry_seconds
        return Refused(Close.BUSY, f"{why}: try again in {retry:g} s", retry)

    def _restart(self) -> Refused:
        return Refused(Close.RESTART, "the server stops", self.limits.retry_seconds)

    def watch(self, connection: Client, channel: str) -> None:
        """Have a connection told the events of a channel."""
        self.watchers.setdefault(channel, set()).add(connection)

    def watching(self, channel: str | None) -> dict[str, Any]:
        """What those who watch a channel are told of the model of its session, or else of the first one."""
        there = [session.model for session in self.sessions.values() if session.channel == channel and not session.done]
        return {"type": "watching", "model": self.models.get(there[-1] if there else next(iter(self.models), ""))}

    def unwatch(self, connection: Client, channel: str) -> None:
        """It has gone."""
        self.watchers[channel].discard(connection)
        if not self.watchers[channel]:
            del self.watchers[channel]

    def detach(self, session: Session, connection: Client) -> None:
        """A connection has ended; its session waits for the client to come back, if there is anything to go on with."""
        if session.connection is not connection:
            return
        session.connection, session.heard = None, monotonic()
        if not session.has_begun or (session.done and session.acknowledged == session.seq):
            self.forget(session)

    def forget(self, session: Session) -> None:
        """End a session."""
        self._lost.pop(session.name, None)
        if self.sessions.pop(session.name, None) is not None:
            self.link.ask(do="leave", name=session.name)
            self.metrics.sessions.set(len(self.sessions))

    # --- the engine --------------------------------------------------------------------------------------------------

    def _engine_is_ready(self, models: dict[str, dict[str, Any]], fingerprint: str) -> None:
        is_another, self.models = bool(self.models), models
        if is_another and fingerprint != self._fingerprint:
            self._hand_back()
        self._fingerprint = fingerprint
        self._tell_engine()
        self.metrics.engines.inc()
        self._taken = False
        open_texts = [session for session in self.sessions.values() if not session.done and session.open_text.text]
        if is_another:  # the last one may have ended at any text that it had: all but those still to be looked at
            self._lost.update(session.name for session in open_texts if session not in self._suspects[1:])
        for session in [one for one in open_texts if self._lost[one.name] >= MOST_ENGINES]:
            self._give_up(session)
        self._suspects = []
        if max(self._lost.values(), default=0) >= SUSPICIOUS:  # one after the other, so that others are cleared first
            there = [session for session in open_texts if session.name in self.sessions]
            self._suspects = sorted(there, key=lambda one: self._lost[one.name])
        for session in self.sessions.values():
            if not session.done and session not in self._suspects:
                self._give(session)
        self._examine()

    def _hand_back(self) -> None:
        """End all sessions that are not over: what the last engine began, one of another model cannot go on with."""
        left = [session for session in self.sessions.values() if not session.done]
        log.warning("the model folder holds another model than before: %d sessions are handed back", len(left))
        for session in left:
            if session.connection is not None:
                told = "the server has another model now: start anew"
                session.connection.leave(Refused(Close.RESTART, told, self.limits.retry_seconds))
            self.forget(session)

    def _give(self, session: Session) -> None:
        """Have the engine go on with a session."""
        for message in session.open_text.again():
            self.link.ask(**message)

    def _examine(self) -> None:
        """Give the engine the text of the next suspect, and ask whether it is still there."""
        while self._suspects and self._suspects[0].name not in self.sessions:
            del self._suspects[0]
        if self._suspects:
            self._give(self._suspects[0])
        self._answers = 0
        self.link.ask(do="tell", name="")

    def _has_answered(self, idle: bool) -> None:
        """The engine is still there, with nothing left to do or after another step."""
        self._answers += 1
        if idle or self._answers >= ANSWERS:
            self._lost.pop(self._suspects.pop(0).name, None)
            self._examine()
        else:
            self.link.ask(do="tell", name="")

    def _give_up(self, session: Session) -> None:
        """End a session at whose text one engine after the other may have ended."""
        told = f"{self._lost[session.name]} engines have ended, one after the other, at what was to be translated"
        log.error("%s: a session with %d characters of it is ended", told, len(session.open_text.text))
        if session.connection is not None:
            told = f"{told}: start anew, without this text if it happens again"
            session.connection.leave(Refused(Close.BAD_MESSAGE, told, code="untranslatable"))
        self.forget(session)

    def _engine_told(self, step: dict[str, Any]) -> None:
        if self._suspects:
            if step["asked"]:
                self._has_answered(step["idle"])
        else:
            self._taken = self._taken or step["asked"]
        if step["out"] or (self._taken and step["idle"]):
            self.link.failures = 0  # it works
        if self._taken and step["idle"]:
            self._lost.clear()
        if self.draining and step["asked"]:
            self._idle = step["idle"]
            self.link.ask(do="tell", name="")
        self.metrics.streams.set(step["streams"])
        self.metrics.waiting.set(step["waiting"])
        if step["batch"]:
            self.metrics.step.observe(step["seconds"])
            self.metrics.batch.observe(step["batch"])
        for seconds in step["waited"]:
            self.metrics.queue.observe(seconds)
        for name, items in step["out"].items():
            if (session := self.sessions.get(name)) is not None:
                self._tell(session, items)

    def _tell(self, session: Session, items: list[list[Any]]) -> None:
        """Tell a client of what a step has brought."""
        events: list[dict[str, Any]] = []
        answers = []
        for kind, *values in items:
            session.open_text.note(kind, *values)
            if kind in ("read", "write", "end", "replaced", "line"):
                events.append(values[0])
            if kind == "replaced":
                session.has_replaced()
                answers.append(session.ack())
            elif kind == "refused":
                answers.append(session.refusal(values[0]))
            elif kind == "set":
                answers.append({"type": "set", "id": values[0], "seq": session.seq})
            elif kind == "done":
                session.done = True
        connection = session.connection
        for answer in answers if connection is not None else ():
            connection.tell(answer)  # type: ignore[union-attr]
        if events:
            self._lost.pop(session.name, None)
            frame, arrived = session.add(events)
            if connection is not None:
                connection.tell_frame(frame)
                now = monotonic()
                for since in arrived:
                    self.metrics.delay.observe(now - since)
            for watcher in list(self.watchers.get(session.channel or "", ())):
                watcher.tell_frame(frame)
        if session.done and connection is not None:
            connection.finish()

    # --- time --------------------------------------------------------------------------------------------------------

    async def _watch_time(self) -> None:
        while True:
            await asyncio.sleep(TICK)
            now = monotonic()
            for session in list(self.sessions.values()):
                self._look_at(session, now)

    def _look_at(self, session: Session, now: float) -> None:
        limits, connection = self.limits, session.connection
        silent = now - session.heard
        if now - session.began > limits.session_seconds:
            if connection is not None:
                told = f"a session lasts {limits.session_seconds:g} s at most: start anew"
                connection.leave(Refused(Close.IDLE, told, code="expired"))
            self.forget(session)
        elif connection is None:
            if silent > limits.grace_seconds:
                self.forget(session)
        elif silent > limits.idle_seconds:
            told = f"nothing was heard for {limits.idle_seconds:g} s: send ping"
            connection.leave(Refused(Close.IDLE, told))
        elif session.credit_told < limits.message_characters and session.characters.held > session.credit_told + 1:
            connection.tell(session.ack())

    async def _watch_lag(self) -> None:
        while True:
            due = monotonic() + LAG
            await asyncio.sleep(LAG)
            self.metrics.lag.observe(max(0.0, monotonic() - due))

    async def drain(self) -> None:
        """Stop: tell all clients, end the sentences that have all their text, and hand back the others."""
        if self.draining:
            return
        self.draining = True
        until = monotonic() + self.limits.drain_seconds
        for connection in self.connections:
            connection.tell({"type": "goaway", "in_ms": int(self.limits.drain_seconds * 1000)})
        self._idle = False  # until the engine says so in answer, when it has taken all that was sent before
        self.link.ask(do="tell", name="")
        while monotonic() < until and not self._idle and self.link.is_ready:
            await asyncio.sleep(DRAIN_LOOK)
        for connection in list(self.connections):
            connection.leave(self._restart())
        until = monotonic() + 1.0
        while self.connections and monotonic() < until:
            await asyncio.sleep(DRAIN_LOOK)
