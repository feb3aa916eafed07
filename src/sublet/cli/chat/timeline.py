"""What a chat shows of a room: messages in order, remarks of our own, and which lines of them are seen."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from sublet.cli.chat.lines import Line, day_line, message_lines, remark_lines, unread_line
from sublet.protocol.times import told_moment

if TYPE_CHECKING:
    from sublet.cli.rendering.entity_names import EntityNames
    from sublet.daemon.api.room_messages import MessageView

MAX_KEPT: Final = 2_000
"""Messages that are kept; of more the oldest go, and come again by scrolling up."""
MAX_REMARKS: Final = 50


@dataclass(frozen=True, slots=True)
class Remark:
    """Words of ours among the messages, after the message that was the last one then."""

    after: str
    text: str


@dataclass(slots=True)
class Timeline:
    """Messages and remarks, and where the view is.

    Args:
        names: of entities.
    """

    names: EntityNames
    unread_after: str | None = None
    """The last message that was read when the chat began; None where there is no line to draw."""
    _messages: dict[str, MessageView] = field(default_factory=dict)
    _order: list[str] = field(default_factory=list)
    _remarks: list[Remark] = field(default_factory=list)
    _cache: dict[str, tuple[int, list[Line]]] = field(default_factory=dict)
    _anchor: tuple[str, int] | None = None
    """Message and line of it at the bottom of the view; None for the end, and all that comes."""

    @property
    def messages(self) -> list[MessageView]:
        """The messages, the oldest first."""
        return [self._messages[ref] for ref in self._order]

    @property
    def oldest(self) -> str | None:
        """The first message that is here."""
        return self._order[0] if self._order else None

    @property
    def newest(self) -> str | None:
        """The last message that is here."""
        return self._order[-1] if self._order else None

    @property
    def follows(self) -> bool:
        """Whether the end is seen."""
        return self._anchor is None

    def show_page(self, page: Sequence[MessageView]) -> None:
        """Take the last messages of the room; what is here before them and fits to them stays."""
        known = [one.ref_id for one in page if one.ref_id in self._messages]
        if page and not known:
            self._messages.clear()
            self._order.clear()
            self._anchor = None
        self.put(page)

    def put(self, found: Iterable[MessageView]) -> None:
        """Take messages that are new, at the end, or that have changed."""
        for one in found:
            if one.ref_id not in self._messages:
                self._order.append(one.ref_id)
            elif one != self._messages[one.ref_id]:
                self._cache.clear()  # answers to it show it too
            self._messages[one.ref_id] = one
        if self.follows:
            for gone in self._order[:-MAX_KEPT]:
                del self._messages[gone]
            del self._order[:-MAX_KEPT]

    def put_older(self, page: Sequence[MessageView]) -> None:
        """Take messages that are before all that are here."""
        fresh = [one for one in page if one.ref_id not in self._messages]
        self._messages.update({one.ref_id: one for one in fresh})
        self._order[:0] = [one.ref_id for one in fresh]
        self._cache.clear()

    def get(self, ref_id: str) -> MessageView | None:
        """Return a message that is here."""
        return self._messages.get(ref_id)

    def remark(self, text: str) -> None:
        """Say something of our own, and show it."""
        self._remarks = [*self._remarks[-MAX_REMARKS + 1 :], Remark(self.newest or "", text)]
        self._anchor = None

    def clear_remarks(self) -> None:
        """Take our own words away."""
        self._remarks.clear()
        self.to_end()

    def to_end(self) -> None:
        """Show the end, and what comes."""
        self._anchor = None

    def view(self, width: int, height: int) -> list[Line]:
        """Return the lines that are seen, as many as there is room for, the end at the bottom."""
        lines, places = self._lines(width)
        end = self._end(places, len(lines))
        shown = lines[max(0, end - height) : end]
        return [[] for _ in range(height - len(shown))] + shown

    def scroll(self, by: int, width: int, height: int) -> bool:
        """Move the view by lines, down where ``by`` is positive; tell whether the first line is seen now."""
        lines, places = self._lines(width)
        end = min(len(lines), max(self._end(places, len(lines)) + by, min(height, len(lines))))
        self._anchor = None if end >= len(lines) else places[end - 1]
        return end <= height

    def _end(self, places: Sequence[tuple[str, int]], count: int) -> int:
        if self._anchor is None:
            return count
        ref, line = self._anchor
        fitting = [index for index, place in enumerate(places) if place[0] == ref and place[1] <= line]
        return fitting[-1] + 1 if fitting else count

    def _lines(self, width: int) -> tuple[list[Line], list[tuple[str, int]]]:
        """Return all lines, and of each the message and which line of it that is."""
        lines: list[Line] = []
        places: list[tuple[str, int]] = []
        day = ""
        remarks: dict[str, list[Remark]] = {}
        for remark in self._remarks:
            remarks.setdefault(remark.after if remark.after in self._messages else "", []).append(remark)

        def add(ref: str, more: Sequence[Line]) -> None:
            begin = places[-1][1] + 1 if places and places[-1][0] == ref else 0
            lines.extend(more)
            places.extend((ref, begin + index) for index in range(len(more)))

        for remark in remarks.get("", []):
            add("", remark_lines(remark.text, width))
        for ref in self._order:
            one = self._messages[ref]
            on = told_moment(one.created_at).astimezone().strftime("%A %d %B %Y")
            if on != day:
                add(ref, [day_line(on, width)])
                day = on
            add(ref, self._of(one, width))
            for remark in remarks.get(ref, []):
                add(ref, remark_lines(remark.text, width))
            if ref == self.unread_after and ref != self.newest:
                add(ref, [unread_line(width)])
        return lines, places

    def _of(self, message: MessageView, width: int) -> list[Line]:
        kept = self._cache.get(message.ref_id)
        if kept is None or kept[0] != width:
            kept = (width, message_lines(message, self.names, self._messages, width))
            self._cache[message.ref_id] = kept
        return kept[1]
