"""Stands between sshfs and the delegator's SFTP server, so that a mount outlives the links that it is reached by.

A core without I/O: bytes in, bytes out. As long as the link is up, whole frames pass as they are, and only their
length, type and id are read, and the handle where there is one. Once the link is gone, every request that waits, and
every new one, is answered at once with an error that programs see as EIO, until another link is attached. sshfs says
its version once; on later links that is done here.

READ is the exception, since sshfs tells its program of no error there (``stuck_reads``): one that can't be done is held
until the program was told, and then ``release`` answers it.

What the delegator says of a symbolic link is looked at here, since sshfs would either take it as it is, or refuse every
link that climbs: a target passes when it can only lead to names in the mount, wherever the other server looks.

Handles die with the link that gave them. Using one afterwards fails here and never reaches another server, which may
well give the same value to something else: such a value is shown to sshfs under another name.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from enum import Enum, auto
from typing import Final

from sublet.workspace.sftp.wire import MAX_PACKET, VERSION, Op, ReplyType, Status
from sublet.workspace.viewpath import link_stays, split

LENGTH_BYTES: Final = 4
MAX_FRAME: Final = LENGTH_BYTES + MAX_PACKET
"""The largest frame of either side, with its length."""
MAX_WAITING: Final = 16_384
"""Requests that may wait for an answer at the same time. sshfs sends some hundreds at most."""
MAX_HANDLES: Final = 65_536
"""Handles, of this link and of earlier ones, that sshfs may hold."""
MAX_HANDLE_BYTES: Final = 256
"""What the draft allows (draft-ietf-secsh-filexfer-02 6)."""

_HEAD: Final = struct.Struct(">IBI")
_HEAD_BYTES: Final = 9
_STATUS: Final = struct.Struct(">IBIIII")
"""Length, type, id and code; the lengths of a message and of its language, as sshfs reads neither."""
_U32: Final = struct.Struct(">I")
_CODE_END: Final = _HEAD_BYTES + 4
_OVER_QUOTA: Final = _U32.pack(Status.QUOTA_EXCEEDED)
_ONE: Final = _U32.pack(1)
_STRANGE: Final = b"sublet"
"""Begins the names under which handles are shown whose own value sshfs still knows from an earlier link."""

_EXPECTED: Final[dict[int, int]] = {
    Op.OPEN: ReplyType.HANDLE,
    Op.OPENDIR: ReplyType.HANDLE,
    Op.READ: ReplyType.DATA,
    Op.LSTAT: ReplyType.ATTRS,
    Op.STAT: ReplyType.ATTRS,
    Op.FSTAT: ReplyType.ATTRS,
    Op.READDIR: ReplyType.NAME,
    Op.REALPATH: ReplyType.NAME,
    Op.READLINK: ReplyType.NAME,
    Op.EXTENDED: ReplyType.EXTENDED_REPLY,
}
"""What may answer a request besides STATUS; nothing else may answer those that are not here."""
_BY_HANDLE: Final = frozenset({Op.CLOSE, Op.READ, Op.WRITE, Op.FSTAT, Op.FSETSTAT, Op.READDIR})
_LOOKED_INTO: Final = frozenset({Op.EXTENDED, Op.INIT, Op.READLINK})
_EXTENDED_BY_HANDLE: Final = frozenset({b"fsync@openssh.com", b"fstatvfs@openssh.com"})


class LinkViolation(Exception):
    """The delegator's server sent what no SFTP server may send: its link has to be ended."""


class ClientViolation(Exception):
    """sshfs sent what no SFTP client may send: the mount has to be ended."""


class _Truncated(Exception):
    """A string that is longer than its frame."""


class LinkState(Enum):
    """Where the link of a relay is."""

    DOWN = auto()
    OPENING = auto()
    """Attached; the server's VERSION has not come yet."""
    UP = auto()


class SftpRelay:
    """One mount's requests and answers, over one link after another.

    What is to be sent is collected in ``to_server`` and ``to_client``, and belongs to whoever calls; it may be a view
    of the buffer that was given, which has to be sent or copied before that buffer changes.

    Args:
        top: how many directories of the view lie above what is mounted.
    """

    def __init__(self, top: int = 0) -> None:
        self._top = top
        self.state = LinkState.OPENING
        self.interrupted = 0
        """Requests that were answered with an error for want of the link that they needed."""
        self.suspended = False
        """Whether new requests fail although there is a link, but for those that close handles."""
        self.held: set[int] = set()
        """The ids of READ requests that wait for ``release``."""
        self.sentinel = b""
        """A name that no file has, about which a question is kept too, where it is not empty."""
        self.sentinel_id: int | None = None
        self.over_quota = False
        """Whether the server has refused a change for the quota of the lease."""
        self.to_server: list[memoryview | bytes] = []
        self.to_client: list[memoryview | bytes] = []
        self._init = b""
        self._first = True
        self._waiting: dict[int, tuple[int, bytes]] = {}
        """By id: the request's type, and the handle that a CLOSE is about, as sshfs knows it."""
        self._links: dict[int, int] = {}
        """By id of a READLINK: how many directories lie between the top of the mount and the link."""
        self._handles: dict[bytes, bytes] = {}
        """Handles of this link: what sshfs knows, and what the server knows."""
        self._stale: set[bytes] = set()
        """What sshfs still knows of earlier links."""
        self._named = 0
        self._pieces: list[bytes] = []
        self._have = 0
        self._need = 0

    @property
    def waiting(self) -> int:
        """How many requests wait for an answer."""
        return len(self._waiting)

    # what sshfs sends

    def from_client(self, buffer: memoryview) -> int:
        """Take the whole frames at the start of ``buffer`` and return how many bytes they are.

        Raises:
            ClientViolation: they are no SFTP requests, or too many.
        """
        start = run = 0
        end = len(buffer)
        while end - start >= _HEAD_BYTES:
            size, kind, number = _HEAD.unpack_from(buffer, start)
            stop = start + LENGTH_BYTES + size
            if not _HEAD_BYTES - LENGTH_BYTES <= size <= MAX_PACKET:
                raise ClientViolation(f"a frame of {size} bytes")
            if stop > end:
                break
            by_name = kind not in _BY_HANDLE and kind not in _LOOKED_INTO
            if not by_name or self.suspended or self.state is not LinkState.UP:
                try:
                    instead = self._decide(kind, number, buffer[start:stop])
                except _Truncated:
                    raise ClientViolation("a string that is longer than its frame") from None
                if instead is not None:
                    if run < start:
                        self.to_server.append(buffer[run:start])
                    run = stop
                    if instead:
                        self.to_server.append(instead)
            else:
                self._expect(number, kind, b"")
            start = stop
        if run < start:
            self.to_server.append(buffer[run:start])
        return start

    def _decide(self, kind: int, number: int, frame: memoryview) -> bytes | None:
        """Return what to send instead of a request: None for the same as it came, and nothing where it is answered."""
        if kind == Op.INIT:
            if self._init:
                raise ClientViolation("a second INIT")
            self._init = bytes(frame)
            return None
        if not self._init:
            raise ClientViolation("a request before INIT")
        if kind in _BY_HANDLE:
            handle, rest = _string_at(frame, _HEAD_BYTES)
        elif kind == Op.EXTENDED:
            name, after = _string_at(frame, _HEAD_BYTES)
            if name not in _EXTENDED_BY_HANDLE:
                return self._unless_down(kind, number)
            handle, rest = _string_at(frame, after)
        else:
            path = _string_at(frame, _HEAD_BYTES)[0] if self.sentinel or kind == Op.READLINK else b""
            if self.sentinel and path.endswith(self.sentinel):
                self.sentinel_id = number
                return b""
            instead = self._unless_down(kind, number)
            if kind == Op.READLINK and instead is None:
                self._links[number] = self._depth(path)
            return instead
        if kind == Op.CLOSE and handle in self._stale:
            # It went with its link, and nothing of it is left to close.
            self._stale.discard(handle)
            self._answer(number, Status.OK)
            return b""
        real = self._handles.get(handle)
        if self.state is not LinkState.UP or real is None or (self.suspended and kind != Op.CLOSE):
            self._fail(number, kind)
            return b""
        self._expect(number, kind, handle if kind == Op.CLOSE else b"")
        if real == handle:
            return None
        before = bytes(frame[LENGTH_BYTES : rest - len(handle) - LENGTH_BYTES])
        body = b"".join((before, _U32.pack(len(real)), real, frame[rest:]))
        return _U32.pack(len(body)) + body

    def _depth(self, path: bytes) -> int:
        """Return how deep in the mount the directory of a link lies; one that is no name in it may lead nowhere."""
        try:
            return max(0, len(split(path)) - 1 - self._top)
        except OSError:
            return 0

    def _unless_down(self, kind: int, number: int) -> bytes | None:
        if self.state is LinkState.UP and not self.suspended:
            self._expect(number, kind, b"")
            return None
        self._fail(number, kind)
        return b""

    def _expect(self, number: int, kind: int, handle: bytes) -> None:
        if number in self._waiting or number in self.held or len(self._waiting) >= MAX_WAITING:
            raise ClientViolation("an id twice, or too many requests at once")
        self._waiting[number] = kind, handle

    # what the delegator's server sends

    def from_server(self, pieces: Sequence[bytes]) -> None:
        """Take what has come, in order; whole answers go on, and the beginning of one is kept.

        Raises:
            LinkViolation: they are no answers to what was asked. What came before is in ``to_client``.
        """
        self._pieces += pieces
        self._have += sum(map(len, pieces))
        if self._have < max(self._need, LENGTH_BYTES):
            return
        data = memoryview(self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces))
        start = run = 0
        end = self._have
        self._need = 0
        try:
            while end - start >= LENGTH_BYTES:
                (size,) = _U32.unpack_from(data, start)
                if not _HEAD_BYTES - LENGTH_BYTES <= size <= MAX_PACKET:
                    raise LinkViolation(f"an answer of {size} bytes")
                stop = start + LENGTH_BYTES + size
                if stop > end:
                    self._need = stop - start
                    break
                instead = self._check(data[start:stop])
                if instead is not None:
                    if run < start:
                        self.to_client.append(data[run:start])
                    run = stop
                    if instead:
                        self.to_client.append(instead)
                start = stop
        finally:
            if run < start:
                self.to_client.append(data[run:start])
        rest = bytes(data[start:])
        self._pieces = [rest] if rest else []
        self._have = len(rest)

    def _check(self, frame: memoryview) -> bytes | None:
        """Return what sshfs gets instead of an answer: None for the same as it came, nothing where it gets none."""
        _, kind, number = _HEAD.unpack_from(frame)
        if self.state is not LinkState.UP:
            return self._greeted(kind, number)
        asked = self._waiting.get(number)
        if asked is None:
            raise LinkViolation("an answer to nothing that was asked")
        request, handle = asked
        if kind != ReplyType.STATUS and kind != _EXPECTED.get(request):
            raise LinkViolation(f"answer {kind} to request {request}")
        if kind == ReplyType.STATUS and frame[_HEAD_BYTES:_CODE_END] == _OVER_QUOTA:
            self.over_quota = True
        instead = self._given(frame, number) if kind == ReplyType.HANDLE else None
        if request == Op.READLINK:
            depth = self._links.pop(number, 0)
            if kind == ReplyType.NAME and not _leads_inside(frame, depth):
                instead = _STATUS.pack(
                    _STATUS.size - LENGTH_BYTES, ReplyType.STATUS, number, Status.PERMISSION_DENIED, 0, 0
                )
        del self._waiting[number]
        if handle:
            # Whatever the server says to a CLOSE, sshfs does not use the handle again.
            self._handles.pop(handle, None)
        return instead

    def _greeted(self, kind: int, version: int) -> bytes | None:
        if self.state is LinkState.DOWN or not self._init or kind != ReplyType.VERSION or version != VERSION:
            raise LinkViolation("no VERSION, or another than ours")
        self.state = LinkState.UP
        first, self._first = self._first, False
        return None if first else b""

    def _given(self, frame: memoryview, number: int) -> bytes | None:
        try:
            real, rest = _string_at(frame, _HEAD_BYTES)
        except _Truncated:
            raise LinkViolation("a handle that is none") from None
        if rest != len(frame) or not 0 < len(real) <= MAX_HANDLE_BYTES:
            raise LinkViolation("a handle that is none")
        if len(self._handles) + len(self._stale) >= MAX_HANDLES:
            raise LinkViolation("more handles than anybody needs")
        shown = real
        while shown in self._stale or shown in self._handles:
            self._named += 1
            shown = _STRANGE + self._named.to_bytes(8, "big")
        self._handles[shown] = real
        if shown == real:
            return None
        return _HEAD.pack(5 + LENGTH_BYTES + len(shown), ReplyType.HANDLE, number) + _U32.pack(len(shown)) + shown

    # links

    def lose(self) -> None:
        """Take it that the link is gone: whatever waits for an answer gets an error, and handles are stale."""
        if self._first:
            return  # sshfs has not even heard a version: its mount fails when its socket ends
        self.state = LinkState.DOWN
        self._pieces, self._have, self._need = [], 0, 0
        self.to_server.clear()
        for number, (kind, handle) in self._waiting.items():
            if kind == Op.CLOSE:
                self._handles.pop(handle, None)
                self._answer(number, Status.OK)
            else:
                self._fail(number, kind)
        self._waiting.clear()
        self._links.clear()
        self._stale.update(self._handles)
        self._handles.clear()

    def attach(self) -> None:
        """Begin on a new link; once the server has said its version, ``state`` is ``UP``."""
        assert self.state is LinkState.DOWN
        self.state = LinkState.OPENING
        self.to_server.append(self._init)

    def release(self, numbers: set[int]) -> None:
        """Answer held requests, now that their programs know, and the sentinel's."""
        if self.sentinel_id is not None:
            self._answer(self.sentinel_id, Status.IO_ERROR)
        self.sentinel, self.sentinel_id = b"", None
        for number in numbers & self.held:
            self.held.discard(number)
            self._answer(number, Status.IO_ERROR)

    def _fail(self, number: int, kind: int) -> None:
        self.interrupted += 1
        if kind != Op.READ:
            self._answer(number, Status.IO_ERROR)
        elif number in self.held or len(self.held) >= MAX_WAITING:
            raise ClientViolation("an id twice, or too many requests at once")
        else:
            self.held.add(number)

    def _answer(self, number: int, status: Status) -> None:
        self.to_client.append(_STATUS.pack(_STATUS.size - LENGTH_BYTES, ReplyType.STATUS, number, status, 0, 0))


def _leads_inside(frame: memoryview, depth: int) -> bool:
    """Tell whether the one target in a NAME answer can only lead to names in the mount.

    sshfs takes it as a C string and would climb by ``..`` where this saw a longer name: such a target never passes.
    """
    try:
        target, _ = _string_at(frame, _HEAD_BYTES + LENGTH_BYTES)
    except _Truncated:
        return False
    return frame[_HEAD_BYTES : _HEAD_BYTES + LENGTH_BYTES] == _ONE and link_stays(depth, target)


def _string_at(frame: memoryview, offset: int) -> tuple[bytes, int]:
    """Return the string at ``offset``, and where it ends."""
    start = offset + LENGTH_BYTES
    if start <= len(frame):
        end = start + int.from_bytes(frame[offset:start], "big")
        if end <= len(frame):
            return bytes(frame[start:end]), end
    raise _Truncated
