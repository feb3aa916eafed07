"""Many machines for tests on one network: namespaces whose cables end in a switch, where each can be put elsewhere."""

from __future__ import annotations

import secrets
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from support.namespaces import Machine

FIRST_ADDRESS: Final = 11


class Switched:
    """Machines, and the switch between them; made by ``switched_machines``."""

    def __init__(self, switch: str, machines: Sequence[Machine], ports: Sequence[str]) -> None:
        self.machines = machines
        self._switch = switch
        self._ports = ports

    def part(self, groups: Sequence[Sequence[int]]) -> None:
        """Put the cables of each group onto a switch of its own: what goes to another is lost, and nobody is told."""
        for bridge, group in enumerate(groups):
            for number in group:
                _run("ip", "-n", self._switch, "link", "set", self._ports[number], "master", f"br{bridge}")


@contextmanager
def switched_machines(count: int) -> Iterator[Switched]:
    """Make so many machines, all on one switch; gone afterwards."""
    tag = secrets.token_hex(3)
    switch = f"sublet-{tag}-s"
    made: list[str] = []
    try:
        made.append(_namespace(switch))
        for bridge in range(count):
            _run("ip", "-n", switch, "link", "add", f"br{bridge}", "type", "bridge")
            _run("ip", "-n", switch, "link", "set", f"br{bridge}", "up")
        machines, ports = [], []
        for number in range(count):
            machine = Machine(f"sublet-{tag}-{number}", f"10.203.1.{FIRST_ADDRESS + number}", f"sl{tag}{number}")
            made.append(_namespace(machine.namespace))
            port = f"p{number}"
            _run(
                *("ip", "link", "add", machine.cable, "netns", machine.namespace),
                *("type", "veth", "peer", "name", port, "netns", switch),
            )
            for arguments in (
                ("addr", "add", f"{machine.address}/24", "dev", machine.cable),
                ("link", "set", "lo", "up"),
                ("link", "set", machine.cable, "up"),
            ):
                _run("ip", "-n", machine.namespace, *arguments)
            _run("ip", "-n", switch, "link", "set", port, "up")
            machines.append(machine)
            ports.append(port)
        made_of = Switched(switch, machines, ports)
        made_of.part([range(count)])
        yield made_of
    finally:
        for namespace in made:
            _run("ip", "netns", "del", namespace)
        assert not [name for name in made if Path("/run/netns", name).exists()]


def _namespace(name: str) -> str:
    _run("ip", "netns", "add", name)
    return name


def _run(*arguments: str) -> None:
    done = subprocess.run(arguments, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(arguments)}: {done.stderr}"
