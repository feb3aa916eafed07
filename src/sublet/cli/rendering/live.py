"""The live view of one delegation: a few calm lines on a terminal, plain lines anywhere else."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from rich.console import Console, ConsoleOptions, Group, RenderResult
from rich.live import Live
from rich.spinner import Spinner
from rich.text import Text

from sublet.cli.rendering.columns import Quoted
from sublet.cli.rendering.delegations import STATE_STYLE, narrowed_time, size, span, took, who
from sublet.cli.rendering.words import count
from sublet.protocol.events import EventKind
from sublet.protocol.lifecycle import DELEGATION_TABLE, is_terminal
from sublet.protocol.text import clean, clean_line, clean_name
from sublet.protocol.times import told_moment

if TYPE_CHECKING:
    from sublet.cli.rendering.screen import Screen, Symbols
    from sublet.daemon.api.delegation_views import DelegationView
    from sublet.protocol.events import Event

TAIL_LINES = 8
MAX_PARTIAL_CHARS = 4_000
MAX_SEEN_CHARS = 1 << 16
"""Of what was printed, so many characters at its end are remembered; a summary is shorter."""
FRAMES_PER_SECOND = 8


class OutputLines:
    """Turns pieces of a peer's output into whole, clean lines, and remembers the last of them."""

    def __init__(self) -> None:
        self._partial = ""
        self._dropped = 0
        self._seen: deque[str] = deque()
        self._seen_chars = 0

    def feed(self, event: Event) -> list[str]:
        """Return the lines that ``event`` completes; an event that is no output completes none."""
        if event.kind is not EventKind.DELEGATION_OUTPUT:
            return []
        dropped, text = event.data.get("dropped_chars"), event.data.get("text")
        lines: list[str] = []
        if isinstance(dropped, int) and dropped > self._dropped:  # the daemon counts what was left out so far
            lines.append(f"[{dropped - self._dropped} characters left out]")
            self._dropped = dropped
        if isinstance(text, str):
            *whole, self._partial = (self._partial + clean(text, len(text) + 1)).split("\n")
            lines += whole
        if len(self._partial) > MAX_PARTIAL_CHARS:
            lines.append(self._partial)
            self._partial = ""
        return self._remembered(lines)

    def rest(self) -> list[str]:
        """Return what never got its newline."""
        left, self._partial = self._partial, ""
        return self._remembered([left] if left else [])

    def has_all_of(self, words: str) -> bool:
        """Tell whether each line of ``words`` is among the last that were returned; the first may be cut off."""
        wanted = [line.strip() for line in clean(words, len(words) + 1).split("\n") if line.strip()]
        seen = {line.strip() for line in self._seen}
        return all(line in seen for line in wanted[1:]) and (
            not wanted or wanted[0] in seen or any(line.endswith(wanted[0]) for line in self._seen)
        )

    def _remembered(self, lines: list[str]) -> list[str]:
        self._seen.extend(lines)
        self._seen_chars += sum(len(line) + 1 for line in lines)
        while self._seen_chars > MAX_SEEN_CHARS:
            self._seen_chars -= len(self._seen.popleft()) + 1
        return lines


def status_line(view: DelegationView, symbols: Symbols, stale: float = 0.0) -> Text:
    """Return how a delegation stands: state, what keeps it, who, how long so far and how long still.

    Args:
        view: as it was read.
        symbols: signs.
        stale: seconds since it was read.
    """
    line = Text(view.state.value, style=f"bold {STATE_STYLE.get(view.state, '')}".strip())
    if view.condition is not None:
        line.append(f" ({clean_line(view.condition.detail, 200)})", style="yellow")
    if is_terminal(DELEGATION_TABLE, view.state):
        taken = f"after {took(view)}"
    else:  # who comes back to a delegation sees its age, not the watch's
        taken = f"{span(max(0.0, (datetime.now(UTC) - told_moment(view.created_at)).total_seconds()))} so far"
    facts = [who(view), taken]
    if view.remaining_seconds is not None:
        facts.append(f"{span(max(0.0, view.remaining_seconds - stale))} left")
    if narrowed := narrowed_time(view):
        facts.append(narrowed)
    dot = f" {symbols.dot} "
    return line.append(dot + dot.join(facts), style="dim")


def changes_told(event: Event) -> list[str]:
    """Return what an event tells of others' changes in the directory."""
    changes = event.data.get("changes")
    if event.kind is not EventKind.WORKSPACE_CHANGED or not isinstance(changes, list):
        return []
    told = [f"not by the executor: {clean_line(str(one['change']))} {clean_name(str(one['path']))}"
            for one in changes if isinstance(one, dict) and {"change", "path"} <= one.keys()]  # fmt: skip
    if isinstance(more := event.data.get("more"), int) and more:
        told.append(f"not by the executor: and {more} more")
    if isinstance(stopped := event.data.get("stopped"), str):
        told.append(f"the directory is not watched any more: {clean_line(stopped)}")
    return told


def moved_line(view: DelegationView, symbols: Symbols) -> str:
    """Return what went over the wire so far; empty where nothing did."""
    usage = view.usage
    if not usage.operations:
        return ""
    moved = [f"read {size(usage.bytes_read)}", f"wrote {size(usage.bytes_written)}"]
    return f" {symbols.dot} ".join([*moved, f"{count(usage.files_touched, 'file')} touched"])


class LiveView:
    """A state line, what went over the wire, and the last lines that the peer printed."""

    def __init__(self, view: DelegationView, screen: Screen) -> None:
        self._view = view
        self._symbols = screen.symbols
        self._spinner = Spinner(self._symbols.spinner, style="cyan")
        self._lines = OutputLines()
        self._tail: deque[str] = deque(maxlen=TAIL_LINES)
        self._read_at = time.monotonic()

    def event(self, event: Event) -> None:
        """Take the next event."""
        self._tail.extend(self._lines.feed(event))

    def view(self, view: DelegationView) -> None:
        """Take the delegation as it is now."""
        self._view = view
        self._read_at = time.monotonic()

    def has_shown(self, words: str) -> bool:
        """Tell that nothing of it stays to be read."""
        return False

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        self._spinner.update(text=status_line(self._view, self._symbols, time.monotonic() - self._read_at))
        parts: list[Spinner | Text] = [self._spinner]
        if moved := moved_line(self._view, self._symbols):
            parts.append(Text(f"  {moved}", style="dim"))
        if self._tail:
            parts.append(Text(f"  {self._view.peer} prints (its own words, not checked)", style="dim"))
            for text in self._tail:
                shown = Text.assemble("  ", (f"{self._symbols.bar} ", "dim"), text)
                shown.truncate(options.max_width, overflow="ellipsis")
                parts.append(shown)
        yield Group(*parts)


class PlainView:
    """One line per change of state and per line of output, on stderr."""

    def __init__(self, view: DelegationView, screen: Screen) -> None:
        self._screen = screen
        self._peer = view.peer
        self._lines = OutputLines()
        self._shown = ""
        self.view(view)

    def event(self, event: Event) -> None:
        """Take the next event."""
        for line in self._lines.feed(event):
            self._quote(line)
        for line in changes_told(event):
            self._say(line)

    def view(self, view: DelegationView) -> None:
        """Take the delegation as it is now."""
        self._now = view
        line = view.state.value
        if view.condition is not None:
            line += f" ({clean_line(view.condition.detail, 200)})"
        if line != self._shown:
            self._shown = line
            self._say(f"{view.delegation_id} {line}")

    def finish(self) -> None:
        """Print what never got its newline."""
        for line in self._lines.rest():
            self._quote(line)

    def has_shown(self, words: str) -> bool:
        """Tell whether who reads stdout has read all of ``words`` here."""
        return self._screen.is_one_place and self._lines.has_all_of(words)

    def say_status(self) -> None:
        """Print how it stands."""
        symbols = self._screen.symbols
        facts = [status_line(self._now, symbols).plain, moved_line(self._now, symbols)]
        self._say(f"{self._now.delegation_id} " + f" {symbols.dot} ".join(fact for fact in facts if fact))

    def _quote(self, line: str) -> None:
        self._screen.err.print(Quoted(line, f"{self._peer} {self._screen.symbols.bar} "))

    def _say(self, line: str) -> None:
        self._screen.err.print(line, soft_wrap=True)


class LiveLog(PlainView):
    """The whole log scrolling by on a terminal, above a line that is redrawn."""

    def __init__(self, view: DelegationView, screen: Screen) -> None:
        super().__init__(view, screen)
        self._spinner = Spinner(screen.symbols.spinner, style="cyan")

    def view(self, view: DelegationView) -> None:
        """Take the delegation as it is now."""
        self._now = view
        self._read_at = time.monotonic()

    @contextmanager
    def drawn(self) -> Iterator[None]:
        """Draw the line while the context lasts, and take it away at the end."""
        with Live(
            self, console=self._screen.err, transient=True, refresh_per_second=FRAMES_PER_SECOND, redirect_stdout=False
        ):
            yield

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        symbols = self._screen.symbols
        line = status_line(self._now, symbols, time.monotonic() - self._read_at)
        if moved := moved_line(self._now, symbols):
            line.append(f" {symbols.dot} {moved}", style="dim")
        self._spinner.update(text=line)
        yield self._spinner


@contextmanager
def live(view: DelegationView, screen: Screen) -> Iterator[LiveView]:
    """Show a live view on the terminal's stderr, and take it away at the end."""
    shown = LiveView(view, screen)
    with Live(shown, console=screen.err, transient=True, refresh_per_second=FRAMES_PER_SECOND, redirect_stdout=False):
        yield shown


@contextmanager
def plain(view: DelegationView, screen: Screen) -> Iterator[PlainView]:
    """Print lines as things happen, where there is no terminal to draw on."""
    shown = PlainView(view, screen)
    yield shown
    shown.finish()
