"""What members of offices do, over real sockets: joining, calls, notices, switching, reconnecting and leaving."""

from __future__ import annotations

import anyio
import pytest

from sublet.protocol.offices.names import Role
from support.office_client import OTHERS, OURS, served, serving

pytestmark = pytest.mark.anyio

OK = {"content": [{"type": "text", "text": "done"}], "isError": False}


async def test_an_agent_calls_a_tool_of_a_computer() -> None:
    async with served() as here:
        bob = await here.joined("1-bob")
        bob.answers = {"client:tool_call": lambda asked: {**OK, "structuredContent": asked["params"]}}
        alice = await here.joined("1-alice")
        async with serving(bob):
            answer = await alice.use("files__read", params={"path": "a"})
        assert answer == {**OK, "structuredContent": {"path": "a"}}
        assert here.guard.asked[0].tool == "files__read"
        assert here.guard.ended == [None]
        # It gets the request whole, and the notice that the Agent has come before it.
        assert [event for event, _ in bob.seen] == ["notify:enter_office", "client:tool_call"]
        assert bob.seen[0] == ("notify:enter_office", {"office_id": OURS, "agent": "alice"})


async def test_a_computer_switches_and_leaves_the_old_office_first() -> None:
    async with served() as here:
        alice, other = await here.joined("1-alice"), await here.joined("2-alice")
        bob = await here.connected("1-bob 2-bob")
        assert await bob.join("bob", Role.COMPUTER) == [True, None]
        assert await bob.join("bob", Role.COMPUTER, OTHERS) == [True, None]
        told = await alice.quiet()
        assert told == [
            ("notify:enter_office", {"office_id": OURS, "computer": "bob"}),
            ("notify:leave_office", {"office_id": OURS, "computer": "bob"}),
        ]
        assert await other.quiet() == [("notify:enter_office", {"office_id": OTHERS, "computer": "bob"})]


async def test_a_call_to_a_computer_that_switches_is_answered_at_once() -> None:
    async with served() as here:
        alice = await here.joined("1-alice")
        bob = await here.connected("1-bob 2-bob")
        assert await bob.join("bob", Role.COMPUTER) == [True, None]
        (sid,) = [member.sid for member in here.offices.members_of(OURS) if member.role is Role.COMPUTER]

        async def switch() -> None:
            while not here.calls.of(sid):
                await anyio.sleep(0.01)
            assert await bob.join("bob", Role.COMPUTER, OTHERS) == [True, None]

        async with anyio.create_task_group() as group:
            group.start_soon(switch)
            assert (await alice.use("slow", timeout=600))["code"] == 404


async def test_an_agent_leaves_by_itself_before_it_joins_another_office() -> None:
    async with served() as here:
        alice = await here.connected("1-alice 2-alice")
        assert await alice.join("alice", Role.AGENT) == [True, None]
        assert (await alice.join("alice", Role.AGENT, OTHERS))[0] is False
        assert await alice.call("server:leave_office", {"office_id": OURS}) == [True, None]
        assert await alice.join("alice", Role.AGENT, OTHERS) == [True, None]


async def test_a_second_agent_is_refused_until_the_first_has_left() -> None:
    async with served() as here:
        alice, eve = await here.joined("1-alice"), await here.connected("1-eve")
        assert await eve.join("eve", Role.AGENT) == [False, "The office already has an agent"]
        await alice.socket.close()
        await alice.closed()
        with anyio.fail_after(10):
            while await eve.join("eve", Role.AGENT) != [True, None]:
                await anyio.sleep(0.02)


async def test_a_reconnect_with_the_same_token_takes_the_place_of_the_half_open_one() -> None:
    async with served() as here:
        alice, old = await here.joined("1-alice"), await here.joined("1-bob")
        new = await here.joined("1-bob")
        await old.closed()
        assert [event for event, _ in await alice.quiet()] == [
            "notify:enter_office",
            "notify:leave_office",
            "notify:enter_office",
        ]
        new.answers = {"client:tool_call": OK}
        async with serving(new):
            assert await alice.use("a") == OK


async def test_a_call_to_a_computer_that_goes_is_answered_at_once() -> None:
    async with served() as here:
        alice, bob = await here.joined("1-alice"), await here.joined("1-bob")

        async def go() -> None:
            while not here.calls.of(here.offices.members_of(OURS)[0].sid):
                await anyio.sleep(0.01)
            await bob.socket.close()

        async with anyio.create_task_group() as group:
            group.start_soon(go)
            answer = await alice.use("slow", timeout=600)
        assert answer["code"] == 404
        assert answer["details"] == {"computer_name": "bob"}
        assert here.guard.ended == ["the Computer or the Agent has left"]


async def test_a_call_that_runs_out_is_answered_and_called_off() -> None:
    async with served() as here:
        alice, bob = await here.joined("1-alice"), await here.joined("1-bob")
        answer = await alice.use("slow", timeout=0.2)
        assert answer["isError"]
        assert answer["meta"] == {"a2c_timeout": True}
        assert ("notify:tool_call_cancel", {"agent": "alice", "req_id": "r1"}) in await bob.quiet()


async def test_updates_and_cancels_reach_the_office_alone() -> None:
    async with served() as here:
        alice, bob = await here.joined("1-alice"), await here.joined("1-bob")
        other = await here.joined("2-alice")
        for what in ("config", "tool_list", "desktop", "skills"):
            assert await bob.call(f"server:update_{what}", {"computer": "bob"}) == []
        assert await alice.call("server:tool_call_cancel", {"agent": "alice", "req_id": "x"}) == []
        assert [event for event, _ in await alice.quiet()][-4:] == [
            "notify:update_config",
            "notify:update_tool_list",
            "notify:update_desktop",
            "notify:update_skills",
        ]
        assert (await bob.quiet())[-1] == ("notify:tool_call_cancel", {"agent": "alice", "req_id": "x"})
        assert await other.quiet() == []


async def test_who_is_there_is_told_to_holders_of_a_token_before_they_join() -> None:
    async with served() as here:
        await here.joined("1-bob")
        eve = await here.connected("1-eve")
        asked = {"agent": "eve", "req_id": "q", "office_id": OURS}
        (answer,) = await eve.call("server:list_room", asked)
        assert answer["req_id"] == "q"
        assert [(one["name"], one["role"], one["office_id"]) for one in answer["sessions"]] == [
            ("bob", "computer", OURS)
        ]


async def test_an_upload_goes_on_by_the_id_that_its_computer_gave_and_by_no_other() -> None:
    async with served() as here:
        bob, alice = await here.joined("1-bob"), await here.joined("1-alice")
        bob.answers = {"client:put_blob": {"upload_id": "u", "chunk_offset": 0, "req_id": "r"}}

        async def piece(**fields: object) -> bool:
            """Send a piece, and return whether policy takes it for a later one."""
            asked = {"agent": "alice", "req_id": "r", "computer": "bob", "blob": "", "eof": False, **fields}
            assert (await alice.call("client:put_blob", asked))[0]["upload_id"] == "u"
            return here.guard.asked[-1].goes_on

        async with serving(bob):
            assert not await piece(upload_id="u")
            assert not await piece()
            assert await piece(upload_id="u")
            assert not await piece(upload_id="made up")
            assert not await piece(upload_id=["u"])
            assert await piece(upload_id="u", eof=True)
            assert not await piece(upload_id="u")
            assert await alice.call("server:leave_office", {"office_id": OURS}) == [True, None]
            assert await alice.join("alice", Role.AGENT) == [True, None]
            assert not await piece(upload_id="u")


@pytest.mark.parametrize("size", [100_000, 1_500_000, 3_900_000])
async def test_a_large_result_drops_nobody(size: int) -> None:
    async with served() as here:
        alice, bob = await here.joined("1-alice"), await here.joined("1-bob")
        bob.answers = {"client:tool_call": {"content": [{"type": "text", "text": "x" * size}]}}
        async with serving(bob):
            assert len((await alice.use("big"))["content"][0]["text"]) == size


async def test_a_result_beyond_the_limit_fails_and_its_computer_stays() -> None:
    async with served() as here:
        alice, bob = await here.joined("1-alice"), await here.joined("1-bob")
        bob.answers = {
            "client:tool_call": lambda asked: {"content": [{"type": "text", "text": "x" * asked["params"]["size"]}]}
        }
        async with serving(bob):
            answer = await alice.use("big", params={"size": 5_000_000})
            assert answer["isError"]
            assert "too large" in answer["content"][0]["text"]
            assert (await alice.use("big", params={"size": 1}))["content"]
