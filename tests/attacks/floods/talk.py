"""Floods by those that are let in: a member of a room, a holder of a token, and a paired peer by what it answers."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import uuid
from collections.abc import Awaitable, Callable, Iterator
from functools import partial

import httpx

from attacks.flood import Flood, Target
from attacks.floods import bus
from attacks.kit.neighbour import identity_key
from sublet.daemon.peering.identity import load_identity
from sublet.daemon.rooms.entities import load_entities
from sublet.messaging.ports.network import Priority, Qos
from sublet.protocol.ezagent.envelope import seal
from sublet.protocol.ezagent.ids import client_id
from sublet.protocol.ezagent.keys import doc_id
from sublet.protocol.ezagent.yjs.encode import Transaction

WRITERS = 8
"""Clients of one member that write at one place, none of which knows of the others."""
BURST = 200
BIG = 48_000
"""Bytes of the text in a request."""

Updates = Callable[[str, str], Iterator[tuple[str, bytes]]]


def at_one_place(member: str, content: str) -> Iterator[tuple[str, bytes]]:
    """Yield inserts into a shared text, all of which stand at its beginning."""
    clocks = dict.fromkeys(range(WRITERS), 0)
    for number in itertools.count():
        writer = number % WRITERS
        made = Transaction(client_id(member, 200 + writer), clocks[writer])
        for _ in range(20):
            made.insert_text("body", None, None, "x")
        clocks[writer] = made.clock
        yield content, made.encode()


def one_behind_another(member: str, content: str) -> Iterator[tuple[str, bytes]]:
    """Yield inserts into a shared text, each before the one of before."""
    client = client_id(member, 250)
    clock = 0
    while True:
        made = Transaction(client, clock)
        for _ in range(20):
            made.insert_text("body", None, (client, made.clock - 1) if made.clock else None, "y")
        clock = made.clock
        yield content, made.encode()


def in_vain(member: str, content: str) -> Iterator[tuple[str, bytes]]:
    """Yield parts of a text of which what they stand behind has never come."""
    client = client_id(member, 251)
    for number in itertools.count(1):
        made = Transaction(client, 100_000 * number)
        made.insert_text("body", (client, 100_000 * number - 7), None, "z" * 200)
        yield content, made.encode()


def presence(member: str, content: str) -> Iterator[tuple[str, bytes]]:
    """Yield what a member says in passing, with lists in it that take much room once they are parsed."""
    room = content.split("/")[1]
    name = doc_id("ephemeral", room_id=room, ext_id="awareness", entity_id=member)
    payload = b'{"a":[' + b",".join([b"[]"] * 660) + b"]}"
    while True:
        yield name, payload


def configuring(member: str, content: str) -> Iterator[tuple[str, bytes]]:
    """Yield writes to a field of the room's configuration that the member may not write."""
    name = doc_id("config", room_id=content.split("/")[1])
    client, last, clock = client_id(member, 252), None, 0
    while True:
        made = Transaction(client, clock)
        last = made.set_key("config", "name", last, "x" * 100)
        clock = made.clock
        yield name, made.encode()


def member(updates: Updates) -> Callable[..., Awaitable[None]]:
    """Return the flood of a member of the room, over the link of its daemon; ``bursts`` ends it after so many."""

    async def run(target: Target, bursts: int | None = None) -> None:
        assert target.content, "the stage has a room"
        identity = load_identity(target.peer_home / "state" / "keys")
        human = load_entities(target.peer_home / "state" / "keys", identity)[0]
        me = human.record.entity_id
        link = await asyncio.to_thread(bus._link, target, identity_key(target.peer_home))
        said = updates(me, target.content)
        clocks = itertools.count(2_000_000_000_000)
        quality = Qos(Priority.DATA, droppable=True)

        def burst() -> None:
            for name, payload in itertools.islice(said, BURST):
                raw = seal(human.key, me, name, next(clocks), payload).raw
                link.publish(name if "/ephemeral/" in name else f"{name}/updates", raw, b"", quality)

        try:
            for _ in itertools.count() if bursts is None else range(bursts):
                await asyncio.to_thread(burst)
                await asyncio.sleep(0)
        finally:
            await asyncio.to_thread(link.close)

    return run


# a token


def _messages() -> Iterator[dict[str, object]]:
    """Yield calls: messages of text, of data, of nonsense, questions for tasks, and lists of them."""
    for number in itertools.count():
        message = {"messageId": uuid.uuid4().hex, "role": "ROLE_USER"}
        text = {**message, "parts": [{"text": "x" * BIG}]}
        data = {**message, "parts": [{"data": {"a": [1] * 5_000}}] * 3}
        parts = {**message, "parts": [{"text": "y"}] * 2_000}
        task = f"{number % 9}{uuid.uuid4()}"
        yield {"method": "SendMessage", "params": {"message": text}}
        yield {"method": "SendMessage", "params": {"message": data}}
        yield {"method": "SendMessage", "params": {"message": parts}}
        yield {"method": "SendMessage", "params": {"message": {**text, "taskId": task}}}
        yield {"method": "ListTasks", "params": {"pageSize": 100}}
        yield {"method": "GetTask", "params": {"id": task, "historyLength": 1_000_000}}
        yield {"method": "CancelTask", "params": {"id": task}}
        yield {"method": "SubscribeToTask", "params": {"id": task}}
        yield {"method": "SendStreamingMessage", "params": {"message": text}}


async def by_token(target: Target) -> None:
    """Call with a valid token, as quickly as answers come."""
    headers = {"Authorization": f"Bearer {target.token}", "A2A-Version": "1.0", "Content-Type": "application/json"}
    calls = _messages()
    async with httpx.AsyncClient(base_url=target.a2a, trust_env=False, timeout=5, headers=headers) as http:
        while True:
            body = json.dumps({"jsonrpc": "2.0", "id": 1, **next(calls)})
            with contextlib.suppress(httpx.HTTPError):
                await http.post("/", content=body)
            await asyncio.sleep(0)


# answers


async def answering(target: Target, kind: str) -> None:
    """Have the attacker's side of the delegation answer so as long as this process is there."""
    file = target.peer_home / "answers"
    file.write_text(f"{os.getpid()} {kind}", encoding="utf-8")
    await asyncio.Event().wait()


MEMBERS = tuple(map(member, (at_one_place, one_behind_another, in_vain, presence, configuring)))
_MEMBER = ["messaging.running.arrivals:Arrivals.hear"]
_TEXTS = [*_MEMBER, "messaging.texts.text_order:TextOrder.place", "messaging.texts.texts:Texts.apply"]

FLOODS = (
    Flood(name="rooms: a shared text, all at one place", who="member", covers=_TEXTS, run=member(at_one_place)),
    Flood(name="rooms: a shared text, backwards", who="member", covers=_TEXTS, run=member(one_behind_another)),
    Flood(name="rooms: parts of a text that stand nowhere", who="member", covers=_TEXTS, run=member(in_vain)),
    Flood(name="rooms: presence", who="member", covers=_MEMBER, run=member(presence)),
    Flood(name="rooms: a configuration that is not theirs", who="member", covers=_MEMBER, run=member(configuring)),
    Flood(
        name="net: calls with a token",
        who="holder of a token",
        covers=["a2a_server.auth:Authenticator.identify", "a2a_server.json_rpc:WellFormed.__call__"],
        run=by_token,
        waves=4,
    ),
    Flood(
        name="answers: progress without end",
        who="peer",
        covers=["a2a_client.client:A2APeerLink.invite"],
        run=partial(answering, kind="long"),
    ),
    Flood(
        name="answers: many small words",
        who="peer",
        covers=["a2a_client.client:A2APeerLink.invite"],
        run=partial(answering, kind="small"),
    ),
)
