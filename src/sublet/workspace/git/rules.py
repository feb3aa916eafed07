"""What an executor sees and may change inside ``.git``, where the delegator shows it (DESIGN 4.6).

Repository data is code that waits: configuration, hooks, attributes and pointers to other directories are executed or
trusted by the delegator's own git later. So this is a list of what git needs, and whatever is not on it is not there: a
file that a later version of git comes to trust stays out until somebody has thought about it. Names are compared as
they are written, since a name in other letters is not on the list either.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from sublet.protocol.patterns import Pattern
from sublet.workspace.git.ref_names import LOCK, good_name

REPOSITORY: Final = b".git"

_READ_ONLY: Final = frozenset({b"description", b"hooks", b"info", b"shallow"})
"""Hooks and attributes run at the delegator: nobody else writes them. ``config`` is not there at all; what an executor
finds under that name is a copy of harmless parts (``git.config``)."""
_WRITABLE: Final = frozenset(
    {
        b"AUTO_MERGE",
        b"CHERRY_PICK_HEAD",
        b"COMMIT_EDITMSG",
        b"HEAD",
        b"MERGE_HEAD",
        b"MERGE_MODE",
        b"MERGE_MSG",
        b"ORIG_HEAD",
        b"REVERT_HEAD",
        b"SQUASH_MSG",
        b"TAG_EDITMSG",
        b"index",
        b"packed-refs",
    }
)
_WRITABLE_ENDS: Final = (b".lock", b".new")
"""Behind the name of a writable file: how git replaces it."""
_WRITABLE_STARTS: Final = (b"next-index-", b"index.stash.")
_SHARED_INDEX: Final = b"sharedindex."
"""A part of the delegator's index, where it is split: trusted as the index is, and never needed anew."""
INDEX: Final = b"index"
HEAD: Final = b"HEAD"
PACKED: Final = b"packed-refs"
REFS: Final = b"refs"
NOTED: Final = frozenset({b"CHERRY_PICK_HEAD", b"ORIG_HEAD", b"REVERT_HEAD"})
"""What git notes while it works, and believes to be references: where one points to a name in the repository, the next
``git reset`` writes or removes what has that name, such as ``shallow``, ``info/grafts`` or a branch."""
_TREES: Final = frozenset({b"objects", b"refs", b"logs"})
_FIXED: Final = frozenset(
    {(b"objects",), (b"objects", b"info"), (b"objects", b"pack"), (b"refs",), (b"refs", b"heads"), (b"refs", b"tags")}
)
"""Directories without which it is no repository any more."""
_ELSEWHERE: Final = frozenset({b"alternates", b"http-alternates"})
"""In ``objects/info``: pointers to directories and servers of the delegator's."""
_FAN = Pattern(rb"[0-9a-f]{2}")
_OBJECT = Pattern(rb"[0-9a-f]{38}(?:[0-9a-f]{24})?")
_DRAFT: Final = b"tmp_"
"""How git begins the name of an object that it is still writing."""


def shown(below: Sequence[bytes]) -> bool:
    """Tell whether a path below ``.git`` is there for the executor, or may come to be."""
    top = below[0]
    if top in _TREES:
        return not (top == b"objects" and len(below) > 2 and _is_info(below[1]) and below[2].lower() in _ELSEWHERE)
    if top in _READ_ONLY or (len(below) == 1 and top.startswith(_SHARED_INDEX)):
        return True
    return len(below) == 1 and _is_writable_file(top)


def writable(below: Sequence[bytes]) -> bool:
    """Tell whether a path below ``.git`` that is shown may be written, created, renamed and removed."""
    top = below[0]
    if top == REFS:
        return tuple(below) not in _FIXED and good_name([*below[1:-1], below[-1].removesuffix(LOCK)])
    if top in _TREES:
        return tuple(below) not in _FIXED and (top != b"objects" or _is_loose(below[1:]))
    return len(below) == 1 and _is_writable_file(top)


def kept(below: Sequence[bytes]) -> bool:
    """Tell whether what is there may be added to, but neither changed nor removed: the objects, which are history."""
    return below[0] == b"objects" and not any(part.startswith(_DRAFT) for part in below[1:])


def checked(below: Sequence[bytes]) -> bool:
    """Tell whether what is there comes only under another name, and is looked at before (``git.take``)."""
    if len(below) == 1:
        return below[0] in (INDEX, HEAD, PACKED) or below[0] in NOTED
    if below[0] == REFS:
        return not below[-1].endswith(LOCK)
    return below[0] == b"objects" and _is_object(below[1:])


def draft(below: Sequence[bytes]) -> bool:
    """Tell whether what is there is still being written, and will be believed once it has its name: locks and drafts.

    Git looks at none of them again. So what the delegator's own git is writing is changed by nobody else.
    """
    name = below[-1]
    if below[0] == b"objects":
        return any(part.startswith(_DRAFT) for part in below[1:])
    if name.endswith(LOCK):
        return True
    # Further down, names that end otherwise are those of references and their logs.
    return len(below) == 1 and (name.endswith(_WRITABLE_ENDS) or name.startswith(_WRITABLE_STARTS))


def may_be_directory(below: Sequence[bytes]) -> bool:
    """Tell whether what is looked at as a file, or is a draft, may also be made as a directory.

    Names of references have parts, and git collects new objects in a directory. A lock is a file.
    """
    if below[0] == b"objects":
        return draft(below)
    return below[0] == REFS and not below[-1].endswith(LOCK)


def _is_loose(below: Sequence[bytes]) -> bool:
    """Tell whether a path below ``objects`` is needed to add an object as a file of its own.

    Packs stay as they are: git believes the index of a pack, also where it gives an object that the delegator has
    another content.
    """
    if any(part.startswith(_DRAFT) for part in below):
        return True
    return bool(_FAN.fullmatch(below[0])) if len(below) == 1 else _is_object(below)


def _is_object(below: Sequence[bytes]) -> bool:
    return len(below) == 2 and bool(_FAN.fullmatch(below[0]) and _OBJECT.fullmatch(below[1]))


def _is_info(name: bytes) -> bool:
    return name.lower() == b"info"


def _is_writable_file(name: bytes) -> bool:
    if name in _WRITABLE or name.startswith(_WRITABLE_STARTS):
        return True
    return name.endswith(_WRITABLE_ENDS) and name[: name.rindex(b".")] in _WRITABLE
