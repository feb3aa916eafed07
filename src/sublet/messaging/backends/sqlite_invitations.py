"""Invitations on SQLite."""

from __future__ import annotations

import json
import sqlite3
from typing import Any, Final

from sublet.messaging.ports.invitation_store import ROW_BYTES, Answer, Invitation, Kept
from sublet.protocol.ezagent.ids import RoomId

_COLUMNS: Final = "room_id, home, inviter, whom, name, members, member_count, answer, at_ms, kept, told"

_SIZE: Final = "length(kept) + length(CAST(home || inviter || name || whom || members AS BLOB))"
_OLDEST_FIRST: Final = "ORDER BY at_ms, room_id"

_ALL_KEPT: Final = f"SELECT room_id, home, inviter, answer, {_SIZE}, told FROM invitations {_OLDEST_FIRST}"  # noqa: S608 - constants


class SqliteInvitations:
    """See ``ports.invitation_store.InvitationStore``.

    Args:
        db: the store's connection.
    """

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db

    def get(self, room_id: RoomId) -> Invitation | None:
        found = self._db.execute(f"SELECT {_COLUMNS} FROM invitations WHERE room_id = ?", (room_id,)).fetchone()  # noqa: S608
        return None if found is None else _invitation(found)

    def all(self) -> list[Invitation]:
        rows = self._db.execute(f"SELECT {_COLUMNS} FROM invitations {_OLDEST_FIRST}")  # noqa: S608
        return [_invitation(row) for row in rows]

    def kept(self) -> list[Kept]:
        rows = self._db.execute(_ALL_KEPT)
        return [
            Kept(room_id, home, by, Answer(answer), ROW_BYTES + size, bool(told))
            for room_id, home, by, answer, size, told in rows
        ]

    def put(self, invitation: Invitation) -> None:
        one = invitation
        values = (
            one.room_id,
            one.home,
            one.by,
            json.dumps(one.whom),
            one.name,
            json.dumps(one.members),
            one.member_count,
            one.answer,
            one.at_ms,
            one.kept,
            one.is_told,
        )
        self._db.execute(f"INSERT OR REPLACE INTO invitations ({_COLUMNS}) VALUES (?,?,?,?,?,?,?,?,?,?,?)", values)  # noqa: S608

    def drop(self, room_id: RoomId) -> None:
        self._db.execute("DELETE FROM invitations WHERE room_id = ?", (room_id,))


def _invitation(row: tuple[Any, ...]) -> Invitation:
    room_id, home, by, whom, name, members, member_count, answer, at_ms, kept, told = row
    return Invitation(
        room_id,
        home,
        by,
        tuple(json.loads(whom)),
        name,
        tuple(json.loads(members)),
        member_count,
        Answer(answer),
        at_ms,
        bytes(kept),
        bool(told),
    )
