"""The life of a panel: its table, its stop rule, its time, and what a kill leaves."""

from __future__ import annotations

import pytest

from sublet.protocol.lifecycle import IllegalTransition
from sublet.protocol.panels import (
    MEMBER_TABLE,
    PASSED_FIRST,
    SPENT,
    Check,
    Checked,
    Ended,
    MemberEvent,
    MemberState,
    Panel,
    PanelRules,
    StopCheck,
    Stopped,
    StopWork,
    TimeCame,
)

W, R, C = MemberState.WORKING, MemberState.READY, MemberState.CHECKING
P, F, N = MemberState.PASSED, MemberState.FAILED, MemberState.NONE


def test_the_table_has_each_state_and_no_way_but_these() -> None:
    ways = {(state, event, after) for state, row in MEMBER_TABLE.items() for event, after in row.items()}
    assert set(MEMBER_TABLE) == set(MemberState)
    assert ways == {
        (W, MemberEvent.RESULT, R),
        (W, MemberEvent.NOTHING, N),
        (R, MemberEvent.CHECK, C),
        (C, MemberEvent.PASS, P),
        (C, MemberEvent.FAIL, F),
        (C, MemberEvent.UNCHECK, R),
    }


def test_without_a_check_all_are_waited_for_and_nothing_is_done() -> None:
    panel = Panel(PanelRules(checks=False), [0, 0])
    assert panel.step(Ended(0, result=True), 3) == []
    assert not panel.over
    assert panel.step(Ended(1, result=False), 5) == []
    assert panel.over
    assert panel.states == [R, N]
    assert panel.spent(99) == 8


def test_the_first_that_passes_stops_work_and_checks_of_the_others_and_what_comes_later_is_not_checked() -> None:
    panel = Panel(PanelRules(checks=True, stop="first_pass"), [0] * 4)
    assert panel.step(Ended(0, result=True), 1) == [Check(0)]
    assert panel.step(Ended(1, result=True), 1) == [Check(1)]
    assert panel.step(Checked(0, passed=False), 2) == []
    assert panel.step(Ended(2, result=True), 2) == [Check(2)]
    assert panel.step(Checked(1, passed=True), 3) == [StopWork(3, PASSED_FIRST), StopCheck(2)]
    assert panel.step(Checked(2, passed=None), 4) == []
    assert panel.step(Ended(3, result=True), 4) == []
    assert panel.states == [F, P, R, R]
    assert panel.over


def test_with_the_rule_all_a_pass_stops_nobody() -> None:
    panel = Panel(PanelRules(checks=True), [0, 0])
    panel.step(Ended(0, result=True), 1)
    assert panel.step(Checked(0, passed=True), 2) == []
    assert panel.step(Ended(1, result=True), 3) == [Check(1)]


def test_time_of_agents_is_added_up_and_ends_work_but_no_check() -> None:
    panel = Panel(PanelRules(checks=True, max_agent_seconds=100), [0, 10])
    assert panel.due(10) == 55, "10 s are spent, and two spend the other 90"
    assert panel.step(Ended(0, result=True), 30) == [Check(0)]
    assert panel.spent(30) == 50
    assert panel.due(30) == 80
    assert panel.step(TimeCame(), 79) == []
    assert panel.step(TimeCame(), 80) == [StopWork(1, SPENT)]
    assert panel.step(Ended(1, result=False), 81) == []
    assert panel.due(81) is None
    assert panel.step(Checked(0, passed=True), 90) == []
    assert panel.states == [P, N]
    assert Panel(PanelRules(checks=True), [0]).due(1_000) is None


def test_somebody_who_stops_it_stops_all() -> None:
    panel = Panel(PanelRules(checks=True), [0, 0])
    panel.step(Ended(0, result=True), 1)
    assert panel.step(Stopped("no more"), 2) == [StopWork(1, "no more"), StopCheck(0)]


def test_who_stops_it_before_it_has_begun_is_told_as_who_stopped_it() -> None:
    panel = Panel(PanelRules(checks=True, stop="first_pass"), [0.0, 0.0])
    assert panel.step(Stopped("by somebody"), 1) == [StopWork(0, "by somebody"), StopWork(1, "by somebody")]
    assert panel.begin() == []


def test_what_a_kill_has_left_goes_on_with_what_is_known() -> None:
    rules = PanelRules(checks=True, stop="first_pass", max_agent_seconds=50)
    panel = Panel(rules, [0, 0, 0], {0: (P, 4.0), 1: (N, 2.0)})
    assert panel.begin() == [StopWork(2, PASSED_FIRST)], "the process was killed before the others were stopped"
    assert panel.spent(10) == 16
    assert Panel(rules, [0, 0], {0: (F, 4.0)}).begin() == []
    assert Panel(rules, [0], {0: (F, 4.0)}).over


def test_what_the_table_does_not_have_is_a_defect_of_the_caller() -> None:
    panel = Panel(PanelRules(checks=True), [0])
    with pytest.raises(IllegalTransition):
        panel.step(Checked(0, passed=True), 1)
    panel.step(Ended(0, result=False), 1)
    with pytest.raises(IllegalTransition):
        panel.step(Ended(0, result=True), 2)
