"""Server-sent events, as far as chat endpoints use them: bytes in, the data of each event out. No I/O."""

from __future__ import annotations

from typing import Final

MAX_EVENT_BYTES: Final = 4 << 20
"""Of one event's data, and of what comes before an end of line."""


class MalformedReply(ValueError):
    """What the endpoint sent is no answer: its text says why, without quoting it."""


class EventDecoder:
    """Cuts a stream of bytes into events. Comments, names and ids are left out; lines end with CR, LF or both."""

    def __init__(self) -> None:
        self._rest = bytearray()
        self._data: list[bytes] = []
        self._size = 0
        self._after_cr = False

    def feed(self, chunk: bytes) -> list[str]:
        """Return the data of every event that ``chunk`` completes.

        Raises:
            MalformedReply: an event is larger than ``MAX_EVENT_BYTES``, or not UTF-8.
        """
        if self._after_cr and chunk:
            chunk = chunk.removeprefix(b"\n")  # the second half of an end of line, and no empty line
            self._after_cr = False
        self._after_cr = self._after_cr or chunk.endswith(b"\r")
        first, *others = chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        # Added to in place: somebody may send it byte by byte.
        self._rest += first
        events = []
        for other in others:
            event = self._line(bytes(self._rest))
            self._rest = bytearray(other)
            if event is not None:
                events.append(event)
        if self._size + len(self._rest) > MAX_EVENT_BYTES:
            raise MalformedReply("an event of its stream is too large")
        return events

    def end(self) -> list[str]:
        """Return the data of an event that the end of the stream completes, since some senders omit its empty line.

        Raises:
            MalformedReply: as ``feed``.
        """
        found = [self._line(bytes(self._rest)), self._line(b"")]
        self._rest = bytearray()
        return [event for event in found if event is not None]

    def _line(self, line: bytes) -> str | None:
        if not line:
            data, self._data, self._size = self._data, [], 0
            try:
                return b"\n".join(data).decode() if data else None
            except UnicodeDecodeError:
                raise MalformedReply("its stream is not UTF-8") from None
        name, _, value = line.partition(b":")
        if name == b"data":
            self._data.append(value.removeprefix(b" "))
            self._size += len(value) + 1
            if self._size > MAX_EVENT_BYTES:
                raise MalformedReply("an event of its stream is too large")
        return None
