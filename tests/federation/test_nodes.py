"""Nodes that find each other, ask each other, and get nothing by lying (federation "消息流程" 1 to 3)."""

from __future__ import annotations

import json
from collections.abc import Sequence

import anyio
import pytest

from sublet.federation.settings import Settings
from sublet.federation.table import MAX_AGENTS_OF_NODE
from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.federation.addresses import federation_room
from sublet.protocol.federation.envelope import Envelope, seal
from sublet.protocol.federation.events import (
    AgentMessage,
    AgentRegistered,
    AgentUnregistered,
    FederationEvent,
    Heartbeat,
    StatusUpdate,
    TaskResponse,
    TaskResult,
)
from support.federation_world import Node, World, in_namespace, request, trusting, until

pytestmark = pytest.mark.anyio

WHEN = "2026-02-08T10:30:00Z"
A, B, C = "worker-1@ann.local", "worker-1@bob.local", "worker-1@cat.local"


@pytest.fixture
def world() -> World:
    return World()


def registered(agent: str, node: str) -> AgentRegistered:
    return AgentRegistered(agent_id=agent, node_id=node, runtime_type="claude", capabilities=[], timestamp=WHEN)


def sealed(who: Node, to: Node, events: Sequence[FederationEvent], **changes: str) -> bytes:
    """Return what a node that says whatever it wants would send."""
    fields: dict[str, object] = {
        "event_id": "$1",
        "room_id": federation_room("default", to.own.name),
        "sender": f"@human:{who.own.name}",
        "events": tuple(events),
        "origin": who.own.name,
        "at_ms": int(who.world.wall * 1000),
        "node": who.own.node_id,
        "recipient": to.own.fingerprint,
    } | changes
    return seal(Envelope(**fields), who.own.key)  # type: ignore[arg-type]


async def says(who: Node, to: Node, events: Sequence[FederationEvent], **changes: str) -> dict[str, object]:
    """Send something by hand, and return the receipt."""
    raw = await to.federation.receive("event", sealed(who, to, events, **changes), who.own.node_id)
    found: dict[str, object] = json.loads(raw)
    return found


def kinds(node: Node, to: str) -> list[str]:
    """Return what kinds of events a node has sent to another."""
    return [
        json.loads(raw)["type"].removeprefix("io.cis.agent.")
        for who, what, raw in node.sent
        if what == "event" and who == to
    ]


async def test_each_learns_of_the_others_agents_and_an_answer_is_never_answered(world: World) -> None:
    ann, bob = world.add("ann"), world.add("bob")
    async with world.running(ann, bob):
        await until(lambda: ann.addresses() == [B] and bob.addresses() == [A])
        await until(lambda: kinds(ann, "bob") and kinds(bob, "ann"))
        for _ in range(20):
            await anyio.sleep(0.01)
        assert 1 <= kinds(ann, "bob").count("registered") <= 2
        assert 1 <= kinds(bob, "ann").count("registered") <= 2
        assert ("agent", {"address": B, "state": "registered"}) in ann.told
    assert kinds(ann, "bob")[-1] == "unregistered"


async def test_a_late_joiner_learns_of_all_and_who_leaves_is_gone_at_once(world: World) -> None:
    ann, bob, cat = world.add("ann"), world.add("bob"), world.add("cat")
    async with world.running(ann, bob):
        await until(lambda: ann.addresses() == [B])
        async with world.running(cat):
            await until(lambda: cat.addresses() == [A, B] and ann.addresses() == [B, C])
        await until(lambda: ann.addresses() == [B] and bob.addresses() == [A])


async def test_an_agent_is_asked_and_its_answer_comes_back(world: World) -> None:
    ann, bob = world.add("ann"), world.add("bob")
    async with world.running(ann, bob):
        await until(lambda: ann.addresses() == [B])
        done = await ann.result(B, "the dishes")
        assert (done.success, done.output, done.exit_code) == (True, "worker-1 did the dishes", 0)
        assert done.metadata["duration_ms"] == 0  # by the world's clock
        assert (await ann.result("worker-1@bob", "more")).success  # by the name that Ann has for Bob
        assert bob.ledger.taken == set(bob.ledger.rows)


@pytest.mark.parametrize(
    ("to", "code"), [("nobody@bob.local", "AGENT_NOT_FOUND"), ("worker-1@dan.local", "NODE_UNREACHABLE")]
)
async def test_who_is_not_there_is_told_by_a_code(world: World, to: str, code: str) -> None:
    ann, bob = world.add("ann"), world.add("bob")
    async with world.running(ann, bob):
        await until(lambda: ann.addresses() == [B])
        failed = await ann.result(to, "it")
        assert (failed.success, failed.exit_code, failed.metadata["error_code"]) == (False, -1, code)


async def test_a_request_is_started_once_however_often_it_comes(world: World) -> None:
    ann, bob = world.add("ann"), world.add("bob")
    async with world.running(ann, bob):
        await until(lambda: ann.addresses() == [B])
        for number in range(3):
            assert (await says(ann, bob, [request(ann, B)], event_id=f"${number}"))["accepted"]
        await until(lambda: [row.result for row in bob.ledger.rows.values() if row.result])
        assert (await says(ann, bob, [request(ann, B)], event_id="$again"))["accepted"]
        assert bob.started == ["it"]


async def test_a_task_that_a_kill_interrupted_is_answered_so_and_never_run_again(world: World) -> None:
    ann, bob = world.add("ann"), world.add("bob")
    answers: list[TaskResult] = []
    async with world.running(ann):
        async with anyio.create_task_group() as group:
            async with world.running(bob):
                await until(lambda: ann.addresses() == [B])

                async def ask() -> None:
                    answers.append(await ann.result(B, "wait", seconds=60))

                group.start_soon(ask)
                await until(lambda: bob.started == ["wait"])
            bob.make()  # what was in memory is gone, and the journal is not
            async with world.running(bob):
                await until(lambda: answers)
        assert answers[0].metadata["error_code"] == "TIMEOUT"
        assert answers[0].metadata["reason"] == "interrupted"
        assert bob.started == ["wait"]


async def test_whoever_stops_waiting_cancels_and_what_is_said_meanwhile_comes_here(world: World) -> None:
    ann, bob = world.add("ann"), world.add("bob")
    async with world.running(ann, bob):
        await until(lambda: ann.addresses() == [B])
        async with anyio.create_task_group() as group:
            group.start_soon(ann.result, B, "wait")
            await until(lambda: "message" in kinds(bob, "ann"), "progress")
            await until(lambda: ann.federation.table.all()[0].status == "busy", "its status")
            assert ann.federation.table.all()[0].current_task is not None
            group.cancel_scope.cancel()
        await until(lambda: [row.result for row in bob.ledger.rows.values() if row.result])
        ended = next(iter(bob.ledger.rows.values())).result
        assert ended is not None
        assert ended.metadata["reason"] == "cancelled"
        await until(lambda: ann.federation.table.all()[0].status == "idle", "its status")


async def test_a_third_node_does_not_learn_which_task_an_agent_is_at(world: World) -> None:
    ann, bob, cat = world.add("ann"), world.add("bob"), world.add("cat")
    async with world.running(ann, bob, cat):
        await until(lambda: ann.addresses() == [B, C] and cat.addresses() == [A, B])
        async with anyio.create_task_group() as group:
            group.start_soon(ann.result, B, "wait")
            await until(lambda: cat.federation.table.named("worker-1")[bob.own.name].status == "busy")
            assert cat.federation.table.named("worker-1")[bob.own.name].current_task is None
            bob.released.set()


async def test_a_silent_node_is_gone_after_a_time_and_comes_back(world: World) -> None:
    ann, bob = world.add("ann"), world.add("bob")
    async with world.running(ann, bob):
        await until(lambda: ann.addresses() == [B] and bob.addresses() == [A])
        world.cut.add(frozenset(("ann", "bob")))
        world.pass_time(119)
        await anyio.sleep(0.02)
        assert ann.addresses() == [B]
        world.pass_time(2)
        await until(lambda: not ann.addresses() and not bob.addresses())
        await until(lambda: ("agent", {"address": B, "state": "gone", "reason": "timeout"}) in ann.told)
        failed = await ann.result(B, "it")
        assert failed.metadata["error_code"] == "NODE_UNREACHABLE"
        world.cut.clear()
        world.look()
        await until(lambda: ann.addresses() == [B] and bob.addresses() == [A])


async def test_heartbeats_keep_an_agent_and_are_written_down_nowhere(world: World) -> None:
    ann, bob = world.add("ann"), world.add("bob")
    async with world.running(ann, bob):
        await until(lambda: ann.addresses() == [B] and bob.addresses() == [A])
        told = len(ann.told)
        for _ in range(6):
            beats = kinds(bob, "ann").count("heartbeat")
            world.pass_time(31)
            await until(lambda beats=beats: kinds(bob, "ann").count("heartbeat") > beats)  # type: ignore[misc]
        assert ann.addresses() == [B]
        assert len(ann.told) == told


async def test_a_task_for_a_node_that_is_away_waits_where_that_was_asked(world: World) -> None:
    ann, bob = world.add("ann"), world.add("bob")
    async with world.running(ann):
        await until(lambda: ann.federation.neighbours.all())
        assert (await ann.result("worker-1@bob", "it")).metadata["error_code"] == "NODE_UNREACHABLE"
        async with anyio.create_task_group() as group:
            done: list[TaskResult] = []

            async def ask() -> None:
                done.append(await ann.result("worker-1@bob", "it", wait=True, seconds=15))

            ann.settings = Settings()
            async with world.running(bob):
                await until(lambda: ann.addresses() == [B])
            group.start_soon(ask)
            await anyio.sleep(0.05)
            bob.make()
            async with world.running(bob):
                await until(lambda: done)
            assert done[0].success


async def test_a_node_tells_of_its_own_agents_and_of_no_others(world: World) -> None:
    ann, bob, cat = world.add("ann"), world.add("bob"), world.add("cat")
    async with world.running(ann, bob, cat):
        await until(lambda: ann.addresses() == [B, C])
        refused = await says(cat, ann, [registered("spy", "bob.local")])
        assert (refused["accepted"], refused["reason"]) == (False, "owner")
        for lie in (
            Heartbeat(agent_id="worker-1", node_id="bob.local", status="error", timestamp=WHEN),
            StatusUpdate(agent_id="worker-1", node_id="bob.local", status="error", timestamp=WHEN),
        ):
            assert (await says(cat, ann, [lie], event_id=f"${lie.event_type}"))["reason"] == "owner"
        gone = AgentUnregistered(agent_id="worker-1", node_id="bob.local", reason="timeout", timestamp=WHEN)
        assert (await says(cat, ann, [gone], event_id="$gone"))["accepted"]  # a hint, which moves nothing
        assert ann.addresses() == [B, C]
        assert ann.federation.table.named("worker-1")[bob.own.name].status == "idle"


async def test_nothing_is_taken_that_was_not_signed_for_us_and_now_by_who_sends_it(world: World) -> None:
    ann, bob, cat = world.add("ann"), world.add("bob"), world.add("cat")
    async with world.running(ann, bob, cat):
        await until(lambda: ann.addresses() == [B, C])
        news = [registered("late", "bob.local")]
        raw = sealed(bob, ann, news)
        # By another link, altered, for somebody else, old, of another's name, in another room, as another's agent.
        reasons = {
            "node": await ann.federation.receive("event", raw, cat.own.node_id),
            "signature": await ann.federation.receive("event", raw.replace(b'"claude"', b'"claudf"'), bob.own.node_id),
            "recipient": await ann.federation.receive("event", sealed(bob, cat, news), bob.own.node_id),
        }
        assert {json.loads(one)["reason"] for one in reasons.values()} == set(reasons)
        assert (await says(bob, ann, news, at_ms=int((world.wall - 301) * 1000)))["reason"] == "clock"  # type: ignore[arg-type]
        assert (await says(bob, ann, news, origin="cat.local", sender="@human:cat.local"))["reason"] == "name"
        assert (await says(bob, ann, news, room_id="!agent-federation-default:cat.local"))["reason"] == "room"
        assert (await says(bob, ann, news, sender="@human:cat.local"))["accepted"] is False
        assert "late@bob.local" not in ann.addresses()
        stranger = World().add("eve")
        assert (
            json.loads(await ann.federation.receive("event", sealed(stranger, ann, news), stranger.own.node_id))[
                "reason"
            ]
            == "unknown"
        )
        # A replay is taken for what it is: nothing new.
        assert (await says(bob, ann, [request(bob, A, "once")], event_id="$x"))["accepted"]
        for _ in range(2):
            assert (await says(bob, ann, [request(bob, A, "once", "req-2")], event_id="$x"))["accepted"]
        await until(lambda: ann.started == ["once"])


async def test_a_task_is_answered_by_the_node_that_was_asked_and_by_no_other(world: World) -> None:
    ann, bob, cat = world.add("ann"), world.add("bob"), world.add("cat")
    async with world.running(ann, bob, cat):
        await until(lambda: ann.addresses() == [B, C])
        async with anyio.create_task_group() as group:
            done: list[TaskResult] = []

            async def ask() -> None:
                done.append(await ann.result(B, "wait"))

            group.start_soon(ask)
            await until(lambda: bob.started)
            request_id = next(iter(bob.ledger.rows))[1]
            forged = TaskResponse(
                request_id=request_id,
                from_agent=B,
                to_agent="human@ann.local",
                result=TaskResult(success=True, output="forged", exit_code=0),
                timestamp=WHEN,
            )
            assert (await says(cat, ann, [forged]))["reason"] == "owner"
            said = AgentMessage(
                message_id="m",
                from_agent=B,
                to_agent="human@ann.local",
                message_type="cancel",
                payload={"request_id": request_id},
                timestamp=WHEN,
            )
            assert (await says(cat, bob, [said]))["accepted"]  # of a task of its own, which is none
            bob.released.set()
            await until(lambda: done)
        assert done[0].output == "worker-1 did wait"


async def test_a_request_in_the_name_of_anothers_agent_is_refused(world: World) -> None:
    ann, bob = world.add("ann"), world.add("bob")
    async with world.running(ann, bob):
        await until(lambda: ann.addresses() == [B])
        refused = await says(ann, bob, [request(ann, B, sender="boss@cat.local")])
        assert (refused["accepted"], refused["reason"]) == (False, "owner")
        assert (await says(ann, bob, [request(ann, C)]))["error"] == "AGENT_NOT_FOUND"
        assert bob.started == []


async def test_the_first_key_that_has_a_name_keeps_it(world: World) -> None:
    ann, bob, eve = world.add("ann"), world.add("bob"), world.add("eve", name="bob.local")
    async with world.running(ann, bob):
        await until(lambda: ann.addresses() == [B])
        async with world.running(eve):
            await until(lambda: [one for one in ann.federation.neighbours.all() if one.refused])
            refused = next(one for one in ann.federation.neighbours.all() if one.refused)
            assert refused.node.alias == "eve"
            assert "bob.local" in refused.refused
            assert (await says(eve, ann, [registered("spy", "bob.local")]))["reason"] == "name"
            assert ann.addresses() == [B]


async def test_namespaces_are_apart_and_who_is_not_trusted_gets_no_task(world: World) -> None:
    ann, bob = world.add("ann"), world.add("bob")
    bob.settings = in_namespace("team-alpha")
    async with world.running(ann, bob):
        await until(lambda: [one for one in ann.federation.neighbours.all() if "namespace" in one.refused])
        assert ann.addresses() == []
        assert (await says(ann, bob, [request(ann, B)]))["reason"] == "room"
        bob.settings = trusting(ann=False)
        world.pass_time(60)
        await until(lambda: ann.addresses() == [B] and bob.addresses() == [A])
        assert (await ann.result(B, "it")).metadata["reason"] == "trusted"
        assert (await bob.result(A, "it")).metadata["reason"] == "trusted"
        assert bob.started == ann.started == []


@pytest.mark.parametrize("off", [{"enabled": False}, {"room": {"federate": False}}])
async def test_what_is_switched_off_says_nothing_and_takes_nothing(world: World, off: dict[str, object]) -> None:
    ann, bob = world.add("ann"), world.add("bob")
    bob.settings = Settings.model_validate(off)
    async with world.running(ann, bob):
        await until(lambda: ann.sent)
        await anyio.sleep(0.02)
        assert bob.sent == []
        assert ann.addresses() == bob.addresses() == []
        with pytest.raises(SubletError) as refused:
            await bob.result(A, "it")
        assert refused.value.code is LocalCode.UNAVAILABLE


async def test_what_policy_denies_is_answered_as_if_nobody_were_there(world: World) -> None:
    ann, bob = world.add("ann"), world.add("bob")
    bob.denies = SubletError(LocalCode.POLICY_DENIED, "no", "")
    async with world.running(ann, bob):
        await until(lambda: ann.addresses() == [B])
        failed = await ann.result(B, "it")
        assert failed.metadata["error_code"] == "AGENT_NOT_FOUND"
        assert bob.started == []


async def test_a_node_that_floods_is_taken_less_of_and_the_others_all(world: World) -> None:
    ann, bob, cat = world.add("ann"), world.add("bob"), world.add("cat")
    async with world.running(ann, bob, cat):
        await until(lambda: ann.addresses() == [B, C])
        beat = Heartbeat(agent_id="worker-1", node_id="cat.local", status="idle", timestamp=WHEN)
        receipts = [await says(cat, ann, [beat], event_id=f"${number}") for number in range(500)]
        assert receipts[0]["accepted"]
        assert receipts[-1]["reason"] == "rate"
        assert (await bob.result(A, "it")).success
        many = [registered(f"a{number}", "bob.local") for number in range(MAX_AGENTS_OF_NODE + 1)]
        full = [await says(bob, ann, many[at : at + 500], event_id=f"$m{at}") for at in range(0, len(many), 500)]
        assert full[-1]["reason"] == "full"
        assert len(ann.federation.table.of_node(bob.own.name)) == MAX_AGENTS_OF_NODE


async def test_a_task_waits_for_a_node_that_has_not_said_its_name_yet(world: World) -> None:
    ann, bob = world.add("ann"), world.add("bob")
    done: list[TaskResult] = []

    async def ask() -> None:
        done.append(await ann.result("worker-1@bob", "it", wait=True, seconds=15))

    async with world.running(ann), anyio.create_task_group() as group:
        await until(lambda: ann.federation.neighbours.all())
        assert ann.federation.neighbours.all()[0].name is None
        group.start_soon(ask)
        await anyio.sleep(0.05)
        assert not done
        async with world.running(bob):
            await until(lambda: done)
    assert done[0].success
