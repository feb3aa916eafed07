"""A hostile repository: packs, bundles and streams as no git makes them, and a lender that serves them."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import zlib
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

import asyncssh

from sublet.workspace.archive.tar_format import END, Entry, header, padding
from sublet.workspace.archive.wire import Frame, data_frames, frame
from sublet.workspace.export import MountTarget
from support.sftp_lender import LEASE, public_line

Kind = Literal["commit", "tree", "blob", "tag"]
BRANCH: Final = b"refs/heads/sublet"
_NUMBERS: Final[Mapping[Kind, int]] = {"commit": 1, "tree": 2, "blob": 3, "tag": 4}
_NAMED_DELTA: Final = 7
_WHO: Final = b"Mallory <mallory@localhost> 946684800 +0000"


def object_id(kind: Kind, content: bytes) -> str:
    """Return the name that git gives to an object."""
    return hashlib.sha1(b"%s %d\0" % (kind.encode(), len(content)) + content, usedforsecurity=False).hexdigest()


def entry_of_pack(number: int, content: bytes, *, says: int | None = None, base: str | None = None) -> bytes:
    """Return one object of a pack.

    Args:
        number: of its kind, as packs count them.
        content: the object, or the delta.
        says: bytes that it claims to have; those that it has by default.
        base: the object that a delta is built on.
    """
    size = len(content) if says is None else says
    byte, size = number << 4 | size & 15, size >> 4
    head = bytearray()
    while size:
        head.append(byte | 0x80)
        byte, size = size & 0x7F, size >> 7
    head.append(byte)
    return bytes(head) + (bytes.fromhex(base) if base else b"") + zlib.compress(content)


def pack_of(entries: Sequence[bytes], *, count: int | None = None) -> bytes:
    """Return a pack of ``entries`` that says it holds ``count``."""
    content = b"PACK\0\0\0\2" + (len(entries) if count is None else count).to_bytes(4, "big") + b"".join(entries)
    return content + hashlib.sha1(content, usedforsecurity=False).digest()


def bundle_of(commit: str, pack: bytes, *, needs: Iterable[str] = (), branch: bytes = BRANCH) -> bytes:
    """Return a bundle whose branch is ``commit``."""
    lines = b"".join(b"-%s\n" % need.encode() for need in needs)
    return b"# v2 git bundle\n" + lines + commit.encode() + b" " + branch + b"\n\n" + pack


def delta(base: int, made: int, steps: bytes) -> bytes:
    """Return a difference that says it makes ``made`` bytes of ``base``."""
    return _varint(base) + _varint(made) + steps


def _varint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


@dataclass
class Objects:
    """Objects of a repository that does not exist; each method adds one and returns its name."""

    entries: list[bytes] = field(default_factory=list)

    def add(self, kind: Kind, content: bytes) -> str:
        self.entries.append(entry_of_pack(_NUMBERS[kind], content))
        return object_id(kind, content)

    def blob(self, content: bytes) -> str:
        return self.add("blob", content)

    def delta(self, base: str, content: bytes) -> None:
        self.entries.append(entry_of_pack(_NAMED_DELTA, content, base=base))

    def tree(self, names: Iterable[tuple[bytes, bytes, str]]) -> str:
        """Add a tree of (mode, name, object), which git does not look at, in the order in which they are given."""
        return self.add("tree", b"".join(b"%s %s\0" % (mode, name) + bytes.fromhex(to) for mode, name, to in names))

    def files(self, files: Mapping[bytes, bytes]) -> str:
        """Add the tree of files by path."""
        here: dict[bytes, tuple[bytes, str]] = {}
        below: dict[bytes, dict[bytes, bytes]] = {}
        for path, content in files.items():
            first, _, rest = path.partition(b"/")
            if rest:
                below.setdefault(first, {})[rest] = content
            else:
                here[first] = (b"100755", self.blob(content))
        here |= {name: (b"40000", self.files(inner)) for name, inner in below.items()}
        order = sorted(here, key=lambda name: name + (b"/" if here[name][0] == b"40000" else b""))
        return self.tree((here[name][0], name, here[name][1]) for name in order)

    def commit(self, tree: str) -> str:
        return self.add("commit", b"tree %s\nauthor %s\ncommitter %s\n\nx\n" % (tree.encode(), _WHO, _WHO))

    def bundle(self, tree: str, *, needs: Iterable[str] = ()) -> bytes:
        """Return all objects as a bundle of a commit of ``tree``."""
        commit = self.commit(tree)
        return bundle_of(commit, pack_of(self.entries), needs=needs)


def bundle_of_files(files: Mapping[bytes, bytes]) -> bytes:
    """Return a bundle of a tree with these files, by path."""
    objects = Objects()
    return objects.bundle(objects.files(files))


def stream_of(entries: Iterable[tuple[Entry, bytes]]) -> bytes:
    """Return a tar stream of entries, each with its content; its size is set."""
    pieces = []
    for entry, content in entries:
        whole = Entry(entry.parts, entry.kind, entry.mode, len(content), entry.modified_ns, entry.target)
        pieces += [header(whole), content, padding(len(content))]
    return b"".join([*pieces, END])


def file(name: bytes, content: bytes) -> tuple[Entry, bytes]:
    """Return an entry of a stream: a file, whatever its name."""
    return Entry(tuple(name.split(b"/")), "file", 0o600), content


def link(name: bytes, target: bytes) -> tuple[Entry, bytes]:
    """Return an entry of a stream: a symbolic link."""
    return Entry(tuple(name.split(b"/")), "symlink", 0o777, target=target), b""


META: Final = (Entry((b"meta",), "directory", 0o700), b"")


class _Session(asyncssh.SSHServerSession[bytes]):
    def __init__(self, stream: bytes, first: bytes) -> None:
        self._stream = stream
        self._first = first
        self._channel: asyncssh.SSHServerChannel[bytes] | None = None

    def connection_made(self, chan: asyncssh.SSHServerChannel[bytes]) -> None:
        self._channel = chan

    def subsystem_requested(self, subsystem: str) -> bool:
        return True

    def data_received(self, data: bytes, datatype: int | None) -> None:
        assert self._channel is not None
        if data[:1] == bytes([Frame.GET]):
            self._channel.write(self._first)
            for piece in data_frames(self._stream):
                self._channel.write(piece)
            self._channel.write(frame(Frame.END))


class _Server(asyncssh.SSHServer):
    def __init__(self, key: str, stream: bytes, first: bytes) -> None:
        self._key = asyncssh.import_public_key(key)
        self._stream = stream
        self._first = first

    def begin_auth(self, username: str) -> bool:
        return True

    def public_key_auth_supported(self) -> bool:
        return True

    def validate_public_key(self, username: str, key: asyncssh.SSHKey) -> bool:
        return key == self._key

    def session_requested(self) -> asyncssh.SSHServerSession[bytes]:
        return _Session(self._stream, self._first)


@contextlib.asynccontextmanager
async def hostile_lender(stream: bytes, key: asyncssh.SSHKey, first: bytes = b"") -> AsyncIterator[MountTarget]:
    """Serve ``first`` as it is, and ``stream`` in frames, as the view of a lease to the holder of ``key``."""
    host_key = asyncssh.generate_private_key("ssh-ed25519")
    public = public_line(key)
    server = await asyncssh.listen(
        "127.0.0.1",
        0,
        server_factory=lambda: _Server(public, stream, first),
        server_host_keys=[host_key],
        encoding=None,
    )
    try:
        yield MountTarget("127.0.0.1", server.get_port(), LEASE, public_line(host_key))
    finally:
        server.close()
        async with asyncio.timeout(5):
            await server.wait_closed()


def index_of(entries: Sequence[tuple[bytes, int, str]]) -> bytes:
    """Return an index of version 2 with entries of path, mode and blob."""
    pieces = []
    for path, mode, blob in sorted(entries):
        whole = bytes(24) + mode.to_bytes(4, "big") + bytes(12) + bytes.fromhex(blob)
        whole += len(path).to_bytes(2, "big") + path
        pieces.append(whole + bytes(8 - len(whole) % 8))
    content = b"DIRC\0\0\0\2" + len(entries).to_bytes(4, "big") + b"".join(pieces)
    return content + hashlib.sha1(content, usedforsecurity=False).digest()
