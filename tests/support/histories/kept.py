"""Keeps what came of histories in a file, so that many of them can be gathered in several runs and over days.

Rules: the file has one line for each history, in a fixed order, so that it can be kept beside the code and what changes
in it can be read. A history that is played once more takes the place of what came of it before. What came of one holds
for the code that was played and for no other: each line has a digest of it, so results stay good while other parts
change. The commit is told beside it; one whose code was changed and not committed has a ``+``.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Final

from support.histories.kinds import KINDS
from support.histories.steps import History
from support.histories.verdict import Verdict

_ROOT: Final = Path(__file__).resolve().parents[3]
_HERE: Final = "tests/support/histories"
_ROOMS: Final = (
    "src/sublet/messaging",
    "src/sublet/migrations",
    "src/sublet/protocol/ezagent",
    "src/sublet/protocol/relay/slot_keys.py",
    "src/sublet/daemon/rooms/views.py",
)
_PLAYED: Final = tuple(
    f"{_HERE}/{name}.py"
    for name in (
        "attacking",
        "damaging",
        "generating",
        "kinds",
        "leftovers",
        "looking",
        "playing",
        "promises",
        "steps",
        "verdict",
    )
)
_MATTERS: Final = {
    False: (*_ROOMS, *_PLAYED, f"{_HERE}/in_process.py", "tests/support/rooms.py", "tests/support/consents.py"),
    True: (
        *_ROOMS,
        *_PLAYED,
        "src/sublet/app/peering.py",
        "src/sublet/app/rooms.py",
        "src/sublet/daemon/peering",
        "src/sublet/daemon/rooms",
        "src/sublet/tasks.py",
        f"{_HERE}/by_control.py",
        f"{_HERE}/in_namespaces.py",
    ),
}
"""Code on which it depends what comes of a history, in one process and with real daemons."""
_NOT: Final = "src/sublet/messaging/relay"
"""Of that; no history has a relay."""
CODE_CHARS: Final = 10


@dataclass(frozen=True, slots=True)
class State:
    """A state of the code.

    Args:
        commit: which one, in short; ``none`` where that is not known.
        code: a digest of the code that matters.
    """

    commit: str
    code: str


@cache
def state(processes: bool) -> State:
    """Return the code as it is now.

    Args:
        processes: whether real daemons are played.
    """
    found = hashlib.sha256()
    for place in _MATTERS[processes]:
        there = _ROOT / place
        assert there.exists(), place
        for path in sorted(there.rglob("*.py")) if there.is_dir() else [there]:
            name = str(path.relative_to(_ROOT))
            if not name.startswith(f"{_NOT}/"):
                found.update(name.encode() + b"\0" + path.read_bytes())
    changed = _git("status", "--porcelain", "--", *_MATTERS[processes])
    commit = _git("rev-parse", f"--short={CODE_CHARS}", "HEAD") or "none"
    return State(commit + ("+" if changed else ""), found.hexdigest()[:CODE_CHARS])


def _git(*arguments: str) -> str:
    try:
        done = subprocess.run(["git", *arguments], cwd=_ROOT, capture_output=True, text=True, check=False)
    except OSError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


@dataclass(frozen=True, slots=True)
class Kept:
    """What came of one history.

    Args:
        processes: whether its daemons were real ones.
        kind: of its faults.
        seed: it was made of.
        daemons: how many there were.
        asked: how many operations it was made with.
        acknowledged: how many of its operations were.
        lost: how many things that were acknowledged some member has not shown.
        differed: whether members have shown different things.
        errors: operations that ended with an internal error.
        seconds: from the last repair until all was equal; None where it never was in time.
        worked: seconds of processor of all that ran in the process that played it.
        commit: that was played.
        code: a digest of the code that matters.
    """

    processes: bool
    kind: str
    seed: int
    daemons: int
    asked: int
    acknowledged: int
    lost: int
    differed: bool
    errors: int
    seconds: float | None
    worked: float
    commit: str
    code: str

    @property
    def right(self) -> bool:
        """Whether all was equal in time, and no operation failed."""
        return self.seconds is not None and not self.errors

    @property
    def place(self) -> tuple[bool, int, int, int, int]:
        """Return where it stands in the file, in which no other history stands."""
        return self.processes, list(KINDS).index(self.kind), self.seed, self.daemons, self.asked


class Results:
    """A file of what came of histories; without one nothing is kept.

    Args:
        path: the file, made when it is needed.
        asked: how many operations those histories have that count.
        processes: whether their daemons are real ones.
        now: the state of the code that is played.
    """

    def __init__(self, path: Path | None, asked: int, processes: bool, now: State) -> None:
        self._path = path
        self._asked, self._processes, self._now = asked, processes, now

    def all(self, *, older: bool = False) -> list[Kept]:
        """Return what is kept of histories that count: those of this code.

        Args:
            older: those of other code as well.
        """
        return [
            one
            for one in self._lines()
            if (one.asked, one.processes) == (self._asked, self._processes) and (older or one.code == self._now.code)
        ]

    def needs(self, history: History, *, older: bool = False) -> bool:
        """Tell whether a history is to be played: this code never has.

        Args:
            history: which one.
            older: what other code has played and was right need not be played, either.
        """
        wanted = (history.kind, history.seed, history.daemons)
        there = [one for one in self.all(older=older) if (one.kind, one.seed, one.daemons) == wanted]
        return not any(one.code == self._now.code or one.right for one in there)

    def keep(self, history: History, verdict: Verdict, worked: float) -> Kept:
        """Keep what came of a history, and return it."""
        kept = Kept(
            processes=self._processes,
            kind=history.kind,
            seed=history.seed,
            daemons=history.daemons,
            asked=self._asked,
            acknowledged=verdict.operations,
            lost=len(verdict.promises),
            differed=bool(verdict.differ),
            errors=len(verdict.errors),
            seconds=None if verdict.seconds is None else round(verdict.seconds, 1),
            worked=round(worked, 1),
            commit=self._now.commit,
            code=self._now.code,
        )
        if self._path is not None:
            found = {one.place: one for one in self._lines()} | {kept.place: kept}
            lines = "".join(json.dumps(asdict(found[place])) + "\n" for place in sorted(found))
            aside = self._path.with_suffix(".new")
            aside.write_text(lines, encoding="utf-8")
            os.replace(aside, self._path)
        return kept

    def _lines(self) -> Iterator[Kept]:
        if self._path is not None and self._path.exists():
            for line in self._path.read_text(encoding="utf-8").splitlines():
                yield Kept(**json.loads(line))
