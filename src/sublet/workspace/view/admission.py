"""The admission scan before INVITE: is this directory fit to be lent? (AWCP 6.2, DESIGN 4.4)"""

from __future__ import annotations

import os
import shlex
import stat
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from sublet.policy.limits import MIB
from sublet.policy.limits import AdmissionLimits as AdmissionLimits
from sublet.protocol.errors import ErrorCode, SubletError
from sublet.protocol.text import clean_name
from sublet.workspace.export import LentDirectory, ViewRules
from sublet.workspace.view.walk import Budget, Directory, Parts, Unread, WalkOverrunError, open_root, walk
from sublet.workspace.viewpath import link_stays

MAX_NAMES_LISTED: Final = 100
"""Names in each list of an ``Admission``; the counts beside them are complete."""

MAX_RANKED_DIRECTORIES: Final = 20_000
_REPOSITORY = b".git"
"""Hidden for what it lets an executor do, not for a secret: having one is no reason to refuse."""
_BARE = frozenset({b"HEAD", b"objects", b"refs"})
"""What makes git take a directory for a repository."""
_SURVEY_FACTOR = 10
"""A scan over its limit goes on for this many times the limit, so that the hint can name the largest directories."""
_DOMINANT = 0.8
"""A subdirectory with this share of its parent is named instead of the parent."""


@dataclass(frozen=True, slots=True)
class Admission:
    """What the scan found. Names are relative to the root, cleaned for display and bounded; counts are complete.

    ``unmountable`` are links that a mount can't follow, because they may lead out of the directory, and names that
    another file system is mounted on, which a lease leaves out; ``mounted`` are the latter alone, which no transport
    carries. ``left_out`` counts the names that the delegator chose to leave out, those below them not among them.
    ``bare`` are directories that git takes for a repository and whose settings no rule locks.
    """

    real_path: Path
    total_bytes: int
    files: int
    largest_bytes: int
    largest_file: str
    hidden: tuple[str, ...]
    hidden_count: int
    unmountable: tuple[str, ...]
    unmountable_count: int
    special: tuple[str, ...]
    special_count: int
    left_out: int
    mounted: tuple[str, ...] = ()
    bare: tuple[str, ...] = ()


@dataclass(slots=True)
class _Names:
    """A bounded list with a complete count."""

    listed: list[str] = field(default_factory=list)
    count: int = 0

    def add(self, parts: Parts) -> None:
        self.count += 1
        if len(self.listed) < MAX_NAMES_LISTED:
            self.listed.append(_shown(parts))


@dataclass(slots=True)
class _Tally:
    """Running sums of a scan, in all and by directory of the first two levels."""

    total_bytes: int = 0
    files: int = 0
    largest: int = 0
    largest_parts: Parts = ()
    hidden: _Names = field(default_factory=_Names)
    sensitive: _Names = field(default_factory=_Names)
    unmountable: _Names = field(default_factory=_Names)
    mounted: _Names = field(default_factory=_Names)
    special: _Names = field(default_factory=_Names)
    bare: _Names = field(default_factory=_Names)
    left_out: int = 0
    bytes_by_directory: Counter[Parts] = field(default_factory=Counter)
    files_by_directory: Counter[Parts] = field(default_factory=Counter)

    def add(self, directory: Directory, rules: ViewRules) -> None:
        """Count the entries of one directory, itself not entered again."""
        size = files = 0
        if {name for name, _ in directory.entries} >= _BARE and not rules.locked((*directory.parts, b"config")):
            self.bare.add(directory.parts)
        for name, st in directory.entries:
            if stat.S_ISREG(st.st_mode):
                files += 1
                size += st.st_size
                if st.st_size > self.largest:
                    self.largest, self.largest_parts = st.st_size, (*directory.parts, name)
            elif stat.S_ISLNK(st.st_mode):
                files += 1
                if not _mountable(name, directory):
                    self.unmountable.add((*directory.parts, name))
            elif not stat.S_ISDIR(st.st_mode):
                self.special.add((*directory.parts, name))
        for name in directory.mounts:
            self.unmountable.add((*directory.parts, name))
            self.mounted.add((*directory.parts, name))
        for name in directory.hidden:
            parts = (*directory.parts, name)
            if rules.bars_links(parts):
                # Of a repository that is shown, whatever git does not need is never there. A .git that is no directory
                # is not shown either, which the lease tells with the reason.
                continue
            if rules.left_out(parts) or rules.directory_only(parts):
                self.left_out += 1
                continue
            self.hidden.add(parts)
            if name.lower() != _REPOSITORY:
                self.sensitive.add(parts)
        self.total_bytes += size
        self.files += files
        for depth in range(1, min(2, len(directory.parts)) + 1):
            key = directory.parts[:depth]
            if key in self.files_by_directory or len(self.files_by_directory) < MAX_RANKED_DIRECTORIES:
                self.bytes_by_directory[key] += size
                self.files_by_directory[key] += files


def scan(root: Path, rules: ViewRules, limits: AdmissionLimits) -> Admission:
    """Walk what a lease of ``root`` would export and say what it is, or refuse.

    It blocks: call it in a thread. What rules hide is neither counted nor entered. Whatever can't be looked at refuses.

    Raises:
        SubletError: ``WORKSPACE_NOT_FOUND``, ``WORKSPACE_INVALID`` (no absolute path, no directory, unreadable),
            ``WORKSPACE_TOO_LARGE`` (bytes, files, one file, time) or ``SENSITIVE_FILES`` (AWCP 4.5, 6.2).
    """
    if not root.is_absolute():
        raise SubletError(
            ErrorCode.WORKSPACE_INVALID,
            f"{_path(root)} is not an absolute path, so it does not say which directory is meant",
            "Give the absolute path of a directory on this machine.",
        )
    try:
        real = root.resolve(strict=True)
        root_fd = open_root(real)
    except FileNotFoundError:
        raise SubletError(
            ErrorCode.WORKSPACE_NOT_FOUND,
            f"{_path(root)} does not exist on this machine",
            "Check the path; a directory on another machine is lent by the daemon that runs there.",
        ) from None
    except (OSError, RuntimeError, ValueError) as exc:
        raise _invalid(_path(root), exc) from None
    try:
        return _scan(real, root_fd, rules, limits)
    finally:
        os.close(root_fd)


def scan_all(resources: Sequence[LentDirectory], limits: AdmissionLimits) -> Admission:
    """Scan every directory of a lease, and refuse also what is too much only in all.

    Where there are several, the name of the directory leads each name that is told.

    Raises:
        SubletError: as ``scan``; ``WORKSPACE_INVALID`` for a bare repository that would be lent for writing.
    """
    ends = time.monotonic() + limits.max_seconds
    found: list[tuple[str, Admission]] = []
    for lent in resources:
        left = replace(limits, max_seconds=max(0.0, ends - time.monotonic()))
        admitted = scan(lent.path, lent.rules, left)
        if lent.access_mode == "rw":
            _check_bare(admitted)
        found.append((f"{lent.name}/" if len(resources) > 1 else "", admitted))
    if len(found) == 1:
        return found[0][1]
    total = sum(one.total_bytes for _, one in found)
    files = sum(one.files for _, one in found)
    if total > limits.max_total_bytes or files > limits.max_files:
        each = ", ".join(f"{name} ({_size(one.total_bytes)}, {one.files:,} files)" for name, one in found)
        raise SubletError(
            ErrorCode.WORKSPACE_TOO_LARGE,
            f"the {len(found)} directories hold {_size(total)} in {files:,} files together, more than the "
            f"{_size(limits.max_total_bytes)} and {limits.max_files:,} files allowed",
            f"Lend fewer or smaller directories. They are: {each}.",
        )
    largest_in, largest = max(found, key=lambda one: one[1].largest_bytes)

    def together(names: Callable[[Admission], tuple[str, ...]]) -> tuple[str, ...]:
        return tuple(prefix + name for prefix, one in found for name in names(one))[:MAX_NAMES_LISTED]

    return Admission(
        real_path=found[0][1].real_path,
        total_bytes=total,
        files=files,
        largest_bytes=largest.largest_bytes,
        largest_file=largest_in + largest.largest_file,
        hidden=together(lambda one: one.hidden),
        hidden_count=sum(one.hidden_count for _, one in found),
        unmountable=together(lambda one: one.unmountable),
        unmountable_count=sum(one.unmountable_count for _, one in found),
        special=together(lambda one: one.special),
        special_count=sum(one.special_count for _, one in found),
        left_out=sum(one.left_out for _, one in found),
        mounted=together(lambda one: one.mounted),
    )


def _check_bare(admitted: Admission) -> None:
    """Refuse to have a bare repository written to: its ``config`` and hooks are what the delegator's own git runs."""
    if not admitted.bare:
        return
    where = ", ".join(name or "the directory itself" for name in admitted.bare[:3])
    raise SubletError(
        ErrorCode.WORKSPACE_INVALID,
        f"{_path(admitted.real_path)} holds a bare git repository ({where}), and whoever may write in it decides what "
        "your git runs there",
        "Leave it out with --exclude, lend the directory with --ro, or give the repository a name that ends in "
        ".git: of such ones the settings and hooks are read-only.",
    )


def _scan(real: Path, root_fd: int, rules: ViewRules, limits: AdmissionLimits) -> Admission:
    tally = _Tally()
    budget = Budget(limits.max_files * _SURVEY_FACTOR, limits.max_seconds)
    overrun = ""
    try:
        for found in walk(root_fd, rules, budget):
            if isinstance(found, Unread):
                raise SubletError(
                    ErrorCode.WORKSPACE_INVALID,
                    f"{_shown(found.parts)} in {_path(real)} can't be read: {found.reason}",
                    f"Leave it out with --exclude {_pattern(found.parts)}, or make it readable.",
                )
            tally.add(found, rules)
    except WalkOverrunError as exc:
        overrun = str(exc)
    except OSError as exc:
        raise _invalid(_path(real), exc) from None
    _check_size(real, tally, limits, overrun)
    if tally.sensitive.count and limits.on_sensitive == "refuse":
        held = "1 sensitive name" if tally.sensitive.count == 1 else f"{tally.sensitive.count} sensitive names"
        raise SubletError(
            ErrorCode.SENSITIVE_FILES,
            f"{_path(real)} holds {held}, and the policy refuses to lend such a "
            f"directory: {', '.join(tally.sensitive.listed[:5])}",
            "Lend a subdirectory without them, move them elsewhere, or let the policy hide instead of refuse.",
        )
    return Admission(
        real_path=real,
        total_bytes=tally.total_bytes,
        files=tally.files,
        largest_bytes=tally.largest,
        largest_file=_shown(tally.largest_parts),
        hidden=tuple(tally.hidden.listed),
        hidden_count=tally.hidden.count,
        mounted=tuple(tally.mounted.listed),
        unmountable=tuple(tally.unmountable.listed),
        unmountable_count=tally.unmountable.count,
        special=tuple(tally.special.listed),
        special_count=tally.special.count,
        left_out=tally.left_out,
        bare=tuple(tally.bare.listed),
    )


def _check_size(real: Path, tally: _Tally, limits: AdmissionLimits, overrun: str) -> None:
    at_least = "at least " if overrun else ""
    by_size = _largest(tally.bytes_by_directory, _size)
    by_count = _largest(tally.files_by_directory, "{:,} files".format)
    if tally.total_bytes > limits.max_total_bytes:
        problem = f"{at_least}{_size(tally.total_bytes)}, more than the {_size(limits.max_total_bytes)} allowed"
        largest = by_size
    elif tally.files > limits.max_files:
        problem = f"{at_least}{tally.files:,} files, more than the {limits.max_files:,} allowed"
        largest = by_count
    elif tally.largest > limits.max_file_bytes:
        problem = (
            f"{_shown(tally.largest_parts)} with {_size(tally.largest)}, more than the "
            f"{_size(limits.max_file_bytes)} allowed for one file"
        )
        largest = ""
    elif overrun:
        problem = overrun
        largest = by_count
    else:
        return
    raise SubletError(
        ErrorCode.WORKSPACE_TOO_LARGE,
        f"{_path(real)} holds {problem}",
        "Lend a smaller subdirectory, or move data and caches out of it."
        + (f" Largest: {largest}." if largest else ""),
    )


def _largest(by_directory: Counter[Parts], show: Callable[[int], str]) -> str:
    """Return the three largest top-level directories; where one subdirectory is nearly all of it, that one."""
    top = Counter({key: n for key, n in by_directory.items() if len(key) == 1})
    dominant: dict[Parts, Parts] = {}
    for key, amount in by_directory.items():
        if len(key) == 2 and amount >= _DOMINANT * by_directory[key[:1]]:
            dominant[key[:1]] = key
    named = ((dominant.get(key, key), by_directory[dominant.get(key, key)]) for key, _ in top.most_common(3))
    return ", ".join(f"{_shown(key)}/ ({show(amount)})" for key, amount in named if amount)


def _mountable(name: bytes, directory: Directory) -> bool:
    """Tell whether a mount can follow the link: no server tells one that may lead out of the directory."""
    try:
        target = os.readlink(name, dir_fd=directory.fd)
    except OSError:
        return True  # gone since it was listed
    return link_stays(len(directory.parts), target)


def _invalid(shown: str, exc: Exception) -> SubletError:
    reason = os.strerror(exc.errno) if isinstance(exc, OSError) and exc.errno else str(exc)
    return SubletError(
        ErrorCode.WORKSPACE_INVALID,
        f"{shown} can't be lent: {reason}",
        "Give a directory that you can read and enter.",
    )


def _shown(parts: Parts) -> str:
    return clean_name(b"/".join(parts))


def _pattern(parts: Parts) -> str:
    """Return what a shell takes as the pattern that names exactly this path."""
    written = os.fsdecode(b"/" + b"/".join(parts)).translate({ord(special): f"[{special}]" for special in "*?["})
    return clean_name(os.fsencode(shlex.quote(written)))


def _path(path: Path) -> str:
    return clean_name(os.fsencode(path))


def _size(amount: int) -> str:
    for unit, factor in (("GiB", 1024 * MIB), ("MiB", MIB), ("KiB", 1024)):
        if amount >= factor:
            return f"{amount / factor:.1f} {unit}"
    return f"{amount} bytes"
