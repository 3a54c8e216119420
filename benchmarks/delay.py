"""A TCP proxy that adds a round trip, and counts what goes through: `python -m benchmarks.delay MS LISTEN=HOST:PORT …`.

In user space, since a container's kernel may have no netem. A block of bytes is passed on after half the added round
trip, in the order it came, however much is under way: it adds latency and takes no bandwidth. Counted by LISTEN port:
connections, bytes to and from the box, and round trips: how often the talk turned from the controller to the box and
back. What two sides say at the same moment is one turn. The counts are written to standard output as JSON when
standard input ends.
"""

from __future__ import annotations

import asyncio
import json
import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, field

BLOCK = 256 * 1024


@dataclass
class Count:
    connections: int = 0
    to_box: int = 0
    from_box: int = 0
    round_trips: int = 0


@dataclass
class Talk:
    """One connection: who spoke last."""

    count: Count
    asked: bool = field(default=False)

    def said(self, size: int, to_box: bool) -> None:
        if to_box:
            self.count.to_box += size
            self.asked = True
        else:
            self.count.from_box += size
            # the connection itself is one: what a server says first answers it
            self.count.round_trips += self.asked
            self.asked = False


class Proxy:
    def __init__(self, milliseconds: float) -> None:
        self.seconds = milliseconds / 2000  # one way
        self.counts: dict[int, Count] = {}

    async def listen(self, port: int, host: str, to: int) -> asyncio.Server:
        count = self.counts[port] = Count()

        async def accepted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await self._carry(reader, writer, host, to, count)

        return await asyncio.start_server(accepted, "127.0.0.1", port, backlog=512)

    async def _carry(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, host: str, port: int, count: Count
    ) -> None:
        count.connections += 1
        talk = Talk(count, asked=True)
        await asyncio.sleep(2 * self.seconds)  # the three-way handshake with the box
        try:
            box_reader, box_writer = await asyncio.open_connection(host, port)
        except OSError:
            writer.close()
            return
        for each in (writer, box_writer):
            each.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        await asyncio.gather(
            self._one_way(reader, box_writer, lambda size: talk.said(size, True)),
            self._one_way(box_reader, writer, lambda size: talk.said(size, False)),
        )
        for each in (writer, box_writer):
            each.close()

    async def _one_way(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, said: Callable[[int], None]
    ) -> None:
        """Read at once and write later, so that a second block does not wait for the first one's delay."""
        waiting: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()
        clock = asyncio.get_running_loop().time

        async def write() -> None:
            while True:
                due, block = await waiting.get()
                if (left := due - clock()) > 0:
                    await asyncio.sleep(left)
                if not block:
                    writer.write_eof()
                    return
                writer.write(block)
                await writer.drain()

        writing = asyncio.create_task(write())
        try:
            while block := await reader.read(BLOCK):
                said(len(block))
                waiting.put_nowait((clock() + self.seconds, block))
        except OSError:
            pass  # whoever broke off is at its end
        waiting.put_nowait((clock() + self.seconds, b""))
        with suppress(OSError):
            await writing


async def serve(milliseconds: float, ports: dict[int, tuple[str, int]]) -> dict[int, Count]:
    """Serve until standard input ends."""
    proxy = Proxy(milliseconds)
    servers = [await proxy.listen(port, *to) for port, to in ports.items()]
    print("ready", flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    for server in servers:
        server.close()
    # Connections that a peer keeps for its next run end here, which is no error.
    asyncio.get_running_loop().set_exception_handler(lambda *_: None)
    return proxy.counts


def main() -> None:
    ports = {}
    for word in sys.argv[2:]:
        port, _, to = word.partition("=")
        host, _, number = to.rpartition(":")
        ports[int(port)] = (host, int(number))
    counts = asyncio.run(serve(float(sys.argv[1]), ports))
    print(json.dumps({port: asdict(count) for port, count in counts.items()}))


if __name__ == "__main__":
    main()
