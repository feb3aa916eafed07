"""Keeps beside the database of rooms which rooms are here, and what was said to invitations.

Whoever has lost the database has all of its rooms again from their members, but nobody else knows what people here have
agreed to. So that is in a file of its own: ids and answers, nothing that was written. Weak: where this file can't be
read either, rooms are offered again and have to be accepted.
"""

from __future__ import annotations

import json
import os
import sqlite3
import time
from collections.abc import Callable, Collection, Iterable
from contextlib import closing, suppress
from pathlib import Path
from typing import Final, TypeVar

import structlog

from sublet.messaging.ports.agreed import WasAgreed
from sublet.messaging.ports.invitation_store import Answer, Invitation
from sublet.migrations.damage import is_damage
from sublet.migrations.database import prepare
from sublet.migrations.schema import Schema
from sublet.protocol.errors import SubletError
from sublet.protocol.ezagent.ids import RoomId, is_room_id

AGREED_FILE: Final = "-agreed.db"
"""Behind the name of the database, without its ending."""
WANTED_MS: Final = 30 * 86_400_000
"""How long a room is looked for that the database does not have."""
MAX_ANSWERS: Final = 16_384
"""Answers; of more the oldest are forgotten."""
_SCHEMA: Final = Schema(
    "which rooms were agreed to",
    1,
    (
        "CREATE TABLE rooms (room_id TEXT PRIMARY KEY, at_ms INTEGER NOT NULL)",
        "CREATE TABLE answers (room_id TEXT PRIMARY KEY, at_ms INTEGER NOT NULL, answer TEXT NOT NULL, "
        "said TEXT NOT NULL)",
    ),
)
T = TypeVar("T")

log = structlog.get_logger(__name__)


class Agreed:
    """Implements ``ports.agreed.KeepsAgreed``.

    Args:
        path: the file.
        now_ms: the clock, Unix milliseconds.
    """

    def __init__(self, path: Path, now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000) -> None:
        self._path = path
        self._now_ms = now_ms

    def begin(self, here: Collection[RoomId], answers: Collection[Invitation], now_ms: int) -> WasAgreed:
        """``KeepsAgreed.begin``."""

        def take(db: sqlite3.Connection) -> WasAgreed:
            known = set(here)
            lost = [
                str(room_id)
                for room_id, at_ms in db.execute("SELECT room_id, at_ms FROM rooms ORDER BY room_id")
                if room_id not in known and is_room_id(str(room_id)) and now_ms - at_ms <= WANTED_MS
            ]
            told = [] if here or answers else _answers(db)
            db.execute("DELETE FROM rooms WHERE at_ms < ?", (now_ms - WANTED_MS,))
            _put_rooms(db, known, now_ms)
            if not told:
                db.execute("DELETE FROM answers")
                _put_answers(db, answers)
            return WasAgreed(tuple(lost), tuple(told))

        return self._do(take, WasAgreed())

    def taken_up(self, room_id: RoomId) -> None:
        """``KeepsAgreed.taken_up``."""
        self._do(lambda db: _put_rooms(db, [room_id], self._now_ms()), None)

    def let_go(self, room_id: RoomId) -> None:
        """``KeepsAgreed.let_go``."""
        self._do(lambda db: _drop_room(db, room_id), None)

    def answered(self, invitation: Invitation) -> None:
        """``KeepsAgreed.answered``."""
        self._do(lambda db: _put_answers(db, [invitation]), None)

    def _do(self, run: Callable[[sqlite3.Connection], T], otherwise: T) -> T:
        """Run something in one transaction; a file that is damaged is put away and begun anew by the next start."""
        try:
            os.close(os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600))
            with closing(sqlite3.connect(self._path, isolation_level=None)) as db:
                prepare(db, self._path, _SCHEMA)
                db.execute("BEGIN IMMEDIATE")
                found = run(db)
                db.execute("COMMIT")  # closed before, it is rolled back
        except (sqlite3.Error, OSError, SubletError, ValueError, TypeError, KeyError) as error:
            log.warning("which rooms were agreed to could not be kept beside the database", reason=str(error))
            if isinstance(error, ValueError | TypeError | KeyError) or is_damage(error):
                with suppress(OSError):
                    self._path.replace(self._path.with_name(f"{self._path.name}.damaged"))
            return otherwise
        return found


def _put_rooms(db: sqlite3.Connection, rooms: Iterable[RoomId], now_ms: int) -> None:
    db.executemany("INSERT OR REPLACE INTO rooms VALUES (?, ?)", [(room_id, now_ms) for room_id in rooms])


def _drop_room(db: sqlite3.Connection, room_id: RoomId) -> None:
    db.execute("DELETE FROM rooms WHERE room_id = ?", (room_id,))


def _put_answers(db: sqlite3.Connection, answers: Iterable[Invitation]) -> None:
    rows = [(one.room_id, one.at_ms, one.answer, _said(one)) for one in answers if one.answer is not Answer.PENDING]
    db.executemany("INSERT OR REPLACE INTO answers VALUES (?, ?, ?, ?)", rows)
    db.execute(
        "DELETE FROM answers WHERE room_id NOT IN (SELECT room_id FROM answers ORDER BY at_ms DESC LIMIT ?)",
        (MAX_ANSWERS,),
    )


def _said(one: Invitation) -> str:
    return json.dumps([one.home, one.by, one.whom, one.name, one.members, one.member_count])


def _answers(db: sqlite3.Connection) -> list[Invitation]:
    found = []
    for room_id, at_ms, answer, said in db.execute("SELECT room_id, at_ms, answer, said FROM answers"):
        home, by, whom, name, members, count = json.loads(said)
        given = Answer(answer)
        found.append(
            Invitation(
                str(room_id),
                str(home),
                str(by),
                tuple(whom),
                str(name),
                tuple(members),
                int(count),
                given,
                int(at_ms),
                is_told=given is Answer.DECLINED,
            )
        )
    return found
