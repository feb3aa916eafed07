"""Mends the database of rooms before it is opened: pages from what can be read, documents from their signed logs.

Rules: the log is the truth, and each update in it proves itself; what follows from it is made anew. What builds on
something that is missing is kept beside (``losses.py``) until a member has told the rest. A document is mended in one
transaction, so a kill leaves it as it was or whole, and the next start goes on. Nothing that is damaged is thrown away.
Weak: indexes of extensions, and events, are kept as they are.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import structlog

from sublet.messaging.accepting.staging import LeftOut
from sublet.messaging.backends.schema import SCHEMA
from sublet.messaging.backends.sqlite_rows import SqliteRows
from sublet.messaging.backends.sqlite_store import SqliteStore
from sublet.messaging.engine.engine import Engine
from sublet.messaging.identities.keyring import LocalEntity
from sublet.messaging.mending.inspection import Found, Keys, KnownKeys, inspect, is_declared, is_named_right, sound
from sublet.messaging.mending.losses import Damage, Losses, Part
from sublet.messaging.mending.trials import Trials
from sublet.migrations import damage
from sublet.migrations.salvage import finish, salvage
from sublet.protocol.ezagent.envelope import unpack
from sublet.protocol.ezagent.errors import Refused
from sublet.protocol.ezagent.keys import doc_id, parse_doc_id

MADE_FROM_OTHERS: Final = frozenset({"words", "searched", "searched_until", "searched_again"})
"""Tables that whoever searches fills again."""
LOOKED_AT: Final = 5
"""First updates of a document by which it is told what it is called."""
GLANCED_AT: Final = 512
"""Documents whose digest is looked at before each opening: those that were made last, and as many configs."""
MAX_TORN: Final = 64
"""Damaged rows of one run whose bytes are kept as files."""

MakeEngine = Callable[[SqliteStore], Engine]
SetsAside = Callable[[str, bytes, str], object]

log = structlog.get_logger(__name__)


@dataclass(slots=True)
class Mended:
    """What was done to a database.

    Args:
        pages: why the file was made anew; empty where it was not.
        kept_as: where the damaged file is then.
        rows: how many rows were torn by themselves.
        documents: which documents were made anew, or have something missing, with the reason.
        updates: how many updates were damaged.
    """

    pages: str = ""
    kept_as: str = ""
    rows: int = 0
    documents: dict[str, str] = field(default_factory=dict)
    updates: int = 0

    def __bool__(self) -> bool:
        return bool(self.pages or self.rows or self.documents)

    def in_words(self, rooms: int) -> str:
        """Return what people are told.

        Args:
            rooms: how many rooms the documents are of.
        """
        said = (
            [f"the database of rooms was damaged ({self.pages}) and made anew from what could be read"]
            if self.pages
            else []
        )
        if self.rows:
            said.append(f"{self.rows} rows were torn and removed")
        if self.documents:
            said.append(
                f"{len(self.documents)} documents of {rooms} rooms were looked at or made anew from what is signed, "
                "and members are asked for what is missing"
            )
        kept = f"; the damaged file is {self.kept_as}" if self.kept_as else ""
        return "; ".join(said) + kept


class _NotTaken(Exception):
    """An update that was accepted before would not be now, so all of it stays as it is."""


class Mender:
    """See the module. Every method blocks; nobody else may have the database open in ``mend``.

    Args:
        path: the database.
        losses: what is to be mended, and what is asked for.
        make_engine: makes an engine over a store.
        local: our own entities.
        set_aside: keeps bytes that were damaged (what they were, the bytes, why).
    """

    def __init__(
        self,
        path: Path,
        losses: Losses,
        make_engine: MakeEngine,
        local: list[LocalEntity],
        set_aside: SetsAside = lambda *_: None,
    ) -> None:
        self._path = path
        self._losses = losses
        self._make_engine = make_engine
        self._keys = KnownKeys(local)
        self._set_aside = set_aside
        self._torn = 0

    def mend(self, *, everything: bool = False) -> Mended:
        """Mend what was found to be damaged, and what a glance shows; does next to nothing where that is nothing.

        Args:
            everything: whether all of it is looked at first, however long that takes.

        Raises:
            SubletError: ``UNAVAILABLE``: there is no room to do it, or the disk fails. It can be tried again.
        """
        finish(self._path)
        done, due = Mended(), self._losses.due()
        if not self._path.exists():
            return done
        done.pages = next((one.why for one in due if one.part is Part.PAGES), "") or damage.look(self._path)
        if everything:
            done.pages = done.pages or damage.first(self._path)
            due = [*due, Damage(Part.ROWS, "", "all of it is looked at")]
        elif not done.pages:
            due = [*due, *self._glance()]
        if done.pages:
            made = salvage(self._path, SCHEMA, done.pages, MADE_FROM_OTHERS)
            done.kept_as = made.kept_as
            due = [*due, Damage(Part.ROWS, "", done.pages)]
            self._losses.note(due[-1])  # a kill from here on leaves what was read to be looked at
        if due:
            self._mend_rows(done, due)
            if not everything or done:
                self._losses.mended(due)
        if done:
            rooms = {"/".join(name.split("/")[:2]) for name in done.documents}
            said = done.in_words(len(rooms))
            self._losses.tell(said)
            log.warning("the database of rooms was mended", what=said)
        return done

    def _glance(self) -> list[Damage]:
        """Return what of the newest documents is missing that was here, which takes a moment however much is kept."""
        try:
            with damage.reading(self._path) as db:
                if db.execute("PRAGMA user_version").fetchone() != (SCHEMA.version,):
                    return []
                sums = SqliteRows(db).sums()
                return [Damage(Part.DOCUMENT, one.doc_id, one.why) for one in sums.newest(GLANCED_AT)]
        except (sqlite3.Error, ValueError) as error:  # which is found, and told, by whoever looks at all of it
            log.warning("the digests of rooms could not be looked at", reason=damage.in_words(error))
            return []

    def _mend_rows(self, done: Mended, due: list[Damage]) -> None:
        named = {one.name: one.why for one in due if one.part is Part.DOCUMENT}
        trees = {one.name: one.why for one in due if one.part is Part.TREE}
        everything = any(one.part in (Part.PAGES, Part.ROWS) for one in due)
        store, trials = SqliteStore(self._path), Trials(lambda: self._make_engine(SqliteStore(None)))
        try:
            store.rows().take_any_text()
            if everything:
                self._drop_torn(store, done)
            self._drop_misnamed(store)
            named |= dict.fromkeys(self._adopt_strays(store, done), "its row was gone")
            # What was read of a damaged file may end anywhere, so all of it is asked for.
            keys, engine = self._keys.of(store.records().values()), self._make_engine(store)
            for document in store.rows().documents():
                if not everything and document.doc_id not in named:
                    continue
                found = inspect(store.rows(), document, keys, trials)
                if found.why and is_declared(engine, document):
                    self._mend_document(store, engine, found, keys, done)
                elif found.why or found.missing or done.pages:
                    why = found.why or ("contents are missing" if found.missing else done.pages)
                    done.documents.setdefault(document.doc_id, why)
                    self._losses.lose(document.doc_id, document.room_id, why)
            self._mend_trees(store, trees, everything, done)
        finally:
            trials.rest()
            store.close()

    def _mend_trees(self, store: SqliteStore, trees: dict[str, str], everything: bool, done: Mended) -> None:
        """Drop from digests what stands for documents that are gone, so that members are asked for these."""
        sums = store.rows().sums()
        if everything:
            found = [one for one in sums.wrong() if one is not None and not one.doc_id and one.room_id is not None]
            trees = trees | {one.room_id: one.why for one in found if one.room_id is not None}
        for room_id, why in trees.items():
            with store.transaction():
                sums.mend(room_id)
            with suppress(Refused):  # it is the name of no room, so nobody is asked for it
                name = doc_id("config", room_id=room_id)  # beside which the room is compared as a whole
                done.documents.setdefault(name, why)
                self._losses.lose(name, room_id, why)

    def _drop_torn(self, store: SqliteStore, done: Mended) -> None:
        torn = [one for one in store.rows().torn() if one is not None]
        for table, key, raw in torn:
            self._keep(f"{table}/{key}", raw, "it is no such row")
        with store.transaction():
            for table, key, _ in torn:
                store.rows().drop(table, key)
        done.rows += len(torn)

    def _drop_misnamed(self, store: SqliteStore) -> None:
        """Remove what calls documents other than most of their first updates do, or has no name of a document."""
        rows = store.rows()
        with store.transaction():
            for document in rows.all_documents():
                said = Counter(_place_of(raw) for raw in rows.first_updates(document.number, LOOKED_AT))
                place = said.most_common(1)[0][0] if said else None
                if not is_named_right(document) or (place is not None and place[0] != document.doc_id):
                    log.warning("a document was called by another name", document=document.doc_id[:200])
                    rows.drop_document(document.number)

    def _adopt_strays(self, store: SqliteStore, done: Mended) -> list[str]:
        """Give updates whose document is not there back to it, since each of them says of which it is; return these."""
        rows, names = store.rows(), list[str]()
        for number in rows.strays():
            updates = rows.updates(number)
            place = next(filter(None, (_place_of(raw) for _, raw in updates)), None)
            with store.transaction():
                if place is None:
                    rows.clear(number)
                    continue
                name, kind = place
                names.append(name)
                done.documents[name] = "its row was gone"
                room_id = parse_doc_id(name).room_id
                if not rows.adopt(number, name, room_id, kind):
                    # It was made anew meanwhile, so these updates come as if a member had told them.
                    self._losses.lose(name, room_id, done.documents[name], [raw for _, raw in updates])
                    rows.move_contents(number, store.document(name, room_id, kind).number)
                    rows.clear(number)
        return names

    def _mend_document(self, store: SqliteStore, engine: Engine, found: Found, keys: Keys, done: Mended) -> None:
        """Make all that is kept of a document anew from those of its updates that are sound."""
        document, good = found.document, list[tuple[int, bytes]]()
        for seq, raw in store.rows().updates(document.number):
            try:
                sound(raw, document.doc_id, keys)
            except (Refused, ValueError) as error:
                done.updates += 1
                self._keep(f"{document.doc_id}/{seq}", raw, f"an update is damaged: {error}")
            else:
                good.append((seq, raw))
        left = LeftOut()
        try:
            with store.transaction():
                store.rows().clear(document.number)
                engine.documents.close(document.doc_id)
                engine.staging.replay(document.doc_id, good, left)
                if left.refused:
                    raise _NotTaken
                # What builds on something that is gone is kept beside before it leaves the log.
                self._losses.lose(document.doc_id, document.room_id, found.why, left.gaps)
        except _NotTaken:
            log.error("a document is damaged and can't be made anew", document=document.doc_id, why=found.why)
            self._losses.lose(document.doc_id, document.room_id, found.why)
        finally:
            engine.forget()
        done.documents[document.doc_id] = found.why
        log.warning("a document was mended", document=document.doc_id, why=found.why, waits=len(left.gaps))

    def _keep(self, what: str, raw: bytes, why: str) -> None:
        self._torn += 1
        if self._torn <= MAX_TORN:
            self._set_aside(f"{self._path.name}/{what}", raw, why)


def _place_of(raw: bytes) -> tuple[str, str] | None:
    """Return the id and the kind of the document that an envelope names; None where it is no envelope."""
    try:
        name = unpack(raw).doc_id
        return name, parse_doc_id(name).kind
    except Refused:
        return None
