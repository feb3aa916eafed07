"""Rooms and messages for people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.console import RenderableType
from rich.text import Text

from sublet.cli.rendering.columns import Columns, OneLine, Quoted, inset
from sublet.cli.rendering.delegations import local_time, size
from sublet.cli.rendering.words import DELETED, whole_line
from sublet.protocol.ezagent.ids import is_entity_id
from sublet.protocol.text import clean

if TYPE_CHECKING:
    from sublet.cli.rendering.entity_names import EntityNames
    from sublet.cli.rendering.screen import Symbols
    from sublet.daemon.api.room_messages import ChannelView, MessageReceipts, MessageView
    from sublet.daemon.api.room_people import ProfileView
    from sublet.daemon.api.rooms import RoomDetail, RoomView


def rooms(found: Sequence[RoomView], names: EntityNames, unread: Mapping[str, int]) -> list[RenderableType]:
    """Return the tables of rooms; ``unread`` has how many messages of a room are."""
    groups = {
        "": [one for one in found if one.kind == "talk" and not one.closed],
        "Of delegations under way:": [one for one in found if one.kind != "talk" and not one.closed],
        "Closed:": [one for one in found if one.closed],
    }
    shown: list[RenderableType] = []
    for title, group in groups.items():
        rows = [
            [
                Text(one.room_id),
                Text(one.role),
                Text(str(one.members)),
                Text(str(unread.get(one.room_id) or ""), style="bold"),
                Text(local_time(one.last_activity) if one.last_activity else ""),
                Text(room_name(one.name, names)),
            ]
            for one in group
        ]
        if rows:
            shown += [Text(title)] if title else []
            shown.append(Columns(["id", "role", "members", "unread", "last used", "name"], rows))
    return shown


def room_name(name: str, names: EntityNames) -> str:
    """Return a room's name in clean text; of a conversation of two, whom it is with."""
    low, joined, high = name.partition(" and ")
    if joined and names.me in (low, high) and is_entity_id(low) and is_entity_id(high):
        return f"with {names.short(high if low == names.me else low)}"
    return whole_line(name)


def room(found: RoomDetail, names: EntityNames) -> list[RenderableType]:
    """Return a room with its members and who knocks."""
    sealed = ", only members read it" if found.encryption == "members" else ""
    title = Text.assemble((room_name(found.name, names), "bold"), f"  {found.room_id}  ({found.policy}{sealed})")
    rows = [
        [
            Text(names.short(entity)),
            Text(_role(found, entity, role)),
            Text(str(found.powers.get(entity, ""))),
            Text(entity, style="dim"),
        ]
        for entity, role in sorted(found.roles.items())
    ]
    parts: list[RenderableType] = [title, inset(Columns(["member", "role", "power", "entity"], rows), 2)]
    for entity, why in sorted(found.apart.items()):
        parts.append(Text(f"  {whole_line(entity)} hears nothing yet: {whole_line(why)}", style="yellow"))
    for _, how in sorted(found.clocks.items()):
        parts.append(Text(f"  {whole_line(how)}", style="yellow"))
    declined = [entity for entity, answer in sorted(found.invited.items()) if answer == "declined"]
    if declined:
        parts.append(Text("Declined to come in:"))
        parts += [inset(Text(whole_line(f"{names.short(entity)}  {entity}")), 2) for entity in declined]
    if found.knocks:
        parts.append(Text("Asking to be let in:"))
        parts += [
            inset(Text(whole_line(f"{names.short(entity)}  {entity}  {words}")), 2)
            for entity, words in sorted(found.knocks.items())
        ]
    return parts


def _role(found: RoomDetail, entity: str, role: str) -> str:
    return f"{role}, has not accepted yet" if found.invited.get(entity) == "pending" else role


def config(found: RoomDetail) -> list[RenderableType]:
    """Return a room's config, a line a field."""
    levels = {f"power.{entity}": power for entity, power in sorted(found.powers.items())}
    return [Text(f"{name} = {_value(value)}") for name, value in [*sorted(found.config.items()), *levels.items()]]


def message(shown: MessageView, names: EntityNames, symbols: Symbols, known: dict[str, MessageView]) -> list[Any]:
    """Return a message: who, when, its id, what it says and what others made of it."""
    head = Text.assemble(
        (names.short(shown.author), "bold"), (f"  {local_time(shown.created_at)}  {shown.ref_id}", "dim")
    )
    if note := notes(shown):
        head.append(f"  ({note})", style="dim")
    parts: list[Any] = [head]
    if answered := answers(shown, names, known):
        parts.append(inset(OneLine(Text(answered, style="dim")), 2))
    parts.append(Quoted(said(shown), f"{symbols.bar} "))
    parts += [inset(Text(extra), 2) for extra in (attached(shown), reacted(shown)) if extra]
    return parts


def said(message: MessageView) -> str:
    """Return what a message says, in clean text; or why it says nothing."""
    if message.status == DELETED:
        return "(deleted)"
    if _is_purged(message):
        return "(purged)"
    if "redacted" in message.about and message.body is None:
        return "(taken down by a moderator)"
    return clean(message.body) if message.body is not None else "(its text has not come yet)"


def _is_purged(message: MessageView) -> bool:
    purged = message.about.get("purged")
    return isinstance(purged, dict) and purged.get("what") == "message"


def about_receipts(found: MessageReceipts) -> list[str]:
    """Return what there is to know about the receipts of a message beside its recipients."""
    gone = ["It was purged since, and goes from those who have received it, too."] if found.purged else []
    return gone if found.recipients else [*gone, "Nobody else was in the room."]


def notes(message: MessageView) -> str:
    """Return what there is to know about a message besides."""
    marks: list[str] = []
    if message.format != "plain":
        marks.append(message.format)
    if message.status == "edited":
        marks.append("edited")
    if message.about.get("pinned"):
        marks.append("pinned")
    if message.about.get("author_banned"):
        marks.append("its author is banned")
    redacted = message.about.get("redacted")
    if isinstance(redacted, dict):
        reason = whole_line(str(redacted.get("reason") or ""))
        marks.append(f"redacted: {reason}" if reason else "redacted")
    if "purged" in message.about and not _is_purged(message):
        marks.append("its files were purged")
    channels = message.ext.get("channels")
    if isinstance(channels, list):
        marks += [f"#{whole_line(str(name))}" for name in channels]
    thread = message.ext.get("thread")
    if isinstance(thread, dict) and isinstance(thread.get("root"), str):
        marks.append(f"thread {whole_line(str(thread['root'])[-4:].lower())}")
    return ", ".join(marks)


def answers(message: MessageView, names: EntityNames, known: dict[str, MessageView]) -> str:
    """Return what a message answers; empty where it answers nothing."""
    target = message.ext.get("reply_to")
    if not isinstance(target, dict):
        return ""
    quoted = message.about.get("reply_preview")
    if isinstance(quoted, dict):
        return _quoted(quoted, names)
    ref_id = str(target.get("ref_id"))
    there = known.get(ref_id)
    if there is None:
        return f"answers {whole_line(ref_id)}"
    return f"answers {names.short(there.author)}: {whole_line(said(there))}"


def _quoted(preview: dict[str, Any], names: EntityNames) -> str:
    """Return what a message answers in another room; to who is not in that room, only that it does."""
    if preview.get("accessible") is not True:
        return "answers a message of a room that you are not in"
    body = preview.get("body")
    text = whole_line(body) if isinstance(body, str) else "(its text is not there)"
    return f"answers {names.short(str(preview.get('author')))} in another room: {text}"


def reacted(message: MessageView) -> str:
    """Return the reactions to a message."""
    found = message.about.get("reactions")
    if not isinstance(found, dict):
        return ""
    shown = [
        f"{whole_line(emoji)} {entry.get('count', '')}" for emoji, entry in found.items() if isinstance(entry, dict)
    ]
    return "  ".join(shown)


def attached(message: MessageView) -> str:
    """Return what file comes with a message."""
    media = message.ext.get("media")
    if not isinstance(media, dict):
        return ""
    name, count = whole_line(str(media.get("filename") or "file")), media.get("size_bytes")
    return f"file: {name}" + (f" ({size(count)})" if isinstance(count, int) else "")


def channels(found: Sequence[ChannelView]) -> RenderableType:
    """Return the table of channels."""
    rows = [
        [
            Text(f"#{whole_line(one.channel)}"),
            Text(str(one.room_count)),
            Text(local_time(one.last_activity)),
            Text(whole_line(one.name)),
        ]
        for one in found
    ]
    return Columns(["channel", "rooms", "last used", "name"], rows)


def profile(entity: ProfileView, names: EntityNames) -> list[RenderableType]:
    """Return what an entity says of itself: its name and id, its fields in order, and its text."""
    lines: list[RenderableType] = [
        Text.assemble((names.short(entity.entity_id), "bold"), (f"  {entity.entity_id}", "dim"))
    ]
    lines += [
        inset(Text(f"{whole_line(name)}: {_value(value)}"), 2) for name, value in sorted(entity.frontmatter.items())
    ]
    if entity.body:
        lines.append(inset(Text(clean(entity.body)), 2))
    return lines


def _value(value: object) -> str:
    import json

    shown = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return whole_line(shown)
