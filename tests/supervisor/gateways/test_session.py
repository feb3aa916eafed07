"""Acks, results, their time limits, and what becomes of all that waits when a gateway is gone."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import anyio
import pytest
from pydantic import ValidationError

from sublet.protocol.errors import ErrorCode, LocalCode, SubletError
from sublet.protocol.events import Event, EventKeys, EventKind
from sublet.protocol.gateway import (
    AnyGatewayMessage,
    GatewayAck,
    GatewayEvent,
    GatewayInput,
    GatewayPing,
    GatewayPong,
    GatewayRequest,
    GatewayResult,
    MalformedGatewayMessage,
    decode_gateway,
    encode_gateway,
)
from sublet.supervisor.gateways.feed_rules import wanted
from sublet.supervisor.gateways.module_file import GatewayModule
from sublet.supervisor.gateways.session import LINES_PER_SECOND, MAX_LINES_AT_ONCE, MAX_MALFORMED, GatewaySession

pytestmark = pytest.mark.anyio


def module(**more: Any) -> GatewayModule:
    return GatewayModule.model_validate(
        {"id": "g", "name": "g", "version": "1", "description": "d", "direction": "duplex", "protocol": "http", **more}
    )


async def handle(_module: GatewayModule, given: GatewayInput) -> str:
    if given.message == "fail":
        raise SubletError(ErrorCode.DECLINED, "nobody does that")
    if given.message == "break":
        raise KeyError("a defect of ours")
    return f"done: {given.message}"


async def tell(_module: GatewayModule, _event: GatewayEvent) -> None:
    """Nobody looks."""


class Other:
    """The gateway's end."""

    def __init__(self, session: GatewaySession) -> None:
        self.session = session

    async def read(self) -> AnyGatewayMessage:
        return decode_gateway(await self.session.next_line() or b"")

    def say(self, message: AnyGatewayMessage) -> None:
        self.session.receive(encode_gateway(message))


@pytest.fixture
async def other() -> AsyncIterator[Other]:
    async with anyio.create_task_group() as group:
        yield Other(GatewaySession(module(), group, handle, tell))
        group.cancel_scope.cancel()


async def sent(session: GatewaySession, got: list[Any], mode: Any = None) -> None:
    try:
        got.append(await session.send("hello", mode))
    except SubletError as error:
        got.append(error)


async def test_sync_waits_for_the_result_and_async_for_the_ack(other: Other) -> None:
    got: list[Any] = []
    async with anyio.create_task_group() as group:
        group.start_soon(sent, other.session, got, "sync")
        group.start_soon(sent, other.session, got, "async")
        for _ in range(2):
            request = await other.read()
            assert isinstance(request, GatewayRequest)
            other.say(GatewayAck(request_id=request.request_id, accepted=True))
            if request.delivery_mode == "sync":
                other.say(GatewayResult(request_id=request.request_id, success=True, output={"n": 1}))
    assert sorted(map(str, got)) == ["None", "{'n': 1}"]


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (GatewayAck(request_id="gw1", accepted=False, reason="full"), ErrorCode.DECLINED),
        (GatewayResult(request_id="gw1", success=False, error="broken"), ErrorCode.TASK_FAILED),
    ],
)
async def test_a_refusal_and_a_failure_are_told(other: Other, answer: AnyGatewayMessage, code: ErrorCode) -> None:
    got: list[Any] = []
    async with anyio.create_task_group() as group:
        group.start_soon(sent, other.session, got)
        await other.read()
        other.say(answer)
    assert got[0].code is code


async def test_seed_an_exit_rejects_all_that_waits(other: Other) -> None:
    got: list[Any] = []
    async with anyio.create_task_group() as group:
        for _ in range(3):
            group.start_soon(sent, other.session, got)
        for _ in range(3):
            await other.read()
        other.session.lose("its program ended")
    assert [error.code for error in got] == [LocalCode.UNAVAILABLE] * 3
    assert "its program ended" in got[0].message
    with pytest.raises(SubletError, match="its program ended"):
        await other.session.send("again")


async def test_acks_and_results_have_time_limits() -> None:
    async with anyio.create_task_group() as group:
        for acked in (False, True):
            session = GatewaySession(module(ackTimeoutMs=20, resultTimeoutMs=20), group, handle, tell)
            if acked:
                group.start_soon(_ack_only, session)
            with pytest.raises(SubletError, match="gave no result" if acked else "did not take it"):
                await session.send("x", "sync")


async def _ack_only(session: GatewaySession) -> None:
    request = await Other(session).read()
    assert isinstance(request, GatewayRequest)
    session.receive(encode_gateway(GatewayAck(request_id=request.request_id, accepted=True)))


async def test_seed_an_unsupported_mode_is_an_error_and_no_other_mode() -> None:
    async with anyio.create_task_group() as group:
        only = GatewaySession(module(mode={"supported": ["async"], "default": "async"}), group, handle, tell)
        with pytest.raises(SubletError, match="knows async only, not sync"):
            await only.send("x", "sync")
        inward = GatewaySession(module(direction="input"), group, handle, tell)
        with pytest.raises(SubletError, match="direction is input"):
            await inward.send("x")


async def test_inputs_are_acked_worked_on_and_answered_where_somebody_waits(other: Other) -> None:
    other.say(GatewayInput(request_id="in1", message="one", blocking=True))
    assert await other.read() == GatewayAck(request_id="in1", accepted=True)
    assert await other.read() == GatewayResult(request_id="in1", success=True, output="done: one")
    other.say(GatewayInput(request_id="in2", message="fail", blocking=True))
    await other.read()
    failed = await other.read()
    assert isinstance(failed, GatewayResult)
    assert (failed.success, "nobody does that" in failed.error) == (False, True)


async def test_a_gateway_that_talks_nonsense_is_borne_for_a_while(other: Other) -> None:
    for _ in range(MAX_MALFORMED):
        other.session.receive(b"nonsense")
    with pytest.raises(MalformedGatewayMessage):
        other.session.receive(b"nonsense")


def test_modules_that_contradict_themselves_are_refused() -> None:
    for more in (
        {"protocol": "stdio"},
        {"process": {"command": "x"}},
        {"mode": {"supported": ["async"], "default": "sync"}},
        {"direction": "bidirectional"},
        {"transport": "process_stdio"},
        {"process": {"command": "sh -c x"}, "protocol": "stdio"},
        {"process": {"command": "../x"}, "protocol": "stdio"},
    ):
        with pytest.raises(ValueError, match="validation error"):
            module(**more)


async def test_a_flood_waits_where_it_is(other: Other) -> None:
    async with anyio.create_task_group() as group:
        taken = 0

        async def flood() -> None:
            nonlocal taken
            while True:
                await other.session.paced()
                taken += 1

        began = anyio.current_time()
        group.start_soon(flood)
        while taken <= MAX_LINES_AT_ONCE:
            await anyio.sleep(0.01)
        group.cancel_scope.cancel()
    # However long that took, it was no more than the rate.
    assert taken <= MAX_LINES_AT_ONCE + 1 + (anyio.current_time() - began) * LINES_PER_SECOND


async def test_an_input_that_breaks_ends_nothing_else(other: Other) -> None:
    for number, text in enumerate(("break", "go on")):
        other.say(GatewayInput(request_id=f"i{number}", message=text, blocking=True))
        ack, result = await other.read(), await other.read()
        assert isinstance(ack, GatewayAck)
        assert isinstance(result, GatewayResult)
        assert result.success is (text == "go on")


async def test_a_ping_is_answered_in_time_or_the_reason_is_told(other: Other) -> None:
    found: list[str] = []

    async def check(milliseconds: int) -> None:
        found.append(await other.session.check(milliseconds))

    for answer in ({}, {"ok": False, "detail": "no disk"}):
        async with anyio.create_task_group() as group:
            group.start_soon(check, 30_000)
            ping = await other.read()
            assert isinstance(ping, GatewayPing)
            other.say(GatewayPong.model_validate({"requestId": ping.request_id, **answer}))
    await check(10)
    other.session.lose("it is gone")
    await check(30_000)
    assert found[:2] == ["", "no disk"]
    assert "within 10 ms" in found[2]
    assert "it is gone" in found[3]


@pytest.mark.parametrize(
    ("feed", "direction"),
    [
        ([{"kinds": ["route_decided"]}], "input"),
        ([{}], "output"),
        ([{"kinds": ["no_such_kind"]}], "output"),
        ([{"replies": True, "agent": ""}], "output"),
        ([{"replies": True, "peer": "x"}], "output"),
    ],
)
def test_rules_of_a_feed_that_could_feed_nothing_are_refused(feed: Any, direction: str) -> None:
    with pytest.raises(ValidationError):
        module(feed=feed, direction=direction)


def test_a_feed_is_what_any_of_its_rules_names() -> None:
    rules = module(feed=[{"replies": True, "agent": "co*"}, {"kinds": ["approval_required"], "session": "s1"}]).feed

    def event(kind: EventKind, depth: int = 0, agent: str = "coder", session: str = "s1") -> Event:
        keys = EventKeys(agent_id=agent, finger_session_id=session)
        return Event(seq=1, at="2026-01-01T00:00:00Z", kind=kind, keys=keys, data={"nestingDepth": depth})

    assert wanted(rules, event(EventKind.DISPATCH_RESULT))
    assert not wanted(rules, event(EventKind.DISPATCH_RESULT, depth=1))
    assert not wanted(rules, event(EventKind.DISPATCH_RESULT, agent="reviewer"))
    assert wanted(rules, event(EventKind.APPROVAL_REQUIRED, agent="reviewer"))
    assert not wanted(rules, event(EventKind.APPROVAL_REQUIRED, session="s2"))
    assert not wanted(rules, event(EventKind.TOOL_CALL))


async def test_an_ack_and_a_result_are_waited_for_as_long_as_the_module_says() -> None:
    got: list[Any] = []
    async with anyio.create_task_group() as group:
        with anyio.fail_after(5):
            await sent(GatewaySession(module(ackTimeoutMs=10), group, handle, tell), got)
            other = Other(GatewaySession(module(resultTimeoutMs=10), group, handle, tell))
            async with anyio.create_task_group() as both:
                both.start_soon(sent, other.session, got)
                asked = await other.read()
                assert isinstance(asked, GatewayRequest)
                other.say(GatewayAck(request_id=asked.request_id, accepted=True))
        group.cancel_scope.cancel()
    assert ["did not take it within 10 ms" in str(got[0]), "gave no result within 10 ms" in str(got[1])] == [True, True]


async def test_a_pong_answers_its_own_ping(other: Other) -> None:
    found: list[str] = []

    async def check() -> None:
        found.append(await other.session.check(3_000))

    with anyio.fail_after(5):
        async with anyio.create_task_group() as group:
            group.start_soon(check)
            ping = await other.read()
            assert isinstance(ping, GatewayPing)
            other.session.receive(b'{"type": "pong", "requestId": "of-another", "ok": false, "detail": "broken"}')
            told = f'{{"type": "pong", "requestId": "{ping.request_id}", "ok": false, "detail": "tired"}}'
            other.session.receive(told.encode())
    assert ["tired" in one for one in found] == [True]
