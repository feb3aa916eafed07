"""Runs one flood in a process of its own, against a target that stands in a file, until it is ended.

Usage: python -m attacks.run_flood NAME FILE SECONDS
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path

import anyio
import asyncssh

from attacks.flood import Flood, OfficePlace, RelayPlace, Target
from attacks.floods import ALL


def write_target(target: Target, file: Path) -> None:
    """Write a target where another process reads it; the file holds the key of the lease."""
    fields = {
        "a2a": target.a2a,
        "web": target.web,
        "sftp": target.sftp,
        "host_key": target.host_key,
        "lease": target.lease,
        "key": target.key.export_private_key().decode(),
        "bus": target.bus,
        "peer_home": str(target.peer_home),
        "agent_socket": str(target.agent_socket),
        "token": target.token,
        "content": target.content,
        "office": asdict(target.office),
        "relay": {name: str(value) for name, value in asdict(target.relay).items()},
    }
    file.touch(mode=0o600)
    file.write_text(json.dumps(fields), encoding="utf-8")


def read_target(file: Path) -> Target:
    """Return the target that ``write_target`` has written."""
    fields = json.loads(file.read_text(encoding="utf-8"))
    return Target(
        a2a=fields["a2a"],
        web=(fields["web"][0], fields["web"][1]),
        sftp=(fields["sftp"][0], fields["sftp"][1]),
        host_key=fields["host_key"],
        lease=fields["lease"],
        key=asyncssh.import_private_key(fields["key"]),
        bus=fields["bus"],
        peer_home=Path(fields["peer_home"]),
        agent_socket=Path(fields["agent_socket"]),
        token=fields["token"],
        content=fields["content"],
        office=OfficePlace(**fields["office"]),
        relay=_relay_of(fields["relay"]),
    )


def _relay_of(fields: dict[str, str]) -> RelayPlace:
    return RelayPlace(fields["desk"], fields["hub"], Path(fields["authority"]), fields["slot"], Path(fields["kept"]))


async def main(name: str, file: str, seconds: str) -> None:
    """Run the flood in as many waves as it has, for so long."""
    flood = next(flood for flood in ALL if flood.name == name)
    target = read_target(Path(file))
    print("begins", flush=True)
    with anyio.move_on_after(float(seconds)):
        async with anyio.create_task_group() as waves:
            for _ in range(flood.waves):
                waves.start_soon(_wave, flood, target)


async def _wave(flood: Flood, target: Target) -> None:
    await flood.run(target)


if __name__ == "__main__":
    anyio.run(main, sys.argv[1], sys.argv[2], sys.argv[3])
