"""Our own entities in rooms: the person, agents in MCP hosts, each served agent and the daemon, with a key each.

Nobody chooses as whom it speaks: the person and MCP hosts are known by how they come in, an agent at work by its job,
and the daemon speaks of what it does itself (DESIGN 6.7).
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from nacl.signing import SigningKey

from sublet.daemon.peering.identity import Identity, load_seed
from sublet.messaging.identities.keyring import LocalEntity
from sublet.policy.decision import Subject
from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.ezagent.identity import EntityKind, make_record
from sublet.protocol.ezagent.ids import EntityId, is_entity_id

HUMAN: Final = "human"
MCP: Final = "mcp"
DAEMON: Final = "daemon"
NONCE_BYTES: Final = 2
"""Of a Yjs client id; the rest tells whose it is."""
_RECORD_VERSION: Final = 1
_OURS: Final = {HUMAN: EntityKind.HUMAN, MCP: EntityKind.AGENT, DAEMON: EntityKind.DAEMON}
_CALLERS: Final = (HUMAN, MCP)


def load_entities(keys_dir: Path, identity: Identity, agents: Iterable[str] = ()) -> list[LocalEntity]:
    """Return our entities, making their keys the first time. Blocks on the disk.

    Args:
        keys_dir: private directory of key files.
        identity: the daemon's key vouches for them.
        agents: ids of served agents; one that has the name of another entity has none of its own.

    Raises:
        SubletError: ``UNAVAILABLE`` where a key file is open to others, damaged, or can't be read.
    """
    ours = [_load(keys_dir / f"entity-{local}.key", local, kind, identity) for local, kind in _OURS.items()]
    return [*ours, *(load_agent(keys_dir, identity, agent) for agent in dict.fromkeys(agents) if agent not in _OURS)]


def load_agent(keys_dir: Path, identity: Identity, agent: str) -> LocalEntity:
    """Return the entity of a served agent, making its key the first time. Blocks on the disk.

    Raises:
        SubletError: as ``load_entities``.
    """
    return _load(keys_dir / f"entity-agent-{agent}.key", agent, EntityKind.AGENT, identity)


def load_named(keys_dir: Path, identity: Identity, name: str) -> LocalEntity:
    """Return the entity of a name that somebody chose, as of an agent. Blocks on the disk.

    Raises:
        SubletError: ``CONFLICT``: the name is taken; ``INVALID_ARGUMENT``: it is none; and as ``load_entities``.
    """
    if not is_entity_id(f"@{name}:{identity.node_id}"):
        raise SubletError(LocalCode.INVALID_ARGUMENT, "no name of an entity", "Use a to z, 0 to 9, ., _ and -.")
    if agent_of(name, identity.node_id) is None:
        raise SubletError(LocalCode.CONFLICT, f"{name} is the name of another entity", "Choose another one.")
    return load_agent(keys_dir, identity, name)


def human_of(node_id: str) -> EntityId:
    """Return the person who runs a daemon."""
    return f"@{HUMAN}:{node_id}"


def daemon_of(node_id: str) -> EntityId:
    """Return the entity of a daemon."""
    return f"@{DAEMON}:{node_id}"


def is_daemon(entity: EntityId) -> bool:
    """Tell whether an entity has the name of one that speaks for its daemon, in whatever namespace."""
    return entity.partition(":")[0] == f"@{DAEMON}"


def agent_of(agent: str, node_id: str) -> EntityId | None:
    """Return the entity of an agent that a daemon serves; None where it has none."""
    return f"@{agent}:{node_id}" if agent not in _OURS else None


def entity_of(caller: Subject, node_id: str) -> EntityId:
    """Return as whom a caller speaks, which is never its own choice.

    Raises:
        SubletError: ``POLICY_DENIED`` for who has no entity here.
    """
    if caller.kind not in _CALLERS:
        raise SubletError(
            LocalCode.POLICY_DENIED,
            "only the person and agents in MCP hosts of this machine speak in rooms here",
            "A paired daemon writes to rooms that its own entities are members of.",
        )
    return f"@{caller.kind}:{node_id}"


def _load(file: Path, local: str, kind: EntityKind, identity: Identity) -> LocalEntity:
    key = SigningKey(load_seed(file))
    record = make_record(local, kind, bytes(key.verify_key), identity.key, _RECORD_VERSION)
    return LocalEntity(record, key, int.from_bytes(os.urandom(NONCE_BYTES), "big"))
