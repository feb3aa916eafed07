"""Events of offices: who joins and leaves, how calls end, and what is left out of a flood."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import pytest

from sublet.daemon.offices.news import CALLS_AT_ONCE, MAX_SHARES, MOVES_AT_ONCE, OfficeNews
from sublet.offices.ports import AskedOfComputer
from sublet.offices.rules import Offices
from sublet.offices.seats import Seat
from sublet.protocol.events import EventFilter, EventKind
from sublet.protocol.offices.names import ClientEvent, Role
from sublet.protocol.offices.requests import Join
from support.approvals import Desk, desk

pytestmark = pytest.mark.anyio


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def seat(name: str, role: Role = Role.COMPUTER, office: str = "desk") -> Seat:
    return Seat(f"id-of-{office}", office, role, name, f"{office}-{name}")


def call(tool: str, event: ClientEvent = ClientEvent.TOOL_CALL) -> AskedOfComputer:
    return AskedOfComputer(seat("alice", Role.AGENT), "bob", event, tool, {})


async def written(side: Desk, news: OfficeNews) -> list[tuple[EventKind | str, Any]]:
    """Let it write what it knows, as at the stop of the daemon, and return all of it."""
    async with anyio.create_task_group() as group:
        group.start_soon(news.serve)
        await anyio.wait_all_tasks_blocked()  # it writes by now, which the stop does not have done twice
        group.cancel_scope.cancel()
    found: list[tuple[EventKind | str, Any]] = []
    cursor = 0
    while page := (await side.journal.events.events_after(cursor, limit=500, only=EventFilter())).events:
        found += [(one.kind, one.data) for one in page]
        cursor = page[-1].seq
    return found


async def test_whoever_joins_and_leaves_is_told_with_the_reason(tmp_path: Path) -> None:
    async with desk(tmp_path) as side:
        news = OfficeNews(side.journal.events, Clock())
        offices = Offices(news.moved)
        bob, elsewhere = seat("bob"), seat("bob", office="lab")
        offices.connected("1", [bob, elsewhere])
        offices.join("1", Join(bob.role, "bob", bob.office_id))
        offices.join("1", Join(bob.role, "bob", bob.office_id))  # it is there already
        offices.join("1", Join(bob.role, "bob", elsewhere.office_id))
        offices.leave("1", elsewhere.office_id)
        offices.join("1", Join(bob.role, "bob", bob.office_id))
        offices.connected("2", [bob])
        offices.join("2", Join(bob.role, "bob", bob.office_id))
        offices.gone("1")
        offices.gone("2")
        offices.connected("3", [bob])
        offices.join("3", Join(bob.role, "bob", bob.office_id))
        offices.revoke({bob.token_id}, "a person has sent it away")
        told = await written(side, news)
        about = {"office_id": "id-of-desk", "office": "desk", "member": "bob", "role": "computer"}
        assert told[0] == (EventKind.OFFICE_JOINED, about)
        assert [(kind, data["office"], data.get("why")) for kind, data in told] == [
            ("office_joined", "desk", None),
            ("office_left", "desk", "it has joined another office"),
            ("office_joined", "lab", None),
            ("office_left", "lab", "it has asked to"),
            ("office_joined", "desk", None),
            ("office_left", "desk", "another connection has come with the same token"),
            ("office_joined", "desk", None),
            ("office_left", "desk", "its connection has ended"),
            ("office_joined", "desk", None),
            ("office_left", "desk", "a person has sent it away"),
        ]


async def test_the_end_of_each_call_is_told(tmp_path: Path) -> None:
    async with desk(tmp_path) as side:
        news = OfficeNews(side.journal.events, Clock())
        news.called(call("notes__add"), None, 0.25)
        news.called(call("\x1b[31mx"), "no answer came within 1 s", 1.0)
        news.called(call("", ClientEvent.PUT_BLOB), None, 0.0)
        first, second, third = [data for kind, data in await written(side, news) if kind == "office_call"]
        about = {"office_id": "id-of-desk", "office": "desk", "agent": "alice", "computer": "bob"}
        assert first == {**about, "tool": "notes__add", "outcome": "done", "ms": 250}
        assert (second["outcome"], second["error"], second["ms"]) == ("failed", "no answer came within 1 s", 1_000)
        assert "\x1b" not in second["tool"]
        assert (third["tool"], third["outcome"]) == ("put_blob", "done")


async def test_what_is_beyond_a_members_share_is_counted(tmp_path: Path) -> None:
    async with desk(tmp_path) as side:
        clock = Clock()
        news = OfficeNews(side.journal.events, clock)
        for _ in range(int(MOVES_AT_ONCE) + 5):
            news.moved(seat("bob"), None)
        for _ in range(int(CALLS_AT_ONCE) + 7):
            news.called(call("add"), None, 0.0)
        news.moved(seat("carol"), None)
        clock.now = 2.0
        news.moved(seat("bob"), "it has asked to")
        news.called(call("add"), None, 0.0)
        told = await written(side, news)
        kinds = [str(kind) for kind, _ in told]
        assert kinds.count("office_joined") == MOVES_AT_ONCE + 1
        assert kinds.count("office_call") == CALLS_AT_ONCE + 1
        assert [data["left_out"] for _, data in told if "left_out" in data] == [5, 7]


async def test_of_very_many_members_only_the_latest_are_known(tmp_path: Path) -> None:
    async with desk(tmp_path) as side:
        news = OfficeNews(side.journal.events, Clock())
        for number in range(MAX_SHARES + 9):
            news.moved(seat(f"m{number}"), None)
        assert len(news._shares) == MAX_SHARES


async def test_what_could_not_be_written_is_written_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with desk(tmp_path) as side:
        news = OfficeNews(side.journal.events, Clock())
        news.moved(seat("bob"), None)

        async def broken(work: object) -> None:
            raise OSError("the disk is full")

        with monkeypatch.context() as patched:
            patched.setattr(side.journal.events, "transact", broken)
            with pytest.raises(OSError, match="full"):
                await news.serve()
        async with anyio.create_task_group() as group:  # nothing happens since that would wake it
            group.start_soon(news.serve)
            with anyio.fail_after(20):
                while await side.journal.events.newest_event() == 0:
                    await anyio.sleep(0.005)
            group.cancel_scope.cancel()
        assert [kind for kind, _ in await written(side, news)] == ["office_joined"]
