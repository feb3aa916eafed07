"""What the A2A face is given by the composition root."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from nacl.signing import SigningKey

from sublet.daemon.ports.given_to_a2a import ExecutorApi, KnownPeer, MessageApi, PairingApi, WhereaboutsApi
from sublet.daemon.ports.peer_link import BusAddress
from sublet.protocol.signing import SharedNonces
from sublet.supervisor.agent_config import AgentConfig


@dataclass(frozen=True, slots=True)
class A2AContext:
    """What the A2A face acts by, and where it listens.

    Args:
        executor: answers INVITE and START.
        messages: answers plain messages.
        pairing: answers whoever holds a pairing link.
        whereabouts: hears where peers are.
        key: the daemon's Ed25519 key.
        node_id: of this daemon.
        fingerprint: of ``key``.
        version: of Sublet, in words.
        agents: those offered now.
        find_peer: maps a node id to the paired daemon.
        key_changed: is told a node id and a name where somebody else's key came with them.
        find_token: maps a bearer secret to its token's name.
        nonces: remember what was seen.
        host: IP address to listen on.
        port: to listen on; 0 for any free one.
        public_url: by which others reach us, where it is configured.
        tls: certificate and key, where it is served with TLS.
        state_dir: private (0700); the tasks are kept there.
        bus: where the bus of rooms is; None where there is none.
        admits: tells whether a peer, by its node id, is let in from the home that it names.
    """

    executor: ExecutorApi
    messages: MessageApi
    pairing: PairingApi
    whereabouts: WhereaboutsApi
    key: SigningKey
    node_id: str
    fingerprint: str
    version: str
    agents: Callable[[], Sequence[AgentConfig]]
    find_peer: Callable[[str], KnownPeer | None]
    key_changed: Callable[[str, str], None]
    find_token: Callable[[str], str | None]
    nonces: SharedNonces
    host: str
    port: int
    public_url: str | None
    tls: tuple[Path, Path] | None
    state_dir: Path
    bus: BusAddress | None = None
    admits: Callable[[str, str], bool] = lambda _node_id, _home: True
