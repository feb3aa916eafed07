"""Messages as lines of a terminal: styled pieces, wrapped to its width; nothing is told by colour alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from rich.cells import cell_len, chop_cells

from sublet.cli.rendering.rooms import answers, attached, notes, reacted, said
from sublet.protocol.text import clean
from sublet.protocol.times import told_moment

if TYPE_CHECKING:
    from sublet.cli.rendering.entity_names import EntityNames
    from sublet.daemon.api.room_messages import MessageView

Piece = tuple[str, str]
"""A style, and a text without line ends."""
Line = list[Piece]

TAG_CHARS: Final = 4
"""Of the end of a message's id: by these it is named in commands."""
NAME_CELLS: Final = 12
WIDE: Final = 60
"""From so many columns on, names stand in a column of their own."""
MIN_CELLS: Final = 10
MAX_BODY_LINES: Final = 200


def tag_of(ref_id: str) -> str:
    """Return by what a message is named in commands."""
    return ref_id[-TAG_CHARS:].lower()


def message_lines(message: MessageView, names: EntityNames, known: Mapping[str, MessageView], width: int) -> list[Line]:
    """Return the lines of a message.

    Args:
        one: the message.
        names: of entities.
        known: messages by id, of which one may be answered.
        width: columns of the terminal.
    """
    own = message.author == names.me
    name = names.short(message.author)
    at = told_moment(message.created_at).astimezone().strftime("%H:%M")
    style = "class:own" if own else "class:name"
    wide = width >= WIDE
    shown = fitted(name, NAME_CELLS) if wide else name
    head: Line = [("class:time", f"{at} "), ("class:tag", f"{tag_of(message.ref_id)} "), (style, shown)]
    indent = 5 + 1 + TAG_CHARS + 1 + NAME_CELLS + 1 if wide else 2
    inner = max(width - indent, MIN_CELLS)
    rest: list[Line] = []
    if answered := answers(message, names, dict(known)):
        rest += [[("class:note", line)] for line in wrapped(f"> {answered}", inner)[:2]]
    missing = message.body is None
    body = [[("class:note" if missing else "class:body", line)] for line in wrapped(said(message), inner)]
    if len(body) > MAX_BODY_LINES:
        left = len(body) - MAX_BODY_LINES
        body = [*body[:MAX_BODY_LINES], [("class:note", f"[{left} more lines: sublet read]")]]
    rest += body
    extra = [text for text in (attached(message), reacted(message), notes(message)) if text]
    if extra:
        rest += [[("class:note", line)] for line in wrapped("  ".join(f"[{text}]" for text in extra), inner)]
    pad = ("", " " * indent)
    if not wide:
        return [head, *([pad, *line] for line in rest)]
    first, *others = rest
    return [[*head, ("", " "), *first], *([pad, *line] for line in others)]


def remark_lines(text: str, width: int) -> list[Line]:
    """Return words of our own."""
    return [[("class:remark", f"  {line}")] for line in wrapped(clean(text), max(width - 2, MIN_CELLS))]


def day_line(day: str, width: int) -> Line:
    """Return the line before the first message of a day."""
    return [("class:rule", _ruled(day, width))]


def unread_line(width: int) -> Line:
    """Return the line before the first message that was not read."""
    return [("class:unread", _ruled("unread", width))]


def fitted(text: str, cells: int) -> str:
    """Return ``text`` in exactly so many cells."""
    if cell_len(text) > cells:
        text = chop_cells(text, cells - 1)[0] + "~"
    return text + " " * (cells - cell_len(text))


def wrapped(text: str, cells: int) -> list[str]:
    """Return ``text`` in lines of at most so many cells, broken between words where that is possible."""
    lines: list[str] = []
    for paragraph in text.expandtabs(4).split("\n"):
        line = ""
        for word in _words(paragraph):
            if cell_len(line) + cell_len(word.rstrip()) <= cells:
                line += word
                continue
            if line:
                lines.append(line.rstrip())
            pieces = chop_cells(word, cells) or [""]
            lines += pieces[:-1]
            line = pieces[-1]
        lines.append(line.rstrip())
    return lines


def _words(text: str) -> list[str]:
    """Return words with the blanks after them; blanks at the beginning count as a word."""
    words: list[str] = []
    current = ""
    for char in text:
        if char != " " and current.endswith(" "):
            words.append(current)
            current = ""
        current += char
    return [*words, current] if current else words


def _ruled(text: str, width: int) -> str:
    side = max((width - cell_len(text) - 2) // 2, 2)
    return f"{'-' * side} {text} {'-' * side}"[: max(width, MIN_CELLS)]
