"""An object that an executor gives the delegator's repository: whether it is what its name says.

Git makes sure of that when it writes an object, and hardly ever when it reads one. Under the name of an object that the
delegator has, or will fetch, another content would be taken for it, and no reference would show it (DESIGN 4.6).
"""

from __future__ import annotations

import errno
import hashlib
import io
import zlib
from typing import IO, Final

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
    check_object_file(io.BytesIO(content), name, MAX_OBJECT_BYTES)


def check_object_file(file: IO[bytes], name: bytes, max_bytes: int | None = None) -> None:
    """Refuse the file of an object as ``check_object`` does, without having it in memory as a whole.

    Args:
        file: at the beginning of the file.
        name: the object's, in hexadecimal digits.
        max_bytes: of its content; None for any number.

    Raises:
        OSError: as ``check_object``.
    """
    digest = hashlib.sha1(usedforsecurity=False) if len(name) == _SHA1_DIGITS else hashlib.sha256()
    inflate = zlib.decompressobj()
    total, beginning, rest = 0, b"", b""
    try:
        while not inflate.eof:
            rest = rest or file.read(_PIECE)
            piece = inflate.decompress(rest, _PIECE)
            if not piece and not rest:
                raise refused(errno.EACCES)
            rest = inflate.unconsumed_tail
            digest.update(piece)
            total += len(piece)
            if len(beginning) < _MAX_HEADER_BYTES:
                beginning += piece[:_MAX_HEADER_BYTES]
            if max_bytes is not None and total > max_bytes:
                raise refused(errno.EFBIG)
    except zlib.error:
        raise refused(errno.EACCES) from None
    header = _HEADER.match(beginning)
    whole = header is not None and total == header.end() + int(header[1])
    if not whole or inflate.unused_data or file.read(1) or digest.hexdigest().encode() != name:
        raise refused(errno.EACCES)
