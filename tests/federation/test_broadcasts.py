"""What a node says to all: the members of its room hear it, and nobody else; what is no such thing is refused."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import anyio
import pytest

from sublet.federation.broadcasts import SAID_AT_ONCE
from sublet.federation.neighbours import Neighbour
from sublet.federation.ports import KnownNode
from sublet.protocol.federation.addresses import NodeName, broadcast_room, federation_room
from sublet.protocol.federation.envelope import Envelope, seal
from sublet.protocol.federation.events import AgentMessage
from support.federation_world import Node, World, until

pytestmark = pytest.mark.anyio


def everyone(_: Neighbour) -> bool:
    return True


def heard(node: Node) -> list[tuple[object, object]]:
    return [(data["from"], data["text"]) for what, data in node.told if what == "message"]


async def said(node: Node, text: str = "tea is ready") -> dict[str, str]:
    _, told = await node.federation.broadcasts.say("human", text, "announcement", everyone)
    return {one.alias: one.why_not for one in told}


async def test_members_of_the_room_hear_it_and_nobody_else() -> None:
    world = World()
    ann, bob, cat = world.add("ann"), world.add("bob"), world.add("cat", peers=[])
    eve = world.add("eve", room={"namespace": "other"})
    ann.settings = ann.settings.model_validate({"peers": [{"node_id": "cat.local", "trusted": False}]})
    async with world.running(ann, bob, cat, eve):
        await until(lambda: len(ann.addresses()) == 2)
        assert await said(ann) == {"bob": ""}
        assert heard(bob) == [("human@ann.local", "tea is ready")]
        assert heard(ann) == [("human@ann.local", "tea is ready")], "it is in the log of the sender as well"
        assert heard(cat) == heard(eve) == []
        # ann takes nothing of the node that it does not trust, which thinks of itself as a member.
        assert await said(cat) == {"ann": "this node is no member of that room", "bob": ""}
        nobody: dict[str, str] = {}
        _, told = await ann.federation.broadcasts.say("human", "hush", "announcement", lambda _: False)
        assert {one.alias: one.why_not for one in told} == nobody


async def test_of_two_nodes_that_are_called_alike_it_is_told_how_it_stands_with_each() -> None:
    world = World()
    ann, bob, cat = world.add("ann"), world.add("bob"), world.add("cat")
    cat.known = lambda known=cat.known: replace(known(), alias="bob", paired=False)  # type: ignore[method-assign,misc]
    async with world.running(ann, bob, cat):
        await until(lambda: len(ann.addresses()) == 2)
        _, told = await ann.federation.broadcasts.say("human", "tea is ready", "announcement", everyone)
        assert [(one.alias, one.why_not) for one in told] == [("bob", "")] * 2
        assert heard(bob) == heard(cat) == [("human@ann.local", "tea is ready")]


async def test_a_node_that_is_listed_and_not_paired_is_a_member_too() -> None:
    world = World()
    ann, bob = world.add("ann"), world.add("bob")
    for one in (ann, bob):
        one.known = lambda one=one, known=one.known: replace(known(), paired=False)  # type: ignore[method-assign,misc]
    async with world.running(ann, bob):
        await until(lambda: ann.addresses() == ["worker-1@bob.local"])
        assert await said(ann) == {"bob": ""}
        assert heard(bob) == [("human@ann.local", "tea is ready")]


async def test_what_policy_does_not_take_and_what_comes_too_often_is_refused_with_the_reason() -> None:
    world = World()
    ann, bob = world.add("ann"), world.add("bob")
    async with world.running(ann, bob):
        await until(lambda: ann.addresses() == ["worker-1@bob.local"])
        for _ in range(int(SAID_AT_ONCE)):
            assert await said(ann) == {"bob": ""}
        assert await said(ann) == {"bob": "that node says too much to all"}
        assert len(heard(bob)) == SAID_AT_ONCE

        async def deny(node: KnownNode, name: NodeName, kind: str, namespace: str) -> bool:
            return False

        bob.hears = deny  # type: ignore[method-assign]
        assert "policy" in (await said(ann))["bob"]


@pytest.mark.parametrize(
    ("changes", "room", "sender", "reason"),
    [
        ({}, "!agent-federation-default:bob.local", "@human:ann.local", "room"),
        ({"from_agent": "boss@bob.local"}, "", "@human:ann.local", "owner"),
        ({"from_agent": "boss@ann.local"}, "", "@human:ann.local", "owner"),
        ({"message_type": "cancel"}, "", "@human:ann.local", "message_type"),
        ({"message_type": "progress"}, "", "@human:ann.local", "message_type"),
    ],
)
async def test_what_only_looks_like_it_is_refused(changes: dict[str, Any], room: str, sender: str, reason: str) -> None:
    world = World()
    ann, bob = world.add("ann"), world.add("bob")
    async with world.running(ann, bob):
        await until(lambda: ann.addresses() == ["worker-1@bob.local"])
        fields: dict[str, Any] = {"from_agent": "human@ann.local", "message_type": "announcement", **changes}
        event = AgentMessage(message_id="m", to_agent=None, payload={"message": "x"}, timestamp="now", **fields)
        assert federation_room("default", bob.own.name) == "!agent-federation-default:bob.local"
        raw = seal(
            Envelope(
                event_id="$x",
                room_id=room or broadcast_room(ann.own.name),
                sender=sender,
                events=(event,),
                origin=ann.own.name,
                at_ms=int(world.wall * 1000),
                node=ann.own.node_id,
                recipient=bob.own.fingerprint,
            ),
            ann.own.key,
        )
        answer = json.loads(await bob.federation.receive("event", raw, ann.own.node_id))
        assert (answer["accepted"], answer["reason"]) == (False, reason)
        assert heard(bob) == []


async def test_another_payload_is_kept_as_what_it_is_and_nothing_in_it_steers_a_terminal() -> None:
    world = World()
    ann, bob = world.add("ann"), world.add("bob")
    async with world.running(ann, bob):
        await until(lambda: ann.addresses() == ["worker-1@bob.local"])
        assert await said(ann, "red \x1b[31m\u202e" + "x" * 5_000) == {"bob": ""}
        [(_, text)] = heard(bob)
        assert isinstance(text, str)
        assert len(text) <= 4_000
        assert not {"\x1b", "\u202e"} & set(text)


async def test_what_comes_twice_at_one_time_is_taken_once_and_both_learn_that_it_was() -> None:
    world = World()
    ann, bob = world.add("ann"), world.add("bob")
    async with world.running(ann, bob):
        await until(lambda: ann.addresses() == ["worker-1@bob.local"])
        goes_on, asked = anyio.Event(), list[str]()

        async def slowly(node: KnownNode, name: NodeName, kind: str, namespace: str) -> bool:
            asked.append(kind)
            await goes_on.wait()
            return True

        bob.hears = slowly  # type: ignore[method-assign]
        before = len(ann.sent)
        answers: list[bool] = []

        async def again(raw: bytes) -> None:
            answers.append(json.loads(await bob.federation.receive("event", raw, ann.own.node_id))["accepted"])

        async with anyio.create_task_group() as group:
            group.start_soon(said, ann)
            await until(lambda: asked)
            raw = next(raw for to, _, raw in ann.sent[before:] if to == "bob" and b"tea is ready" in raw)
            for _ in range(3):
                group.start_soon(again, raw)
            await anyio.sleep(0.02)
            assert answers == []
            goes_on.set()
        assert answers == [True] * 3
        assert heard(bob) == [("human@ann.local", "tea is ready")]
        assert not any(one.taking for one in bob.federation.neighbours.all())


async def test_who_is_forgotten_while_policy_is_asked_is_heard_no_more() -> None:
    world = World()
    ann, bob = world.add("ann"), world.add("bob")
    async with world.running(ann, bob):
        await until(lambda: ann.addresses() == ["worker-1@bob.local"])

        async def forgets(node: KnownNode, name: NodeName, kind: str, namespace: str) -> bool:
            bob.forgotten.add("ann")
            return True

        bob.hears = forgets  # type: ignore[method-assign]
        assert "no key is pinned" in (await said(ann))["bob"]
        assert heard(bob) == []
