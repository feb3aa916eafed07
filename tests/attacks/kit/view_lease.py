"""A lease as a hostile executor has it: raw SFTP straight into the core, over one directory and its rules."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import asyncssh

from sublet.workspace.export import Export, ExportLimits, LeaseUsage, LentDirectory, ViewRules
from sublet.workspace.serving.lease_memory import LeaseMemory, recall
from sublet.workspace.serving.served_lease import ServedLease
from sublet.workspace.sftp.reply import SlowReply
from support.sftp_client import NO_ATTRIBUTES, CoreClient, Packet, frame, next_reply, parse, string

KEY = asyncssh.generate_private_key("ssh-ed25519").export_public_key().decode().strip()
READ, WRITE, CREAT = 1, 2, 8


class Lease(CoreClient):
    """One session of a lease. Names are relative to the directory that is lent."""

    def __init__(self, lease: ServedLease) -> None:
        self.lease = lease
        self.waited = 0
        """How often something had to be found out in a thread."""
        super().__init__(lease.new_session())

    def ask(self, kind: int, body: bytes) -> Packet:
        self.core.receive(frame(kind, 7, body))
        answer = b""
        while not answer:
            reply = next_reply(self.core)
            assert reply is not None
            if isinstance(reply, SlowReply):
                self.waited += 1
            answer = reply if isinstance(reply, bytes) else reply.answer()
        return parse(answer)

    @property
    def usage(self) -> LeaseUsage:
        return self.lease.usage

    @property
    def denied(self) -> list[str]:
        return self.lease.usage.denied

    def own(self) -> list[bytes]:
        return list(self.lease.usage.own["workspace"].paths())

    def open_status(self, name: bytes, flags: int) -> int:
        """Open and close again; return the status, 0 where it opened."""
        opened = self.open(b"/workspace/" + name, flags)
        if opened.kind == 102:
            self.close(opened.handle)
            return 0
        assert opened.status is not None
        return opened.status

    def handle(self, name: bytes, flags: int) -> bytes:
        """Open a file."""
        return self.open(b"/workspace/" + name, flags).handle

    def close(self, handle: bytes) -> None:
        self.ask(4, string(handle))

    def write_at(self, handle: bytes, data: bytes, offset: int) -> int:
        return _status(self.ask(6, string(handle) + struct.pack(">Q", offset) + string(data)))

    def put(self, name: bytes, data: bytes, flags: int = WRITE | CREAT) -> int:
        """Write at the start of a file, which is made where it is not there; return the last status."""
        opened = self.open(b"/workspace/" + name, flags)
        if opened.kind != 102:
            return _status(opened)
        status = self.write_at(opened.handle, data, 0)
        self.close(opened.handle)
        return status

    def data(self, handle: bytes) -> bytes:
        """Return what a handle reads; nothing where that is refused."""
        found = self.ask(5, string(handle) + struct.pack(">QI", 0, 65536))
        return found.data if found.kind == 103 else b""

    def content(self, name: bytes) -> bytes:
        handle = self.handle(name, READ)
        try:
            return self.data(handle)
        finally:
            self.close(handle)

    def by_handle(self, name: bytes, flags: int, attrs: bytes) -> int:
        handle = self.handle(name, flags)
        status = _status(self.ask(10, string(handle) + attrs))
        self.close(handle)
        return status

    def names(self, name: bytes) -> list[bytes]:
        return sorted(found for found in self.listing(b"/workspace/" + name) if found not in (b".", b".."))

    def rename(self, old: bytes, new: bytes, *, posix: bool = False) -> int:
        pair = string(b"/workspace/" + old) + string(b"/workspace/" + new)
        if posix:
            return _status(self.extended(b"posix-rename@openssh.com", pair))
        return _status(self.ask(18, pair))

    def link(self, old: bytes, new: bytes) -> int:
        return _status(
            self.extended(b"hardlink@openssh.com", string(b"/workspace/" + old) + string(b"/workspace/" + new))
        )

    def remove(self, name: bytes) -> int:
        return _status(self.ask(13, string(b"/workspace/" + name)))

    def mkdir(self, name: bytes) -> int:
        return _status(self.ask(14, string(b"/workspace/" + name) + NO_ATTRIBUTES))


@contextmanager
def served(
    root: Path, rules: ViewRules, *, max_bytes: int | None = None, memory: Path | None = None
) -> Iterator[Lease]:
    """Lend ``root`` for writing while the block runs; with ``memory``, go on where a process before has ended."""
    before = recall(memory) if memory is not None and memory.exists() else None
    kept = LeaseMemory(memory) if memory is not None else None
    export = Export(
        "dlg_" + "a" * 32,
        (LentDirectory("workspace", root, "rw", rules),),
        KEY,
        60,
        limits=ExportLimits(max_total_bytes=max_bytes),
        memory=kept,
        before=before,
    )
    before_fds = len(os.listdir("/proc/self/fd"))
    with ThreadPoolExecutor(1) as threads:
        lease = ServedLease(export, threads, root.parent / "scratch")
        session = Lease(lease)
        try:
            yield session
        finally:
            session.core.close()
            lease.close()
            if kept is not None:
                kept.count(lease.usage)
                kept.close()
    assert len(os.listdir("/proc/self/fd")) <= before_fds


def _status(packet: Packet) -> int:
    assert packet.status is not None, packet
    return packet.status
