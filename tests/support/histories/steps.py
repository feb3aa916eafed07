"""What a history is made of: steps that name earlier ones by number, so that any of them may be left out."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final

EVERYBODY: Final = -1
"""Who does a step that no single daemon does, such as a partition."""


@dataclass(frozen=True, slots=True)
class Step:
    """One thing that happens.

    Args:
        number: its name, by which later steps refer to what it has made; the same in a shortened history.
        who: the daemon that does it, or to which it happens, from 0; ``EVERYBODY`` for a step of no single one.
        do: an operation or a fault.
        args: of it, as JSON has them.
    """

    number: int
    who: int
    do: str
    args: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        who = "all" if self.who == EVERYBODY else f"d{self.who}"
        said = " ".join(f"{name}={json.dumps(value)}" for name, value in self.args.items())
        return f"{self.number} {who} {_one_word(self.do)} {said}".rstrip()


@dataclass(frozen=True, slots=True)
class History:
    """Steps of some daemons.

    Args:
        kind: of faults that are in it.
        seed: it was made of.
        daemons: how many there are.
        steps: what happens, in order.
    """

    kind: str
    seed: int
    daemons: int
    steps: tuple[Step, ...]

    def with_steps(self, steps: Iterable[Step]) -> History:
        """Return the history with these steps alone."""
        return History(self.kind, self.seed, self.daemons, tuple(steps))

    def script(self) -> str:
        """Return it as text that ``read_script`` reads."""
        head = f"# kind={_one_word(self.kind)} seed={self.seed} daemons={self.daemons}"
        return "\n".join([head, *map(str, self.steps)]) + "\n"


def read_script(text: str) -> History:
    """Return the history that a text of ``History.script`` tells.

    Raises:
        ValueError: it is none.
    """
    head, *lines = [line for line in text.splitlines() if line.strip()]
    told = dict(pair.split("=", 1) for pair in head.removeprefix("# ").split(" "))
    return History(_words(told["kind"]), int(told["seed"]), int(told["daemons"]), tuple(map(_step, lines)))


def _step(line: str) -> Step:
    number, who, do, *rest = line.split(" ", 3)
    args: dict[str, Any] = {}
    left = rest[0] if rest else ""
    while left:
        name, _, left = left.partition("=")
        value, end = json.JSONDecoder().raw_decode(left)
        args[name], left = value, left[end:].lstrip()
    return Step(int(number), EVERYBODY if who == "all" else int(who[1:]), _words(do), args)


def _one_word(text: str) -> str:
    return text.replace(" ", "_")


def _words(text: str) -> str:
    return text.replace("_", " ")
