"""The list of what one lease overwrote in one directory, kept beside the states before (DESIGN 4.12).

A line is a fact and is appended in one write. A process that is killed leaves a torn last line at most, which readers
pass over. The page cache outlives the process, so that nothing is flushed; after a power cut the last facts may be
missing, and files that they were about then count as unsure.
"""

from __future__ import annotations

import json
import os
from array import array
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Literal

from sublet.disk.durable import write_whole
from sublet.disk.plain_file import read_plain
from sublet.disk.private_dir import PrivateDir
from sublet.disk.removal import remove_tree
from sublet.workspace.kept.blocks import Blocks, read_mark
from sublet.workspace.kept.blocks import load as load_blocks
from sublet.workspace.kept.signature import Signature

MAX_LOG_BYTES: Final = 16 << 20
"""Of one directory's list. Beyond it nothing more is kept."""
MAX_INODE_BYTES: Final = 8 << 20
LOG: Final = "log"
INODES: Final = "inodes"

End = Literal["whole", "lost", "unneeded"]
"""What has become of blocks: all are kept, some can't be any more, or another's edit came, which is what comes back."""
_ENDS: Final[dict[bytes, End]] = {b"whole": "whole", b"lost": "lost", b"unneeded": "unneeded"}

By = Literal["first", "other", "unsure"]
"""Whose state it was: as before the lease, another's edit during the lease, or one of which that is not known."""


@dataclass(frozen=True, slots=True)
class KeptState:
    """One state of a file or link that the lease then overwrote or removed.

    ``number`` names the file with its content, None for a link, whose target is ``target``, and for what was not kept.
    Where ``blocks`` are kept, it names the file with those that the lease overwrote (``kept.blocks``).
    """

    path: bytes
    by: By
    permissions: int
    modified_ns: int
    owner: tuple[int, int]
    size: int = 0
    number: int | None = None
    target: bytes | None = None
    lost: bool = False
    blocks: bool = False


@dataclass(frozen=True, slots=True)
class KeptDirectory:
    """A directory that the lease removed, or gave another mode, and the mode that it had."""

    path: bytes
    by: By
    permissions: int


@dataclass(slots=True)
class Overwritten:
    """All that the list says.

    ``known`` are the states in which the lease left files, None where that is not sure, ``made`` the modes of
    directories that it made or changed, ``unwritten`` the delegator's files that it renamed, with the names they had.
    ``open_blocks`` are the inodes of files of which only blocks are kept that may not be all, by their number.
    """

    begin_ns: int = 0
    states: list[KeptState] = field(default_factory=list)
    directories: list[KeptDirectory] = field(default_factory=list)
    known: dict[int, Signature | None] = field(default_factory=dict)
    made: dict[int, int] = field(default_factory=dict)
    unwritten: dict[int, tuple[Signature, bytes]] = field(default_factory=dict)
    open_blocks: dict[int, int] = field(default_factory=dict)
    complete: bool = True

    def befores(self) -> dict[bytes, KeptState]:
        """Return, by path, the state to which taking back leads: the last one of somebody else, else the first."""
        found: dict[bytes, KeptState] = {}
        for state in self.states:
            if state.by == "other" or (state.by == "first" and state.path not in found):
                found[state.path] = state
        return found


@dataclass(frozen=True, slots=True)
class KeptPlace:
    """Where a lease keeps what it overwrites in one directory, with what is known there already.

    ``inodes`` are those of the files whose contents the snapshot holds, sorted; ``blocks`` those that are gone on with.
    """

    directory: Path
    found: Overwritten
    inodes: array[int]
    blocks: tuple[Blocks, ...] = ()


def open_place(directory: Path) -> KeptPlace:
    """Return the place that ``begin`` made, and all that its list says. It blocks: call it in a thread.

    Raises:
        OSError: it can't be read.
    """
    found = load(directory)
    blocks: list[Blocks] = []
    paths = {state.number: state.path for state in found.states if state.blocks}
    with PrivateDir.open(directory) as place:
        for number in found.open_blocks:
            with suppress(OSError):  # damaged, and so said to be lost where it is needed
                blocks.append(load_blocks(place.fileno(), number))
                blocks[-1].path = paths[number]
    return KeptPlace(directory, found, load_inodes(directory), tuple(blocks))


def begin(directory: Path, begin_ns: int, inodes: Collection[int]) -> None:
    """Begin the list of a lease, before anybody has access.

    Args:
        directory: where the states are kept; what an earlier attempt left there goes.
        begin_ns: Unix time at which the snapshot of the directory was begun.
        inodes: of the files whose contents the snapshot holds.

    Raises:
        OSError: it can't be made.
    """
    directory.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    remove_tree(directory)
    directory.mkdir(mode=0o700)
    write_whole(directory / INODES, array("Q", sorted(inodes)).tobytes())
    write_whole(directory / LOG, b"B %d\n" % begin_ns)


def load(directory: Path) -> Overwritten:
    """Return what the list in ``directory`` says.

    Raises:
        OSError: it is not there, or can't be read.
    """
    raw = read_plain(directory / LOG, MAX_LOG_BYTES, follow=False)
    found = Overwritten(complete=len(raw) <= MAX_LOG_BYTES)
    ends: dict[int, End] = {}
    for line in raw.split(b"\n")[:-1]:
        with suppress(ValueError, LookupError, TypeError, AttributeError, RecursionError):
            _take(found, ends, line[:1], line[2:])
    found.states = [_with_end(state, ends) for state in found.states]
    _know_from_blocks(directory, found, ends)
    return found


def _with_end(state: KeptState, ends: Mapping[int, End]) -> KeptState:
    end = ends.get(state.number, "whole") if state.blocks and state.number is not None else "whole"
    return state if end == "whole" else replace(state, number=None, lost=end == "lost")


def _know_from_blocks(directory: Path, found: Overwritten, ends: Mapping[int, End]) -> None:
    """Add how the lease left the files of which blocks are kept: that is noted with them, at each write."""
    numbers = [one.number for one in found.states if one.blocks and one.number is not None and one.number not in ends]
    if not numbers:
        return
    with PrivateDir.open(directory) as place:
        for number in numbers:
            with suppress(OSError):
                mark = read_mark(place.fileno(), number)
                if mark is not None:
                    found.open_blocks[number] = mark.inode
                    found.known[mark.inode] = mark.signature


def load_inodes(directory: Path) -> array[int]:
    """Return the sorted inodes of the files whose contents the snapshot holds.

    Raises:
        OSError: they can't be read.
    """
    raw = read_plain(directory / INODES, MAX_INODE_BYTES, follow=False)
    found = array("Q")
    found.frombytes(raw[: len(raw) // found.itemsize * found.itemsize])
    return found


def _take(found: Overwritten, ends: dict[int, End], kind: bytes, rest: bytes) -> None:
    if kind == b"K":
        inode, *numbers = map(int, rest.split())
        found.known[inode] = Signature(*numbers)
    elif kind == b"W":
        found.known[int(rest)] = None
    elif kind == b"M":
        inode, mode = map(int, rest.split())
        found.made[inode] = mode
    elif kind == b"B":
        found.begin_ns = int(rest)
    elif kind == b"U":
        inode, size, modified, changed, path = json.loads(rest)
        signature = Signature(int(size), int(modified), int(changed))
        found.unwritten[int(inode)] = signature, os.fsencode(path)
    elif kind == b"E":
        number, end = rest.split()
        ends[int(number)] = _ENDS[end]
    elif kind == b"S":
        found.states.append(_state(json.loads(rest)))
    elif kind == b"D":
        read = json.loads(rest)
        found.directories.append(KeptDirectory(os.fsencode(read["path"]), _by(read["by"]), int(read["permissions"])))


def _state(read: Mapping[str, Any]) -> KeptState:
    uid, gid = read["owner"]
    return KeptState(
        os.fsencode(read["path"]),
        _by(read["by"]),
        int(read["permissions"]),
        int(read["modified_ns"]),
        (int(uid), int(gid)),
        int(read["size"]),
        None if read["number"] is None else int(read["number"]),
        None if read["target"] is None else os.fsencode(read["target"]),
        bool(read["lost"]),
        bool(read.get("blocks", False)),
    )


def _by(text: object) -> By:
    return "first" if text == "first" else "other" if text == "other" else "unsure"


def encode_state(state: KeptState) -> bytes:
    """Return the line of one state."""
    said = {
        "path": os.fsdecode(state.path),
        "by": state.by,
        "permissions": state.permissions,
        "modified_ns": state.modified_ns,
        "owner": list(state.owner),
        "size": state.size,
        "number": state.number,
        "target": None if state.target is None else os.fsdecode(state.target),
        "lost": state.lost,
    }
    if state.blocks:
        said["blocks"] = True
    return b"S " + json.dumps(said).encode() + b"\n"


def encode_end(number: int, end: End) -> bytes:
    """Return the line of what has become of the blocks that are kept under a number."""
    return b"E %d %s\n" % (number, end.encode())


def encode_unwritten(inode: int, signature: Signature, path: bytes) -> bytes:
    """Return the line of a file that the lease gave another name, and which holds what it held before the lease."""
    return b"U " + json.dumps([inode, *signature, os.fsdecode(path)]).encode() + b"\n"


def encode_directory(directory: KeptDirectory) -> bytes:
    """Return the line of one directory."""
    said = {"path": os.fsdecode(directory.path), "by": directory.by, "permissions": directory.permissions}
    return b"D " + json.dumps(said).encode() + b"\n"
