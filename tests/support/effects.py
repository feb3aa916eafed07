"""Parts of a daemon that only write down what was done with them, and a policy that says yes a number of times."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sublet.policy.decision import Action, Decision, Resource, Subject
from sublet.policy.engine import Policy
from sublet.policy.lending import Protected

LOOKED_UP = ("results.workspaces", "peers.unknown", "peers.get")
"""What is known without asking anybody, or looked up between two questions."""


class Effect:
    """Stands for any part of the daemon; whatever is called on it is written down and returns the like."""

    def __init__(self, log: list[str], name: str) -> None:
        self._log = log
        self._name = name

    def __getattr__(self, name: str) -> Effect:
        return Effect(self._log, f"{self._name}.{name}")

    def __call__(self, *arguments: object, **more: object) -> Effect:
        self._log.append(self._name)
        return self

    def __await__(self) -> Any:
        return self
        yield

    def __iter__(self) -> Any:
        return iter(())


class LendRoots(Effect):
    """None; that they are listed is written down."""

    def paths(self) -> list[str]:
        self._log.append("lend_roots.paths")
        return []


class AskedPolicy:
    """Says yes ``grants`` times, then no; writes down every question."""

    def __init__(self, log: list[str], grants: int) -> None:
        self._log = log
        self._left = grants
        real = Policy(Protected(Path("/home/nobody")))
        self.limits, self.rule_set, self.now = real.limits, real.rule_set, real.now

    def decide(
        self,
        subject: Subject,
        action: Action,
        resource: Resource,
        request: object = (),
        *,
        granted: bool = False,
        at: float | None = None,
    ) -> Decision:
        self._log.append(f"ask {action}")
        self._left -= 1
        return Decision(self._left >= 0, "test", "test", "the test says so")


def effects(log: list[str]) -> list[int]:
    """Return where the log tells of more than asking; what a question needs to know belongs to the one after it."""
    following = [*log[1:], ""]
    return [
        index
        for index, (entry, after) in enumerate(zip(log, following, strict=True))
        if not entry.startswith("ask ")
        and entry != "journal.events.append_event"
        and not (entry == "lend_roots.paths" and after.startswith("ask "))
        and entry not in LOOKED_UP
    ]
