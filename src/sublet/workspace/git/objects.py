"""An object that an executor gives the lender's repository: whether it is what its name says.

Git makes sure of that when it writes an object, and hardly ever when it reads one. Under the name of an object that the
lender has, or will fetch, another content would be taken for it, and no reference would show it (DESIGN 4.6).
"""

from __future__ import annotations

import errno
import hashlib
import zlib
from typing import Final

from sublet.protocol.patterns import Pattern
from sublet.workspace.viewpath import refused

MAX_OBJECT_BYTES: Final = 64 * 1024 * 1024
"""Of an object's content: so much is checked in a fraction of a second."""
_SHA1_DIGITS: Final = 40
_HEADER = Pattern(rb"(?:blob|tree|commit|tag) (0|[1-9][0-9]{0,9})\0")
_MAX_HEADER_BYTES: Final = 32
_PIECE: Final = 1024 * 1024


def check_object(content: bytes, name: bytes) -> None:
    """Refuse the file of an object whose name is not that of what it holds.

    Args:
        content: of the file, as git compresses it.
        name: the object's, in hexadecimal digits.

    Raises:
        OSError: ``EACCES`` for another content, or what is no object; ``EFBIG`` for more than ``MAX_OBJECT_BYTES``.
    """
    digest = hashlib.sha1(usedforsecurity=False) if len(name) == _SHA1_DIGITS else hashlib.sha256()
    inflate = zlib.decompressobj()
    total, beginning, rest = 0, b"", content
    try:
        while not inflate.eof:
            piece = inflate.decompress(rest, _PIECE)
            rest = inflate.unconsumed_tail
            if not piece and not inflate.eof:
                raise refused(errno.EACCES)
            digest.update(piece)
            total += len(piece)
            if len(beginning) < _MAX_HEADER_BYTES:
                beginning += piece[:_MAX_HEADER_BYTES]
            if total > MAX_OBJECT_BYTES:
                raise refused(errno.EFBIG)
    except zlib.error:
        raise refused(errno.EACCES) from None
    header = _HEADER.match(beginning)
    whole = header is not None and total == header.end() + int(header[1]) and not inflate.unused_data
    if not whole or digest.hexdigest().encode() != name:
        raise refused(errno.EACCES)
