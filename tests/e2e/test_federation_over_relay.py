"""Three real daemons on three machines that reach a relay and nothing else ask each other's agents; links and kills."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from e2e.test_federation import SHELL, addresses, configured, failed, until_known
from support.daemons import Daemon, wait_for
from support.namespaces import Machine, machines_around, needs_root
from support.relays import Relay, relay

pytestmark = [needs_root, pytest.mark.timeout(400)]

PORT = 7000
NAMES = ("ann", "bob", "carol")


@dataclass
class Scene:
    """The daemons by their names, each on a machine of its own."""

    relay: Relay
    daemons: dict[str, Daemon]
    machines: dict[str, Machine]
    fingerprints: dict[str, str] = field(default_factory=dict)

    def up(self, name: str) -> Daemon:
        """Start one, with the one relay that it has a cable to."""
        at = NAMES.index(name) + 1
        options = ("--relay", f"tls/10.203.{at}.1:{PORT}", "--relay-ca", str(self.relay.authority))
        return self.daemons[name].up(*options, agent={**SHELL, "id": f"of-{name}"})

    def join(self, name: str) -> None:
        """Start one, give it a name at the relay, and pair it with those that have one."""
        daemon = self.up(name)
        self.fingerprints[name] = daemon.json("register", name)["fingerprint"]
        for other in [one for one in self.fingerprints if one != name]:
            for here, there in ((name, other), (other, name)):
                named = ("--name", there, "--fingerprint", self.fingerprints[there])
                self.daemons[here].json("peers", "add", f"@{there}:relay.test", *named)

    def until_all_know_all(self) -> None:
        """Wait until each knows the agents of all that have joined."""
        wanted = {f"of-{one}@{one}.local" for one in self.fingerprints}
        for name in self.fingerprints:
            wait_for(lambda name=name: wanted <= {*addresses(self.daemons[name])}, 90, f"all agents at {name}")

    def answer(self, who: str, whom: str, words: str) -> str:
        """Return what an agent answers to one of another node."""
        return str(self.daemons[who].json("ask", f"@of-{whom}@{whom}.local echo {words}")["result"]).strip()


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    with machines_around(len(NAMES)) as (middle, around):
        machines = dict(zip(NAMES, around, strict=True))
        daemons = {name: configured(tmp_path, name, f"{name}.local") for name in NAMES}
        for name, daemon in daemons.items():
            daemon.prefix = machines[name].prefix
        hosts = [f"10.203.{at}.1" for at in range(1, len(NAMES) + 1)]
        try:
            with relay(tmp_path / "relay", f"tls/0.0.0.0:{PORT}", hosts, middle.prefix) as router:
                yield Scene(router, daemons, machines)
        finally:
            for daemon in daemons.values():
                daemon.down()


def links(machine: Machine) -> set[str]:
    """Return where the connections go that leave a machine."""
    command = [*machine.prefix, "ss", "-Hnt", "state", "established"]
    found = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    return {line.split()[3] for line in found if "127.0.0.1" not in line}


def test_nodes_that_a_relay_alone_joins_ask_each_other_over_kills_and_a_partition(scene: Scene) -> None:
    scene.join("ann")
    scene.join("bob")
    scene.until_all_know_all()
    assert scene.answer("ann", "bob", "one") == "one"
    assert scene.answer("bob", "ann", "two") == "two"
    scene.join("carol")
    scene.until_all_know_all()
    assert scene.answer("carol", "ann", "late") == "late"
    for at, name in enumerate(NAMES, 1):
        assert links(scene.machines[name]) == {f"10.203.{at}.1:{PORT}"}, "there is no other way between them"
    ann, bob = scene.daemons["ann"], scene.daemons["bob"]
    assert {one["state"] for one in ann.json("nodes")} == {"here", "reached"}
    assert failed(ann, "@nobody@bob.local hi")["metadata"]["error_code"] == "AGENT_NOT_FOUND"

    # A task is started once, though its node is killed meanwhile, and it is answered.
    def starts() -> int:
        return bob.run("events", "--json").stdout.count('"started"')

    before = starts()
    with ThreadPoolExecutor(1) as pool:
        asking: Any = pool.submit(failed, ann, "@of-bob@bob sleep 60", "--timeout", "60")
        wait_for(lambda: starts() > before, 60, "its start")
        bob.kill(signal.SIGKILL)
        scene.up("bob")
        result = asking.result(120)
    assert (result["metadata"]["error_code"], result["metadata"]["reason"]) == ("TIMEOUT", "interrupted")
    assert starts() == before + 1
    scene.until_all_know_all()

    with scene.machines["carol"].unplugged():
        wait_for(lambda: "of-carol@carol.local" not in addresses(ann), 60, "the end of what was silent")
        gone = failed(ann, "@of-carol@carol hi")["metadata"]["error_code"]
        assert gone in {"NODE_UNREACHABLE", "AGENT_NOT_FOUND"}
        assert scene.answer("bob", "ann", "meanwhile") == "meanwhile"
        wait_for(lambda: addresses(scene.daemons["carol"]) == ["of-carol@carol.local"], 60, "the end of the others")
    scene.until_all_know_all()
    assert scene.answer("ann", "carol", "healed") == "healed"

    # The relay dies, and comes back after a daemon that was started without it.
    scene.relay.kill()
    bob.kill(signal.SIGKILL)
    scene.up("bob")
    until_known(bob, "of-bob@bob.local")
    scene.relay.up()
    scene.until_all_know_all()
    assert scene.answer("carol", "bob", "again") == "again"

    # Whoever is paired no more gets nothing, whatever the relay would forward.
    ann.run("peers", "remove", "carol")
    wait_for(lambda: "of-carol@carol.local" not in addresses(ann), 30, "the end of who is paired no more")
    wait_for(lambda: "of-ann@ann.local" not in addresses(scene.daemons["carol"]), 60, "its end there")
    assert scene.answer("bob", "ann", "still") == "still"
