"""The operations and events of the specification, by their names (ezagent 10.2, 10.3)."""

from __future__ import annotations

from sublet.messaging.builtins import BUILT_INS
from sublet.messaging.bus import Bus
from sublet.messaging.declaring.registry import Registry
from sublet.messaging.extensions import EXTENSIONS

OPERATIONS = [
    "identity.init",
    "identity.register",
    "identity.whoami",
    "identity.get_pubkey",
    "identity.verify_peer",
    "room.create",
    "room.list",
    "room.get",
    "room.update_config",
    "room.join",
    "room.leave",
    "room.invite",
    "room.members",
    "timeline.list",
    "timeline.get_ref",
    "message.send",
    "message.delete",
    "annotation.list",
    "annotation.add",
    "annotation.remove",
    "events.stream",
    "status",
    "mutable.update",
    "mutable.versions",
    "collab.get_acl",
    "collab.update_acl",
    "collab.connect",
    "reactions.add",
    "reactions.remove",
    "crossroom.preview",
    "channels.list",
    "channels.refs",
    "moderation.redact",
    "receipts.update",
    "receipts.summary",
    "presence.set",
    "presence.list",
    "media.upload",
    "media.get",
    "threads.list",
    "drafts.save",
    "drafts.load",
    "profile.get",
    "profile.update",
    "discovery.search",
    "watch.set",
    "watch.unset",
    "watch.list",
]
EVENTS = [
    "message.new",
    "message.deleted",
    "room.member.joined",
    "room.member.left",
    "room.config.updated",
    "message.edited",
    "reaction.added",
    "reaction.removed",
    "channel.activity",
    "moderation.action",
    "presence.joined",
    "presence.left",
    "typing.start",
    "typing.stop",
    "watch.ref_content_edited",
    "watch.ref_reply_added",
    "watch.ref_thread_reply",
    "watch.channel_new_ref",
]
REGISTRY = Registry((*BUILT_INS, *EXTENSIONS))


def test_every_operation_of_the_specification_is_on_the_bus() -> None:
    async def run(name: str, arguments: dict[str, object]) -> str:
        return name

    bus = Bus(REGISTRY, run, lambda since, room_id: iter(()))  # type: ignore[arg-type,return-value]  # not run
    missing = []
    for name in OPERATIONS:
        found: object = bus
        try:
            for part in name.split("."):
                found = getattr(found, part)
        except AttributeError:
            missing.append(name)
        assert name in missing or callable(found)
    assert missing == [name for name in ("media.upload", "media.get") if "media" not in REGISTRY.rank]


def test_every_event_of_the_specification_is_declared() -> None:
    declared = {event for one in REGISTRY.declarations for event in one.events}
    assert set(EVENTS) <= declared
