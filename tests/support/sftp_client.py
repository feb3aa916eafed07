"""A raw SFTP client for hostile tests: it sends any bytes, over an asyncssh channel or straight into a core."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, cast

import asyncssh

from sublet.workspace.export import WORKSPACE, Export, LentDirectory
from sublet.workspace.serving.listener import DataPlane
from sublet.workspace.sftp.core import SftpCore
from sublet.workspace.sftp.reply import Reply
from support.views import default_rules

INIT = b"\x00\x00\x00\x05\x01\x00\x00\x00\x03"
NO_ATTRIBUTES = b"\0\0\0\0"


def string(value: bytes) -> bytes:
    """Return an SFTP string."""
    return struct.pack(">I", len(value)) + value


def frame(kind: int, request: int, body: bytes) -> bytes:
    """Return one packet."""
    return struct.pack(">IBI", 5 + len(body), kind, request) + body


def attributes(
    *,
    size: int | None = None,
    owner: tuple[int, int] | None = None,
    mode: int | None = None,
    times: tuple[int, int] | None = None,
) -> bytes:
    """Return an ATTRS structure."""
    flags, body = 0, b""
    if size is not None:
        flags, body = flags | 1, body + struct.pack(">Q", size)
    if owner is not None:
        flags, body = flags | 2, body + struct.pack(">II", *owner)
    if mode is not None:
        flags, body = flags | 4, body + struct.pack(">I", mode)
    if times is not None:
        flags, body = flags | 8, body + struct.pack(">II", *times)
    return struct.pack(">I", flags) + body


@dataclass(frozen=True)
class Packet:
    """One answer: its type, and its body from behind the request id."""

    kind: int
    body: bytes

    @property
    def status(self) -> int | None:
        """The code of a STATUS answer, None for any other."""
        return int.from_bytes(self.body[:4], "big") if self.kind == 101 else None

    @property
    def handle(self) -> bytes:
        """The handle of a HANDLE answer."""
        assert self.kind == 102, self
        return self.body[4:]

    @property
    def data(self) -> bytes:
        """The bytes of a DATA answer."""
        assert self.kind == 103, self
        return self.body[4:]

    @property
    def attrs(self) -> tuple[int, ...]:
        """flags, size, uid, gid, mode, atime and mtime of an ATTRS answer."""
        assert self.kind == 105, self
        return struct.unpack(">IQIIIII", self.body)

    @property
    def names(self) -> list[bytes]:
        """The names of a NAME answer whose entries have attributes or none."""
        assert self.kind == 104, self
        count, offset, found = int.from_bytes(self.body[:4], "big"), 4, []
        for _ in range(count):
            size = int.from_bytes(self.body[offset : offset + 4], "big")
            found.append(self.body[offset + 4 : offset + 4 + size])
            offset += 4 + size
            offset += 4 + int.from_bytes(self.body[offset : offset + 4], "big")
            offset += 32 if int.from_bytes(self.body[offset : offset + 4], "big") else 4
        assert offset == len(self.body)
        return found


def parse(packet: bytes) -> Packet:
    """Return the answer in one whole packet."""
    assert int.from_bytes(packet[:4], "big") == len(packet) - 4
    return Packet(packet[4], packet[9:])


def next_reply(core: SftpCore) -> Reply | None:
    """Do the next complete request and return its answer, or None where more bytes are needed.

    Raises:
        ProtocolAbort: the stream cannot be followed any further.
    """
    return core.reply() if core.has_request() else None


class CoreClient:
    """Talks to a core directly, without any I/O in between."""

    def __init__(self, core: SftpCore) -> None:
        self.core = core
        core.receive(INIT)
        hello = next_reply(core)
        assert isinstance(hello, bytes)
        self.hello = hello

    def ask(self, kind: int, body: bytes) -> Packet:
        """Send one request and return its answer."""
        self.core.receive(frame(kind, 7, body))
        answer = b""
        while not answer:  # as long as something has to be found out first
            reply = next_reply(self.core)
            assert reply is not None
            answer = reply if isinstance(reply, bytes) else reply.answer()
        return parse(answer)

    def extended(self, name: bytes, body: bytes) -> Packet:
        """Send one extended request and return its answer."""
        return self.ask(200, string(name) + body)

    def open(self, path: bytes, flags: int, attrs: bytes = NO_ATTRIBUTES) -> Packet:
        """Send OPEN."""
        return self.ask(3, string(path) + struct.pack(">I", flags) + attrs)

    def read(self, handle: bytes, size: int = 65536, offset: int = 0) -> Packet:
        """Send READ."""
        return self.ask(5, string(handle) + struct.pack(">QI", offset, size))

    def write(self, handle: bytes, data: bytes, offset: int = 0) -> Packet:
        """Send WRITE."""
        return self.ask(6, string(handle) + struct.pack(">Q", offset) + string(data))

    def listing(self, path: bytes) -> list[bytes]:
        """Return all names of a directory."""
        opened = self.ask(11, string(path))
        names: list[bytes] = []
        while (page := self.ask(12, string(opened.handle))).status is None:
            names += page.names
        assert page.status == 1
        self.ask(4, string(opened.handle))
        return names


class RawSession(asyncssh.SSHClientSession[bytes]):
    """An SFTP channel of raw bytes."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._arrived = asyncio.Event()
        self.closed = asyncio.Event()

    def data_received(self, data: bytes, datatype: int | None) -> None:
        """Keep what arrives."""
        self._buffer += data
        self._arrived.set()

    def connection_lost(self, exc: Exception | None) -> None:
        """Note the end."""
        self.closed.set()
        self._arrived.set()

    async def packet(self) -> bytes:
        """Return the next whole packet.

        Raises:
            ConnectionError: the channel ended first.
        """
        while True:
            size = 4 + int.from_bytes(self._buffer[:4], "big")
            if len(self._buffer) >= max(size, 5):
                found = bytes(self._buffer[:size])
                del self._buffer[:size]
                return found
            if self.closed.is_set():
                raise ConnectionError("the channel ended")
            self._arrived.clear()
            await self._arrived.wait()


class Channel(Protocol):
    """What a raw channel is written through."""

    def write(self, data: bytes) -> None:
        """Send bytes."""

    def write_eof(self) -> None:
        """Send the end."""

    def pause_reading(self) -> None:
        """Read nothing more."""


class RawChannel:
    """An open SFTP channel."""

    def __init__(self, channel: Channel, session: RawSession) -> None:
        self.channel = channel
        self.session = session

    async def ask(self, kind: int, body: bytes) -> Packet:
        """Send one request and return its answer."""
        self.channel.write(frame(kind, 9, body))
        return parse(await self.session.packet())

    async def open(self, path: bytes, flags: int) -> Packet:
        """Send OPEN."""
        return await self.ask(3, string(path) + struct.pack(">I", flags) + NO_ATTRIBUTES)


async def open_channel(connection: asyncssh.SSHClientConnection, *, window: int = 2 << 20) -> RawChannel:
    """Open a channel and greet."""
    channel, session = await connection.create_session(RawSession, subsystem="sftp", encoding=None, window=window)
    raw = RawChannel(channel, cast(RawSession, session))
    channel.write(INIT)
    await raw.session.packet()
    return raw


@dataclass
class Lender:
    """A data plane that serves one lease, and the key to it."""

    plane: DataPlane
    key: asyncssh.SSHKey
    lease_id: str

    @asynccontextmanager
    async def connect(
        self, *, user: str | None = None, key: asyncssh.SSHKey | None = None, **options: Any
    ) -> AsyncIterator[asyncssh.SSHClientConnection]:
        """Log in as an executor would, with the host key pinned."""
        host, port = self.plane.address
        connection = await asyncssh.connect(
            host,
            port,
            username=self.lease_id if user is None else user,
            client_keys=[key or self.key],
            known_hosts=([asyncssh.import_public_key(self.plane.host_key_line)], [], []),
            config=None,
            agent_path=None,
            **options,
        )
        try:
            yield connection
        finally:
            connection.abort()
            await connection.wait_closed()


def export(workspace: Path, key: asyncssh.SSHKey, **changes: Any) -> Export:
    """Return an export of ``workspace`` for ``key``: default rules, rw, for a minute, but for ``changes``."""
    values: dict[str, Any] = {
        "lease_id": "dlg_0123456789abcdef0123456789abcdef",
        "seconds": 60.0,
        "meta": {"task.json": b"{}"},
    }
    mode, rules = changes.pop("access_mode", "rw"), changes.pop("rules", None) or default_rules()
    resources = changes.pop("resources", (LentDirectory(WORKSPACE, workspace, mode, rules),))
    return Export(resources=resources, public_key=key.export_public_key().decode(), **{**values, **changes})


@asynccontextmanager
async def lender(workspace: Path, **changes: Any) -> AsyncIterator[Lender]:
    """Serve ``workspace`` on a free loopback port."""
    key = asyncssh.generate_private_key("ssh-ed25519")
    plane = DataPlane(asyncssh.generate_private_key("ssh-ed25519"))
    await plane.start("127.0.0.1", 0)
    async with asyncio.TaskGroup() as group:
        serving = group.create_task(plane.serve())
        try:
            lent = export(workspace, key, **changes)
            plane.open(lent)
            yield Lender(plane, key, lent.lease_id)
        finally:
            serving.cancel()
            plane.close()


async def eventually(predicate: Callable[[], bool]) -> None:
    """Return once ``predicate`` holds; the test's own time limit ends the wait."""
    while not predicate():
        await asyncio.sleep(0.005)


class PathRules:
    """Rules that hide and lock exactly the given paths, with all that lies below."""

    def __init__(self, *, hidden: tuple[bytes, ...] = (), locked: tuple[bytes, ...] = ()) -> None:
        self._hidden = [tuple(p.split(b"/")) for p in hidden]
        self._locked = [tuple(p.split(b"/")) for p in locked]

    def hidden(self, parts: Sequence[bytes]) -> bool:
        """Tell whether ``parts`` is or lies below a hidden name."""
        return any(tuple(parts[: len(p)]) == p for p in self._hidden)

    def locked(self, parts: Sequence[bytes]) -> bool:
        """Tell whether ``parts`` is or lies below a locked name."""
        return any(tuple(parts[: len(p)]) == p for p in self._locked)

    def hides(self) -> bool:
        """They do."""
        return True

    def notable(self, name: bytes) -> bool:
        """Every name may be."""
        return True

    def secret(self, parts: Sequence[bytes]) -> bool:
        """Nothing is; what is hidden can't be made."""
        return False

    def left_out(self, parts: Sequence[bytes]) -> bool:
        """Nothing is."""
        return False

    def directory_only(self, parts: Sequence[bytes]) -> bool:
        """Nothing is."""
        return False

    def read_only(self, parts: Sequence[bytes]) -> bool:
        """Nothing is."""
        return False

    def only_adds(self) -> bool:
        """They allow everything else."""
        return False

    def kept(self, parts: Sequence[bytes]) -> bool:
        """Nothing is."""
        return False

    def checked(self, parts: Sequence[bytes]) -> bool:
        """Nothing is."""
        return False

    def draft(self, parts: Sequence[bytes]) -> bool:
        """Nothing is."""
        return False

    def packed(self, parts: Sequence[bytes]) -> bool:
        """No directory is special."""
        return False

    def may_be_directory(self, parts: Sequence[bytes]) -> bool:
        """Everything may."""
        return True

    def bars_links(self, parts: Sequence[bytes]) -> bool:
        """Nothing does."""
        return False

    def without_repository(self) -> PathRules:
        """Return themselves."""
        return self

    def guards_below(self, parts: Sequence[bytes]) -> bool:
        """Tell whether ``parts`` lies above a hidden or locked name."""
        return any(len(parts) < len(p) and p[: len(parts)] == tuple(parts) for p in self._hidden + self._locked)
