"""The handles of an SFTP session, counted for the whole lease."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Generator
from typing import Final

from sublet.workspace.confined.file import WriteFile
from sublet.workspace.confined.fs import ReadFile
from sublet.workspace.confined.later import NotKnownYet
from sublet.workspace.sftp.wire import pack_entry
from sublet.workspace.view.export_view import OpenDirectory, OpenFile
from sublet.workspace.viewpath import refused

_ENTRY_OVERHEAD: Final = 40
_STEP_ENTRIES: Final = 64
"""Entries that are looked at in one step, which takes some hundred microseconds."""
MAX_LISTINGS: Final = 128
"""Directories that one lease may have open: the C library keeps 32 KiB for each."""


class HandleBudget:
    """How many handles all sessions of one lease may hold together, and how many of them on directories."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0
        self.listings = 0


class Listing:
    """A directory that is being read, packet by packet; starts with ``.`` and ``..``."""

    def __init__(self, directory: OpenDirectory) -> None:
        self._directory = directory
        self._entries = directory.entries_or_pauses()
        self._begun = False

    def stat(self) -> os.stat_result:
        """Return the directory's status."""
        return self._directory.stat()

    def next_entries(self, limit: int) -> Generator[None, None, list[bytes]]:
        """Return, step by step, the next packed entries, about ``limit`` bytes of them; none at the end."""
        packed: list[bytes] = []
        size = 0
        if not self._begun:
            self._begun = True
            own = self._directory.stat()
            # ".." shows the directory itself: what lies above is not the client's business
            packed += [pack_entry(b".", own), pack_entry(b"..", own)]
        count = 0
        while True:
            try:
                entry = next(self._entries)
            except StopIteration:
                break
            except NotKnownYet as unknown:
                if not packed:
                    raise
                unknown.drop()  # it is asked for again with the next page
                break
            count += 1
            if entry is not None:
                name, status = entry
                packed.append(pack_entry(name, status))
                size += len(name) + _ENTRY_OVERHEAD
                if size > limit:
                    break
            if entry is None or count % _STEP_ENTRIES == 0:
                yield
        return packed

    def close(self) -> None:
        """Close the directory."""
        self._directory.close()


Handle = OpenFile | Listing


class Handles:
    """One session's open handles by their wire name.

    Args:
        budget: shared by all sessions of the lease.
    """

    def __init__(self, budget: HandleBudget) -> None:
        self._budget = budget
        self._open: dict[bytes, Handle] = {}
        self._next = 0

    @property
    def limit(self) -> int:
        """How many handles the lease may hold."""
        return self._budget.limit

    def make_room(self, *, listing: bool = False) -> None:
        """Make sure that one more handle fits; to be called before anything is opened.

        Args:
            listing: whether it is one on a directory.

        Raises:
            OSError: ``EMFILE``.
        """
        budget = self._budget
        if budget.used >= budget.limit or (listing and budget.listings >= MAX_LISTINGS):
            raise refused(errno.EMFILE)

    def add(self, handle: Handle) -> bytes:
        """Keep ``handle`` and return its wire name, which is never used twice."""
        name = self._next.to_bytes(8, "big")
        self._next += 1
        self._open[name] = handle
        self._budget.used += 1
        self._budget.listings += isinstance(handle, Listing)
        return name

    def any(self, name: bytes) -> Handle:
        """Return a handle of either kind.

        Raises:
            OSError: ``EBADF`` where there is none; so do all others.
        """
        handle = self._open.get(name)
        if handle is None:
            raise refused(errno.EBADF)
        return handle

    def file(self, name: bytes) -> OpenFile:
        """Return a file's handle."""
        handle = self.any(name)
        if isinstance(handle, Listing):
            raise refused(errno.EBADF)
        return handle

    def real_file(self, name: bytes) -> ReadFile:
        """Return the handle of a file on disk."""
        handle = self.any(name)
        if not isinstance(handle, ReadFile):
            raise refused(errno.EBADF)
        return handle

    def writable(self, name: bytes) -> WriteFile:
        """Return the handle of a file that may be changed."""
        handle = self.any(name)
        if not isinstance(handle, WriteFile):
            raise refused(errno.EBADF)
        return handle

    def listing(self, name: bytes) -> Listing:
        """Return a directory's handle."""
        handle = self.any(name)
        if not isinstance(handle, Listing):
            raise refused(errno.EBADF)
        return handle

    def close(self, name: bytes) -> None:
        """Close the file or listing that the client knows by ``name``, and give its place in the budget back.

        Raises:
            OSError: ``EBADF`` for a name that is not open.
        """
        handle = self.any(name)
        del self._open[name]
        self._budget.used -= 1
        self._budget.listings -= isinstance(handle, Listing)
        handle.close()

    def close_all(self) -> None:
        """Close every handle; an error of one keeps none of the others open."""
        handles = list(self._open.values())
        self._open.clear()
        self._budget.used -= len(handles)
        self._budget.listings -= sum(isinstance(handle, Listing) for handle in handles)
        for handle in handles:
            # a late write error has nobody left to hear it
            with contextlib.suppress(OSError):
                handle.close()
