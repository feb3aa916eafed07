"""How lines are set: plain columns without rules, insets, and other people's words with a mark."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.measure import Measurement
from rich.padding import Padding
from rich.text import Text

GAP = 2
MIN_LAST_WIDTH = 10


class Columns:
    """A table of one-line cells; a column in which nothing stands is left out.

    Into a pipe all of it is written. A terminal gets its last column cut to fit; one that is too narrow for the others
    gets each row on several lines, with nothing cut.

    Args:
        heads: names of the columns.
        rows: whole cells, as many as there are names.
        short: characters of a column that a terminal gets, by its name; for ids, of which the beginning is enough.
    """

    def __init__(
        self, heads: Sequence[str], rows: Sequence[Sequence[Text]], short: Mapping[str, int] | None = None
    ) -> None:
        used = [any(row[column].plain for row in rows) for column in range(len(heads))]
        named = [[Text(head, style="dim") for head in heads], *rows]
        self._rows = [[cell for cell, is_used in zip(row, used, strict=True) if is_used] for row in named]
        self._short = [(short or {}).get(head) for head, is_used in zip(heads, used, strict=True) if is_used]

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        widths = _widths(self._cells(console))
        return Measurement(0, min(sum(widths) + GAP * (len(widths) - 1), options.max_width))

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        rows = self._cells(console)
        widths = _widths(rows)
        left = options.max_width - sum(widths[:-1]) - GAP * (len(widths) - 1)
        if console.is_terminal and left < min(widths[-1], MIN_LAST_WIDTH):
            for row in rows:
                yield from _flowing(row, options.max_width)
            return
        for row in rows:
            line = Text(no_wrap=True, overflow="ignore")
            for cell, width in zip(row[:-1], widths[:-1], strict=True):
                line.append_text(cell)
                line.append(" " * (width - cell.cell_len + GAP))
            last = row[-1].copy()
            if console.is_terminal:
                last.truncate(left, overflow="ellipsis")
            line.append_text(last)
            yield line

    def _cells(self, console: Console) -> list[list[Text]]:
        if not console.is_terminal:
            return self._rows
        head, *rows = self._rows
        return [head, *([cell[:most] for cell, most in zip(row, self._short, strict=True)] for row in rows)]


def _widths(rows: Sequence[Sequence[Text]]) -> list[int]:
    return [max(cell.cell_len for cell in column) for column in zip(*rows, strict=True)]


def _flowing(row: Sequence[Text], width: int) -> Iterator[RenderableType]:
    """Yield a row on as many lines as it needs; those after the first are set in."""
    line, indent = Text(), 0
    for cell in row:
        if not cell.plain:
            continue
        if line.plain and indent + line.cell_len + GAP + cell.cell_len > width:
            yield inset(line, indent)
            line, indent = Text(), GAP
        if line.plain:
            line.append(" " * GAP)
        line.append_text(cell)
    yield inset(line, indent)


class OneLine:
    """A line that a terminal gets cut to its width, and a pipe whole.

    Args:
        text: the line.
    """

    def __init__(self, text: Text) -> None:
        self._text = text

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        return Measurement(0, min(self._text.cell_len, options.max_width))

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        shown = self._text.copy()
        shown.no_wrap, shown.overflow = True, "ignore"
        if console.is_terminal:
            shown.truncate(options.max_width, overflow="ellipsis")
        yield shown


def inset(inner: RenderableType, columns: int) -> RenderableType:
    """Return ``inner`` set in from the left, and no wider than it is."""
    return Padding(inner, (0, 0, 0, columns), expand=False)


class Fitting:
    """A line and how it ends: on the same line where both fit, else on the next.

    Args:
        line: what comes first.
        end: how it goes on in the same line.
        below: what stands on the next line instead.
    """

    def __init__(self, line: Text, end: Text, below: Text) -> None:
        self._line, self._end, self._below = line, end, below

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        if self._line.cell_len + self._end.cell_len <= options.max_width:
            yield Text.assemble(self._line, self._end)
        else:
            yield self._line
            yield self._below


class Quoted:
    """Somebody else's words, with a mark before every line, also before those that the terminal's width makes.

    Args:
        words: clean text.
        mark: what stands before each line.
    """

    def __init__(self, words: str, mark: str) -> None:
        self._words = words
        self._mark = Text(mark, style="dim")

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        width = max(options.max_width - self._mark.cell_len, MIN_LAST_WIDTH)
        for words in self._words.split("\n"):
            text = Text(words.expandtabs())
            for line in text.wrap(console, width, overflow="fold") or [text]:
                yield Text.assemble(self._mark, line, no_wrap=True, overflow="ignore")
