"""Clients of the other systems that ``messaging.py`` measures, each a process of its own, as ours are.

``python _message_clients.py SYSTEM send|receive|serve PORT``; commands come as lines of JSON, each is answered by one.
Bodies carry a number, so that the receiver tells which message came when.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Protocol

TOPIC = "room"
NUMBER_CHARS = 8


class Client(Protocol):
    """A connection over which messages go."""

    async def send(self, body: bytes) -> None:
        """Send one."""

    async def settle(self) -> None:
        """Wait until all that was sent has left."""


Heard = Callable[[bytes], None]


class Arrivals:
    """Counts what comes, and tells when."""

    def __init__(self) -> None:
        self.told: dict[int, int] = {}
        self._wanted = range(0)
        self._done = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    def heard(self, body: bytes) -> None:
        """Take one; called from any thread."""
        at = time.monotonic_ns()
        number = int(body[:NUMBER_CHARS])
        if number in self._wanted:
            self.told.setdefault(number, at)
            if len(self.told) == len(self._wanted):
                self._loop.call_soon_threadsafe(self._done.set)

    def expect(self, first: int, count: int) -> None:
        """Count so many from now on, and nothing that came before."""
        self.told, self._wanted = {}, range(first, first + count)
        self._done.clear()

    async def wait(self) -> dict[int, int]:
        """Return when each of those that were expected came, in monotonic nanoseconds."""
        await self._done.wait()
        return self.told


@asynccontextmanager
async def nats(port: int, heard: Heard | None) -> AsyncIterator[Client]:
    """Speak to a NATS server; nothing is kept there."""
    library: Any = importlib.import_module("nats")
    connection = await library.connect(f"nats://127.0.0.1:{port}")

    class Nats:
        async def send(self, body: bytes) -> None:
            await connection.publish(TOPIC, body)

        async def settle(self) -> None:
            await connection.flush()

    if heard is not None:

        async def take(message: Any) -> None:
            heard(message.data)

        await connection.subscribe(TOPIC, cb=take)
        await connection.flush()
    yield Nats()
    await connection.close()


@asynccontextmanager
async def mosquitto(port: int, heard: Heard | None) -> AsyncIterator[Client]:
    """Speak to an MQTT broker with QoS 1: it acknowledges every message; nothing is kept on its disk."""
    library: Any = importlib.import_module("paho.mqtt.client")
    client = library.Client(library.CallbackAPIVersion.VERSION2)
    client.max_inflight_messages_set(1_000)
    ready = threading.Event()
    client.on_connect = lambda *_: ready.set() if heard is None else client.subscribe(TOPIC, qos=1)
    client.on_subscribe = lambda *_: ready.set()
    if heard is not None:
        take = heard
        client.on_message = lambda _client, _data, message: take(message.payload)
    client.connect("127.0.0.1", port)
    client.loop_start()
    await asyncio.to_thread(ready.wait)
    last: list[Any] = []

    class Mqtt:
        async def send(self, body: bytes) -> None:
            last[:] = [client.publish(TOPIC, body, qos=1)]

        async def settle(self) -> None:
            if last:
                await asyncio.to_thread(last[0].wait_for_publish)

    yield Mqtt()
    client.disconnect()
    client.loop_stop()


class Channel:
    """What pycrdt speaks over, on a WebSocket."""

    def __init__(self, socket: Any) -> None:
        self._socket = socket
        self.path = TOPIC

    def __aiter__(self) -> Channel:
        return self

    async def __anext__(self) -> bytes:
        return await self.recv()

    async def send(self, message: bytes) -> None:
        """Send a message."""
        await self._socket.send(message)

    async def recv(self) -> bytes:
        """Return the next message."""
        closed: Any = importlib.import_module("websockets.exceptions").ConnectionClosed
        try:
            return bytes(await self._socket.recv())
        except closed:
            raise StopAsyncIteration from None


@asynccontextmanager
async def pycrdt_websocket(port: int, heard: Heard | None) -> AsyncIterator[Client]:
    """Share a document over pycrdt-websocket: a message is a map at the end of an array; nothing is signed or kept."""
    pycrdt: Any = importlib.import_module("pycrdt")
    websockets: Any = importlib.import_module("websockets")
    document = pycrdt.Doc()
    document["timeline"] = timeline = pycrdt.Array()

    class Shared:
        async def send(self, body: bytes) -> None:
            timeline.append(pycrdt.Map({"body": body.decode(), "status": "active"}))
            await asyncio.sleep(0)

        async def settle(self) -> None:
            await asyncio.sleep(0)

    if heard is not None:
        take = heard

        def changed(event: Any) -> None:
            for step in event.delta:
                for item in step.get("insert", ()):
                    take(str(item["body"]).encode())

    async with (
        websockets.connect(f"ws://127.0.0.1:{port}/{TOPIC}", max_size=None) as socket,
        pycrdt.Provider(document, Channel(socket)) as provider,
    ):
        await provider.synced.wait()
        if heard is not None:
            timeline.observe(changed)
        yield Shared()


async def serve_pycrdt(port: int, refs: int) -> None:
    """Serve documents as pycrdt-websocket does, the room's with so many messages in it already."""
    pycrdt: Any = importlib.import_module("pycrdt")
    library: Any = importlib.import_module("pycrdt.websocket")
    websockets: Any = importlib.import_module("websockets")
    document = pycrdt.Doc()
    document["timeline"] = timeline = pycrdt.Array()
    with document.transaction():
        for index in range(refs):
            timeline.append(pycrdt.Map({"body": f"{index:0{NUMBER_CHARS}}", "status": "active"}))
    server = library.WebsocketServer(auto_clean_rooms=False)
    async with server:
        server.rooms[TOPIC] = library.YRoom(ydoc=document)

        async def serve(socket: Any) -> None:
            await server.serve(Channel(socket))

        async with websockets.serve(serve, "127.0.0.1", port, max_size=None):
            print(json.dumps({"ready": True}), flush=True)
            await asyncio.to_thread(sys.stdin.readline)


SYSTEMS: dict[str, Callable[[int, Heard | None], Any]] = {
    "nats": nats,
    "mosquitto": mosquitto,
    "pycrdt-websocket": pycrdt_websocket,
}


async def run(system: str, role: str, port: int) -> None:
    """Obey commands until stdin ends."""
    arrivals = Arrivals() if role == "receive" else None
    async with SYSTEMS[system](port, arrivals.heard if arrivals is not None else None) as client:
        print(json.dumps({"ready": True}), flush=True)
        while line := await asyncio.to_thread(sys.stdin.readline):
            command: dict[str, Any] = json.loads(line)
            if arrivals is not None:
                arrivals.expect(**command)
                print(json.dumps({"ready": True}), flush=True)
                answer = await arrivals.wait()
            else:
                answer = await _send(client, **command)
            print(json.dumps(answer), flush=True)


async def _send(client: Client, first: int, count: int, every_seconds: float, size: int) -> dict[int, int]:
    """Send messages of a size, and return when each was given to the client; 0 seconds are no pause."""
    begun: dict[int, int] = {}
    for number in range(first, first + count):
        begun[number] = time.monotonic_ns()
        await client.send(f"{number:0{NUMBER_CHARS}}".ljust(size, ".").encode())
        if every_seconds:
            await asyncio.sleep(every_seconds)
    await client.settle()
    return begun


if __name__ == "__main__":
    name, role, number = sys.argv[1:4]
    if role == "serve":
        asyncio.run(serve_pycrdt(int(number), int(sys.argv[4])))
    else:
        asyncio.run(run(name, role, int(number)))
