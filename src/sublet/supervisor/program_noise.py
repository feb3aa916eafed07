"""What well-known programs print on their standard error that says nothing of the work, and where that is seen.

Each row is a line as a whole. What is in no row is told: better a line too many than a reason that is lost.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from sublet.protocol.patterns import Pattern

MAX_LINE_BYTES: Final = 8_192
"""A longer line is no noise."""


@dataclass(frozen=True, slots=True)
class Noise:
    """A line that says nothing.

    Args:
        program: who prints it, by the name of the preset; ``node`` for every program that runs on it.
        line: what the whole line looks like.
        source: where it can be read that it is printed, and by which version.
    """

    program: str
    line: Pattern[str]
    source: str


def _row(program: str, line: str, source: str) -> Noise:
    return Noise(program, Pattern(rf"(?:{line})\s*\Z"), source)


_GEMINI: Final = "printed by 0.61.0, see tests/supervisor/recorded"
_DEPRECATED: Final = "github.com/google-gemini/gemini-cli/issues/18342"
NOISE: Final[Sequence[Noise]] = (
    _row("node", r"\(node:[0-9]+\) (?:\[DEP[0-9]+\] )?[A-Za-z]*Warning: .*", _DEPRECATED),
    _row("node", r"\(Use `node --trace-[a-z]+ \.\.\.` to show where the warning was created\)", _DEPRECATED),
    _row("gemini", r"YOLO mode is enabled\. All tool calls will be automatically approved\.", _GEMINI),
    _row("gemini", r"Loaded cached credentials\.", "github.com/google-gemini/gemini-cli/issues/5287"),
    _row("gemini", r"Warning: 256-color support not detected\. .*", _GEMINI),
    _row("gemini", r"Ripgrep is not available\. Falling back to GrepTool\.", _GEMINI),
    _row("gemini", r"\[STARTUP\] Phase '[a-z_]+' was started but never ended\. Skipping metrics\.", _GEMINI),
    _row("codex", r"Reading (?:prompt|additional input) from stdin\.\.\.", "github.com/promptdriven/pdd/pull/1287"),
)


class QuietErrors:
    """Leaves noise out, line by line; implements ``supervisor.output.Translator``.

    Args:
        program: the name of the preset.
    """

    last_word: Final = None

    def __init__(self, program: str, note: Callable[[str], None]) -> None:
        self._rows = [one.line for one in NOISE if one.program in (program, "node")]
        self._line = b""

    def feed(self, data: bytes, *, final: bool = False) -> bytes:
        """Return what to tell of ``data``; a line is told once it has ended."""
        *whole, self._line = (self._line + data).split(b"\n")
        told = b"".join(line + b"\n" for line in whole if not self._is_noise(line))
        if final or len(self._line) > MAX_LINE_BYTES:
            told += b"" if self._is_noise(self._line) else self._line
            self._line = b""
        return told

    def _is_noise(self, line: bytes) -> bool:
        if not line or len(line) > MAX_LINE_BYTES:
            return False
        text = line.decode("utf-8", "replace")
        return any(row.match(text) for row in self._rows)


def quiet_errors(program: str) -> Callable[[Callable[[str], None]], QuietErrors]:
    """Return what makes the filter of a program (``supervisor.output.Translate``)."""
    return partial(QuietErrors, program)
