"""What a program prints: told in few, bounded pieces while it runs, and kept as its beginning and its end."""

from __future__ import annotations

import asyncio
import codecs
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Protocol

import anyio

from sublet.protocol.text import clean_line
from sublet.supervisor.job import Output, Report, Stream

REPORT_SECONDS = 0.1
"""At most one piece per stream in this time, as long as a piece is not full."""
MAX_PIECE_CHARS = 16_384
HEAD_CHARS = 512 * 1024
MAX_NOTE_CHARS = 300
TAIL_CHARS = 512 * 1024
_READ_BYTES = 65_536


class Capture:
    """The beginning and the end of one stream.

    The beginning is told piece by piece as it comes. Once that has used up ``head_chars``, only the newest
    ``tail_chars`` are kept, to be told at the end with the number of characters that fell out between the two.
    """

    def __init__(
        self, stream: Stream, report: Report, *, head_chars: int = HEAD_CHARS, tail_chars: int = TAIL_CHARS
    ) -> None:
        self._stream = stream
        self._report = report
        self._head_left = head_chars
        self._tail_chars = tail_chars
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._pending: list[str] = []
        self._pending_chars = 0
        self._tail: deque[str] = deque()
        self._kept = 0
        self._dropped = 0
        self._last: deque[str] = deque()
        self._last_chars = 0

    @property
    def last_word(self) -> str | None:
        """What was said last, where the program marks it as its answer."""
        return None

    def feed(self, data: bytes, *, final: bool = False) -> None:
        """Take what was read; ``final`` is for the end of the stream, where half a character may be left."""
        text = self._decoder.decode(data, final)
        self._remember(text)
        head, rest = text[: self._head_left], text[self._head_left :]
        self._head_left -= len(head)
        if head:
            self._pending.append(head)
            self._pending_chars += len(head)
            if self._pending_chars >= MAX_PIECE_CHARS:
                self.flush()
        if rest:
            self._tail.append(rest)
            self._kept += len(rest)
            while self._kept - len(self._tail[0]) >= self._tail_chars:
                self._kept -= len(self._tail[0])
                self._dropped += len(self._tail.popleft())

    def flush(self) -> None:
        """Report what is pending of the beginning."""
        text = "".join(self._pending)
        self._pending.clear()
        self._pending_chars = 0
        for start in range(0, len(text), MAX_PIECE_CHARS):
            self._report(Output(self._stream, text[start : start + MAX_PIECE_CHARS]))

    def finish(self) -> None:
        """Report the rest: what is pending, and the end of the stream with the number of characters left out."""
        self.feed(b"", final=True)
        self.flush()
        text = "".join(self._tail)
        self._tail.clear()
        self._dropped += max(0, len(text) - self._tail_chars)
        text = text[-self._tail_chars :]
        for start in range(0, len(text), MAX_PIECE_CHARS):
            self._report(
                Output(self._stream, text[start : start + MAX_PIECE_CHARS], self._dropped if start == 0 else 0)
            )

    def end(self, chars: int) -> str:
        """Return the last ``chars`` characters, at most ``MAX_PIECE_CHARS``."""
        return "".join(self._last)[-chars:]

    def _remember(self, text: str) -> None:
        self._last.append(text)
        self._last_chars += len(text)
        while self._last_chars - len(self._last[0]) >= MAX_PIECE_CHARS:
            self._last_chars -= len(self._last.popleft())


class Translator(Protocol):
    """Turns what a program prints into what it says."""

    @property
    def last_word(self) -> str | None:
        """Its answer, where it has marked one."""

    def feed(self, data: bytes, *, final: bool = False) -> bytes:
        """Return what to tell of ``data``."""


Translate = Callable[[Callable[[str], None]], Translator]
"""Makes a translator, given where it tells in one line what the program does."""
MAX_NOTES = 2_000
"""Lines on what one program does."""


class Translated(Capture):
    """What a program says and does, of one that prints it in a language of its own."""

    def __init__(self, stream: Stream, report: Report, translate: Translate, root: str = "") -> None:
        """Translate a stream; in notes, what lies below ``root`` is told as relative to it."""
        super().__init__(stream, report)
        self._root = f"{root}/" if root else ""
        self._tell = report
        self._notes = 0
        self._translator = translate(self._note)

    @property
    def last_word(self) -> str | None:
        """``Capture.last_word``."""
        return self._translator.last_word

    def feed(self, data: bytes, *, final: bool = False) -> None:
        """``Capture.feed``."""
        super().feed(self._translator.feed(data, final=final), final=final)

    def _note(self, text: str) -> None:
        self._notes += 1
        if self._notes <= MAX_NOTES:
            told = text.replace(self._root, "") if self._root else text
            self._tell(Output("note", f"{clean_line(told, MAX_NOTE_CHARS)}\n"))
        elif self._notes == MAX_NOTES + 1:
            self._tell(Output("note", "Further tool calls are not told here.\n"))


async def drain(reader: asyncio.StreamReader, capture: Capture, count: Callable[[int], None]) -> None:
    """Feed ``capture`` until the stream ends, and tell ``count`` how many bytes have come each time."""
    while data := await reader.read(_READ_BYTES):
        capture.feed(data)
        count(len(data))


@asynccontextmanager
async def flushed_regularly(*captures: Capture) -> AsyncIterator[None]:
    """Run ``flush_regularly`` beside the body; what the body raises comes out as it is."""
    failure: Exception | None = None
    async with anyio.create_task_group() as group:
        group.start_soon(flush_regularly, captures)
        try:
            yield
        except Exception as error:  # carried by hand, since a task group would wrap it
            failure = error
        group.cancel_scope.cancel()
    if failure is not None:
        raise failure


async def flush_regularly(captures: tuple[Capture, ...]) -> None:
    """Report what has come, every ``REPORT_SECONDS``, until cancelled."""
    while True:
        await asyncio.sleep(REPORT_SECONDS)
        for capture in captures:
            capture.flush()
