"""Keeps what came of histories as lines of JSON, so that many of them can be gathered in several runs."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from support.histories.steps import History
from support.histories.verdict import Verdict, read_verdict

_ROOT: Final = Path(__file__).resolve().parents[3]
_MATTERS: Final = (
    "src/sublet/messaging",
    "src/sublet/protocol/ezagent",
    "src/sublet/migrations",
    "tests/support/histories",
)
"""Code on which it depends what comes of a history."""
CODE_CHARS: Final = 10


@cache
def code() -> str:
    """Return a name of the code that matters, as it is now."""
    found = hashlib.sha256()
    for place in _MATTERS:
        for path in sorted((_ROOT / place).rglob("*.py")):
            found.update(str(path.relative_to(_ROOT)).encode() + b"\0" + path.read_bytes())
    return found.hexdigest()[:CODE_CHARS]


@dataclass(frozen=True, slots=True)
class Kept:
    """What came of one history.

    Args:
        kind: of its faults.
        seed: it was made of.
        daemons: how many there were.
        asked: how many operations it was made with.
        processes: whether its daemons were real ones.
        code: of which state it was.
        processor_seconds: of all that ran in the process that played it.
        verdict: what came of it.
    """

    kind: str
    seed: int
    daemons: int
    asked: int
    processes: bool
    code: str
    processor_seconds: float
    verdict: Verdict

    def line(self) -> str:
        """Return it as a line of the file."""
        told = {name: getattr(self, name) for name in self.__slots__ if name != "verdict"}
        return json.dumps(told | {"verdict": self.verdict.told()})


class Results:
    """A file of what came of histories; without one nothing is kept.

    Args:
        path: the file, made when it is needed.
        asked: how many operations those histories have that count.
        processes: whether their daemons are real ones.
        states: of which states of the code they are; what is kept is of the first.
    """

    def __init__(self, path: Path | None, asked: int, processes: bool, states: Sequence[str]) -> None:
        self._path = path
        self._asked, self._processes, self._states = asked, processes, states

    def all(self) -> Iterator[Kept]:
        """Yield what is kept of histories that count, each once."""
        if self._path is None or not self._path.exists():
            return
        found: dict[tuple[str, int, int], Kept] = {}
        for line in self._path.read_text(encoding="utf-8").splitlines():
            told = json.loads(line)
            kept = Kept(**told | {"verdict": read_verdict(told["verdict"])})
            if (kept.asked, kept.processes) == (self._asked, self._processes) and kept.code in self._states:
                found[kept.kind, kept.seed, kept.daemons] = kept
        yield from found.values()

    def has(self, history: History) -> bool:
        """Tell whether a history was played already."""
        wanted = (history.kind, history.seed, history.daemons)
        return any((one.kind, one.seed, one.daemons) == wanted for one in self.all())

    def keep(self, history: History, verdict: Verdict, processor_seconds: float) -> Kept:
        """Keep what came of a history, and return it."""
        kept = Kept(
            history.kind,
            history.seed,
            history.daemons,
            self._asked,
            self._processes,
            self._states[0],
            round(processor_seconds, 1),
            verdict,
        )
        if self._path is not None:
            with self._path.open("a", encoding="utf-8") as file:
                file.write(kept.line() + "\n")
        return kept
