"""Where a command writes: people's words or one JSON object on stdout, progress and errors on stderr."""

from __future__ import annotations

import functools
import json
import os
import sys
from typing import TYPE_CHECKING, TextIO

from sublet.cli.errors import error_object
from sublet.protocol.errors import SubletError
from sublet.protocol.text import clean, clean_line

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

PEERS_WORDS = "the peer's own words, not checked"
PIPE_WIDTH = 100_000
"""Columns where there is no terminal: nothing is wrapped or cut for whoever reads the pipe."""
MAX_MESSAGE_CHARS = 4_000


class Screen:
    """The two streams of a command.

    Args:
        as_json: stdout carries exactly one JSON object and nothing else.
    """

    def __init__(self, *, as_json: bool = False) -> None:
        self.as_json = as_json

    @functools.cached_property
    def out(self) -> Console:
        """The console on stdout."""
        return console(sys.stdout)

    @functools.cached_property
    def err(self) -> Console:
        """The console on stderr."""
        return console(sys.stderr)

    @property
    def is_one_place(self) -> bool:
        """Whether stdout and stderr are one terminal, file or pipe, so that who reads one has read the other."""
        try:
            return os.path.sameopenfile(sys.stdout.fileno(), sys.stderr.fileno())
        except (OSError, ValueError):
            return False

    @property
    def symbols(self) -> Symbols:
        """Signs that stdout's encoding can show."""
        return Symbols(fancy=_speaks_unicode(sys.stdout))

    @property
    def cuts(self) -> bool:
        """Whether long lines and ids are shortened: on a terminal, and never into a pipe."""
        return self.out.is_terminal

    def show(self, *parts: RenderableType) -> None:
        """Print for people; nothing in JSON mode. Into a pipe, no line ends in blanks."""
        if self.as_json:
            return
        for part in parts:
            if self.out.is_terminal:
                self.out.print(part)
                continue
            with self.out.capture() as capture:
                self.out.print(part, crop=False)
            for line in capture.get().splitlines():
                self.out.file.write(line.rstrip() + "\n")

    def note(self, text: str) -> None:
        """Print a remark for people on stderr; nothing in JSON mode."""
        if not self.as_json:
            self.err.print(text, style="dim", soft_wrap=True)

    def emit(self, value: object) -> None:
        """Print the one JSON object of ``--json``; in plain ASCII, so that no text in it can steer a terminal."""
        sys.stdout.write(json.dumps(value, ensure_ascii=True) + "\n")
        sys.stdout.flush()

    def fail(self, error: SubletError) -> None:
        """Say what happened, why, what to do next, and the code."""
        if self.as_json:
            self.emit(error_object(error))
            return
        from rich.text import Text

        line = Text.assemble(("error", "bold red"), ": ", clean_line(error.message, MAX_MESSAGE_CHARS))
        line.append(f"  [{error.code}]", style="dim")
        if error.from_peer:
            line.append(f"  ({PEERS_WORDS})", style="dim")
        self.err.print(line)
        if error.hint:
            self.err.print(indented(clean(error.hint, MAX_MESSAGE_CHARS)))


class Symbols:
    """Signs in front of lines, with plain stand-ins for terminals that are not UTF-8."""

    def __init__(self, *, fancy: bool) -> None:
        self.good, self.bad, self.bar = ("✓", "✗", "│") if fancy else ("+", "x", "|")
        self.dot, self.minus = ("·", "\u2212") if fancy else ("-", "-")
        self.spinner = "dots" if fancy else "line"


def console(stream: TextIO) -> Console:
    """Return a console that never interprets what it prints, and has no colours and no width off a terminal."""
    from rich.console import Console

    width = None if stream.isatty() else PIPE_WIDTH
    return Console(file=stream, markup=False, emoji=False, highlight=False, width=width, soft_wrap=False)


def indented(text: str, style: str = "") -> RenderableType:
    """Return ``text`` wrapped and set in by two columns."""
    from rich.text import Text

    from sublet.cli.rendering.columns import inset

    return inset(Text(text, style=style), 2)


def _speaks_unicode(stream: TextIO) -> bool:
    return (getattr(stream, "encoding", "") or "").lower().replace("-", "") in {"utf8", "utf16", "utf32"}
