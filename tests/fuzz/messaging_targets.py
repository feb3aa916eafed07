"""Decoders of messaging: envelopes, Yjs updates, bundles, records, contents, rules, and a room that is lied to."""

from __future__ import annotations

import json
from typing import Any

from pycrdt import Array, Doc, Map

from fuzz.targets import _text, target
from sublet.cli.chat import slash
from sublet.daemon.rooms.addressing import Addresses
from sublet.messaging.accepting.arrival import Arrival
from sublet.messaging.builtins import BUILT_INS
from sublet.messaging.extensions import reactions
from sublet.messaging.extensions.collab import COLLABORATIVE
from sublet.messaging.extensions.mutable import MUTABLES, content_document
from sublet.messaging.extensions.presence import PRESENCES
from sublet.messaging.links.batches import BatchReader, Odd
from sublet.messaging.links.declared import MAX_DECLARED, DeclaredByPeer, DeclaredOnLink
from sublet.protocol import home_token, times
from sublet.protocol.errors import SubletError
from sublet.protocol.ezagent import (
    acknowledgement,
    blob,
    bundle,
    challenge,
    content,
    envelope,
    identity,
    inbox,
    keys,
    order,
    question,
    reconciliation,
    writer_rules,
)
from sublet.protocol.ezagent.errors import Refused
from sublet.protocol.ezagent.ids import is_entity_id, is_room_id
from sublet.protocol.ezagent.keys import doc_id
from sublet.protocol.ezagent.room import seen
from sublet.protocol.ezagent.sealing import device_link, device_statements, statements
from sublet.protocol.ezagent.sealing import envelope as sealed_envelope
from sublet.protocol.ezagent.yjs import decode, vectors
from sublet.protocol.ezagent.yjs.reader import Reader
from support import zenoh_words
from support.rooms import NOW_MS, Peer, local_entity, peers, shared_room

ROOM, NODE = "01a2212b-1000-7167-9394-011daa814786", local_entity("bob", 0).record.entity_id.partition(":")[2]


@target("ezagent_envelope", "protocol.ezagent.envelope:unpack", raises=[Refused])
def _envelope(data: bytes) -> None:
    found = envelope.unpack(data)
    assert found.raw == data


@target("ezagent_sealed", "protocol.ezagent.sealing.envelope:unpack", raises=[Refused])
def _sealed(data: bytes) -> None:
    found = sealed_envelope.unpack(data)
    assert found.raw == data


@target("sealing_statement", "protocol.ezagent.sealing.statements:parse_statement", raises=[Refused])
def _key_statement(data: bytes) -> None:
    assert statements.parse_statement(data).encode() == data


@target("device_link", "protocol.ezagent.sealing.device_link:parse_link", raises=[Refused])
def _device_link(data: bytes) -> None:
    found = device_link.parse_link(_text(data))
    assert device_link.parse_link(found.encode()) == found


@target("device_statement", "protocol.ezagent.sealing.device_statements:parse_statement", raises=[Refused])
def _device_statement(data: bytes) -> None:
    assert device_statements.parse_statement(data).encode() == data


@target("zenoh_batches", "messaging.links.batches:BatchReader.feed", raises=[Odd])
def _batches(data: bytes) -> None:
    """Read a link's bytes behind a handshake; in two pieces they mean the same as in one."""
    told: list[list[object]] = [[], []]
    peer = DeclaredByPeer(lambda: 0.0)
    for found, cut in zip(told, (len(data), len(data) // 2), strict=True):
        link = DeclaredOnLink(peer)
        reader = BatchReader(lambda one, link=link, found=found: (found.append(one), link.take(one))[1])  # type: ignore[misc]
        reader.feed(zenoh_words.handshake())
        reader.feed(data[:cut])
        reader.feed(data[cut:])
        link.ended()
    assert told[0] == told[1]
    assert peer.count == 0 <= MAX_DECLARED


@target("yjs_update", "protocol.ezagent.yjs.decode:decode_update", raises=[Refused])
def _update(data: bytes) -> None:
    found = decode.decode_update(data)
    assert found.items or found.deletions
    assert found.end - found.start == sum(item.length for item in found.items)


@target("yjs_vector", "protocol.ezagent.yjs.vectors:decode_vector", raises=[Refused])
def _vector(data: bytes) -> None:
    found = vectors.decode_vector(data)
    assert vectors.decode_vector(vectors.encode_vector(found)) == found


@target("ezagent_root", "protocol.ezagent.reconciliation:decode_root", raises=[Refused])
def _root(data: bytes) -> None:
    assert reconciliation.encode_root(reconciliation.decode_root(data)) == data


@target("ezagent_reconciling", "protocol.ezagent.reconciliation:decode_asked", raises=[Refused])
def _reconciling(data: bytes) -> None:
    found = reconciliation.decode_asked(data)
    if isinstance(found, reconciliation.NodesAsked):
        again = reconciliation.encode_nodes(found)
    else:
        again = reconciliation.encode_logs(found)
    assert reconciliation.decode_asked(again) == found


@target("ezagent_differing", "protocol.ezagent.reconciliation:decode_differing", raises=[Refused])
def _differing(data: bytes) -> None:
    found = reconciliation.decode_differing(data, 2)
    assert reconciliation.decode_differing(reconciliation.encode_differing(found), 2) == found


@target("ezagent_bundle", "protocol.ezagent.bundle:decode_bundle", raises=[Refused])
def _bundle(data: bytes) -> None:
    found = bundle.decode_bundle(data)
    assert bundle.encode_bundle(found.records, more=found.more) == data


@target("acknowledgement", "protocol.ezagent.acknowledgement:parse_acknowledgement", raises=[Refused])
def _acknowledgement(data: bytes) -> None:
    assert acknowledgement.parse_acknowledgement(data).encode() == data


@target("rfc3339_time", "protocol.times:unix_ms")
def _time(data: bytes) -> None:
    found = times.unix_ms(_text(data))
    assert found is None or abs(found) < 1 << 53


@target(
    "entity_record",
    "protocol.ezagent.identity:parse_record",
    "protocol.ezagent.identity:_parsed",
    raises=[Refused],
)
def _record(data: bytes) -> None:
    found = identity.parse_record(data)
    assert identity.parse_record(found.encode()) == found


@target("entity_challenge", "protocol.ezagent.challenge:parse_challenge", raises=[Refused])
def _challenge(data: bytes) -> None:
    found, record = challenge.parse_challenge(data)
    assert found.challenger == record.entity_id
    assert challenge.Challenge(found.challenger, found.responder, found.nonce, found.time_ms) == found


@target("challenge_response", "protocol.ezagent.challenge:parse_response", raises=[Refused])
def _response(data: bytes) -> None:
    alice, bob = local_entity("alice", 0).record.entity_id, local_entity("bob", 1).record.entity_id
    found = challenge.parse_response(data, challenge.Challenge(alice, bob, bytes(32), NOW_MS))
    assert found.entity_id == bob


@target("ezagent_content", "protocol.ezagent.content:parse_content", raises=[Refused])
def _content(data: bytes) -> None:
    found = content.parse_content(data)
    assert found["content_id"] == content.content_id(found)


@target("doc_ids", "protocol.ezagent.keys:parse_doc_id", "protocol.ezagent.keys:_parsed", raises=[Refused])
def _doc_id(data: bytes) -> None:
    text = _text(data)
    place = keys.parse_doc_id(text)
    values = {name: getattr(place, name) for name in keys.DocumentPlace.__slots__ if name != "kind"}
    assert keys.doc_id(place.kind, **{name: value for name, value in values.items() if value is not None}) == text
    assert not set(text) & set("*$?# ")


@target("writer_rule", "protocol.ezagent.writer_rules:parse_rule", raises=[writer_rules.RuleError])
def _rule(data: bytes) -> None:
    assert writer_rules.parse_rule(_text(data)).terms


@target("blob_question", "protocol.ezagent.blob:parse_wanted", raises=[Refused])
def _wanted(data: bytes) -> None:
    assert blob.encode_wanted(blob.parse_wanted(data)) == data


@target("blob_piece", "protocol.ezagent.blob:parse_piece", raises=[Refused])
def _piece(data: bytes) -> None:
    assert blob.encode_piece(blob.parse_piece(data)) == data


@target("said_in_passing", raises=[Refused])
def _passing(data: bytes) -> None:
    """Take the bytes as what a member says in passing; whatever it is, who is there can be told afterwards."""
    alice, bob = peers("alice", "bob", declarations=(*BUILT_INS, PRESENCES))
    room = shared_room(alice, bob)
    key = doc_id("ephemeral", room_id=room, ext_id="awareness", entity_id=alice.id)
    bob.engine.ephemeral.token(room, alice.id, there=True)
    bob.engine.intake.take([Arrival(envelope.seal(alice.entity.key, alice.id, key, NOW_MS, data).raw)])
    assert json.dumps(bob.do("presence.list", room_id=room))


@target("message_address", "daemon.rooms.addressing:read", raises=[SubletError])
def _address(data: bytes) -> None:
    rooms = [{"room_id": ROOM, "name": "Work"}, {"room_id": ROOM, "name": "bob"}]
    found = Addresses({"bob": NODE, "carol": NODE}.get, lambda node: node == NODE).read(_text(data), rooms)
    assert (found.room_id is None) != (found.entity is None)
    assert found.room_id is None or is_room_id(found.room_id)
    assert found.entity is None or is_entity_id(found.entity)


@target("chat_line", "cli.chat.slash:parse", raises=[SubletError])
def _chat_line(data: bytes) -> None:
    found = slash.parse(_text(data))
    if isinstance(found, slash.Command):
        usage = slash.COMMANDS[found.name]
        assert usage.least <= len(found.arguments) <= usage.most
    assert found is not None or not _text(data).strip()


@target("reaction_key", "messaging.extensions.reactions:parse_key")
def _reaction_key(data: bytes) -> None:
    text = _text(data)
    found = reactions.parse_key(text)
    assert found is None or f"{found[0]}:{found[1]}" == text


@target("seen_vector", "protocol.ezagent.room.seen:parse_seen", raises=[Refused])
def _seen(data: bytes) -> None:
    found = seen.parse_seen(Reader(data).value())
    if isinstance(found, seen.PackedSeen):
        assert len(found["config"]) <= len(found.pairs)
    elif found is not None:
        again = seen.parse_seen(seen.seen_value(found))
        assert isinstance(again, seen.PackedSeen) or again == {doc: clocks for doc, clocks in found.items() if clocks}


@target("lied_to_room", raises=[])
def _room(data: bytes) -> None:
    """Take the bytes as an update that a member has signed, for the config or the timeline by the first byte.

    Whatever it is, the room can be read and written afterwards, and yrs takes what was accepted without a panic.
    """
    alice, bob = peers("alice", "bob")
    room = shared_room(alice, bob)
    alice.do("message.send", room_id=room, body="first")
    bob.hear(alice.published())
    values = {"room_id": room} if data[:1] < b"\x80" else {"room_id": room, "shard_id": "2026-11"}
    name = doc_id("config" if len(values) == 1 else "index", **values)
    raw = envelope.seal(alice.entity.key, alice.id, name, NOW_MS, data[1:]).raw
    outcome = bob.engine.intake.take([Arrival(raw)])
    assert alice.id in bob.do("room.members", room_id=room)
    assert "first" in bob.bodies(room)
    bob.do("message.send", room_id=room, body="last")
    assert "last" in bob.bodies(room)
    if outcome.accepted:
        _applied(bob, name)


@target("lied_to_text", "messaging.texts.text_replay:Replay.take", raises=[])
def _lied_to_text(data: bytes) -> None:
    """Take the bytes as an update of a text that a member has signed, who may edit it or not by the first byte.

    Whatever it is, what counts can be read and edited afterwards, and who may not edit changes nothing.
    """
    alice, bob = peers("alice", "bob", declarations=(*BUILT_INS, MUTABLES, COLLABORATIVE))
    room, let = shared_room(alice, bob), data[:1] >= b"\x80"
    ref = alice.do("message.send", room_id=room, body="one two")["ref_id"]
    place = {"room_id": room, "ref_id": ref}
    alice.do("collab.update_acl", **place, mode="room_members" if let else "owner_only")
    bob.hear(alice.published())
    shown = alice.do("timeline.get_ref", **place)
    name = content_document(room, shown["content_id"])
    alice.engine.intake.take([Arrival(envelope.seal(bob.entity.key, bob.id, name, NOW_MS, data[1:]).raw)])
    lied = alice.do("collab.connect", **place)["text"]
    assert lied == "one two" or let
    alice.do("collab.edit", **place, index=0, insert="zero ")
    assert alice.do("collab.connect", **place)["text"] == f"zero {lied}"
    alice.do("mutable.versions", **place)


def _applied(peer: Peer, name: str) -> None:
    doc: Doc[Any] = Doc(skip_gc=True)
    doc.get("timeline", type=Array) if "/index/" in name else doc.get("config", type=Map)
    for seq in range(1, peer.store.last_seq() + 1):
        found = envelope.unpack(peer.store.envelope(seq))
        if found.doc_id == name:
            doc.apply_update(found.payload)
    assert json.dumps(peer.engine.reading.map_document(doc_id("config", room_id=name.split("/")[1])), default=str)


ASKER = Peer("alice", 1)


@target("inbox_known", "protocol.ezagent.inbox:parse_known", raises=[Refused])
def _known(data: bytes) -> None:
    found = inbox.parse_known(data)
    assert inbox.parse_known(inbox.encode_known(found)) == found


@target("peer_question", "protocol.ezagent.question:parse_question", raises=[Refused])
def _question(data: bytes) -> None:
    key = doc_id("inbox", entity_id=ASKER.id)
    found = question.parse_question(key, data, NOW_MS)
    assert (found.asker, len(found.nonce)) == (ASKER.id, question.NONCE_BYTES)


@target("order_after", "protocol.ezagent.order:parse_after")
def _after(data: bytes) -> None:
    found = order.parse_after(data.decode("utf-8", "replace"))
    assert found is None or min(found.item) >= 0


@target("home_token", "protocol.home_token:parse_home")
def _home(data: bytes) -> None:
    said = data.decode("utf-8", "replace")
    found = home_token.parse_home(said)
    assert found is None or found.said == said
