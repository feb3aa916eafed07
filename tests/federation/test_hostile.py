"""A paired node that lies, floods, renames itself, never answers, or is forgotten between two steps."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator

import anyio
import anyio.lowlevel
import pytest

from federation.test_nodes import WHEN, A, B, kinds, registered, says, sealed
from sublet.federation import asking as askings
from sublet.federation import node as nodes
from sublet.federation import presence
from sublet.federation.ports import AdmittedTask, Asked, KnownNode, OwnAgent, Said, TaskRow, What
from sublet.federation.post import in_envelopes, receipt_bytes
from sublet.federation.settings import Settings
from sublet.federation.working import MAX_TASKS_OF_NODE, TASKS_AT_ONCE
from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.federation.addresses import AgentAddress
from sublet.protocol.federation.envelope import read_envelope
from sublet.protocol.federation.errors import FederationCode, TaskRefused
from sublet.protocol.federation.events import AgentRegistered, AgentUnregistered, TaskResponse, TaskResult
from support.federation_world import Node, World, request, trusting, until

pytestmark = pytest.mark.anyio


@pytest.fixture
def world() -> World:
    return World()


def loses_its_name(eve: Node, ann: Node) -> list[str]:
    """Have a node call itself as Ann is called, each time just before it takes something of her; return its lies.

    What it says by its own name soon after has it known by that again, so nobody can wait to see it without a name.
    """
    real, lies = eve.federation.receive, list[str]()

    async def receive(what: What, raw: bytes, link: str) -> bytes:
        if what == "event":
            lie = {"origin": ann.own.name, "sender": f"@node:{ann.own.name}", "event_id": f"$lie{len(lies)}"}
            assert (await says(eve, ann, [registered("x", ann.own.name)], **lie))["reason"] == "name"
            lies.append(lie["event_id"])
        return await real(what, raw, link)

    eve.federation.receive = receive  # type: ignore[method-assign]
    return lies


async def test_a_node_that_takes_anothers_name_while_it_is_spoken_with_ends_nothing(world: World) -> None:
    ann, bob, eve = world.add("ann"), world.add("bob"), world.add("eve")
    lies = loses_its_name(eve, ann)
    async with world.running(ann, bob, eve):
        await until(lambda: lies)
        for _ in range(3):
            world.look()
            await anyio.sleep(0.06)
        await until(lambda: B in ann.addresses())
        assert (await ann.result(B, "it")).success
        assert not [one for one in ann.federation.neighbours.all() if one.node.alias == "eve" and one.greeted]


async def test_what_fails_with_one_node_is_not_tried_again_at_once(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    ann = world.add("ann")
    world.add("bob")
    world.up.add("bob")
    tries: list[str] = []

    async def ask(node: KnownNode, what: What, payload: bytes) -> bytes | None:
        tries.append(what)
        raise RuntimeError("nobody thought of this")

    monkeypatch.setattr(ann, "ask", ask)
    async with world.running(ann):
        await until(lambda: tries)
        for _ in range(5):
            world.look()
            await anyio.sleep(0.06)
        assert tries == ["server"]


async def test_a_node_that_renames_itself_has_one_share_of_the_table(world: World) -> None:
    ann, bob = world.add("ann"), world.add("bob")
    async with world.running(ann, bob):
        await until(lambda: ann.addresses() == [B])
        for number in range(3):
            name = f"rob-{number}.local"
            assert (
                await says(
                    bob,
                    ann,
                    [registered("spy", name)],
                    origin=name,
                    sender=f"@node:{name}",
                    event_id=f"$r{number}",
                )
            )["accepted"]
            assert ann.addresses() == [f"spy@{name}"]
        lie = {"origin": "ann.local", "sender": "@node:ann.local", "event_id": "$lie"}
        assert (await says(bob, ann, [registered("spy", "ann.local")], **lie))["reason"] == "name"
        assert ann.addresses() == []


async def test_names_of_agents_that_are_made_up_share_one_bucket_and_leave_nothing(world: World) -> None:
    ann, bob = world.add("ann"), world.add("bob")
    most = int(TASKS_AT_ONCE)
    async with world.running(ann, bob):
        await until(lambda: ann.addresses() == [B] and bob.addresses() == [A])
        receipts = []
        for number in range(most + 1):
            one = request(bob, f"ghost-{number}@ann.local", request_id=f"r{number}")
            receipts.append(await says(bob, ann, [one], event_id=f"$g{number}"))
            await until(lambda: not ann.federation._working._running)
        assert [one["accepted"] for one in receipts] == [True] * most + [False]
        assert receipts[-1]["reason"] == "rate"
        assert (await bob.result(A, "it")).success
        await until(lambda: not ann.federation._statuses._states)


async def test_tasks_that_come_at_one_time_are_counted_before_the_disk_is_waited_for(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    ann, bob = world.add("ann"), world.add("bob")
    goes_on, taken = anyio.Event(), ann.ledger.take
    receipts: list[dict[str, object]] = []

    async def slow(row: TaskRow) -> TaskRow | None:
        await goes_on.wait()
        return await taken(row)

    monkeypatch.setattr(ann.ledger, "take", slow)

    async def say(number: int) -> None:
        one = request(bob, A, "wait", f"r{number}")
        receipts.append(await says(bob, ann, [one], event_id=f"$t{number}"))

    async with world.running(ann, bob):
        await until(lambda: bob.addresses() == [A])
        async with anyio.create_task_group() as group:
            for number in range(MAX_TASKS_OF_NODE + 4):
                group.start_soon(say, number)
            await until(lambda: len(receipts) >= 4)
            goes_on.set()
        assert sum(bool(one["accepted"]) for one in receipts) == MAX_TASKS_OF_NODE
        assert {one["reason"] for one in receipts if not one["accepted"]} == {"full"}
        ann.released.set()
        await until(lambda: not ann.federation._working._of_node[bob.own.node_id])


async def test_of_many_answers_to_one_task_one_is_kept(world: World) -> None:
    ann, bob = world.add("ann"), world.add("bob")
    async with world.running(ann, bob):
        await until(lambda: ann.addresses() == [B])
        asked = Asked(AgentAddress.parse(B), "wait", AgentAddress("human", ann.own.name), 10)
        told = ann.federation.ask(asked)
        assert await anext(told) == Said("waiting")
        [(request_id, pending)] = ann.federation._asking._pending.items()
        for number in range(5):
            answer = TaskResponse(
                request_id=request_id,
                from_agent=B,
                to_agent="human@ann.local",
                result=TaskResult(success=True, output=f"answer {number}", exit_code=0),
                timestamp=WHEN,
            )
            assert (await says(bob, ann, [answer], event_id=f"$a{number}"))["accepted"]
        assert pending.send.statistics().current_buffer_used == 1
        rest = [piece async for piece in told]
        assert [piece.output for piece in rest if isinstance(piece, TaskResult)] == ["answer 0"]
        bob.released.set()


async def test_a_node_that_is_busy_for_a_moment_does_not_end_the_wait_for_its_answer(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(askings, "PROBE_SECONDS", 0.02)
    ann, bob = world.add("ann"), world.add("bob")
    done: list[TaskResult] = []

    async def ask() -> None:
        done.append(await ann.result(B, "wait"))

    async with world.running(ann, bob), anyio.create_task_group() as group:
        await until(lambda: ann.addresses() == [B])
        group.start_soon(ask)
        await until(lambda: bob.started)
        real, probes = bob.federation.receive, list[bytes]()

        async def busy(what: What, raw: bytes, link: str) -> bytes:
            probes.append(raw)
            return receipt_bytes("", TaskRefused(FederationCode.AGENT_BUSY, "too much", "rate"))

        bob.federation.receive = busy  # type: ignore[method-assign]
        await until(lambda: len(probes) > 2)
        bob.federation.receive = real  # type: ignore[method-assign]
        bob.released.set()
        await until(lambda: done)
    assert done[0].success


async def test_a_task_whose_receipt_was_lost_is_cancelled_there(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    ann, bob = world.add("ann"), world.add("bob")
    async with world.running(ann, bob):
        await until(lambda: ann.addresses() == [B])
        real = ann.ask

        async def lost(node: KnownNode, what: What, payload: bytes) -> bytes | None:
            await real(node, what, payload)
            return None

        monkeypatch.setattr(ann, "ask", lost)
        assert (await ann.result(B, "wait")).metadata["error_code"] == "NODE_UNREACHABLE"
        await until(lambda: [row.result for row in bob.ledger.rows.values() if row.result])
        [row] = bob.ledger.rows.values()
        assert row.result is not None
        assert row.result.metadata["reason"] == "cancelled"


async def test_a_node_that_never_answers_is_waited_for_no_longer_than_was_said(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(askings, "CANCEL_SECONDS", 0.05)
    ann, bob = world.add("ann"), world.add("bob")
    async with world.running(ann, bob):
        await until(lambda: ann.addresses() == [B])

        async def silent(node: KnownNode, what: What, payload: bytes) -> bytes | None:
            await anyio.sleep_forever()
            raise AssertionError

        monkeypatch.setattr(ann, "ask", silent)
        with anyio.fail_after(15):
            assert (await ann.result(B, "it", seconds=1)).metadata["error_code"] == "NODE_UNREACHABLE"


async def test_nodes_that_never_answer_hold_up_none_that_does(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(presence, "AT_ONCE", 2)
    ann, bob = world.add("ann"), world.add("bob")
    mute = [world.add(f"mute{number}") for number in range(4)]
    real = ann.ask

    async def ask(node: KnownNode, what: What, payload: bytes) -> bytes | None:
        if node.alias.startswith("mute"):
            await anyio.sleep_forever()
        return await real(node, what, payload)

    ann.ask = ask  # type: ignore[method-assign]
    async with world.running(ann, bob):
        await until(lambda: ann.addresses() == [B] and bob.addresses() == [A])
        world.up |= {one.alias for one in mute}
        world.look()
        await until(
            lambda: all(limit.borrowed_tokens for at, limit in ann.federation._presence._limits.items() if not at)
        )
        for _ in range(2):
            beats = kinds(ann, "bob").count("heartbeat")
            world.pass_time(31)
            await until(lambda beats=beats: kinds(ann, "bob").count("heartbeat") > beats)  # type: ignore[misc]


async def test_what_each_node_may_know_is_looked_at_once_in_a_period_however_many_there_are(world: World) -> None:
    ann, *others = (world.add(f"n{number}") for number in range(9))
    looked = list[str]()

    def tells(node: KnownNode, name: str, agent_id: str) -> bool:
        looked.append(node.alias)
        return True

    ann.tells = tells  # type: ignore[method-assign]
    async with world.running(ann, *others):
        await until(lambda: len(ann.addresses()) == len(others))
        await until(lambda: all(one.greeted for one in ann.federation.neighbours.all()))
        await until(lambda: not ann.federation._presence._speaking)
        await anyio.sleep(0.2)
        looked.clear()
        beats = {one.alias: kinds(ann, one.alias).count("heartbeat") for one in others}
        world.steady += 31  # nobody is woken but by what is due
        world.wall += 31
        ann.federation._soon()
        await until(lambda: all(kinds(ann, one).count("heartbeat") > count for one, count in beats.items()))
        await anyio.sleep(0.2)
        assert sorted(looked) == sorted(beats)
        # Something that all have to be told of is told to each, which is looked at once more.
        ann.agents[OwnAgent("worker-2", "claude", ())] = False
        ann.federation._soon()
        await until(lambda: all("worker-2@n0.local" in one.addresses() for one in others))
        await anyio.sleep(0.2)
        assert sorted(looked) == sorted([*beats, *beats, *beats]), "for the heartbeat, and for each of two agents"


async def test_who_is_forgotten_has_nothing_any_more_from_that_moment(world: World) -> None:
    ann, bob = world.add("ann"), world.add("bob")
    async with world.running(ann, bob):
        await until(lambda: ann.addresses() == [B] and bob.addresses() == [A])
        assert (await says(ann, bob, [request(ann, B, "wait")], event_id="$w"))["accepted"]
        await until(lambda: bob.started)
        bob.forgotten.add("ann")  # and nobody has looked yet
        late = await says(ann, bob, [request(ann, B, "late", "req-2")], event_id="$late")
        assert (late["accepted"], late["reason"]) == (False, "unknown")
        sent = len(bob.sent)
        bob.federation.paired()
        assert bob.addresses() == []
        await until(lambda: [row.result for row in bob.ledger.rows.values() if row.result])
        [row] = bob.ledger.rows.values()
        assert row.result is not None
        assert row.result.metadata["reason"] == "cancelled"
        await anyio.sleep(0.02)
        assert len(bob.sent) == sent
        assert bob.started == ["wait"]
        page = json.loads(await bob.federation.receive("server", b"", ann.own.node_id))
        assert page["reason"] == "unknown"


async def test_what_is_switched_off_does_not_even_tell_what_came_of_a_task(world: World) -> None:
    ann, bob = world.add("ann"), world.add("bob")
    async with world.running(ann, bob):
        await until(lambda: ann.addresses() == [B])
        assert (await says(ann, bob, [request(ann, B, "wait")], event_id="$w"))["accepted"]
        await until(lambda: bob.started)
        bob.settings = Settings.model_validate({"enabled": False})
        bob.released.set()
        await until(lambda: [row.result for row in bob.ledger.rows.values() if row.result])
        await until(lambda: not bob.federation._working._running)
        await anyio.sleep(0.02)
        assert "task.response" not in kinds(bob, "ann")
        world.look()
        await until(lambda: not bob.federation.neighbours.all()[0].greeted)
        bob.settings = Settings()
        world.pass_time(60)
        await until(lambda: bob.ledger.taken, "the answer, once it is on again")


async def test_an_answer_that_the_other_side_may_take_later_is_kept(world: World) -> None:
    ann, bob = world.add("ann"), world.add("bob")
    async with world.running(ann, bob):
        await until(lambda: ann.addresses() == [B])
        assert (await says(ann, bob, [request(ann, B, "wait")], event_id="$w"))["accepted"]
        await until(lambda: bob.started)
        ann.settings = Settings.model_validate({"enabled": False})
        bob.released.set()
        await until(lambda: "task.response" in kinds(bob, "ann"))
        await anyio.sleep(0.02)
        assert not bob.ledger.taken


async def test_who_we_are_is_told_only_so_often_and_to_those_we_know(world: World) -> None:
    ann, bob = world.add("ann"), world.add("bob")
    async with world.running(ann, bob):
        await until(lambda: ann.addresses() == [B])
        told = [json.loads(await ann.federation.receive("server", b"", bob.own.node_id)) for _ in range(500)]
        assert told[0]["server_name"] == "ann.local"
        assert told[-1]["reason"] == "rate"
        stranger = json.loads(await ann.federation.receive("server", b"", World().add("eve").own.node_id))
        assert stranger["reason"] == "unknown"


async def test_hints_have_our_agents_told_anew_only_so_often(world: World) -> None:
    ann, bob = world.add("ann"), world.add("bob")
    async with world.running(ann, bob):
        await until(lambda: ann.addresses() == [B] and bob.addresses() == [A])
        for number in range(10):
            gone = AgentUnregistered(agent_id="worker-1", node_id="ann.local", reason="timeout", timestamp=WHEN)
            assert (await says(bob, ann, [gone], event_id=f"$h{number}"))["accepted"]
            if number <= 3:
                await until(lambda: ann.federation.neighbours.all()[0].told)
            await anyio.sleep(0.06)
        assert kinds(ann, "bob").count("registered") <= 6


async def test_an_answer_that_is_too_large_is_told_as_that(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    ann, bob = world.add("ann"), world.add("bob")

    async def run(task: AdmittedTask) -> AsyncGenerator[Said | TaskResult, None]:
        yield TaskResult(success=True, output="\x01" * 200_000, exit_code=0)

    monkeypatch.setattr(bob, "run", run)
    async with world.running(ann, bob):
        await until(lambda: ann.addresses() == [B])
        failed = await ann.result(B, "it", seconds=2)
        assert failed.metadata["error_code"] == "INVALID_PAYLOAD"
        assert "larger" in failed.output


def test_many_agents_that_can_much_go_in_as_many_envelopes_as_they_need() -> None:
    world = World()
    ann, bob = world.add("ann"), world.add("bob")
    can = [f"{number:03}-{'x' * 50}" for number in range(64)]
    events = [
        AgentRegistered(agent_id=f"a{number}", node_id="ann.local", runtime_type="x", capabilities=can, timestamp=WHEN)
        for number in range(400)
    ]
    some = list(in_envelopes(events))
    assert [one for part in some for one in part] == events
    for part in some:
        read_envelope(sealed(ann, bob, part))
    assert list(in_envelopes([])) == []


async def test_a_node_that_is_not_trusted_does_not_hide_who_can_something(world: World) -> None:
    ann, bob, cat = world.add("ann"), world.add("bob"), world.add("cat")
    ann.settings = trusting(cat=False)
    async with world.running(ann, cat):
        await until(lambda: ann.addresses() == ["worker-1@cat.local"])
        for number in range(nodes.MAX_COMPARED + 1):
            address = AgentAddress(f"a{number}", cat.own.name)
            ann.federation.table.register(address, "x", ["test"], steady=world.steady, wall=world.wall)
        async with world.running(bob):
            await until(lambda: ann.federation.best("test", lambda *_: True))
            found = ann.federation.best("test", lambda *_: True)
            assert found is not None
            assert str(found.address) == B


@pytest.mark.parametrize("model", [None, "claude-3-opus"])
async def test_an_agent_that_a_rule_hides_is_answered_as_one_that_is_none(world: World, model: str | None) -> None:
    ann, bob = world.add("ann"), world.add("bob")
    bob.denies = SubletError(LocalCode.NOT_FOUND, "there is no 'worker-1' here")
    async with world.running(ann, bob):
        await until(lambda: ann.addresses() == [B])
        for to in (B, "nobody@bob.local"):
            one = request(ann, to, request_id=to.partition("@")[0])
            one = one.model_copy(update={"task": one.task.model_copy(update={"model": model})})
            assert (await says(ann, bob, [one], event_id=f"${one.request_id}"))["accepted"]
        await until(lambda: len([row for row in bob.ledger.rows.values() if row.result]) == 2)
        hidden, none = (bob.ledger.rows[ann.own.node_id, one].result for one in ("worker-1", "nobody"))
        assert hidden is not None
        assert none is not None
        assert hidden.output.replace("worker-1", "nobody") == none.output
        assert hidden.metadata == none.metadata


async def test_all_that_happens_within_a_moment_is_looked_at_once(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nodes, "TOGETHER_SECONDS", 1_000.0)
    ann = world.add("ann")
    rounds, evictions, real = [0], [0], ann.federation._presence.round

    def counted(group: anyio.abc.TaskGroup) -> float:
        rounds[0] += 1
        return real(group)

    def evict(before: float) -> list[object]:
        evictions[0] += 1
        return []

    monkeypatch.setattr(ann.federation._presence, "round", counted)
    monkeypatch.setattr(ann.federation.table, "evict", evict)
    async with world.running(ann):
        await until(lambda: rounds[0])
        for _ in range(50):
            world.look()
            await anyio.lowlevel.checkpoint()
        assert rounds == [1]
        assert evictions == [0], "nobody can have been silent as long, so the table is not walked through"


async def test_a_result_that_the_journal_does_not_take_is_told_all_the_same(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    ann, bob = world.add("ann"), world.add("bob")

    async def full(row: TaskRow) -> None:
        raise SubletError(LocalCode.UNAVAILABLE, "the disk is full", "")

    monkeypatch.setattr(bob.ledger, "end", full)
    async with world.running(ann, bob):
        await until(lambda: ann.addresses() == [B])
        assert (await ann.result(B, "it", seconds=2)).success


async def test_what_an_earlier_group_left_behind_counts_no_more(world: World) -> None:
    ann, bob = world.add("ann"), world.add("bob")
    ann.federation._presence._speaking.add(bob.own.node_id)
    for number in range(MAX_TASKS_OF_NODE):
        ann.federation._working._running[bob.own.node_id, f"old-{number}"] = anyio.CancelScope()
        ann.federation._working._of_node[bob.own.node_id] += 1
    async with world.running(ann, bob):
        await until(lambda: ann.addresses() == [B] and bob.addresses() == [A])
        assert (await bob.result(A, "it")).success


async def test_what_you_call_a_peer_may_be_what_no_node_calls_itself(world: World) -> None:
    ann = world.add("ann")
    world.add("bobs_laptop", name="bob.local")
    async with world.running(*world.nodes):
        await until(lambda: ann.addresses() == [B])
        assert str(ann.federation.target("Worker-1@bobs_laptop")) == "worker-1@bobs_laptop"
        asked = Asked(
            ann.federation.target("worker-1@bobs_laptop"), "it", AgentAddress("human", ann.own.name), seconds=10
        )
        ends = [piece async for piece in ann.federation.ask(asked) if isinstance(piece, TaskResult)]
        assert [one.success for one in ends] == [True]
        with pytest.raises(SubletError):
            ann.federation.target("worker-1@his_laptop")


async def test_whom_somebody_must_not_know_of_is_found_by_no_id(world: World) -> None:
    ann, bob = world.add("ann", "boss"), world.add("bob")
    ann.agents[OwnAgent("secret", "claude", ())] = False
    async with world.running(ann, bob):
        await until(lambda: ann.addresses() == [B])
        for agent_id in ("worker-1", "secret"):
            assert ann.federation.target(agent_id).agent_id == agent_id
            with pytest.raises(SubletError) as refused:
                ann.federation.target(agent_id, lambda _: False)
            assert refused.value.code is LocalCode.NOT_FOUND
