"""Names and contents of references that an executor gives the delegator's repository.

Git checks the name of a reference when it makes one, and believes what it finds later. So each is looked at before it
takes its place: a name that git would not make, a ``HEAD`` that points out of ``refs``, and ``refs/replace``, by which
one object is shown in place of another, never come in (DESIGN 4.6).
"""

from __future__ import annotations

import errno
from collections.abc import Collection, Sequence
from typing import Final

from sublet.workspace.viewpath import refused

MAX_REF_BYTES: Final = 1_024
"""Of a reference's file."""
MAX_PACKED_BYTES: Final = 8 * 1024 * 1024
MAX_NAME_BYTES: Final = 255
"""Of one component of a name."""
MAX_DEPTH: Final = 32
"""Components of a name below ``refs``."""
REPLACE: Final = b"replace"
LOCK: Final = b".lock"
_REFS: Final = b"refs/"
_SYMBOLIC: Final = b"ref: "
_HEX: Final = frozenset(b"0123456789abcdef")
_DIGITS: Final = (40, 64)
_BAD_BYTES: Final = frozenset([*range(0x21), 0x7F, *b"~^:?*[\\"])
_LISTED: Final = frozenset({b"heads", b"tags"})


def good_name(below: Sequence[bytes]) -> bool:
    """Tell whether a reference, or a directory of references, below ``refs`` may have this name.

    Args:
        below: the components below ``refs``.
    """
    if not below or len(below) > MAX_DEPTH or below[0].lower() == REPLACE:
        return False
    if len(below) > 1 and below[0] in _LISTED and below[1].startswith(b"-"):
        return False
    return all(map(_good_part, below))


def check_reference(content: bytes) -> None:
    """Refuse the content of a reference or of ``HEAD`` that is neither an object's name nor a good reference.

    Raises:
        OSError: ``EACCES``.
    """
    value = content.removesuffix(b"\n")
    if value.startswith(_SYMBOLIC):
        name = value.removeprefix(_SYMBOLIC)
        good = name.startswith(_REFS) and good_name(name.removeprefix(_REFS).split(b"/"))
    else:
        good = _is_object(value)
    if not good:
        raise refused(errno.EACCES)


def check_noted(content: bytes) -> None:
    """Refuse the content of a file that notes one object for git (``git.rules.NOTED``), but holds none.

    Raises:
        OSError: ``EACCES``.
    """
    if not _is_object(content.removesuffix(b"\n")):
        raise refused(errno.EACCES)


def check_packed(content: bytes, replaced: Collection[bytes]) -> None:
    """Refuse packed references that hold what git would not write, or a replacement that the delegator did not make.

    Args:
        content: of ``packed-refs``.
        replaced: lines of the replacements that the repository has already.

    Raises:
        OSError: ``EACCES``.
    """
    lines = content.split(b"\n")
    if lines.pop():
        raise refused(errno.EACCES)  # the last line is cut
    for line in lines:
        if line.startswith(b"#"):
            continue
        if line.startswith(b"^"):
            good = _is_object(line[1:])
        else:
            value, _, name = line.partition(b" ")
            named = name.startswith(_REFS) and good_name(name.removeprefix(_REFS).split(b"/"))
            good = _is_object(value) and (named or line in replaced)
        if not good:
            raise refused(errno.EACCES)


def replacements(packed: bytes) -> set[bytes]:
    """Return the lines of packed references that replace objects."""
    start = _REFS + REPLACE + b"/"
    return {line for line in packed.split(b"\n") if line.partition(b" ")[2].startswith(start)}


def _is_object(value: bytes) -> bool:
    return len(value) in _DIGITS and _HEX.issuperset(value)


def _good_part(part: bytes) -> bool:
    if not 0 < len(part) <= MAX_NAME_BYTES or part.startswith(b".") or part.endswith((b".", LOCK)):
        return False
    return part != b"@" and b".." not in part and b"@{" not in part and not _BAD_BYTES.intersection(part)
