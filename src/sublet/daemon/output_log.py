"""What an executor printed, as bounded events and a bounded tail."""

from __future__ import annotations

from sublet.daemon.journal import Journal
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
        self._tail = b""

    async def append(self, stream: str, text: str, dropped_chars: int = 0) -> bytes:
        """Keep ``text``, cleaned, and return the tail of the log in UTF-8."""
        shown = clean(text, MAX_OUTPUT_CHARS)
        self._dropped += dropped_chars
        if self._events >= MAX_OUTPUT_EVENTS or self._chars + len(shown) > MAX_OUTPUT_CHARS:
            self._dropped += len(shown)
        else:
            self._events += 1
            self._chars += len(shown)
            await self._journal.append_event(
                EventKind.DELEGATION_OUTPUT,
                self._id,
                {"stream": stream, "text": shown, "dropped_chars": self._dropped, "untrusted": True},
            )
        self._tail = (self._tail + shown.encode())[-MAX_TAIL_BYTES:]
        return self._tail
