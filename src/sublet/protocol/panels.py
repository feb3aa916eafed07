"""What becomes of a panel: one task that several agents have at once, of whose results one is taken (federation).

``MEMBER_TABLE`` is the whole life of one member. ``Panel`` says what has to be done when something has happened; it
does nothing itself and knows no clock.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Final, Literal, TypeAlias

from sublet.protocol.lifecycle import IllegalTransition

MIN_MEMBERS: Final = 2
MAX_MEMBERS: Final = 8
MAX_CHECK_CHARS: Final = 4_000
MAX_CHECK_SECONDS: Final = 3_600
DEFAULT_CHECK_SECONDS: Final = 600
StopRule = Literal["all", "first_pass"]
"""Whether all are waited for, or the others are stopped once a result has passed the check."""
PASSED_FIRST: Final = "another member of the panel passed the check first"
SPENT: Final = "the panel has used up its time of agents"


class MemberState(StrEnum):
    """Where a member of a panel stands. ``ready``: it has a result that is not checked, or not yet."""

    WORKING = "working"
    READY = "ready"
    CHECKING = "checking"
    PASSED = "passed"
    FAILED = "failed"
    NONE = "none"


class MemberEvent(StrEnum):
    """What happens to a member: its work ends with a result or without one; its result is checked."""

    RESULT = "result"
    NOTHING = "nothing"
    CHECK = "check"
    PASS = "pass"  # noqa: S105 - a check that passes
    FAIL = "fail"
    UNCHECK = "uncheck"


MEMBER_TABLE: Final[Mapping[MemberState, Mapping[MemberEvent, MemberState]]] = MappingProxyType(
    {
        MemberState.WORKING: {MemberEvent.RESULT: MemberState.READY, MemberEvent.NOTHING: MemberState.NONE},
        MemberState.READY: {MemberEvent.CHECK: MemberState.CHECKING},
        MemberState.CHECKING: {
            MemberEvent.PASS: MemberState.PASSED,
            MemberEvent.FAIL: MemberState.FAILED,
            MemberEvent.UNCHECK: MemberState.READY,
        },
        MemberState.PASSED: {},
        MemberState.FAILED: {},
        MemberState.NONE: {},
    }
)


@dataclass(frozen=True, slots=True)
class Ended:
    """The work of a member is over and its access cut; ``result`` tells whether there is one."""

    member: int
    result: bool


@dataclass(frozen=True, slots=True)
class Checked:
    """The check of a result is over; ``passed`` is None where it was stopped."""

    member: int
    passed: bool | None


@dataclass(frozen=True, slots=True)
class Stopped:
    """Somebody wants the panel no more."""

    why: str


@dataclass(frozen=True, slots=True)
class TimeCame:
    """The moment that ``Panel.due`` told has come."""


PanelEvent: TypeAlias = Ended | Checked | Stopped | TimeCame


@dataclass(frozen=True, slots=True)
class StopWork:
    """End the work of a member."""

    member: int
    why: str


@dataclass(frozen=True, slots=True)
class StopCheck:
    """End the check of a member's result."""

    member: int


@dataclass(frozen=True, slots=True)
class Check:
    """Run the check on a member's result."""

    member: int


Step: TypeAlias = StopWork | StopCheck | Check


@dataclass(frozen=True, slots=True)
class PanelRules:
    """How a panel ends.

    Args:
        checks: whether results are checked.
        stop: when the others are stopped.
        max_agent_seconds: how long its members may work, all times added; None for as long as their leases.
    """

    checks: bool
    stop: StopRule = "all"
    max_agent_seconds: float | None = None


class Panel:
    """One panel.

    Args:
        rules: how it ends.
        began: when each member began to work, in seconds of any clock that goes on.
        known: members whose end is known from before, with the seconds that each worked.
    """

    def __init__(
        self, rules: PanelRules, began: Sequence[float], known: Mapping[int, tuple[MemberState, float]] | None = None
    ) -> None:
        self._rules = rules
        self._began = list(began)
        known = known or {}
        self.states = [known[one][0] if one in known else MemberState.WORKING for one in range(len(began))]
        self._worked: dict[int, float] = {one: seconds for one, (_, seconds) in known.items()}
        self._passed_before = rules.stop == "first_pass" and MemberState.PASSED in self.states
        self._stopping = self._passed_before

    @property
    def over(self) -> bool:
        """Whether nobody works and nothing is checked any more."""
        return not any(state in (MemberState.WORKING, MemberState.CHECKING) for state in self.states)

    def seconds(self, member: int, now: float) -> float:
        """Return how long a member has worked."""
        return self._worked.get(member, max(0.0, now - self._began[member]))

    def spent(self, now: float) -> float:
        """Return how long all members have worked, added up."""
        return sum(self.seconds(one, now) for one in range(len(self._began)))

    def due(self, now: float) -> float | None:
        """Return when the time of agents is used up, if nobody ends before; None where that never comes."""
        at_work = self.states.count(MemberState.WORKING)
        if self._rules.max_agent_seconds is None or not at_work or self._stopping:
            return None
        return now + max(0.0, self._rules.max_agent_seconds - self.spent(now)) / at_work

    def begin(self) -> list[Step]:
        """Return what is to be done of a panel that an earlier process has left, or a new one."""
        return self._stop(PASSED_FIRST) if self._passed_before else []

    def step(self, event: PanelEvent, now: float) -> list[Step]:
        """Take what has happened, and return what is to be done.

        Args:
            event: what.
            now: in seconds, of the clock of ``began``.

        Raises:
            IllegalTransition: the table has no way for it, which is a defect of the caller.
        """
        match event:
            case Ended(member, result):
                self._worked[member] = self.seconds(member, now)
                self._move(member, MemberEvent.RESULT if result else MemberEvent.NOTHING)
                if result and self._rules.checks and not self._stopping:
                    self._move(member, MemberEvent.CHECK)
                    return [Check(member)]
                return []
            case Checked(member, None):
                self._move(member, MemberEvent.UNCHECK)
                return []
            case Checked(member, passed):
                self._move(member, MemberEvent.PASS if passed else MemberEvent.FAIL)
                if passed and self._rules.stop == "first_pass" and not self._stopping:
                    return self._stop(PASSED_FIRST)
                return []
            case Stopped(why):
                return self._stop(why)
            case TimeCame():
                due = self.due(now)
                # Only who works uses it up: what is there by then is checked still.
                return self._end_work(SPENT) if due is not None and due <= now else []

    def _stop(self, why: str) -> list[Step]:
        self._stopping = True
        checks: list[Step] = [StopCheck(one) for one, state in enumerate(self.states) if state is MemberState.CHECKING]
        return self._end_work(why) + checks

    def _end_work(self, why: str) -> list[Step]:
        return [StopWork(one, why) for one, state in enumerate(self.states) if state is MemberState.WORKING]

    def _move(self, member: int, event: MemberEvent) -> None:
        state = self.states[member]
        if event not in MEMBER_TABLE[state]:
            raise IllegalTransition(f"member {member} of a panel is {state}, so it can't have {event}")
        self.states[member] = MEMBER_TABLE[state][event]
