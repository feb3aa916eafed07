"""The tables of records: their columns, and the transitions that the tables of the protocol allow (AWCP 8)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum

from sublet.daemon.storage.torn_rows import RowsOf
from sublet.protocol.lifecycle import (
    ASSIGNMENT_TABLE,
    DELEGATION_TABLE,
    AssignmentState,
    DelegationState,
    EventT,
    StateT,
)


def marks(values: Sequence[str]) -> str:
    """Return as many placeholders of SQL as there are values."""
    return ", ".join("?" for _ in values)


class RecordTable:
    """A table of records: its name, its columns besides the common ones, and the states it goes through."""

    def __init__(
        self, name: str, extra: tuple[str, ...], first: StrEnum, states: Mapping[StateT, Mapping[EventT, StateT]]
    ) -> None:
        self.name = name
        self.first = str(first)
        self.next = {str(state): {str(after) for after in ways.values()} for state, ways in states.items()}
        self.ends = tuple(state for state, after in self.next.items() if not after)
        columns = ("id", "state", "record", "created_at", "updated_at", *extra)
        self.of = RowsOf(name)
        self.insert = f"INSERT INTO {name} ({', '.join(columns)}) VALUES ({marks(columns)})"  # noqa: S608 - constants


DELEGATIONS = RecordTable("delegations", ("caller", "idempotency_key"), DelegationState.CREATED, DELEGATION_TABLE)
ASSIGNMENTS = RecordTable("assignments", ("peer",), AssignmentState.PENDING, ASSIGNMENT_TABLE)
