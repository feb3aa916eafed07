"""Whoever asks about another office has the same done for it, step by step, as for one that does not exist.

Time is what is done: so the very instructions are compared, and the functions of C that are called, which no machine is
too busy for. What clients measure, over sockets and 2,000 tries, is in ``benchmarks/offices.py``.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import sublet
from sublet.office_server.desk import Desk
from sublet.offices.calls import Calls
from sublet.offices.rules import Offices
from sublet.offices.seats import Member
from sublet.protocol.canonical import JsonValue
from sublet.protocol.offices.names import ClientEvent, Role
from sublet.protocol.offices.requests import Join, ListRoom
from support.office_client import NOWHERE, OTHERS, OURS, Guard, Tokens

Step = tuple[str, str, int]
SOURCES = str(Path(sublet.__file__).parent)


class Carrier:
    """Sends nothing."""

    def carry_out(self, effects: object) -> None:
        """``Carries.carry_out``."""

    def count(self, sid: str, frames: int, size: int = 0) -> None:
        """``Carries.count``."""


def desk_of(offices: Offices) -> Desk:
    """Return a desk of two offices, in each of which an Agent and two Computers sit; bob is of ours alone."""
    desk = Desk(offices, Calls(), Tokens.usual(), Guard())
    desk.carried_by(Carrier())  # type: ignore[arg-type]
    for name, role in (("alice", Role.AGENT), ("bob", Role.COMPUTER)):
        assert desk.connected(f"1-{name}", f"1-{name}")
        assert offices.join(f"1-{name}", Join(role, name, OURS)).ok
    for name, role in (("alice", Role.AGENT), ("carol", Role.COMPUTER)):
        assert desk.connected(f"2-{name}", f"2-{name}")
        assert offices.join(f"2-{name}", Join(role, name, OTHERS)).ok
    assert desk.connected("1-eve", "1-eve")  # who has not joined
    return desk


def run(work: Coroutine[Any, Any, object]) -> object:
    """Return what a coroutine returns that waits for nothing."""
    with pytest.raises(StopIteration) as end:
        work.send(None)
    return end.value.value


def steps(work: Callable[[], object]) -> list[Step]:
    """Return each instruction of ours that is carried out, and each function of C that is called by one.

    Python's collector is kept from it: what it calls would be found among them.
    """
    found: list[Step] = []

    def trace(frame: FrameType, event: str, _: object) -> Any:
        frame.f_trace_opcodes = True
        if event == "opcode" and ours(frame):
            found.append((frame.f_code.co_filename, frame.f_code.co_qualname, frame.f_lasti))
        return trace

    def profile(frame: FrameType, event: str, called: Any) -> None:
        if event == "c_call" and ours(frame):
            found.append(("C", getattr(called, "__qualname__", repr(called)), frame.f_lasti))

    before = sys.gettrace()
    gc.disable()
    sys.setprofile(profile)
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
        sys.setprofile(None)
        gc.enable()
    return found


def ours(frame: FrameType) -> bool:
    """Tell whether a frame is of the product, or of a test that stands in its place."""
    return frame.f_code.co_filename.startswith((SOURCES, __file__)) and frame.f_code.co_name != "steps"


def asked(desk: Desk, sid: str, event: str, data: JsonValue) -> tuple[object, list[Step]]:
    """Return how an event is answered, and what is done for it."""
    answers: list[object] = []
    done = steps(lambda: answers.append(run(desk.handle(sid, event, [data]))))
    return answers[0], done


def questions(office: str, computer: str) -> dict[str, tuple[str, str, JsonValue]]:
    """Return all that can be asked about an office, or about a Computer."""
    seat: dict[str, JsonValue] = {"office_id": office, "role": "computer", "name": "bob"}
    call: dict[str, JsonValue] = {"agent": "alice", "req_id": "r", "computer": computer, "tool_name": "t", "params": {}}
    room: dict[str, JsonValue] = {"req_id": "r", "office_id": office}
    of_member: dict[str, tuple[str, str, JsonValue]] = {
        "joins": ("1-bob", "server:join_office", seat),
        "joins as Agent": ("1-eve", "server:join_office", {**seat, "role": "agent", "name": "eve"}),
        "joins under a name of there": ("1-bob", "server:join_office", {**seat, "name": "carol"}),
        "leaves": ("1-bob", "server:leave_office", {"office_id": office}),
        "leaves, being nowhere": ("1-eve", "server:leave_office", {"office_id": office}),
        "lists": ("1-alice", "server:list_room", {**room, "agent": "alice"}),
        "lists, being nowhere": ("1-eve", "server:list_room", {**room, "agent": "eve"}),
    }
    return of_member | {f"{event} of a Computer": ("1-alice", event, call) for event in ClientEvent}


@pytest.mark.parametrize("question", questions("", ""))
def test_another_office_is_asked_about_as_one_that_does_not_exist(question: str) -> None:
    desk = desk_of(Offices())
    there, nowhere = questions(OTHERS, "carol")[question], questions(NOWHERE, "nobdy")[question]
    asked(desk, *there), asked(desk, *nowhere)  # what the first of a kind has done besides
    (answer, done), (same, as_much) = asked(desk, *there), asked(desk, *nowhere)
    assert str(answer).replace("carol", "nobdy") == str(same)
    assert done == as_much
    assert len(done) > 20


def test_a_look_at_other_offices_would_be_seen() -> None:
    class Looks(Offices):
        def list_room(self, sid: str, asked: ListRoom) -> list[JsonValue] | None:
            self.there: list[Member] = []
            for member in self._seated.get(asked.office_id, {}).values():
                self.there.append(member)
            return super().list_room(sid, asked)

    desk = desk_of(Looks())
    there, nowhere = questions(OTHERS, "")["lists"], questions(NOWHERE, "")["lists"]
    asked(desk, *there), asked(desk, *nowhere)
    assert asked(desk, *there)[1] != asked(desk, *nowhere)[1]
