"""What a flood is, and what the attacker has in its hands for it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import asyncssh


@dataclass(frozen=True, slots=True)
class OfficePlace:
    """An office of the daemon in which the attacker is at home.

    Args:
        url: where it is served.
        office_id: its id.
        agent: token of ``mallory``, its Agent.
        computer: token of ``machine``, a Computer.
    """

    url: str = ""
    office_id: str = ""
    agent: str = ""
    computer: str = ""


NO_OFFICE = OfficePlace()


@dataclass(frozen=True, slots=True)
class RelayPlace:
    """A relay as whoever reaches it knows it.

    Args:
        desk: URL of its registration port.
        hub: endpoint of its hub, such as ``tls/127.0.0.1:7448``.
        authority: file of the authority by which it is known.
        slot: that of the attacker, who is registered.
        kept: directory of the attacker's certificate and key.
    """

    desk: str = ""
    hub: str = ""
    authority: Path = Path("/nonexistent")
    slot: str = ""
    kept: Path = Path("/nonexistent")


NO_RELAY = RelayPlace()


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A running daemon as an attacker sees it. All addresses are of loopback.

    Args:
        a2a: base URL of its A2A server, such as ``http://127.0.0.1:8642``.
        web: host and port of its web page.
        sftp: host and port of its SFTP listener.
        host_key: its SSH host key, as a line of ``known_hosts``.
        lease: user name of a live ``rw`` lease that the attacker holds.
        key: the key of that lease.
        bus: Zenoh endpoint of its bus, such as ``tls/127.0.0.1:7447``; None where it has none.
        peer_home: ``SUBLET_HOME`` of a daemon that is paired with it, whose keys the attacker has; it does not run.
        token: a bearer token of its A2A server, of a plain client.
        content: the document of a text into which the paired daemon's person may write; empty for none.
        agent_socket: a socket of the daemon that a program under its own user may reach (``mcp.sock``).
        office: an office of which the attacker has tokens.
        relay: a relay, of a flood whose ``victim`` is one; the rest is not there then.
    """

    a2a: str
    web: tuple[str, int]
    sftp: tuple[str, int]
    host_key: str
    lease: str
    key: asyncssh.SSHKey
    bus: str | None
    peer_home: Path
    agent_socket: Path
    token: str = ""
    content: str = ""
    office: OfficePlace = NO_OFFICE
    relay: RelayPlace = NO_RELAY


@dataclass(frozen=True, slots=True, kw_only=True)
class Flood:
    """One way to keep a daemon busy.

    Args:
        name: the area and what is done, such as ``sftp: renames of a large directory``.
        who: ``stranger``, ``peer``, ``member``, ``client`` (of a relay), ``executor`` or ``local agent``.
        covers: the places of ``src`` that it exercises, as ``package.module:function``.
        run: attacks until it is cancelled, as fast as it can; what the daemon refuses is swallowed, a closed
            connection is opened again.
        waves: how many connections do it at once.
        transport: by which the directory is lent to the attacker.
        victim: what it is a flood of: ``lender`` or ``relay``.
    """

    name: str
    who: str
    covers: Sequence[str]
    run: Callable[[Target], Awaitable[None]]
    waves: int = 1
    transport: str = "sshfs"
    victim: str = "lender"
