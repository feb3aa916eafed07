"""The files of one workspace's snapshots: their repository, what each holds, and which is the newest."""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

from sublet.disk.durable import write_durably
from sublet.protocol.errors import LocalCode, SubletError
from sublet.workspace.audit import manifest as manifests
from sublet.workspace.audit.manifest import Manifest
from sublet.workspace.audit.path_tree import PathTree, differing
from sublet.workspace.audit.shadow_git import (
    MAX_LISTING_BYTES,
    SYMLINK,
    Importer,
    Packs,
    ShadowGit,
    checked_id,
)
from sublet.workspace.audit.snapshot import MAX_ENTRIES, SETTLED_NS, take
from sublet.workspace.export import ViewRules
from sublet.workspace.git.refs import Refs

_SALT_BYTES: Final = 16
_LISTING: Final = "listing"
"""Begins the message of a commit; the id of the blob follows that lists directories and permissions."""


def lock(directory: Path, *, create: bool) -> int:
    """Return a descriptor that holds the lock of ``directory`` until it is closed."""
    while True:
        if create:
            directory.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            directory.mkdir(mode=0o700, exist_ok=True)
        lock = os.open(directory / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            with contextlib.suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(lock), (directory / "lock").stat()):
                    return lock
        except BaseException:
            os.close(lock)
            raise
        os.close(lock)  # forgotten while this one waited: the lock is that of a removed directory


class Sound(NamedTuple):
    """A snapshot whose objects were there, and with which packs."""

    commit: str
    packs: Packs


class Shadow:
    """The files of one workspace's audit: repository, manifests, and which snapshot is the newest."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.git = ShadowGit(directory / "git")
        self._manifests = directory / "manifests"
        self._head = directory / "head"
        self._salt = directory / "salt"
        self._refs = directory / "refs"

    def create(self, real: bytes) -> None:
        """Make what is missing."""
        self._manifests.mkdir(mode=0o700, exist_ok=True)
        self.git.create()
        if not self._salt.exists():
            write_durably(self.directory / "workspace", real)
            write_durably(self._salt, secrets.token_hex(_SALT_BYTES).encode())

    def head(self, sound: Sound | None = None) -> str | None:
        """Return the newest snapshot, or None where there is none that can be used: its objects may be lost.

        Git is asked, unless the snapshot was ``sound`` and no pack came or went since.
        """
        commit = self._named()
        if commit is None:
            return None
        known = sound is not None and sound == self.sound(commit)
        return commit if known or self.git.holds(commit) else None

    def sound(self, commit: str) -> Sound | None:
        """Return what to remember of a snapshot that git has just made or found.

        None where the time of the packs is too young: another change within the same tick would leave it as it is.
        """
        packs = self.git.packs()
        return None if packs is None or packs[-1] > time.time_ns() - SETTLED_NS else Sound(commit, packs)

    def _named(self) -> str | None:
        with contextlib.suppress(FileNotFoundError, SubletError):
            return checked_id(self._head.read_bytes().decode("ascii", "replace"))
        return None

    def manifest(self, commit: str | None) -> PathTree[manifests.Record]:
        """Return what ``commit`` holds."""
        if commit is None:
            return PathTree()
        known = manifests.load(self._manifests, commit)
        if known is not None:
            return known
        files = PathTree((path, manifests.Record(mode, blob, None)) for path, mode, blob in self.git.entries(commit))
        with contextlib.suppress(ValueError):
            head, _, listed = self.git.message(commit).strip().decode("ascii", "replace").partition(" ")
            if head == _LISTING:
                content = self.git.blob(listed, limit=MAX_LISTING_BYTES)
                return files if content is None else manifests.with_listing(files, content)
        return files

    def differing(self, before: str, after: str) -> tuple[Manifest, Manifest]:
        """Return what two snapshots hold, with what is the same in both left out as far as that is cheap."""
        found = manifests.load_differing(self._manifests, before, after)
        return (self.manifest(before), self.manifest(after)) if found is None else found

    @property
    def salt(self) -> bytes:
        """The secret of this workspace.

        Raises:
            SubletError: ``UNAVAILABLE`` where the file was damaged: nothing is named by half a secret.
        """
        salt = self._salt.read_bytes()
        if len(salt) != 2 * _SALT_BYTES:
            raise SubletError(
                LocalCode.UNAVAILABLE,
                f"{self._salt} is damaged, so what was there before can't be compared with what is there now",
                f"Remove {self.directory}, with all snapshots of that workspace.",
            )
        return salt

    def keep_refs(self, snapshot: str, refs: Refs) -> None:
        """Write ``refs`` whole or not at all; those of earlier snapshots are forgotten."""
        lines = b"".join(value + b" " + name + b"\0" for name, value in refs.items() if b"\0" not in value)
        write_durably(self._refs, snapshot.encode() + b"\0" + lines)

    def kept_refs(self, snapshot: str) -> dict[bytes, bytes]:
        """Return what ``keep_refs`` wrote.

        Raises:
            SubletError: ``NOT_FOUND``.
        """
        with contextlib.suppress(FileNotFoundError):
            head, *lines = self._refs.read_bytes().split(b"\0")
            if head == snapshot.encode():
                # a value may hold a space, as "ref: refs/heads/main" does, a name never
                pairs = (line.rpartition(b" ") for line in lines if line)
                return {name: value for value, _, name in pairs}
        raise SubletError(
            LocalCode.NOT_FOUND,
            "it is not known which references the repository had before the lease",
            "Compare them with another copy of the repository.",
        )

    def snapshot(
        self,
        root: Path | int,
        rules: ViewRules,
        parent: str | None,
        known: PathTree[manifests.Record],
        *,
        moves_head: bool = True,
        own: Callable[[bytes], bool] | None = None,
        most: int = MAX_ENTRIES,
    ) -> tuple[str, Manifest, list[tuple[bytes, str]]]:
        """Read the workspace, commit what differs from ``parent``; return the commit, its manifest and what failed.

        The head spares the next audit of the workspace itself reading what it knows; other trees leave it alone.
        Differences that are not the tree's ``own`` are taken back.
        """
        with self.git.importer() as importer:
            taken = take(root, rules, known, self.salt, importer.blob, most)
            found = taken.manifest if own is None else _own_changes(taken.manifest, known, own)
            commit = parent
            if commit is None or _differ(known, found):
                commit = _commit(importer, parent, known, found)
        if commit != parent or found != known:
            manifests.save(self._manifests, commit, found)
        if moves_head and commit != self._named():
            write_durably(self._head, commit.encode())
        return commit, found, taken.unread


def _differ(known: PathTree[manifests.Record], found: PathTree[manifests.Record]) -> bool:
    """Tell whether any name came or went, or holds something else."""
    return any(old is None or not old.same(new) for _, old, new in differing(known, found))


def _commit(
    importer: Importer,
    parent: str | None,
    known: PathTree[manifests.Record],
    found: PathTree[manifests.Record],
) -> str:
    """Commit ``found`` on its parent, which holds ``known``; return the commit."""
    # Git can't be told that a link replaces a file of a name it refuses for links: it goes first.
    deleted = (
        path
        for path, old, new in differing(known, found)
        if old is not None
        and not old.is_directory
        and (new is None or new.is_directory or (old.mode == SYMLINK) != (new.mode == SYMLINK))
    )
    changed = (
        (path, new.mode, new.blob)
        for path, old, new in differing(known, found)
        if new is not None and not new.is_directory and (old is None or old[:2] != new[:2])
    )
    # Two snapshots that differ in directories only are two commits, each with a manifest of its own.
    listed = importer.pieces(manifests.Listing(found))
    return importer.commit(parent, deleted, changed, f"{_LISTING} {listed}".encode())


def _own_changes(
    found: PathTree[manifests.Record], known: PathTree[manifests.Record], own: Callable[[bytes], bool]
) -> PathTree[manifests.Record]:
    """Return ``found`` with what is known instead, wherever the difference is not the tree's own."""
    others = [
        (path, old)
        for path, old, new in differing(known, found)
        if path != manifests.ROOT and (old is None or not old.same(new)) and not own(path)
    ]
    for path, old in others:
        if old is None:
            del found[path]
        else:
            found[path] = old
    return found
