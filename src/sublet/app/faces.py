"""The faces that live in the daemon process, by name: loaded when it starts, so that no import points upward."""

from __future__ import annotations

import importlib
from typing import Protocol, cast

from nacl.signing import SigningKey

from sublet.daemon.peering.identity import Identity
from sublet.daemon.ports.peer_link import Face, FaceContext, PeerLink, TextLink
from sublet.migrations.schema import Schema

A2A_FACE = "sublet.a2a_server.face:A2AFace"
MCP_FACE = "sublet.mcp_server.host:McpFace"
WEB_FACE = "sublet.web.face:WebFace"
PEER_LINK = "sublet.a2a_client.client:A2APeerLink"
TEXT_LINK = "sublet.a2a_client.text_link:A2ATextLink"
TASK_FILE = "sublet.a2a_server.task_schema:STORE_NAME"
TASK_SCHEMA = "sublet.a2a_server.task_schema:SCHEMA"


class FaceFactory(Protocol):
    """Makes a face."""

    def __call__(self, context: FaceContext) -> Face:
        """Return the face, not started yet."""


class PeerLinkFactory(Protocol):
    """Makes the outgoing control plane."""

    def __call__(self, key: SigningKey, node_id: str, fingerprint: str) -> PeerLink:
        """Return the link; it connects when it is used."""


class TextLinkFactory(Protocol):
    """Makes what sends plain text."""

    def __call__(self, key: SigningKey, node_id: str, fingerprint: str) -> TextLink:
        """Return it; it connects when it is used."""


def load_face(name: str, context: FaceContext) -> Face:
    """Return the face of that name, not started yet."""
    return cast("FaceFactory", _load(name))(context)


def load_peer_link(identity: Identity) -> PeerLink:
    """Return the outgoing control plane, which signs as ``identity``."""
    return cast("PeerLinkFactory", _load(PEER_LINK))(identity.key, identity.node_id, identity.fingerprint)


def load_text_link(identity: Identity) -> TextLink:
    """Return what sends plain text to agents elsewhere."""
    return cast("TextLinkFactory", _load(TEXT_LINK))(identity.key, identity.node_id, identity.fingerprint)


def load_face_stores() -> dict[str, Schema]:
    """Return the databases that faces keep in the state directory, by file name."""
    return {cast("str", _load(TASK_FILE)): cast("Schema", _load(TASK_SCHEMA))}


def _load(name: str) -> object:
    module, _, attribute = name.partition(":")
    return getattr(importlib.import_module(module), attribute)
