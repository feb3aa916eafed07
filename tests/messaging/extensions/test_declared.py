"""Each extension of the specification declares what its section lists: datatypes, hooks and indexes (ezagent 5)."""

from __future__ import annotations

import pytest

from sublet.messaging.extensions import EXTENSIONS

DECLARED = {declaration.id: declaration for declaration in EXTENSIONS}
DATATYPES = {
    "mutable": ("mutable_content",),
    "collab": ("collab_acl",),
    "moderation": ("moderation_overlay",),
    "read-receipts": ("read_receipts",),
    "presence": ("presence_token", "awareness_state"),
    "media": ("global_blob", "blob_ref"),
    "drafts": ("user_draft",),
    "profile": ("entity_profile",),
}
HOOKS = {
    "mutable.validate_edit": ("mutable", "pre_send", 25),
    "mutable.status_update": ("mutable", "after_write", 35),
    "mutable.emit_edited": ("mutable", "after_write", 40),
    "collab.check_acl": ("collab", "pre_send", 25),
    "reactions.inject": ("reactions", "pre_send", 30),
    "reactions.emit": ("reactions", "after_write", 40),
    "reply_to.inject": ("reply-to", "pre_send", 30),
    "cross_room.inject": ("cross-room-ref", "pre_send", 31),
    "cross_room.resolve_preview": ("cross-room-ref", "after_read", 45),
    "channels.inject_tags": ("channels", "pre_send", 30),
    "channels.update_activity": ("channels", "after_write", 50),
    "channels.aggregate": ("channels", "after_read", 50),
    "moderation.emit_action": ("moderation", "after_write", 40),
    "moderation.merge_overlay": ("moderation", "after_read", 60),
    "receipts.auto_mark": ("read-receipts", "after_read", 70),
    "receipts.update_unread": ("read-receipts", "after_write", 50),
    "presence.online_change": ("presence", "after_write", 40),
    "presence.typing_change": ("presence", "after_write", 40),
    "media.upload": ("media", "pre_send", 20),
    "threads.inject": ("threads", "pre_send", 30),
    "threads.filter": ("threads", "after_read", 50),
    "drafts.auto_save": ("drafts", "pre_send", 50),
    "drafts.clear_on_send": ("drafts", "after_write", 90),
    "profile.index_update": ("profile", "after_write", 50),
    "watch.set_ref": ("watch", "pre_send", 30),
    "watch.set_channel": ("watch", "pre_send", 30),
    "watch.check_ref_watchers": ("watch", "after_write", 45),
    "watch.check_channel_watchers": ("watch", "after_write", 46),
}
"""The extension, the phase and the priority. ``drafts.clear_on_send`` follows a message that was sent, and so its phase
is the one after; the section has both."""
INDEXES = {
    "mutable": ("version_history",),
    "collab": ("collaborator_list",),
    "reactions": ("reaction_summary",),
    "reply-to": ("reply_chain",),
    "cross-room-ref": ("cross_room_preview",),
    "channels": ("channel_aggregation", "channel_list"),
    "moderation": ("moderated_timeline",),
    "read-receipts": ("unread_count",),
    "presence": ("online_users",),
    "media": ("media_gallery",),
    "threads": ("thread_view",),
    "profile": ("profile_lookup", "discovery_search"),
    "watch": ("my_watches",),
}


def test_all_extensions_of_the_specification_are_here() -> None:
    assert set(DECLARED) == {*DATATYPES, *INDEXES, *(extension for extension, _, _ in HOOKS.values())}


@pytest.mark.parametrize("extension", sorted(DECLARED))
def test_datatypes_and_indexes_of_its_section(extension: str) -> None:
    declaration = DECLARED[extension]
    assert [datatype.id for datatype in declaration.datatypes] == list(DATATYPES.get(extension, ()))
    assert {index.id for index in declaration.indexes} >= set(INDEXES.get(extension, ()))


@pytest.mark.parametrize("hook", sorted(HOOKS))
def test_hooks_of_its_section(hook: str) -> None:
    extension, phase, priority = HOOKS[hook]
    found = {one.id: one.priority for one in getattr(DECLARED[extension].hooks, phase)}
    assert found[hook] == priority
