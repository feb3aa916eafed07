"""Reads a tar stream in the POSIX (pax) format, without any I/O: bytes to entries, each checked against bounds.

Rules: the work is linear in the bytes that come. What is kept is one header, its attributes and digests of names, each
within a bound; contents go to the sink in the pieces in which they come.
"""

from __future__ import annotations

import tarfile

from sublet.workspace.archive.tar_format import (
    BLOCK,
    COMPONENT_BYTES,
    ENCODING,
    KINDS,
    KNOWN_ATTRIBUTES,
    MAX_ATTRIBUTE_BYTES,
    MAX_NAME_BYTES,
    MAX_NAMES_BYTES,
    MAX_SECONDS,
    NANO,
    Entry,
    Kind,
    MalformedTar,
    NameDigests,
    TarLimits,
    TarSink,
    checked_parts,
)


class PlannedTar:
    """A stream that may begin only once its plan was approved.

    Arguments are those of ``TarReader``; the sink refuses a name that comes twice.
    """

    def __init__(self, sink: TarSink) -> None:
        self._sink = sink
        self._reader: TarReader | None = None

    def approve(self, limits: TarLimits) -> None:
        """Let it begin, within ``limits``."""
        self._reader = TarReader(self._sink, limits, unique=False)

    def feed(self, data: bytes) -> None:
        """``TarReader.feed``."""
        self._approved().feed(data)

    def finish(self) -> None:
        """``TarReader.finish``."""
        self._approved().finish()

    def _approved(self) -> TarReader:
        if self._reader is None:
            raise MalformedTar("content, or an end, before the plan was approved")
        return self._reader


class TarReader:
    """Reads one stream piece by piece.

    Args:
        sink: is told of each entry.
        limits: what is refused before the sink hears of it.
        unique: whether to refuse a name that comes twice, for which each name has to be remembered.
    """

    def __init__(self, sink: TarSink, limits: TarLimits, *, unique: bool = True) -> None:
        self._sink = sink
        self._limits = limits
        self._pending = bytearray()
        self._content = 0
        self._skip = 0
        self._attributes: dict[bytes, bytes] = {}
        self._attribute_bytes = 0
        self._unique = unique
        self._digests = NameDigests()
        self._seen: set[bytes] = set()
        self._entries = self._names_bytes = 0
        self._bytes = 0
        self._zeros = 0

    @property
    def ended(self) -> bool:
        """Whether the stream's end has been read; nothing may follow but zeros."""
        return self._zeros >= 2

    def feed(self, data: bytes) -> None:
        """Take the next bytes.

        Raises:
            MalformedTar: as it says.
        """
        view = memoryview(data)
        while view:
            if self._content:
                view = self._take_content(view)
            elif self._skip:
                step = min(self._skip, len(view))
                self._skip -= step
                view = view[step:]
            else:
                need = (self._attribute_bytes + -self._attribute_bytes % BLOCK or BLOCK) - len(self._pending)
                self._pending += view[:need]
                view = view[need:]
                self._take_block()

    def finish(self) -> None:
        """Make sure that the stream was complete.

        Raises:
            MalformedTar: it was cut.
        """
        if not self.ended or self._pending:
            raise MalformedTar("the stream was cut")

    def _take_content(self, view: memoryview) -> memoryview:
        step = min(self._content, len(view))
        self._sink.data(view[:step])
        self._content -= step
        if not self._content:
            self._sink.end()
        return view[step:]

    def _take_block(self) -> None:
        """Take the header or the attributes that are pending, once they are complete."""
        if self._attribute_bytes:
            if len(self._pending) < self._attribute_bytes + -self._attribute_bytes % BLOCK:
                return
            block, self._pending = bytes(self._pending), bytearray()
            size, self._attribute_bytes = self._attribute_bytes, 0
            self._attributes = _attributes(block[:size])
            return
        if len(self._pending) < BLOCK:
            return
        block, self._pending = bytes(self._pending), bytearray()
        if not any(block):
            if self._attributes:
                raise MalformedTar("attributes without an entry")
            self._zeros += 1
            return
        if self._zeros:
            raise MalformedTar("something follows the end")
        self._take_header(block)

    def _take_header(self, block: bytes) -> None:
        try:
            info = tarfile.TarInfo.frombuf(block, *ENCODING)
        except (tarfile.HeaderError, ValueError, OverflowError) as exc:
            raise MalformedTar(f"a header can't be read: {exc}") from None
        if info.type == tarfile.XHDTYPE:
            if self._attributes or not 0 < info.size <= MAX_ATTRIBUTE_BYTES:
                raise MalformedTar("attributes of an entry that are too large, empty or twice there")
            self._attribute_bytes = info.size
            return
        kind = KINDS.get(info.type)
        if kind is None:
            raise MalformedTar("an entry is neither file, directory nor link")
        entry = self._entry(info, kind)
        self._attributes = {}
        self._count(entry)
        self._sink.begin(entry)
        if entry.size:
            self._content, self._skip = entry.size, -entry.size % BLOCK
        else:
            self._sink.end()

    def _entry(self, info: tarfile.TarInfo, kind: Kind) -> Entry:
        attributes = self._attributes
        name = attributes.get(b"path", info.name.encode(*ENCODING))
        target = attributes.get(b"linkpath", info.linkname.encode(*ENCODING))
        size = _integer(attributes[b"size"]) if b"size" in attributes else info.size
        modified_ns = _nanoseconds(attributes[b"mtime"]) if b"mtime" in attributes else int(info.mtime) * NANO
        if size < 0 or (size and kind != "file"):
            raise MalformedTar("an entry has a size that it can't have")
        if kind == "hardlink":
            checked_parts(target)
        elif kind == "symlink" and (not 0 < len(target) <= MAX_NAME_BYTES or b"\0" in target):
            raise MalformedTar("a link has no target, or one that is too long")
        elif kind in ("file", "directory"):
            target = b""
        parts = checked_parts(name.removesuffix(b"/") if kind == "directory" else name)
        if abs(modified_ns) > MAX_SECONDS * NANO:
            raise MalformedTar("a time is out of range")
        return Entry(parts, kind, info.mode & 0o777, size, modified_ns, target)

    def _count(self, entry: Entry) -> None:
        limits = self._limits
        if self._unique:
            digest = self._digests.of(entry.parts)
            if digest in self._seen:
                raise MalformedTar("a name is there twice")
            self._seen.add(digest)
            self._names_bytes += sum(len(part) + COMPONENT_BYTES for part in entry.parts)
        self._entries += 1
        self._bytes += entry.size
        if self._entries > limits.max_entries:
            raise MalformedTar(f"more than {limits.max_entries:,} names")
        if self._names_bytes > MAX_NAMES_BYTES:
            raise MalformedTar("names that are too long, all together")
        if entry.size > limits.max_file_bytes:
            raise MalformedTar(f"a file of more than {limits.max_file_bytes:,} bytes")
        if self._bytes > limits.max_bytes:
            raise MalformedTar(f"more than {limits.max_bytes:,} bytes")


def _attributes(block: bytes) -> dict[bytes, bytes]:
    """Return the records of an extended header: ``length key=value`` and a newline, the length counting itself."""
    found: dict[bytes, bytes] = {}
    while block:
        length, space, _ = block[:24].partition(b" ")
        size = _integer(length) if space else 0
        record = block[len(length) + 1 : size]
        key, equals, value = record.partition(b"=")
        if size > len(block) or not equals or not value.endswith(b"\n"):
            raise MalformedTar("attributes of an entry can't be read")
        if key not in KNOWN_ATTRIBUTES or key in found:
            raise MalformedTar("an entry has an attribute that is unknown or there twice")
        found[key] = value[:-1]
        block = block[size:]
    return found


def _integer(text: bytes) -> int:
    if not 0 < len(text) <= 20 or not text.isdigit():
        raise MalformedTar("a number can't be read")
    return int(text)


def _nanoseconds(text: bytes) -> int:
    sign = -1 if text.startswith(b"-") else 1
    seconds, _, rest = text.removeprefix(b"-").partition(b".")
    fraction = _integer(rest[:9].ljust(9, b"0")) if rest else 0
    return sign * (_integer(seconds) * NANO + fraction)
