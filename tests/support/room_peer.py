"""A peer in a process of its own: takes commands as lines of JSON on stdin, answers each with a line on stdout.

``python -m support.room_peer [--extensions] [--probe] [--astray] [--pinned] NAME DIRECTORY LISTEN [CONNECT ...]``
"""

from __future__ import annotations

import base64
import gc
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread

from sublet.messaging.backends.zenoh_network import Endpoints, ZenohNetwork
from sublet.messaging.builtins import BUILT_INS
from sublet.messaging.declaring.declaration import Declaration
from sublet.messaging.declaring.registry import Registry
from sublet.messaging.extensions import EXTENSIONS
from sublet.messaging.identities.keyring import LocalEntity
from sublet.messaging.service import MessagingService
from sublet.protocol.errors import SubletError
from support.consents import TakesAll
from support.muddler import AstrayNetwork
from support.pinned_network import PinnedNetwork
from support.plain_logs import log_plainly
from support.probe_extension import PROBE
from support.rooms import local_entity


async def main(
    declarations: tuple[Declaration, ...],
    network_type: type[ZenohNetwork],
    name: str,
    directory: Path,
    endpoints: Endpoints,
) -> None:
    """Serve commands until stdin ends."""
    entity: LocalEntity = local_entity(name, int.from_bytes(os.urandom(6), "big"))
    network = await anyio.to_thread.run_sync(network_type, endpoints)
    service = MessagingService(
        directory / f"{name}.db",
        Registry(declarations),
        network,
        [entity],
        lambda: time.time_ns() // 1_000_000,
        lambda _: True,
        consent=TakesAll(),
    )
    me = entity.record.entity_id
    async with service.running():
        gc.freeze()  # as the daemon does
        _answer({"entity_id": me})
        while line := await anyio.to_thread.run_sync(sys.stdin.readline):
            command: dict[str, Any] = json.loads(line)
            try:
                _answer(await _do(service, me, command))
            except SubletError as error:
                _answer({"error": str(error)})


async def _do(service: MessagingService, me: str, command: dict[str, Any]) -> Any:
    match command.pop("do"):
        case "watch":
            return await service.watch(me, **command)
        case "sync":
            await service.asking.room(command["room_id"])
            return {}
        case "find":
            await service.find_room(command["room_id"])
            return {}
        case "upload":
            data = base64.b64decode(command.pop("data"))
            return {"result": await service.call(me, "media.upload", data=data, **command)}
        case "file":
            return {"result": base64.b64encode(await service.call(me, "media.get", **command)).decode()}
        case "counts":
            return await service.counts()
        case "flood":
            async with anyio.create_task_group() as group:
                for worker in range(command["workers"]):
                    group.start_soon(_send_many, service, me, command, worker)
            return {"sent": command["count"]}
        case "paced":
            return await _send_paced(service, me, command["room_id"], command["count"], command["every_seconds"])
        case "answer":
            return await _answer_each(service, me, command["room_id"], command["count"])
        case "receive":
            return await _receive(service, me, command["since"], command["count"])
        case str(operation):
            return {"result": await service.call(me, operation, **command)}


async def _send_many(service: MessagingService, me: str, command: dict[str, Any], worker: int) -> None:
    """Send a worker's part; tell of each that is acknowledged unless that is not wanted."""
    for index in range(command["count"] // command["workers"]):
        sent = await service.call(me, "message.send", room_id=command["room_id"], body=f"{worker}-{index}")
        if not command.get("quiet"):
            _answer({"acknowledged": sent["ref_id"]})


async def _send_paced(
    service: MessagingService, me: str, room: str, count: int, every_seconds: float
) -> dict[str, int]:
    """Send one message after the other; return when each was given to the engine, in monotonic nanoseconds."""
    begun: dict[str, int] = {}
    for index in range(count):
        at = time.monotonic_ns()
        sent = await service.call(me, "message.send", room_id=room, body=f"paced {index}")
        begun[sent["ref_id"]] = at
        await anyio.sleep(every_seconds)
    return begun


async def _receive(service: MessagingService, me: str, since: int, count: int) -> dict[str, int]:
    """Wait for messages of others; return when each was told, in monotonic nanoseconds."""
    told: dict[str, int] = {}
    while len(told) < count:
        answer = await service.watch(me, since, 30.0)
        at, since = time.monotonic_ns(), answer["cursor"]
        told |= {event["ref_id"]: at for event in answer["events"] if event["kind"] == "message.new"}
    return told


async def _answer_each(service: MessagingService, me: str, room: str, count: int) -> dict[str, int]:
    """Answer each message of somebody else from within what handles its event, until there were so many."""
    bus, answered = service.bus(me), 0
    async for event in bus.events.stream(since=0, room_id=room):
        if event["kind"] == "message.new" and event["author"] != me:
            await bus.message.send(room_id=room, body=f"answer to {event['ref_id']}")
            answered += 1
            if answered == count:
                break
    return {"answered": answered}


def _answer(answer: object) -> None:
    print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    log_plainly()
    given = [argument for argument in sys.argv[1:] if not argument.startswith("--")]
    more = EXTENSIONS if "--extensions" in sys.argv else ()
    more = (*more, PROBE) if "--probe" in sys.argv else more
    network = AstrayNetwork if "--astray" in sys.argv else PinnedNetwork if "--pinned" in sys.argv else ZenohNetwork
    reached = Endpoints((given[2],), tuple(given[3:]))
    anyio.run(main, (*BUILT_INS, *more), network, given[0], Path(given[1]), reached)
