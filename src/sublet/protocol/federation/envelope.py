"""The signed envelope of federation, and the signed page that tells a node's name and key ("事件签名").

The envelope has the fields of ``CisMatrixEvent``. ``hashes`` holds the SHA-256 of ``content``, ``signatures`` one
Ed25519 signature by the sending node. It covers a tag of its own and everything else of the envelope, with the id, the
time and the recipient, in the form of RFC 8785. What the specification has no field for is in the object ``sublet``.
``docs/federation-wire.md`` says the same for whoever writes another client.

This module alone uses ``rfc8785``, since events may hold fractions, which ``protocol.canonical`` refuses.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeGuard, cast

import rfc8785
from nacl.exceptions import BadSignatureError
from nacl.signing import SigningKey, VerifyKey
from pydantic import ValidationError

from sublet.protocol.bounded_json import BadJson, parse_json
from sublet.protocol.canonical import JsonValue
from sublet.protocol.chain import Chain
from sublet.protocol.encoding import b64, unb64
from sublet.protocol.errors import SubletError
from sublet.protocol.federation.addresses import NodeName, node_name
from sublet.protocol.federation.errors import FederationCode, TaskRefused
from sublet.protocol.federation.events import FederationEvent, event_content, read_event
from sublet.protocol.messages import ChainExtension
from sublet.protocol.patterns import Pattern
from sublet.protocol.signing import KEY_BYTES, MAX_CLOCK_SKEW_SECONDS, SIGNATURE_BYTES

MAX_ENVELOPE_BYTES: Final = 1 << 20
MAX_VALUES: Final = 20_000
MAX_EVENTS: Final = 512
"""In one envelope: presence of many agents of one node is signed once."""
MAX_SERVER_BYTES: Final = 4 << 10
WIRE: Final = 1
KEY_ID: Final = "ed25519:0"
BATCH: Final = "batch"
MAX_MS: Final = 1 << 53
"""No number beyond it has a canonical form, and one of hundreds of digits can't even be divided."""
_EVENT_DOMAIN: Final = b"sublet/federation-event/1\n"
_SERVER_DOMAIN: Final = b"sublet/federation-server/1\n"
_PLAIN: Final = json.JSONEncoder(ensure_ascii=False, sort_keys=True, separators=(",", ":"), check_circular=False).encode
_ID = Pattern(r"\$[A-Za-z0-9._:-]{1,127}\Z")
_ROOM = Pattern(r"![a-z0-9:.-]{1,255}\Z")
_SENDER = Pattern(r"@[a-z0-9][a-z0-9._-]{0,62}:[a-z0-9][a-z0-9.-]{0,127}\Z")
_NODE_ID = Pattern(r"node-[a-z2-7]{16}\Z")
_FINGERPRINT = Pattern(r"SHA256:[A-Za-z0-9+/]{43}\Z")


@dataclass(frozen=True, slots=True)
class Envelope:
    """Events of one kind on their way from one node to another.

    Args:
        event_id: unique, ``$`` first.
        room_id: the receiver's federation room, or the sender's broadcast room.
        sender: ``@agent:node``.
        events: one; or several that tell of agents of the sending node.
        origin: name of the sending node.
        at_ms: Unix milliseconds of its sending.
        node: node id of the key that signs, ``node-`` and 16 characters.
        recipient: fingerprint of the key of the node that it is for.
        answers: id of the envelope to which this one is the answer; empty for none.
        chain: who called until here, where an agent asks.
    """

    event_id: str
    room_id: str
    sender: str
    events: tuple[FederationEvent, ...]
    origin: NodeName
    at_ms: int
    node: str
    recipient: str
    answers: str = ""
    chain: Chain = field(default_factory=Chain)


@dataclass(frozen=True, slots=True)
class SignedEnvelope:
    """An envelope as it came: nobody has looked at its signature or at its content yet.

    ``node`` tells whose pinned key has to fit.
    """

    event_id: str
    node: str
    origin: NodeName
    at_ms: int
    recipient: str
    _document: Mapping[str, JsonValue]

    def verified(self, public_key: bytes, *, recipient: str, now: float) -> Envelope:
        """Return the envelope.

        Args:
            public_key: the pinned raw key of ``node``.
            recipient: fingerprint of our own key.
            now: Unix seconds.

        Raises:
            TaskRefused: ``INVALID_PAYLOAD``: for somebody else, too old or from the future, not signed by that key,
                with another content than was hashed, or with an event that is none.
        """
        if self.recipient != recipient:
            raise _refused("it is for another node", "recipient")
        if abs(now - self.at_ms / 1000) > MAX_CLOCK_SKEW_SECONDS:
            raise _refused("it is too old or from the future; the clocks of both machines may differ", "clock")
        signature = _signature_of(self._document, self.origin)
        parts = _said(self._document)
        if signature is None or parts is None or not _fits(parts, signature, public_key, _EVENT_DOMAIN):
            raise _refused("the signature is not by the pinned key of that node", "signature")
        content = cast("dict[str, JsonValue]", self._document["content"])
        if _mapping(self._document.get("hashes")).get("sha256") != b64(hashlib.sha256(parts["content"]).digest()):
            raise _refused("the content is not the one that was hashed", "hash")
        content = cast("dict[str, JsonValue]", self._document["content"])
        ours = _mapping(self._document["sublet"])
        answers, chain = ours.get("answers", ""), ours.get("chain")
        return Envelope(
            event_id=self.event_id,
            room_id=str(self._document["room_id"]),
            sender=str(self._document["sender"]),
            events=_events(content, str(self._document["type"])),
            origin=self.origin,
            at_ms=self.at_ms,
            node=self.node,
            recipient=self.recipient,
            answers=answers if isinstance(answers, str) and _ID.fullmatch(answers) else "",
            chain=_chain(chain) if chain is not None else Chain(),
        )


def seal(envelope: Envelope, key: SigningKey) -> bytes:
    """Return an envelope as it is sent, signed.

    Raises:
        ValueError: an event holds what has no canonical form, such as an integer beyond 2**53.
    """
    if len(envelope.events) == 1:
        content = event_content(envelope.events[0])
    else:
        content = {BATCH: [event_content(one) for one in envelope.events]}
    ours: dict[str, JsonValue] = {"wire": WIRE, "node": envelope.node, "recipient": envelope.recipient}
    if envelope.answers:
        ours["answers"] = envelope.answers
    if (chain := ChainExtension.of(envelope.chain)) is not None:
        ours["chain"] = chain.model_dump(mode="json")
    document: dict[str, JsonValue] = {
        "event_id": envelope.event_id,
        "room_id": envelope.room_id,
        "sender": envelope.sender,
        "type": envelope.events[0].event_type,
        "content": content,
        "origin": envelope.origin,
        "origin_server_ts": envelope.at_ms,
        "sublet": ours,
    }
    parts = _parts(document)
    parts["hashes"] = _canonical({"sha256": b64(hashlib.sha256(parts["content"]).digest())})
    return _signed(parts, envelope.origin, key, _EVENT_DOMAIN)


def read_envelope(raw: bytes) -> SignedEnvelope:
    """Return what came, as far as it has to be known before its signature is looked at.

    Raises:
        TaskRefused: ``INVALID_PAYLOAD``.
    """
    document = _parsed(raw, MAX_ENVELOPE_BYTES)
    ours, at_ms = _mapping(document.get("sublet")), document.get("origin_server_ts")
    node, recipient = ours.get("node"), ours.get("recipient")
    if ours.get("wire") != WIRE:
        raise _refused(f"sublet.wire is not {WIRE}: another version wrote it, or nobody signed it", "wire")
    shapes = {"event_id": _ID, "room_id": _ROOM, "sender": _SENDER}
    for name, shape in shapes.items():
        value = document.get(name)
        if not isinstance(value, str) or not shape.fullmatch(value):
            raise _refused(f"{name} is missing or malformed")
    if not isinstance(document.get("type"), str) or not isinstance(document.get("content"), dict):
        raise _refused("type or content is missing or malformed")
    if not _is_ms(at_ms):
        raise _refused("origin_server_ts is missing or malformed")
    if not isinstance(node, str) or not _NODE_ID.fullmatch(node):
        raise _refused("sublet.node is missing or malformed: an unsigned event is none's")
    if not isinstance(recipient, str) or not _FINGERPRINT.fullmatch(recipient):
        raise _refused("sublet.recipient is missing or malformed")
    return SignedEnvelope(str(document["event_id"]), node, _origin(document.get("origin")), at_ms, recipient, document)


@dataclass(frozen=True, slots=True)
class ServerPage:
    """What ``/_matrix/key/v2/server`` tells: the name of a node, and the key that it goes by.

    Args:
        name: of the node.
        public_key: raw Ed25519 key.
        valid_until_ms: Unix milliseconds.
        namespaces: in which it takes part.
    """

    name: NodeName
    public_key: bytes
    valid_until_ms: int
    namespaces: tuple[str, ...]


def seal_server(page: ServerPage, key: SigningKey) -> bytes:
    """Return the page as it is sent, signed by the key that it tells."""
    document: dict[str, JsonValue] = {
        "server_name": page.name,
        "valid_until_ts": page.valid_until_ms,
        "verify_keys": {KEY_ID: {"key": b64(page.public_key)}},
        "sublet": {"wire": WIRE, "namespaces": list(page.namespaces)},
    }
    return _signed(_parts(document), page.name, key, _SERVER_DOMAIN)


def page_key(raw: bytes) -> bytes | None:
    """Return the key that a page tells, of which nobody knows yet whether it is true; None where it tells none.

    Args:
        raw: as it came.
    """
    try:
        document = _parsed(raw, MAX_SERVER_BYTES)
    except TaskRefused:
        return None
    shown = _mapping(_mapping(document.get("verify_keys")).get(KEY_ID)).get("key")
    return unb64(shown, KEY_BYTES) if isinstance(shown, str) else None


def read_server(raw: bytes, public_key: bytes, *, now: float) -> ServerPage:
    """Return the page of the node whose key is pinned.

    Args:
        raw: as it came.
        public_key: the pinned key; another one on the page is a lie.
        now: Unix seconds.

    Raises:
        TaskRefused: ``INVALID_PAYLOAD``.
    """
    document = _parsed(raw, MAX_SERVER_BYTES)
    name, until = _origin(document.get("server_name")), document.get("valid_until_ts")
    if _mapping(document.get("sublet")).get("wire") != WIRE:
        raise _refused(f"sublet.wire of its page is not {WIRE}: another version wrote it", "wire")
    shown = _mapping(_mapping(document.get("verify_keys")).get(KEY_ID)).get("key")
    if not _is_ms(until) or until / 1000 < now:
        raise _refused("the page of that node is not valid any more", "clock")
    if not isinstance(shown, str) or unb64(shown, KEY_BYTES) != public_key:
        raise _refused("the page of that node tells another key than the pinned one", "signature")
    signature = _signature_of(document, name)
    parts = _said(document)
    if signature is None or parts is None or not _fits(parts, signature, public_key, _SERVER_DOMAIN):
        raise _refused("the page of that node is not signed by its pinned key", "signature")
    spaces = _mapping(document.get("sublet")).get("namespaces")
    told = [one for one in spaces if isinstance(one, str)] if isinstance(spaces, list) else []
    return ServerPage(name, public_key, until, tuple(told[:16]))


def _parsed(raw: bytes, most: int) -> dict[str, JsonValue]:
    try:
        document = parse_json(raw, max_bytes=most, values=MAX_VALUES)
    except BadJson as error:
        raise _refused(str(error)) from None
    if not isinstance(document, dict):
        raise _refused("it is no JSON object")
    return document


def _events(content: Mapping[str, JsonValue], kind: str) -> tuple[FederationEvent, ...]:
    batch = content.get(BATCH)
    told: Sequence[JsonValue] = batch if isinstance(batch, list) and set(content) == {BATCH} else [dict(content)]
    if not told or len(told) > MAX_EVENTS:
        raise _refused(f"a batch holds 1 to {MAX_EVENTS} events")
    events = tuple(read_event(one) for one in told)
    if any(one.event_type != kind for one in events):
        raise _refused("type is not that of the content")
    return events


def _origin(value: object) -> NodeName:
    try:
        name = node_name(value) if isinstance(value, str) else None
    except SubletError as error:
        raise _refused(error.message) from None
    if name is None or name != value:
        raise _refused("the name of the node is missing or malformed")
    return name


def _chain(raw: JsonValue) -> Chain:
    try:
        return ChainExtension.model_validate(raw).chain()
    except ValidationError:
        raise _refused("sublet.chain is malformed") from None


def _signed(parts: Mapping[str, bytes], name: str, key: SigningKey, domain: bytes) -> bytes:
    """Return a document with its signature, in the form of RFC 8785."""
    value = b64(key.sign(domain + _joined(parts)).signature)
    return _joined({**parts, "signatures": _canonical({name: {KEY_ID: value}})})


def _said(document: Mapping[str, JsonValue]) -> dict[str, bytes] | None:
    """Return what a signature is over; None where something of it has no canonical form."""
    try:
        return _parts({name: value for name, value in document.items() if name not in ("signatures", "unsigned")})
    except ValueError:
        return None


def _signature_of(document: Mapping[str, JsonValue], name: str) -> bytes | None:
    """Return the one signature that counts: the origin's own, under the id of its only key."""
    value = _mapping(_mapping(document.get("signatures")).get(name)).get(KEY_ID)
    return unb64(value, SIGNATURE_BYTES) if isinstance(value, str) else None


def _fits(said: Mapping[str, bytes], signature: bytes, public_key: bytes, domain: bytes) -> bool:
    try:
        VerifyKey(public_key).verify(domain + _joined(said), signature)
    except (BadSignatureError, ValueError):
        return False
    return True


def _is_ms(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < MAX_MS


def _mapping(value: object) -> Mapping[str, JsonValue]:
    return value if isinstance(value, dict) else {}


def _parts(document: Mapping[str, JsonValue]) -> dict[str, bytes]:
    """Return each value of an object in the form of RFC 8785, which is found once for all that needs it.

    Raises:
        ValueError: an integer beyond 2**53, or half a surrogate pair.
    """
    return {name: _canonical(value) for name, value in document.items()}


_NAMES: Final = {
    name: f'"{name}"'.encode()
    for name in (
        *("content", "event_id", "hashes", "origin", "origin_server_ts", "room_id", "sender", "server_name"),
        *("signatures", "sublet", "type", "valid_until_ts", "verify_keys"),
    )
}
"""Names of fields as they are printed."""


def _joined(parts: Mapping[str, bytes]) -> bytes:
    """Return the object whose values have the form of RFC 8785 in that form too: keys in the order of UTF-16."""
    names = sorted(parts, key=lambda name: name.encode("utf-16-be"))
    return b"{" + b",".join((_NAMES.get(name) or _canonical(name)) + b":" + parts[name] for name in names) + b"}"


def _canonical(value: JsonValue) -> bytes:
    """Return the form of RFC 8785.

    Where all is ASCII and no number has to be printed in JavaScript's way, the encoder of the standard library, which
    is some ten times as fast, prints the same.

    Raises:
        ValueError: an integer beyond 2**53, or half a surrogate pair.
    """
    if _is_plain(value):
        text = _PLAIN(value)
        if text.isascii():  # keys too, so that they are in the order of UTF-16
            return text.encode()
    return rfc8785.dumps(value)


def _is_plain(value: JsonValue) -> bool:
    """Tell whether a value holds no numbers but integers that have a canonical form."""
    if isinstance(value, dict):
        return all(map(_is_plain, value.values()))
    if isinstance(value, list):
        return all(map(_is_plain, value))
    return not isinstance(value, float) and (not isinstance(value, int) or -MAX_MS < value < MAX_MS)


def _refused(message: str, reason: str = "") -> TaskRefused:
    return TaskRefused(FederationCode.INVALID_PAYLOAD, message, reason)
