"""What an agent printed, on either side of its lease, as bounded events and a bounded tail."""

from __future__ import annotations

from sublet.daemon.storage.journal import Journal
from sublet.protocol.canonical import JsonValue
from sublet.protocol.events import EventKind
from sublet.protocol.text import clean

MAX_OUTPUT_EVENTS = 5_000
MAX_OUTPUT_CHARS = 1 << 20
MAX_TAIL_BYTES = 64 << 10


class OutputLog:
    """Writes one delegation's output to the journal; what exceeds the bounds is counted, not kept."""

    def __init__(self, journal: Journal, delegation_id: str) -> None:
        self._journal = journal
        self._id = delegation_id
        self._events = 0
        self._chars = 0
        self._dropped = 0
        self._full = False
        self._tail = b""

    async def append(self, stream: str, text: str, dropped_chars: int = 0) -> bytes:
        """Keep ``text``, cleaned, and return the tail of the log in UTF-8."""
        shown = clean(text, MAX_OUTPUT_CHARS)
        self._dropped += dropped_chars
        if self._events < MAX_OUTPUT_EVENTS and self._chars + len(shown) <= MAX_OUTPUT_CHARS:
            self._events += 1
            self._chars += len(shown)
            await self._tell(stream, shown)
        else:
            if not self._full:
                self._full = True
                await self._tell("note", "more output follows; it is not kept here")
            self._dropped += len(shown)
        # A character that the cut falls into goes with what is before it.
        self._tail = (self._tail + shown.encode())[-MAX_TAIL_BYTES:].decode(errors="ignore").encode()
        return self._tail

    async def _tell(self, stream: str, text: str) -> None:
        data: dict[str, JsonValue] = {
            "stream": stream, "text": text, "dropped_chars": self._dropped, "untrusted": True,
        }  # fmt: skip
        await self._journal.events.append_event(EventKind.DELEGATION_OUTPUT, self._id, data)
