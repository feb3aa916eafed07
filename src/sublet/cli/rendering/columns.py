"""How lines are set: plain columns without rules, insets, and other people's words with a mark."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.padding import Padding
from rich.text import Text

GAP = 2
MIN_LAST_WIDTH = 10


class Columns:
    """A table of one-line cells; a column in which nothing stands is left out.

    Args:
        heads: names of the columns.
        rows: cells, as many as there are names.
    """

    def __init__(self, heads: Sequence[str], rows: Sequence[Sequence[Text]]) -> None:
        used = [any(row[column].plain for row in rows) for column in range(len(heads))]
        named = [[Text(head, style="dim") for head in heads], *rows]
        self._rows = [[cell for cell, is_used in zip(row, used, strict=True) if is_used] for row in named]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        widths = [max(cell.cell_len for cell in column) for column in zip(*self._rows, strict=True)]
        left = options.max_width - sum(widths[:-1]) - GAP * (len(widths) - 1)
        for row in self._rows:
            line = Text(no_wrap=True, overflow="ignore")
            for cell, width in zip(row[:-1], widths[:-1], strict=True):
                line.append_text(cell)
                line.append(" " * (width - cell.cell_len + GAP))
            last = row[-1].copy()
            last.truncate(max(left, MIN_LAST_WIDTH), overflow="ellipsis")
            line.append_text(last)
            yield line


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
