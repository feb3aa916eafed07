"""Entities whose domain is a namespace that is no daemon's name, as a relay will keep them."""

from __future__ import annotations

import pytest
from nacl.signing import SigningKey

from sublet.messaging.identities.keyring import LocalEntity
from sublet.protocol.canonical import canonical_json
from sublet.protocol.ezagent import identity
from sublet.protocol.ezagent.identity import EntityKind, EntityRecord
from sublet.protocol.ezagent.ids import entity_domain
from support.rooms import entity_key

NAMESPACE = "relay.example"


def named_elsewhere(local: str, daemon: SigningKey, nonce: int = 1) -> LocalEntity:
    """Return an entity of a namespace for which the daemon with an identity key vouches."""
    key, public = entity_key(f"{local} of {NAMESPACE}"), bytes(daemon.verify_key)
    bare = EntityRecord(f"@{local}:{NAMESPACE}", EntityKind.HUMAN, bytes(key.verify_key), public, 1, (), b"")
    signature = daemon.sign(identity._RECORD_DOMAIN + canonical_json(identity._fields(bare))).signature
    return LocalEntity(EntityRecord(bare.entity_id, bare.kind, bare.key, public, 1, (), signature), key, nonce)


def allow_namespaces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a record be of a namespace: without a relay only a daemon's own is taken, so that nobody takes a name."""
    plain = entity_domain

    def domain(entity: str) -> str:
        return plain(entity) if not entity.endswith(f":{NAMESPACE}") else _Any(NAMESPACE)

    monkeypatch.setattr(identity, "entity_domain", domain)


class _Any(str):
    """A domain that every daemon may vouch for."""

    def __eq__(self, other: object) -> bool:
        return True

    def __ne__(self, other: object) -> bool:
        return False

    __hash__ = str.__hash__
