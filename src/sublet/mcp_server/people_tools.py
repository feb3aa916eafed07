"""The tools for changing messages and for people in rooms: they call operations and decide nothing."""

from __future__ import annotations

import json
from typing import Final

from pydantic import Field

from sublet.daemon.api.conversations import INVITE, REACH, Invite, Reach
from sublet.daemon.api.invitations import ACCEPT_INVITATION, DECLINE_INVITATION, LIST_INVITATIONS
from sublet.daemon.api.operation import Nothing
from sublet.daemon.api.room_fields import OneRoom
from sublet.daemon.api.room_marks import (
    ADD_REACTION,
    DELETE_MESSAGE,
    EDIT_MESSAGE,
    PURGE_MESSAGE,
    REMOVE_REACTION,
    DeleteMessage,
    EditMessage,
    MessageChange,
    PurgeMessage,
    React,
)
from sublet.daemon.api.room_people import (
    FIND_PROFILE,
    SEARCH_PROFILES,
    UPDATE_PROFILE,
    NamedProfile,
    ProfileView,
    SearchProfiles,
    UpdateProfile,
)
from sublet.daemon.api.rooms import WHOAMI
from sublet.mcp_server.answers import Answer
from sublet.mcp_server.call import Call
from sublet.mcp_server.room_answers import Wrote
from sublet.mcp_server.room_arguments import Change, People
from sublet.mcp_server.room_pages import MAX_LIST_CHARS, size_in_list
from sublet.protocol.text import clean, clean_line

MAX_PROFILE_SHOWN: Final = 2_000
"""Characters of a profile: its fields and its text."""


class Changed(Answer):
    """What was done to a message; changed is False where it was so already."""

    room_id: str
    ref_id: str
    changed: bool
    next_step: str


class Person(Answer):
    """What somebody says of themselves: below ``from_peer``, unless it is the caller's own."""

    entity: str
    own: bool
    text: str | None = None
    from_peer: Wrote | None = None


class Invited(Answer):
    """A room that the caller is invited to: what others say of it stands below ``from_peer``."""

    room_id: str
    answer: str
    members: int
    from_peer: Wrote


class Found(Answer):
    """People, or what became of an invitation."""

    people: list[Person] | None = None
    more: bool | None = Field(default=None, description="There are others, who do not fit")
    room_id: str | None = None
    invited: str | None = None
    invitations: list[Invited] | None = None
    unreached: str | None = Field(default=None, description="Why that one learns nothing of it for now")
    next_step: str


async def change_message(call: Call, given: Change) -> Answer:
    """React to a message, take that back, edit or delete one of the caller's, or purge one."""
    room_id = (await call.operations.call(REACH, Reach(to=given.room))).room_id
    message = {"room_id": room_id, "ref_id": given.ref_id}
    done: MessageChange
    if given.message is not None:
        words = EditMessage(**message, body=given.message, format=given.format)
        done = await call.operations.call(EDIT_MESSAGE, words)
    elif given.purge:
        purged = await call.operations.call(PURGE_MESSAGE, PurgeMessage(room_id=room_id, ref_id=given.ref_id))
        done = purged
    elif given.emoji is None:
        done = await call.operations.call(DELETE_MESSAGE, DeleteMessage(**message))
    else:
        mark = React(**message, emoji=given.emoji)
        done = await call.operations.call(REMOVE_REACTION if given.remove else ADD_REACTION, mark)
    return Changed(room_id=room_id, ref_id=done.ref_id, changed=done.changed, next_step=_SHOWN)


_SHOWN: Final = "read_messages with its ref_id shows it as it is now."


async def people(call: Call, given: People) -> Answer:
    """Find people, show or change a profile, invite somebody, or answer an invitation."""
    if given.action == "invite":
        asked = Invite(room=str(given.room), entity=str(given.entity))
        done = await call.operations.call(INVITE, asked)
        return Found(
            room_id=done.room_id,
            invited=done.entity,
            unreached=clean_line(done.apart, 200) or None,
            next_step=f"send_message(to={done.room_id!r}) says something to all who are there.",
        )
    if given.action in ("invitations", "accept", "decline"):
        return await _invitations(call, given)
    if given.action == "find":
        found = await call.operations.call(SEARCH_PROFILES, SearchProfiles(query=str(given.query)))
    elif given.action == "profile":
        found = [await call.operations.call(FIND_PROFILE, NamedProfile(entity=given.entity))]
    else:
        changes = UpdateProfile(fields=dict(given.fields), body=given.text)
        found = [await call.operations.call(UPDATE_PROFILE, changes)]
    me = (await call.operations.call(WHOAMI, Nothing())).entity_id
    shown: list[Person] = []
    left = MAX_LIST_CHARS
    for one in found:
        person = _person(one, me)
        left -= size_in_list(person)
        if shown and left < 0:
            break
        shown.append(person)
    return Found(
        people=shown,
        more=True if len(shown) < len(found) else None,
        next_step="send_message(to=entity) talks with one; people(action='invite') brings one into a room.",
    )


async def _invitations(call: Call, given: People) -> Answer:
    if given.action == "invitations":
        found = await call.operations.call(LIST_INVITATIONS, Nothing())
        shown: list[Invited] = []
        left = MAX_LIST_CHARS
        for invitation in found:
            words = f"{invitation.name}\n{', '.join(invitation.members)}"
            item = Invited(
                room_id=invitation.room_id,
                answer=invitation.answer,
                members=invitation.member_count,
                from_peer=Wrote(peer=invitation.by, text=clean(words, limit=MAX_PROFILE_SHOWN)),
            )
            left -= size_in_list(item)
            if shown and left < 0:
                break
            shown.append(item)
        return Found(
            invitations=shown,
            more=True if len(shown) < len(found) else None,
            next_step="people(action='accept', room=room_id) comes in, action='decline' says no.",
        )
    one_room = OneRoom(room_id=str(given.room))
    if given.action == "decline":
        await call.operations.call(DECLINE_INVITATION, one_room)
        return Found(room_id=one_room.room_id, next_step="Those who are in the room are told that you have declined.")
    done = await call.operations.call(ACCEPT_INVITATION, one_room)
    there = f"read_messages(room={done.room_id!r}) shows what was said."
    later = "The room comes once somebody in it is reached."
    return Found(room_id=done.room_id, next_step=there if done.here else later)


def _person(profile: ProfileView, me: str) -> Person:
    lines = [f"{clean_line(name, 64)}: {_value(value)}" for name, value in sorted(profile.frontmatter.items())]
    text = clean("\n".join([*lines, profile.body]).strip(), limit=MAX_PROFILE_SHOWN) or None
    if profile.entity_id == me:
        return Person(entity=me, own=True, text=text)
    return Person(entity=profile.entity_id, own=False, from_peer=Wrote(peer=profile.entity_id, text=text))


def _value(value: object) -> str:
    shown = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return clean_line(shown, MAX_PROFILE_SHOWN)
