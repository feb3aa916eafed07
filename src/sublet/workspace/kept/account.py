"""Reports which edits of others a live lease overwrote, and what of them can't be taken back (DESIGN 4.12)."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Final

from sublet.disk.durable import write_durable_pieces
from sublet.disk.openat2 import DIRECTORY_PATH, open_real
from sublet.disk.plain_file import read_plain
from sublet.disk.private_dir import PrivateDir
from sublet.workspace.audit.manifest import Manifest
from sublet.workspace.audit.reporting import author_of
from sublet.workspace.kept.blocks import name_of
from sublet.workspace.kept.budget import KeptBudget
from sublet.workspace.kept.keeper import CLOCK_NS
from sublet.workspace.kept.log import KeptState, Overwritten, load
from sublet.workspace.kept.rebuilding import FilesAsLeft, rebuild
from sublet.workspace.kept.signature import Signature

ACCOUNT: Final = "account.json"
MAX_ACCOUNT_BYTES: Final = 64 << 20
_DRAFT: Final = ".draft"
_CREATE: Final = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
MAX_TOLD: Final = 1_000
"""Edits of others, and files that can't be taken back, that an account names."""


@dataclass(frozen=True, slots=True)
class Account:
    """What the end of a lease found.

    ``others`` are files that somebody else edited during the lease and that the lease overwrote, with the file that
    keeps the edit, None where it was not kept; ``after`` are files of the lease that somebody else changed last;
    ``lost`` are those of which no state before was kept.
    """

    others: tuple[tuple[bytes, Path | None], ...] = ()
    after: tuple[bytes, ...] = ()
    lost: tuple[bytes, ...] = ()


@dataclass(frozen=True, slots=True)
class Written:
    """What the lease changed, as it was noted at its end; ``after`` are files that somebody else changed last."""

    touched: frozenset[bytes]
    overflow: bool
    after: frozenset[bytes]


def settle(
    directory: Path, root: Path, touched: Collection[bytes], overflow: bool, before: Manifest, changed: Iterable[bytes]
) -> Account:
    """Look at what a lease left, once its access is cut, and note what taking it back needs to know.

    Args:
        directory: where it was kept what it overwrote.
        root: the directory that was lent.
        touched: paths that the lease changed.
        overflow: whether those are not all.
        before: the snapshot before the lease.
        changed: paths that differ through the lease between the snapshots.

    Raises:
        OSError: the list can't be read, or the notes can't be written.
    """
    found = load(directory)
    others: dict[bytes, Path | None] = {}
    lost: dict[bytes, None] = {}
    author = author_of(touched, overflow)
    states = [state for state in found.states if author(state.path) == "executor"]  # what failed changed nothing
    for state in states:
        if state.by == "other" or (state.by == "first" and state.path not in before):
            others[state.path] = _kept_as(directory, root, state, touched)
        if state.lost:
            lost[state.path] = None
    kept = {state.path for state in states}.difference(touched)
    unnoted = (path for path in changed if path not in touched and path not in kept)  # one by one: they may be many
    after = sorted({path for path in chain(touched, kept, unnoted) if _is_of_others(root, path, found)})
    write_durable_pieces(directory / ACCOUNT, _said(touched, overflow, after))
    return Account(tuple(sorted(others.items())[:MAX_TOLD]), tuple(after[:MAX_TOLD]), tuple(sorted(lost)[:MAX_TOLD]))


def _said(touched: Iterable[bytes], overflow: bool, after: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the notes as JSON, path by path."""
    yield b'{"touched": ['
    yield from _joined(touched)
    yield b'], "after": ['
    yield from _joined(after)
    yield b'], "overflow": %s}' % json.dumps(overflow).encode()


def _joined(paths: Iterable[bytes]) -> Iterator[bytes]:
    for number, path in enumerate(paths):
        yield (b", " if number else b"") + json.dumps(os.fsdecode(path)).encode()


def written(directory: Path) -> Written:
    """Return what was noted at the end of a lease.

    Raises:
        OSError: it is not there.
        ValueError: it can't be read.
    """
    said = json.loads(read_plain(directory / ACCOUNT, MAX_ACCOUNT_BYTES, follow=False))
    return Written(
        frozenset(map(os.fsencode, said["touched"])),
        bool(said["overflow"]),
        frozenset(map(os.fsencode, said["after"])),
    )


def _kept_as(directory: Path, root: Path, state: KeptState, places: Collection[bytes]) -> Path | None:
    """Return the file that keeps an edit, made whole for people where there is room; None where it was not kept."""
    if state.number is None:
        return None
    whole = directory / str(state.number)
    if not state.blocks or whole.exists():
        return whole
    draft = directory / f"{state.number}{_DRAFT}"
    with suppress(OSError), PrivateDir.open(directory) as place, _opened(root) as root_fd:
        used = sum(entry.stat(follow_symlinks=False).st_size for entry in os.scandir(directory))
        KeptBudget(bytes=used).check(state.size, place.fileno())
        draft.unlink(missing_ok=True)  # of a process that was killed
        target = os.open(draft, _CREATE, 0o600)
        try:
            rebuild(place.fileno(), state.number, FilesAsLeft(root_fd, places), state.path, target)
            draft.rename(whole)
        except OSError:
            draft.unlink()
            raise
        finally:
            os.close(target)
        return whole
    return directory / name_of(state.number)  # `undo` builds it


@contextmanager
def _opened(root: Path) -> Iterator[int]:
    fd = open_real(root, DIRECTORY_PATH)
    try:
        yield fd
    finally:
        os.close(fd)


def _is_of_others(root: Path, path: bytes, found: Overwritten) -> bool:
    """Tell whether somebody else than the lease has, or may have, changed a file or link last."""
    try:
        status = os.lstat(os.path.join(os.fsencode(root), path))
    except OSError:
        return False
    if stat.S_ISDIR(status.st_mode):
        return False
    signature = Signature.of(status)
    if status.st_ino in found.known:
        return found.known[status.st_ino] != signature
    unwritten = found.unwritten.get(status.st_ino)
    if unwritten is not None and unwritten[0] == signature:
        return False
    return status.st_ctime_ns >= found.begin_ns - CLOCK_NS
