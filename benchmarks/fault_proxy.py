"""A proxy on this machine that does to a connection what networks do; for serve_load.py."""

import asyncio
import contextlib
import math
import socket
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

LOCAL = "127.0.0.1"
CHUNK = 4096
LONGEST = 60.0  # seconds that anything is held


@dataclass(frozen=True)
class Fault:
    """What becomes of a connection.

    Attributes:
        kind: `reset`, in the middle of what is being sent; `half_open`, nothing arrives any more and nobody says so;
            `stall`, nothing is read from the server for a while; `drip`, a byte at a time, both ways.
        after: bytes from the server until then, the handshake's included.
        seconds: of a stall.
    """

    kind: Literal["none", "reset", "half_open", "stall", "drip"]
    after: float = 0
    seconds: float = 2.0


NONE = Fault("none", after=math.inf)


class FaultProxy:
    """Leads to a port of this machine; its first connections have these faults, in order. An async context manager."""

    def __init__(self, port: int, faults: Iterable[Fault]) -> None:
        self._upstream, self._faults = port, list(faults)
        self.injected: list[Fault] = []
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> "FaultProxy":
        def accept(*client: asyncio.StreamReader | asyncio.StreamWriter) -> None:
            self._tasks.append(asyncio.create_task(self._lead(*client)))

        self._server = await asyncio.start_server(accept, LOCAL, 0)
        self.url = f"ws://{LOCAL}:{self._server.sockets[0].getsockname()[1]}/v1/live"
        return self

    async def __aexit__(self, *exception: object) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _lead(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        fault = self._faults.pop(0) if self._faults else NONE
        ends, lost = [writer], asyncio.Event()
        try:
            there = socket.socket()
            there.setblocking(False)
            if fault.kind == "stall":
                there.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, CHUNK)  # so that the server notices it
            await asyncio.get_running_loop().sock_connect(there, (LOCAL, self._upstream))
            up_reader, up_writer = await asyncio.open_connection(sock=there, limit=CHUNK)
            ends.append(up_writer)
            up = asyncio.create_task(self._pass_on(reader, up_writer, fault, lost, math.inf))
            down = asyncio.create_task(self._pass_on(up_reader, writer, fault, lost, fault.after))
            await asyncio.wait((up, down), return_when=asyncio.FIRST_COMPLETED)
            if lost.is_set():
                await asyncio.sleep(LONGEST)  # the server is told nothing, also once the client has gone
            elif fault.kind != "reset":
                await asyncio.wait((up, down), timeout=1)
            up.cancel()
            down.cancel()
            await asyncio.gather(up, down, return_exceptions=True)  # either end may have gone first
        except (OSError, asyncio.CancelledError):
            pass  # the server is gone, or the proxy ends; so does this connection
        finally:
            if fault not in (NONE, *self.injected):
                self._faults.insert(0, fault)  # for the next connection, as this one has ended before
            for end in ends:
                reset(end)

    async def _pass_on(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, fault: Fault, lost: asyncio.Event, left: float
    ) -> None:
        """One way, in the pieces that the fault makes of it; it comes once more bytes than are left have been read."""
        while data := await reader.read(CHUNK):
            left -= len(data)
            if left < 0 and fault not in (NONE, *self.injected):
                self.injected.append(fault)
                if fault.kind == "reset":
                    writer.write(data[: max(1, len(data) // 2)])
                    await asyncio.sleep(0.01)  # so that the half is there before the reset
                    return
                if fault.kind == "half_open":
                    lost.set()
                    return
                await asyncio.sleep(fault.seconds * (fault.kind == "stall"))
            size = 1 if fault.kind == "drip" else len(data)
            for begin in range(0, 0 if lost.is_set() else len(data), size):
                writer.write(data[begin : begin + size])
                await writer.drain()
                await asyncio.sleep(0)
        if not lost.is_set():
            writer.write_eof()


def reset(writer: asyncio.StreamWriter) -> None:
    """End a connection with RST: what is on its way is lost."""
    raw = writer.get_extra_info("socket")
    if raw is not None and raw.fileno() >= 0:
        with contextlib.suppress(OSError):
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()
