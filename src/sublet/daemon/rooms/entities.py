"""Our own entities in rooms: the person and the agents in MCP hosts, with a key each (DESIGN 6, Identity)."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from nacl.signing import SigningKey

from sublet.daemon.peering.identity import Identity, load_seed
from sublet.messaging.engine.keyring import LocalEntity
from sublet.policy.model import Subject
from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.ezagent.identity import EntityKind, make_record
from sublet.protocol.ezagent.ids import EntityId

NONCE_BYTES: Final = 2
"""Of a Yjs client id; the rest tells whose it is."""
_RECORD_VERSION: Final = 1
_LOCAL: Final = {"human": EntityKind.HUMAN, "mcp": EntityKind.AGENT}


def load_entities(keys_dir: Path, identity: Identity) -> list[LocalEntity]:
    """Return our entities, making their keys the first time. Blocks on the disk.

    Args:
        keys_dir: private directory of key files.
        identity: the daemon's key vouches for them.

    Raises:
        SubletError: ``UNAVAILABLE`` where a key file is open to others, damaged, or can't be read.
    """
    entities: list[LocalEntity] = []
    for local, kind in _LOCAL.items():
        key = SigningKey(load_seed(keys_dir / f"entity-{local}.key"))
        record = make_record(local, kind, bytes(key.verify_key), identity.key, _RECORD_VERSION)
        entities.append(LocalEntity(record, key, int.from_bytes(os.urandom(NONCE_BYTES), "big")))
    return entities


def entity_of(caller: Subject, node_id: str) -> EntityId:
    """Return as whom a caller speaks, which is never its own choice.

    Raises:
        SubletError: ``POLICY_DENIED`` for who has no entity here.
    """
    if caller.kind not in _LOCAL:
        raise SubletError(
            LocalCode.POLICY_DENIED,
            "only the person and agents in MCP hosts of this machine speak in rooms here",
            "A paired daemon writes to rooms that its own entities are members of.",
        )
    return f"@{caller.kind}:{node_id}"
