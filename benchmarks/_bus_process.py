"""A daemon's messaging on real links in a process of its own, or a paired daemon that means harm in its place.

``python benchmarks/_bus_process.py ROLE NAME DIRECTORY``: says on which port it listens, is told in a line which others
there are, and takes the commands of ``support.room_peer`` from then on. Roles: ``member``; ``silent`` takes questions
and answers none; ``junk`` answers with bytes that say nothing; ``mute`` is a member that says what it has and then
answers nothing when it is compared with.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Collection
from pathlib import Path
from typing import cast

import anyio
import anyio.to_thread

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))
# Modules here have names that packages of the tests have, too, such as ``messaging``.
sys.path.remove(str(Path(__file__).resolve().parent))

from attacks.kit.bus_members import OnBus, Villain
from attacks.kit.bus_villains import VILLAINS, Other, mute
from sublet.messaging.builtins import BUILT_INS
from sublet.messaging.declaring.registry import Registry
from sublet.messaging.extensions import EXTENSIONS
from sublet.messaging.membership.consent import Consent
from sublet.messaging.service import MessagingService
from sublet.protocol.ezagent.ids import EntityId
from support.consents import TakesAll
from support.room_peer import _answer, _do

HARMS = "eve"
"""Who means harm."""


class TakesHonest(TakesAll):
    """Takes up the rooms of honest ones, and asks a person about all others, as daemons do by default."""

    def foresee(self, home: str) -> Consent:
        return Consent.ASK if home == Other(HARMS, 0).node else Consent.ACCEPT

    async def decide(self, home: str, whom: Collection[EntityId]) -> Consent:
        return self.foresee(home)


async def main(role: str, name: str, directory: Path) -> None:
    """Serve commands until stdin ends."""
    place = directory / f"links of {name}"
    place.mkdir(exist_ok=True)
    one = (Villain if role in VILLAINS else OnBus)(name, place, time.time_ns() % 2**40)
    _answer({"port": one.port})
    told = json.loads(await anyio.to_thread.run_sync(sys.stdin.readline))
    others = [Other(known, port) for known, port in told["others"].items()]
    if role == "mute":
        mute(one)
    await anyio.to_thread.run_sync(one.pair, cast("list[OnBus]", others))
    if isinstance(one, Villain):
        await anyio.to_thread.run_sync(VILLAINS[role], one, others, told["room"])
        _answer({"entity_id": one.id})
        await anyio.to_thread.run_sync(sys.stdin.readline)
        return
    service = MessagingService(
        directory / f"{name}.db",
        Registry((*BUILT_INS, *EXTENSIONS)),
        one.network,
        [one.entity],
        lambda: time.time_ns() // 1_000_000,
        lambda _: True,
        consent=TakesHonest(),
    )
    async with service.running():
        _answer({"entity_id": one.id})
        while line := await anyio.to_thread.run_sync(sys.stdin.readline):
            _answer(await _do(service, one.id, json.loads(line)))


if __name__ == "__main__":
    anyio.run(main, sys.argv[1], sys.argv[2], Path(sys.argv[3]))
