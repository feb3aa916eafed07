"""Changing several directories as one: all of them, or none, whatever ends the process in between (DESIGN 4.7).

Each has a transaction of its own, which is gone forward with until all its steps are done and could still be taken
back. Then one small file decides for all of them. A crash before it takes everything back, one after it finishes the
rest. Of a single directory its own plan decides.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Final, Literal

from sublet.disk.durable import sync_directory, write_durably
from sublet.protocol.change_counts import ChangeSetStatus
from sublet.protocol.errors import LocalCode, SubletError
from sublet.workspace.changes.edits import Step
from sublet.workspace.changes.record import read_kept
from sublet.workspace.changes.transaction import PLAN, ChangedMeanwhileError, Transaction, unchanged
from sublet.workspace.changes.transaction_plan import GroupName, Plan
from sublet.workspace.changes.tree import Tree

DECIDED: Final = "decided.json"
"""Lies in the directory of the first change set of a group."""

Action = Literal["apply", "undo"]


class Together:
    """One change of the directories of several change sets; a context, which takes back what was not committed.

    Args:
        directories: where the change sets are kept, by their keys.
        action: what is done with them.
        on_step: as for ``Transaction``.
    """

    def __init__(
        self, directories: Mapping[str, Path], action: Action, on_step: Callable[[int], None] | None = None
    ) -> None:
        self._directories = directories
        self._action = action
        self._on_step = on_step
        leader = next(iter(directories))
        self._group = GroupName(leader, secrets.token_hex(16)) if len(directories) > 1 else None
        self._decision = directories[leader] / DECIDED
        self._forward: list[tuple[Transaction, Plan]] = []
        self._over = False

    def __enter__(self) -> Together:
        return self

    def __exit__(self, kind: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None) -> None:
        if not self._over:
            self._take_back()

    def forward(self, key: str, tree: Tree, root: Path, steps: list[Step], outcome: ChangeSetStatus) -> Plan | None:
        """Do the steps in one directory; None where that was changed meanwhile.

        Args:
            key: of the change set, one of ``directories``.
            tree: the directory, which has to stay open until the end of the context.
            root: its real path.
            steps: as for ``Transaction.forward``.
            outcome: as for ``Transaction.forward``.

        Raises:
            SubletError: ``UNAVAILABLE`` where it can't be changed.
        """
        transaction = Transaction(tree, root, self._directories[key] / self._action, self._on_step)
        try:
            plan = transaction.forward(steps, outcome, self._group)
        except ChangedMeanwhileError:
            return None
        self._forward.append((transaction, plan))
        return plan

    def commit(self) -> None:
        """Decide that all of it is done, and tidy up.

        Raises:
            SubletError: ``UNAVAILABLE`` where that can't be written down; then all of it is taken back.
        """
        self._over = True
        if self._group is None:
            for transaction, plan in self._forward:
                transaction.commit(plan)
        else:
            self._decide(self._group)
        for transaction, plan in self._forward:
            transaction.finish(plan)
        forget(self._decision, self._directories, self._action)

    def _decide(self, group: GroupName) -> None:
        content = {"token": group.token, "action": self._action, "keys": list(self._directories)}
        try:
            write_durably(self._decision, json.dumps(content).encode())
        except OSError as exc:
            try:
                # Perhaps it is on the disk all the same, and a crash must not find it so half way back.
                self._decision.unlink(missing_ok=True)
                sync_directory(self._decision.parent)
            except OSError as worse:
                raise _undecided(worse) from None
            self._take_back()
            raise unchanged(self._forward[0][1].root, exc) from None

    def _take_back(self) -> None:
        """Take back all that was gone forward with, the last first; what can't be is told once the others are.

        Raises:
            SubletError: ``UNAVAILABLE``.
        """
        self._over = True
        failures: list[SubletError] = []
        for transaction, plan in reversed(self._forward):
            try:
                transaction.abandon(plan)
            except SubletError as error:
                failures.append(error)
        if failures:
            raise failures[0]


def is_decided(directory: Path, group: GroupName) -> bool:
    """Tell whether ``group`` has decided that its plans are done.

    Args:
        directory: of its first change set.
        group: as a plan names it.

    Raises:
        SubletError: ``UNAVAILABLE`` where that can't be read.
    """
    try:
        return bool(read_kept(directory / DECIDED)["token"] == group.token)
    except FileNotFoundError:
        return False
    except (OSError, ValueError, LookupError, TypeError, RecursionError) as exc:
        raise _undecided(exc) from None


def members(directory: Path) -> tuple[Action, list[str]] | None:
    """Return what a decision that is kept in ``directory`` was about, and the keys; None where there is none.

    Raises:
        SubletError: ``UNAVAILABLE`` where it can't be read.
    """
    try:
        found = read_kept(directory / DECIDED)
        return "undo" if found["action"] == "undo" else "apply", [str(key) for key in found["keys"]]
    except FileNotFoundError:
        return None
    except (OSError, ValueError, LookupError, TypeError, RecursionError) as exc:
        raise _undecided(exc) from None


def forget(decision: Path, directories: Mapping[str, Path], action: Action) -> None:
    """Remove a decision once nothing has to look at it any more: every plan that it was about is finished."""
    if not any(os.path.lexists(directory / action / PLAN) for directory in directories.values()):
        with contextlib.suppress(OSError):
            decision.unlink(missing_ok=True)


def _undecided(exc: Exception) -> SubletError:
    reason = exc.strerror if isinstance(exc, OSError) else type(exc).__name__
    return SubletError(
        LocalCode.UNAVAILABLE,
        f"whether a change of several directories was made can't be read or written down: {reason}",
        "Mend the disk of the state directory and restart the daemon, which finishes it or takes it back.",
    )
