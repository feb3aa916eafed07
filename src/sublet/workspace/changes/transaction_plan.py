"""The write-ahead plan of a change to a directory: every step with what it expects and what it puts in place."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Literal

from sublet.disk.durable import write_durably
from sublet.protocol.change_counts import ChangeSetStatus
from sublet.protocol.errors import LocalCode, SubletError
from sublet.workspace.changes.edits import Make, Operation
from sublet.workspace.changes.record import Content, plain, read_kept
from sublet.workspace.changes.tree import PathContents

STAGE_PREFIX: Final = b".sublet-apply-"
"""Names, in the directory itself, of what is prepared there; rules hide them from every lease."""

Phase = Literal["preparing", "ready", "committed"]


@dataclass(frozen=True, slots=True)
class PlannedStep:
    """One step: an ``edits.Step`` with the numbers of what it needs in the apply directory.

    ``new_inode`` is the prepared file's, by which it is known wherever it lies.
    """

    operation: Operation
    path: bytes
    expect: PathContents
    make: Make | None = None
    permissions: int = 0
    new_inode: int = 0


@dataclass(frozen=True, slots=True)
class GroupName:
    """A change of several directories: the change set ``leader`` keeps what was decided, under ``token``."""

    leader: str
    token: str


@dataclass(frozen=True, slots=True)
class Plan:
    """A change to ``root``, whose device and inode are ``identity``, prepared in its directory ``apply_dir``.

    ``outcome`` is what becomes of the change set by it. ``group`` is there where other directories change with this
    one: then a plan that is ready is done or taken back as ``group`` has decided.
    """

    root: Path
    identity: tuple[int, int]
    apply_dir: bytes
    phase: Phase
    outcome: ChangeSetStatus
    steps: tuple[PlannedStep, ...]
    group: GroupName | None = None

    def at(self, phase: Phase) -> Plan:
        """Return the plan in another phase."""
        return replace(self, phase=phase)


def save(path: Path, plan: Plan) -> None:
    """Write the plan whole or not at all, to survive a loss of power."""
    write_durably(path, json.dumps(plan, default=plain).encode())


def load(path: Path) -> Plan:
    """Return the plan at ``path``.

    Raises:
        FileNotFoundError: there is none.
        SubletError: ``UNAVAILABLE`` for one that can't be read.
    """
    try:
        found = read_kept(path)
        steps = tuple(_step(step) for step in found["steps"])
        identity = (found["identity"][0], found["identity"][1])
        return Plan(
            Path(found["root"]),
            identity,
            os.fsencode(found["apply_dir"]),
            found["phase"],
            found["outcome"],
            steps,
            None if found["group"] is None else GroupName(**found["group"]),
        )
    except FileNotFoundError:
        raise
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError) as exc:
        raise SubletError(
            LocalCode.UNAVAILABLE,
            f"the plan {path} can't be read: {type(exc).__name__}",
            f"Look for a directory {STAGE_PREFIX.decode()}… in the directory that was applied to.",
        ) from None


def _step(found: dict[str, Any]) -> PlannedStep:
    return PlannedStep(
        found["operation"],
        os.fsencode(found["path"]),
        _found(found["expect"]),
        None if found["make"] is None else _make(found["make"]),
        found["permissions"],
        found["new_inode"],
    )


def _found(found: dict[str, Any]) -> PathContents:
    content = found.pop("content")
    return PathContents(content=None if content is None else Content(**content), **found)


def _make(found: dict[str, Any]) -> Make:
    return Make(
        content=Content(**found["content"]),
        source=None if found["source"] is None else Path(found["source"]),
        target=None if found["target"] is None else os.fsencode(found["target"]),
        permissions=found["permissions"],
        modified_ns=found["modified_ns"],
        owner=None if found["owner"] is None else (found["owner"][0], found["owner"][1]),
        theirs=None if found["theirs"] is None else Path(found["theirs"]),
        alone=found["alone"],
        original=found.get("original", False),
    )
