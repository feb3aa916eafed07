"""The state tables of AWCP 8.1 and DESIGN 4.1: what they allow, and that no order of events breaks them."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sublet.protocol.lifecycle import (
    ASSIGNMENT_TABLE,
    DELEGATION_TABLE,
    AssignmentEvent,
    AssignmentState,
    DelegationEvent,
    DelegationState,
    IllegalTransition,
    advance,
    is_terminal,
)

Table = Mapping[Any, Mapping[Any, Any]]
TABLES = [
    pytest.param(DELEGATION_TABLE, DelegationState, DelegationEvent, id="delegation"),
    pytest.param(ASSIGNMENT_TABLE, AssignmentState, AssignmentEvent, id="assignment"),
]
DELEGATION_ENDS = {"completed", "error", "cancelled", "expired"}


def reachable(table: Table, start: StrEnum) -> set[StrEnum]:
    seen = {start}
    waiting: list[StrEnum] = [start]
    while waiting:
        for following in table[waiting.pop()].values():
            if following not in seen:
                seen.add(following)
                waiting.append(following)
    return seen


def test_the_delegation_follows_the_line_of_the_spec() -> None:
    line = ["created", "invited", "accepted", "started", "running", "completed"]
    events = ["invite", "accept", "start", "run", "done"]
    state = DelegationState.CREATED
    for event, expected in zip(events, line[1:], strict=True):
        state = advance(DELEGATION_TABLE, state, DelegationEvent(event))
        assert state == expected


def test_the_delegation_table_has_exactly_the_transitions_of_the_spec() -> None:
    edges = {(str(source), str(target)) for source, row in DELEGATION_TABLE.items() for target in row.values()}
    line = ["created", "invited", "accepted", "started", "running"]
    forward = set(zip(line, [*line[1:], "completed"], strict=True))
    ends = {(source, end) for source in line for end in ("error", "cancelled", "expired")}
    assert edges == forward | ends


def test_the_assignment_table_has_exactly_the_transitions_of_the_design() -> None:
    edges = {(str(source), str(target)) for source, row in ASSIGNMENT_TABLE.items() for target in row.values()}
    assert edges == {("pending", "active"), ("active", "completed"), ("pending", "error"), ("active", "error")}


def test_the_ends_of_a_delegation_are_the_four_of_the_spec() -> None:
    assert {s for s in DelegationState if is_terminal(DELEGATION_TABLE, s)} == DELEGATION_ENDS


def test_the_ends_of_an_assignment_are_two() -> None:
    assert {s for s in AssignmentState if is_terminal(ASSIGNMENT_TABLE, s)} == {"completed", "error"}


@pytest.mark.parametrize("state", [s for s in DelegationState if s not in DELEGATION_ENDS])
def test_every_living_delegation_can_fail_be_cancelled_and_expire(state: DelegationState) -> None:
    assert advance(DELEGATION_TABLE, state, DelegationEvent.FAIL) is DelegationState.ERROR
    assert advance(DELEGATION_TABLE, state, DelegationEvent.CANCEL) is DelegationState.CANCELLED
    assert advance(DELEGATION_TABLE, state, DelegationEvent.EXPIRE) is DelegationState.EXPIRED


@pytest.mark.parametrize(("table", "states", "events"), TABLES)
def test_tables_are_complete_and_every_state_is_reachable(
    table: Table, states: type[StrEnum], events: type[StrEnum]
) -> None:
    assert set(table) == set(states)
    assert reachable(table, next(iter(states))) == set(states)
    assert {event for row in table.values() for event in row} == set(events)


@pytest.mark.parametrize(("table", "states", "events"), TABLES)
def test_an_end_has_no_way_out(table: Table, states: type[StrEnum], events: type[StrEnum]) -> None:
    for state in states:
        if is_terminal(table, state):
            for event in events:
                assert event not in table[state]
                with pytest.raises(IllegalTransition, match=str(state)):
                    advance(table, state, event)


@pytest.mark.parametrize(("table", "states", "events"), TABLES)
@given(data=st.data())
def test_no_order_of_events_breaks_a_table(
    table: Table, states: type[StrEnum], events: type[StrEnum], data: st.DataObject
) -> None:
    """Whatever comes in whatever order: a refusal changes nothing, an end is final, nothing goes back."""
    state: StrEnum = next(iter(states))
    visited = [state]
    for event in data.draw(st.lists(st.sampled_from(list(events)), max_size=30)):
        if event not in table[state]:
            with pytest.raises(IllegalTransition):
                advance(table, state, event)
            continue
        assert not is_terminal(table, state)
        state = advance(table, state, event)
        assert state in states
        assert state not in visited
        visited.append(state)


@given(events=st.lists(st.sampled_from(DelegationEvent), max_size=30))
def test_completed_means_every_step_was_taken_in_order(events: list[DelegationEvent]) -> None:
    state = DelegationState.CREATED
    taken = []
    for event in events:
        if event in DELEGATION_TABLE[state]:
            state = advance(DELEGATION_TABLE, state, event)
            taken.append(event)
    if state is DelegationState.COMPLETED:
        assert taken == ["invite", "accept", "start", "run", "done"]
