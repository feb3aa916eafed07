"""A hostile lender that answers SFTP requests frame by frame, as no server of anybody's would."""

from __future__ import annotations

import asyncio
import contextlib
import struct
from collections.abc import AsyncIterator, Callable

import asyncssh

from sublet.workspace.export import MountTarget
from sublet.workspace.sftp.wire import Op, ReplyType, Status
from support.sftp_lender import LEASE, public_line

U32 = struct.Struct(">I")
DIRECTORY = U32.pack(4) + U32.pack(0o40755)
"""Attributes that say no more than that it is one."""


def answer(kind: int, number: int, body: bytes) -> bytes:
    """Return one frame."""
    frame = bytes([kind]) + U32.pack(number) + body
    return U32.pack(len(frame)) + frame


def names(found: list[bytes]) -> bytes:
    """Return the body of a NAME answer with no more about each name than it takes."""
    return U32.pack(len(found)) + b"".join(U32.pack(len(name)) + name + U32.pack(0) * 2 for name in found)


class EndlessDirectory:
    """Answers that make every directory one whose names never end; ``told`` counts them."""

    def __init__(self) -> None:
        self.told = 0

    def __call__(self, kind: int, number: int, body: bytes) -> bytes:
        """Return the answer to one request."""
        if kind == Op.INIT:
            return U32.pack(5) + bytes([ReplyType.VERSION]) + U32.pack(3)
        if kind in (Op.LSTAT, Op.STAT, Op.FSTAT):
            return answer(ReplyType.ATTRS, number, DIRECTORY)
        if kind == Op.OPENDIR:
            return answer(ReplyType.HANDLE, number, U32.pack(1) + b"h")
        if kind == Op.READDIR:
            first, self.told = self.told, self.told + 5_000
            return answer(ReplyType.NAME, number, names([b"%x" % one for one in range(first, self.told)]))
        code = Status.OK if kind == Op.CLOSE else Status.NO_SUCH_FILE
        return answer(ReplyType.STATUS, number, U32.pack(code) + U32.pack(0) * 2)


class _Session(asyncssh.SSHServerSession[bytes]):
    def __init__(self, respond: Callable[[int, int, bytes], bytes]) -> None:
        self._respond = respond
        self._buffer = bytearray()
        self._channel: asyncssh.SSHServerChannel[bytes] | None = None

    def connection_made(self, chan: asyncssh.SSHServerChannel[bytes]) -> None:
        self._channel = chan

    def subsystem_requested(self, subsystem: str) -> bool:
        return True

    def data_received(self, data: bytes, datatype: asyncssh.DataType) -> None:
        assert self._channel is not None
        self._buffer += data
        while len(self._buffer) >= 9 and len(self._buffer) >= 4 + (size := U32.unpack_from(self._buffer)[0]):
            frame = bytes(self._buffer[4 : 4 + size])
            del self._buffer[: 4 + size]
            self._channel.write(self._respond(frame[0], U32.unpack_from(frame, 1)[0], frame[5:]))


class _Server(asyncssh.SSHServer):
    def __init__(self, respond: Callable[[int, int, bytes], bytes]) -> None:
        self._respond = respond

    def begin_auth(self, username: str) -> bool:
        return True

    def public_key_auth_supported(self) -> bool:
        return True

    def validate_public_key(self, username: str, key: asyncssh.SSHKey) -> bool:
        return True

    def session_requested(self) -> asyncssh.SSHServerSession[bytes]:
        return _Session(self._respond)


@contextlib.asynccontextmanager
async def raw_lender(respond: Callable[[int, int, bytes], bytes]) -> AsyncIterator[MountTarget]:
    """Serve answers of ``respond`` to request type, id and body, to whoever comes."""
    host_key = asyncssh.generate_private_key("ssh-ed25519")
    server = await asyncssh.listen(
        "127.0.0.1", 0, server_factory=lambda: _Server(respond), server_host_keys=[host_key], encoding=None
    )
    try:
        yield MountTarget("127.0.0.1", server.get_port(), LEASE, public_line(host_key))
    finally:
        server.close()
        async with asyncio.timeout(5):
            await server.wait_closed()
