"""One lease while it is served: its view, its counters, its deadline, and what has to die with it."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Final, Protocol

import asyncssh

from sublet.protocol.errors import ErrorCode, LocalCode, SubletError
from sublet.protocol.text import clean_name
from sublet.workspace.byte_budget import ByteBudget
from sublet.workspace.confined.fs import ConfinedFs
from sublet.workspace.confined.write import WritableFs
from sublet.workspace.export import Export, LeaseUsage, LentDirectory
from sublet.workspace.kept.budget import KeptBudget
from sublet.workspace.kept.keeper import OverwriteKeeper
from sublet.workspace.own_names import OwnNames
from sublet.workspace.quota import Quota, QuotaMet
from sublet.workspace.sandbox.git_sandbox import GitSandbox
from sublet.workspace.serving.served_transfers import LeaseTransfers
from sublet.workspace.sftp.core import SftpCore
from sublet.workspace.sftp.handles import HandleBudget, Handles
from sublet.workspace.ssh.keys import read_public_key
from sublet.workspace.ssh.receive_window import WindowRoom
from sublet.workspace.view.export_view import ExportView, WritableView
from sublet.workspace.viewpath import Parts

MAX_MARKS: Final = 1_000
"""Files of one resource that are told of which an index had git not look at them."""
MAX_DENIED: Final = 100
"""Changes that are told of which were refused for a rule; the others are counted."""
MAX_TOUCHED: Final = 50_000
"""Paths of one resource that are remembered as changed."""
MAX_NOTED_BYTES: Final = 6 << 20
"""Bytes of all paths that are remembered of a lease, with what keeps them; beyond, the audit looks at everything."""
MAX_LEASE_BYTES: Final = 12 << 20
"""Bytes of requests and answers that may wait in the channels of one lease, before any window has grown."""
MAX_PEER_BYTES: Final = 44 << 20
"""The same of all leases of one peer: 64 channels."""
MAX_GROWN_BYTES: Final = 12 << 20
"""Bytes by which the windows of all channels of one peer may grow: seven to the full, or each channel by a part."""
_PATH_OVERHEAD: Final = 80
"""Bytes that a remembered path takes besides itself, about."""


class Severable(Protocol):
    """A connection or session that ends with its lease."""

    def sever(self) -> None:
        """End at once, within this call; idempotent."""


@dataclass(slots=True)
class OfPeer:
    """What all leases of one peer have together: threads for its slow work, and the bytes that wait for it."""

    slow: Executor | None = None
    waiting: ByteBudget = field(default_factory=lambda: ByteBudget("waiting bytes of a peer", MAX_PEER_BYTES))
    room: WindowRoom = field(default_factory=lambda: WindowRoom(MAX_GROWN_BYTES))


class ServedLease:
    """An export that clients may use until ``close``, or until its time is up.

    Args:
        export: what is served, to whom, how and for how long.
        threads: where transfers do their work.
        scratch: private directory for what transfers need meanwhile.
        of_peer: what all leases of the peer have together; by default the lease is its only one.
        git: what git runs in for the transport of that name.

    Raises:
        SubletError: ``WORKSPACE_NOT_FOUND`` for a workspace that is not there, ``WORKSPACE_INVALID`` for one that is no
            directory or can't be opened, ``INVALID_ARGUMENT`` for a bad key, lease id or meta file.
    """

    def __init__(
        self,
        export: Export,
        threads: Executor,
        scratch: Path,
        of_peer: OfPeer | None = None,
        git: GitSandbox | None = None,
    ) -> None:
        self.export = export
        of_peer = of_peer or OfPeer()
        self.slow = of_peer.slow
        """Where what takes long in the kernel is done for SFTP sessions."""
        self.waiting = ByteBudget("waiting bytes of a lease", MAX_LEASE_BYTES, of_peer.waiting)
        """Requests and answers that wait in its channels and connections."""
        self.room = of_peer.room
        """What the windows of its channels may grow by, together with those of all leases of the peer."""
        self._noted = ByteBudget("paths that a lease has changed", MAX_NOTED_BYTES)
        limits = export.limits
        quota = Quota(limits.max_total_bytes, limits.max_files, limits.max_file_bytes, self._quota_met)
        self.usage = LeaseUsage(quota=quota)
        self._remembered_quota = False
        if export.before is not None:
            _go_on(self.usage, export.before)
            for path in chain(*self.usage.touched.values(), *self.usage.marks.values()):
                self._noted.take(len(path) + _PATH_OVERHEAD)
        self.connections: set[Severable] = set()
        self.deadline = time.monotonic() + export.seconds
        self._closed = False
        self._key = _public_data(export)
        self._handles = HandleBudget(limits.max_handles)
        self._kept = KeptBudget(must_keep=export.must_keep)
        trees: dict[str, ConfinedFs] = {}
        try:
            for resource in export.resources:
                trees[resource.name] = self._open(resource, quota)
            writable = any(isinstance(tree, WritableFs) for tree in trees.values())
            copies = {resource.name: resource.copies for resource in export.resources}
            self.view: ExportView = (WritableView if writable else ExportView)(trees, export.meta, copies)
        except SubletError:
            for tree in trees.values():
                tree.close()
            raise
        self.transfers = LeaseTransfers(
            trees,
            self.view,
            copies,
            quota,
            self.usage,
            self.is_live,
            export.transport,
            threads,
            scratch,
            git or GitSandbox(),
            export.memory,
        )

    def is_live(self) -> bool:
        """Tell whether the lease holds, by its deadline and whatever any timer did."""
        return not self._closed and time.monotonic() < self.deadline

    def admits(self, key: asyncssh.SSHKey) -> bool:
        """Tell whether ``key`` may log in now."""
        return self.is_live() and self.has_room() and key.public_data == self._key

    def has_room(self) -> bool:
        """Tell whether one more connection fits."""
        return len(self.connections) < self.export.limits.max_connections

    def join(self, connection: Severable) -> None:
        """Count ``connection``, which has logged in, and cut it with the lease."""
        self.connections.add(connection)
        self.usage.connections += 1
        if len(self.connections) == 1:
            self._tell_connected(True)

    def leave(self, connection: Severable) -> None:
        """Forget ``connection``, which is over. Idempotent."""
        if connection in self.connections:
            self.connections.remove(connection)
            if not self.connections:
                self._tell_connected(False)

    def new_session(self) -> SftpCore:
        """Return a new SFTP session on the view."""
        return SftpCore(self.view, self.usage, Handles(self._handles), self.is_live)

    def close(self) -> None:
        """End the lease within this call: connections, sessions and handles are dead when it returns. Idempotent."""
        if self._closed:
            return
        self._closed = True
        for connection in list(self.connections):
            connection.sever()
        self.connections.clear()
        self.waiting.empty()
        self.view.close()

    def _tell_connected(self, connected: bool) -> None:
        if self.export.on_connected is not None and self.is_live():
            self.export.on_connected(connected)

    def _quota_met(self, met: QuotaMet) -> None:
        if self.export.memory is not None and not self._remembered_quota:
            self._remembered_quota = True
            self.export.memory.quota_met(met)
            self.export.memory.count(self.usage)
        if self.export.on_quota_met is not None:
            self.export.on_quota_met(met)

    def _open(self, resource: LentDirectory, quota: Quota) -> ConfinedFs:
        try:
            root = resource.open_root() if resource.open_root else ConfinedFs.open_root(resource.path)
        except OSError as exc:
            gone = isinstance(exc, FileNotFoundError)
            raise SubletError(
                ErrorCode.WORKSPACE_NOT_FOUND if gone else ErrorCode.WORKSPACE_INVALID,
                f"the directory {resource.name!r} cannot be opened: {exc.strerror}",
                "Check that the directory still exists and that you may read it.",
            ) from None
        status = os.fstat(root)
        identity = (status.st_dev, status.st_ino)
        memory, before = self.export.memory, self.usage.roots.get(resource.name)
        if before not in (None, identity):
            os.close(root)
            raise SubletError(
                ErrorCode.WORKSPACE_INVALID,
                f"the directory {resource.name!r} was moved, removed or replaced since it was lent",
                "Delegate again; what was written went with the directory that was lent.",
            )
        if memory is not None and before is None:
            memory.root(resource.name, identity)
        self.usage.roots[resource.name] = identity
        if resource.access_mode == "ro":
            private = resource.open_root is not None
            return ConfinedFs(root, resource.rules, quota, private=private, patient=False)
        touched = self.usage.touched.setdefault(resource.name, set())
        try:
            keeper = None if resource.kept is None else OverwriteKeeper(resource.kept, resource.rules, self._kept)
        except SubletError:
            os.close(root)
            raise
        return WritableFs(
            root,
            resource.rules,
            quota,
            partial(self._touch, resource.name, touched),
            own=self._own(resource.name),
            private=resource.open_root is not None,
            patient=False,
            on_refused=partial(self._denied, resource.name),
            keeper=keeper,
            on_marks=partial(self._marked, resource.name),
        )

    def _own(self, name: str) -> OwnNames:
        own = self.usage.own.setdefault(name, OwnNames())
        if (memory := self.export.memory) is not None:
            own.tell = partial(memory.own, name)
        return own

    def _denied(self, name: str, parts: Parts, reason: str) -> None:
        """Keep which change was refused and why, for both sides to read."""
        usage, shown = self.usage, clean_name(b"/".join(parts))
        path = f"{name}/{shown}" if len(self.export.resources) > 1 else shown
        line = f"{path}: {reason}"
        if line in usage.denied:
            return
        usage.denied_count += 1
        if len(usage.denied) < MAX_DENIED:
            usage.denied.append(line)
            if self.export.memory is not None:
                self.export.memory.denied(line)
            if self.export.on_denied is not None:
                self.export.on_denied(line)

    def _marked(self, name: str, paths: Sequence[bytes]) -> None:
        known = self.usage.marks.setdefault(name, set())
        for path in paths:
            if path not in known and len(known) < MAX_MARKS and self._noted.take(len(path) + _PATH_OVERHEAD):
                known.add(path)
                if self.export.memory is not None:
                    self.export.memory.mark(name, path)

    def _touch(self, name: str, touched: set[bytes], parts: Parts) -> None:
        path, memory = b"/".join(parts), self.export.memory
        if path in touched:
            return
        if len(touched) < MAX_TOUCHED and self._noted.take(len(path) + _PATH_OVERHEAD):
            touched.add(path)
            if memory is None or memory.touch(name, path):
                return
        elif memory is not None and not self.usage.touched_overflow:
            memory.overflow()
        self.usage.touched_overflow = True


def _go_on(usage: LeaseUsage, before: LeaseUsage) -> None:
    """Let ``usage`` go on where an earlier process's ended."""
    usage.bytes_read, usage.bytes_written, usage.operations = before.bytes_read, before.bytes_written, before.operations
    usage.touched = {name: set(paths) for name, paths in before.touched.items()}
    usage.touched_overflow = before.touched_overflow
    usage.roots = dict(before.roots)
    usage.quota.bytes, usage.quota.files = before.quota.bytes, before.quota.files
    usage.quota.met = before.quota.met
    usage.marks = {name: set(paths) for name, paths in before.marks.items()}
    usage.own = dict(before.own)
    usage.denied, usage.denied_count = before.denied[:MAX_DENIED], before.denied_count
    usage.returned, usage.refused, usage.refused_count = before.returned, list(before.refused), before.refused_count


def _public_data(export: Export) -> bytes:
    try:
        return read_public_key(export.public_key).public_data
    except ValueError:
        raise SubletError(
            LocalCode.INVALID_ARGUMENT,
            "the executor's public key is no OpenSSH public key line",
            "The peer has to send its key as in 'ssh-ed25519 AAAA…'.",
        ) from None
