"""A hostile Socket.IO client, probe by probe: none gets in, none learns of another office, and each is answered.

A probe is one row: who tries, what it sends, and what has to come of it. Each is tried against two offices with members
of which the other one must hear nothing.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any, Final

import httpx
import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus

from sublet.office_server import lines, openings
from sublet.office_server.lines import STRANGER_BYTES
from sublet.protocol.offices.names import ClientEvent, ServerEvent
from support.office_client import NOWHERE, OTHERS, OURS, Client, Served, opened, served

pytestmark = pytest.mark.anyio

NOT_FOUND: Final = 404
BAD: Final = 400


def asked(**fields: object) -> dict[str, object]:
    """Return a request to a Computer as Alice of our office would send it."""
    return {
        "agent": "alice",
        "req_id": "r",
        "computer": "bob",
        "tool_name": "t",
        "params": {},
        "timeout": 5,
        **fields,
    }


SECRETS: Final[Mapping[str, object]] = {
    "no token": None,
    "an empty token": "",
    "a made-up token": "9-mallory",
    "a token with a space": "1-bob ",
    "a valid and a made-up token": "1-bob 9-mallory",
    "tokens of two roles": "1-bob 1-alice",
    "a list of tokens": ["1-bob"],
    "an object": {"token": "1-bob"},
    "a number": 7,
    "true": True,
    "a long token": "1-bob" + "x" * 4_000,
    "many tokens": " ".join(["1-bob"] * 9),
}


@pytest.mark.parametrize("secret", SECRETS.values(), ids=SECRETS)
async def test_a_connection_without_its_token_is_refused(secret: object) -> None:
    async with served() as here:
        client = await opened(here.url)
        assert await client.authenticate(secret) is None
        await client.send(f"42/smcp,1{json.dumps(['server:join_office', _join('bob', 'computer', OURS)])}")
        frames: list[str] = []
        with suppress(ConnectionClosed):
            while True:
                frames.append(await client.frame())
        assert not [frame for frame in frames if frame.startswith("43")]


JOINS: Final[Mapping[str, tuple[str, Mapping[str, object]]]] = {
    "another office": ("1-bob", {"office_id": OTHERS}),
    "an office that is not there": ("1-bob", {"office_id": NOWHERE}),
    "another name": ("1-bob", {"name": "carol"}),
    "the name in capitals": ("1-bob", {"name": "BOB"}),
    "another role": ("1-bob", {"role": "agent"}),
    "a role that is none": ("1-bob", {"role": "server"}),
    "no role": ("1-bob", {"role": None}),
    "a list as role": ("1-bob", {"role": ["computer"]}),
    "no name": ("1-bob", {"name": ""}),
    "a number as name": ("1-bob", {"name": 1}),
    "a long name": ("1-bob", {"name": "b" * 4_000}),
    "an office id with a line break": ("1-bob", {"office_id": OURS + "\n"}),
    "an office id in other digits": ("1-alice", {"office_id": OURS.replace("1", "\uff11")}),
    "a computer's token as the agent": ("1-bob", {"role": "agent", "name": "alice"}),
}


@pytest.mark.parametrize(("secret", "changed"), JOINS.values(), ids=JOINS)
async def test_a_token_lets_in_one_name_alone(secret: str, changed: Mapping[str, object]) -> None:
    async with served() as here:
        theirs = await here.joined("2-alice")
        client = await here.connected(secret)
        ours = here.tokens.seats[secret]
        (ok, why) = await client.call(
            "server:join_office", {**_join(ours.name, str(ours.role), ours.office_id), **changed}
        )
        assert ok is False
        assert isinstance(why, str)
        # A refused joiner is nowhere, and hears nothing of what happens there.
        carol = await here.joined("1-carol")
        assert await carol.call("server:update_config", {"computer": "carol"}) == []
        assert await client.quiet() == []
        assert await theirs.quiet() == []


def _join(name: str, role: str, office_id: str) -> dict[str, object]:
    return {"name": name, "role": role, "office_id": office_id}


EVENTS: Final[Mapping[str, tuple[str, str, object, int]]] = {
    # who, event, data, code of the answer
    "a call of a computer of another office": ("1-alice", "client:tool_call", asked(computer="dave"), NOT_FOUND),
    "a call in the name of another agent": ("1-alice", "client:tool_call", asked(agent="eve"), NOT_FOUND),
    "a call of an agent": ("1-alice", "client:tool_call", asked(computer="alice"), NOT_FOUND),
    "a call by a computer": ("1-carol", "client:tool_call", asked(), NOT_FOUND),
    "a call by a computer in the agent's name": ("1-carol", "client:tool_call", asked(agent="alice"), NOT_FOUND),
    "a call by a computer in its own name": ("1-carol", "client:tool_call", asked(agent="carol"), NOT_FOUND),
    "a read of a neighbour's config": ("1-carol", "client:get_config", asked(agent="carol"), NOT_FOUND),
    "a read of a neighbour's tools": ("1-carol", "client:get_tools", asked(agent="carol"), NOT_FOUND),
    "a read of a neighbour's desktop": ("1-carol", "client:get_desktop", asked(agent="carol"), NOT_FOUND),
    "a read of a neighbour's blob": ("1-carol", "client:get_blob", asked(agent="carol"), NOT_FOUND),
    "an upload to a neighbour": ("1-carol", "client:put_blob", asked(agent="carol"), NOT_FOUND),
    "a call without a computer": ("1-alice", "client:tool_call", {"agent": "alice", "req_id": "r"}, BAD),
    "a call without a tool": ("1-alice", "client:tool_call", asked(tool_name=""), BAD),
    "a call with a list of arguments": ("1-alice", "client:tool_call", asked(params=[1]), BAD),
    "a call whose computer is a list": ("1-alice", "client:tool_call", asked(computer=["bob"]), BAD),
    "a call for no time": ("1-alice", "client:tool_call", asked(timeout=0), BAD),
    "a call for a time that is none": ("1-alice", "client:tool_call", asked(timeout="9"), BAD),
    "a call for ever": ("1-alice", "client:tool_call", asked(timeout=True), BAD),
    "a call with text instead of an object": ("1-alice", "client:tool_call", "bob", BAD),
    "a call with nothing": ("1-alice", "client:tool_call", None, BAD),
    "a call with a long id": ("1-alice", "client:tool_call", asked(req_id="r" * 999), BAD),
    "a listing of another office": (
        "1-alice",
        "server:list_room",
        {"agent": "alice", "req_id": "r", "office_id": OTHERS},
        NOT_FOUND,
    ),
    "a listing in another name": (
        "1-alice",
        "server:list_room",
        {"agent": "bob", "req_id": "r", "office_id": OURS},
        NOT_FOUND,
    ),
    "a listing of nothing": ("1-alice", "server:list_room", {"agent": "alice"}, BAD),
    "an update in a neighbour's name": ("1-carol", "server:update_tool_list", {"computer": "bob"}, NOT_FOUND),
    "an update of the agent's": ("1-alice", "server:update_tool_list", {"computer": "alice"}, NOT_FOUND),
    "an update without a name": ("1-carol", "server:update_desktop", {}, BAD),
    "a cancel by a computer": ("1-carol", "server:tool_call_cancel", {"agent": "alice", "req_id": "r"}, NOT_FOUND),
    "a cancel in another agent's name": (
        "1-alice",
        "server:tool_call_cancel",
        {"agent": "eve", "req_id": "r"},
        NOT_FOUND,
    ),
    "a cancel of nothing": ("1-alice", "server:tool_call_cancel", {"agent": "alice"}, BAD),
    "an unknown event": ("1-alice", "server:close_office", {"office_id": OURS}, NOT_FOUND),
    "a notice of one's own": ("1-alice", "notify:leave_office", {"office_id": OURS, "computer": "bob"}, NOT_FOUND),
    "an event of the library": ("1-alice", "connect", {}, NOT_FOUND),
    "an event for all": ("1-alice", "*", {}, NOT_FOUND),
    "an event without a name": ("1-alice", "", {}, NOT_FOUND),
}


@pytest.mark.parametrize(("secret", "event", "data", "code"), EVENTS.values(), ids=EVENTS)
async def test_an_event_that_is_not_its_senders_is_answered_and_reaches_nobody(
    secret: str, event: str, data: object, code: int
) -> None:
    async with served() as here:
        there = {name: await here.joined(name) for name in ("1-bob", "1-carol", "1-alice", "2-alice")}
        for client in there.values():
            await client.quiet(0.05)
            client.seen.clear()
        answer = await there[secret].call(event, data)
        assert isinstance(answer[0], dict), "it is answered with one object"
        assert answer[0]["code"] == code
        assert here.guard.asked == []
        assert {name: await client.quiet(0.1) for name, client in there.items()} == {name: [] for name in there}


LEAVES: Final = {"another office": OTHERS, "an office that is not there": NOWHERE, "one's own before joining": OURS}


@pytest.mark.parametrize("office_id", LEAVES.values(), ids=LEAVES)
async def test_who_is_not_in_an_office_can_neither_leave_it_nor_forge_its_notices(office_id: str) -> None:
    async with served() as here:
        alice, theirs = await here.joined("1-alice"), await here.joined("2-alice")
        client = await here.connected("1-carol")
        assert await client.call("server:leave_office", {"office_id": office_id}) == [
            False,
            "You are not in that office",
        ]
        assert await alice.quiet(0.1) == await theirs.quiet(0.1) == []


@pytest.mark.parametrize("event", [*ClientEvent, *list(ServerEvent)[3:]])
async def test_nothing_is_sent_without_an_office(event: str) -> None:
    async with served() as here:
        await here.joined("1-bob")
        client = await here.connected("1-alice")
        (answer,) = await client.call(event, asked(office_id=OURS, computer="bob"))
        assert answer["code"] == NOT_FOUND
        assert here.guard.asked == []


@pytest.mark.parametrize("event", ClientEvent)
async def test_an_absent_computer_and_one_of_another_office_are_told_alike(event: str) -> None:
    async with served() as here:
        await here.joined("2-bob")
        alice = await here.joined("1-alice")
        answers = [(await alice.call(event, asked(computer=name)))[0] for name in ("bob", "nobody")]
        assert answers[0] == {
            "code": NOT_FOUND,
            "message": "Computer with name 'bob' not found",
            "details": {"computer_name": "bob"},
        }
        assert json.dumps(answers[0]).replace("bob", "nobody") == json.dumps(answers[1])


async def test_another_office_and_none_are_told_alike() -> None:
    async with served() as here:
        await here.joined("2-alice")
        bob = await here.connected("1-bob")
        answers = []
        for office_id in (OTHERS, NOWHERE):
            room = await bob.call("server:list_room", {"agent": "bob", "req_id": "q", "office_id": office_id})
            answers.append((room, await bob.join("bob", "computer", office_id)))
        assert answers[0] == answers[1]
        assert answers[0][0] == [{"code": NOT_FOUND, "message": "Office not found"}]


FRAMES: Final[Mapping[str, str | bytes]] = {
    "another namespace": "40/admin,{}",
    "the default namespace": "40{}",
    "a namespace that begins alike": '42/smcpx,1["server:join_office"]',
    "a binary event": '451-/smcp,1["server:join_office",{"_placeholder":true,"num":0}]',
    "a binary answer": '461-/smcp,1[{"_placeholder":true,"num":0}]',
    "bytes": b"\x00\x01",
    "an error of a server": '44/smcp,{"message":"x"}',
    "an opening of a server": '0{"sid":"x"}',
    "an empty frame": "",
    "no packet": "x",
    "a probe without an upgrade": "2probe",
    "an upgrade of nothing": "5",
    "a long number": "42/smcp," + "9" * 200 + '["server:join_office"]',
}


@pytest.mark.parametrize("frame", FRAMES.values(), ids=FRAMES)
async def test_a_frame_that_no_client_sends_ends_its_connection_alone(frame: str | bytes) -> None:
    async with served() as here:
        alice, bob = await here.joined("1-alice"), await here.joined("1-bob")
        await bob.send(frame)
        await bob.closed()
        assert [event for event, _ in await alice.quiet()] == ["notify:enter_office", "notify:leave_office"]


BODIES: Final = {
    "no JSON": "[",
    "deep": "[" * 5_000 + "]" * 5_000,
    "many values": "[" + "0," * 200_000 + "0]",
    "not a list": '{"a":1}',
    "a name twice": '["server:leave_office",{"office_id":"a","office_id":"b"}]',
    "NaN": '["server:leave_office",NaN]',
    "half a surrogate": '["server:leave_office",{"office_id":"\\ud800"}]',
}


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
async def test_json_that_breaks_a_bound_is_answered(body: str) -> None:
    async with served() as here:
        bob = await here.joined("1-bob")
        await bob.send(f"42/smcp,77{body}")
        assert await bob.frame() == '43/smcp,77[{"code":404,"message":"Unknown event"}]'
        assert await bob.call("server:update_config", {"computer": "bob"}) == []


Try = Callable[[Served], Awaitable[object]]


async def _with_origin(here: Served) -> Client:
    return await opened(here.url, headers={"Origin": "http://evil.example"})


async def _without_version(here: Served) -> Client:
    return await opened(here.url, version=None)


async def _with_old_version(here: Served) -> Client:
    return await opened(here.url, version="0.3.9")


async def _with_new_version(here: Served) -> Client:
    return await opened(here.url, version="0.5.0")


async def _with_odd_version(here: Served) -> Client:
    return await opened(here.url, version="0.4")


HANDSHAKES: Final[Mapping[str, tuple[Try, int, int]]] = {
    "a page of a browser": (_with_origin, 403, 403),
    "no version": (_without_version, 400, 400),
    "an older version": (_with_old_version, 400, 4008),
    "a newer version": (_with_new_version, 400, 4008),
    "half a version": (_with_odd_version, 400, 400),
}


@pytest.mark.parametrize(("attempt", "status", "code"), HANDSHAKES.values(), ids=HANDSHAKES)
async def test_a_handshake_is_refused_with_its_body(attempt: Try, status: int, code: int) -> None:
    async with served() as here:
        with pytest.raises(InvalidStatus) as refused:
            await attempt(here)
        response = refused.value.response
        assert response.status_code == status
        assert json.loads(response.body or b"")["code"] == code


@pytest.mark.parametrize(
    ("method", "query", "headers", "status"),
    [
        ("GET", "EIO=4&transport=polling&a2c_version=0.4.0", {"Host": "evil.example"}, 421),
        ("GET", "EIO=4&transport=polling&a2c_version=0.4.0", {"Origin": "http://evil.example"}, 403),
        ("GET", "EIO=4&transport=polling&a2c_version=0.4.0&j=0", {}, 400),
        ("GET", "EIO=4&transport=polling&a2c_version=0.4.0&sid=guessed", {}, 400),
        ("GET", "EIO=4&transport=websocket&a2c_version=0.4.0", {}, 400),
        ("GET", "EIO=4&transport=websocket&a2c_version=0.4.0", {"Upgrade": "websocket"}, 400),
        ("GET", "EIO=4&transport=polling&a2c_version=0.4.0", {"Upgrade": "websocket"}, 400),
        ("GET", "EIO=3&transport=polling&a2c_version=0.4.0", {}, 400),
        ("GET", "EIO=4&transport=polling&a2c_version=0.4.0&x=" + "x" * 2_000, {}, 400),
        ("GET", "EIO=4&transport=polling&a2c_version=0.3.0", {}, 400),
        ("POST", "EIO=4&transport=polling&a2c_version=0.4.0&sid=guessed", {}, 400),
        ("PUT", "EIO=4&transport=polling&a2c_version=0.4.0", {}, 405),
        ("OPTIONS", "EIO=4&transport=polling&a2c_version=0.4.0", {}, 405),
    ],
)
async def test_a_request_over_polling_is_refused_before_the_library_sees_it(
    method: str, query: str, headers: Mapping[str, str], status: int
) -> None:
    async with served() as here, httpx.AsyncClient() as client:
        answer = await client.request(method, f"{here.url}/socket.io/?{query}", headers=dict(headers))
        assert answer.status_code == status
        if "0.3.0" in query:
            assert answer.headers["x-a2c-error-code"] == "4008"
            assert answer.json()["server_version"] == "0.4.0"
        assert (await client.get(f"{here.url}/elsewhere?{query}")).status_code in (404, 421)


async def test_an_event_of_the_librarys_own_name_changes_no_seat() -> None:
    async with served() as here:
        alice, bob = await here.joined("1-alice"), await here.joined("1-bob")
        for event in ("connect", "disconnect", "__disconnect_final"):
            (answer,) = await bob.call(event, {}, {"token": "2-bob"})
            assert answer["code"] == NOT_FOUND
        assert here.offices.computer(here.offices.members_of(OURS)[0].sid, "alice", "bob") is not None
        assert [event for event, _ in await alice.quiet(0.1)] == ["notify:enter_office"]


async def test_a_strangers_frame_is_small() -> None:
    async with served() as here:
        client = await opened(here.url)
        await client.send("40/smcp," + json.dumps({"token": "x" * STRANGER_BYTES}))
        await client.closed()


async def test_a_stranger_sends_a_few_frames_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "STRANGER_FRAMES", 3)
    async with served() as here:
        client = await opened(here.url)
        for _ in range(3):
            assert await client.authenticate("9-mallory") is None
        await client.send('40/smcp,{"token":"1-bob"}')
        await client.closed()


@pytest.mark.parametrize(("tool", "code"), [("hidden_tool", NOT_FOUND), ("denied_tool", None)])
async def test_policy_refuses_before_the_computer_hears_of_it(tool: str, code: int | None) -> None:
    async with served() as here:
        alice, bob = await here.joined("1-alice"), await here.joined("1-bob")
        answer: dict[str, Any] = await alice.use(tool)
        assert answer.get("code") == code
        assert code is not None or "a rule denies it" in answer["content"][0]["text"]
        assert "client:tool_call" not in [event for event, _ in await bob.quiet(0.1)]


async def test_new_sessions_are_taken_at_a_bounded_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(openings, "STRANGERS_AT_ONCE", 3.0)
    monkeypatch.setattr(openings, "STRANGERS_PER_SECOND", 0.0)
    async with served() as here, httpx.AsyncClient() as client:
        url = f"{here.url}/socket.io/?EIO=4&transport=polling&a2c_version=0.4.0"
        assert [(await client.get(url)).status_code for _ in range(5)] == [200, 200, 200, 503, 503]


async def test_strangers_give_way_to_later_ones_and_members_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "MAX_STRANGERS", 2)
    async with served() as here:
        bob = await here.joined("1-bob")
        strangers = [await opened(here.url) for _ in range(4)]
        for stranger in strangers[:2]:
            await stranger.closed()
        assert await strangers[3].authenticate("1-carol") is not None
        assert await bob.call("server:update_config", {"computer": "bob"}) == []
