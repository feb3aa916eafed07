"""The approver's key as this daemon has pinned it: what a person signs is verified with it and with nothing else."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from dataclasses import dataclass

import anyio

from sublet.daemon.approvals.grant_store import GrantStore
from sublet.daemon.storage.event_log import Recorder
from sublet.daemon.storage.journal import Journal
from sublet.daemon.storage.torn_rows import RowsOf, a_moment_or_none
from sublet.protocol.events import EventKind
from sublet.protocol.ids import fingerprint
from sublet.protocol.signing import KEY_BYTES, Nonces
from sublet.protocol.statement_signing import verify_statement
from sublet.protocol.statements import SignedStatement, missing


@dataclass(frozen=True, slots=True)
class Pinned:
    """What is known of the approver: her public key and its sealed private half, or neither.

    ``reset_at`` tells when a key was last thrown away without its passphrase, in Unix seconds.
    """

    public_key: bytes | None = None
    sealed: str | None = None
    made_at: float | None = None
    reset_at: float | None = None

    @property
    def fingerprint(self) -> str | None:
        """The key's fingerprint."""
        return fingerprint(self.public_key) if self.public_key is not None else None


class Approver:
    """Keeps the one key. ``load`` makes it."""

    def __init__(
        self,
        journal: Journal,
        grants: GrantStore,
        daemon: str,
        nonces: Nonces,
        pinned: Pinned,
        clock: Callable[[], float],
    ) -> None:
        self._journal = journal
        self._grants = grants
        self._daemon = daemon
        self._nonces = nonces
        self._clock = clock
        self.pinned = pinned

    @classmethod
    async def load(
        cls,
        journal: Journal,
        grants: GrantStore,
        daemon: str,
        nonces: Nonces,
        clock: Callable[[], float] = time.time,
    ) -> Approver:
        """Return the approver that the store knows.

        Args:
            journal: keeps her.
            grants: void when her key is replaced.
            daemon: our node id.
            nonces: replay memory.
            clock: tells Unix seconds.
        """
        found = await journal.rows.sound(RowsOf("approver"), _pinned)
        return cls(journal, grants, daemon, nonces, found[0] if found else Pinned(), clock)

    def require(self) -> bytes:
        """Return the public key.

        Raises:
            SubletError: ``APPROVER_MISSING``.
        """
        if self.pinned.public_key is None:
            raise missing()
        return self.pinned.public_key

    def verify(self, signed: SignedStatement, *, signer: bytes | None = None) -> None:
        """Return if ``signed`` is the approver's, for this daemon, now, and for the first time.

        Raises:
            SubletError: ``APPROVER_MISSING``, ``APPROVAL_INVALID``.
        """
        key = signer or self.require()
        verify_statement(signed, signer=key, daemon=self._daemon, now=self._clock(), nonces=self._nonces)

    async def pin(self, public_key: bytes, sealed: str, by: str) -> Pinned:
        """Pin a key in place of none, or of another; then all grants are void. The caller has verified who asks."""
        same = public_key == self.pinned.public_key
        made_at = self.pinned.made_at if same else self._clock()
        return await self._put(Pinned(public_key, sealed, made_at, self.pinned.reset_at), "set", by, void=not same)

    async def forget(self, by: str, *, reset: bool) -> Pinned:
        """Forget the key, and void all grants; ``reset`` where nobody has shown its passphrase."""
        if self.pinned.public_key is None:
            raise missing()
        reset_at = self._clock() if reset else self.pinned.reset_at
        return await self._put(Pinned(reset_at=reset_at), "reset" if reset else "removed", by, void=True)

    async def _put(self, pinned: Pinned, how: str, by: str, *, void: bool) -> Pinned:
        was = self.pinned.fingerprint

        def work(connection: sqlite3.Connection, events: Recorder) -> None:
            voided = self._grants.void_all(connection, events, f"approver {how}") if void else 0
            connection.execute(
                "INSERT OR REPLACE INTO approver (id, public_key, sealed, made_at, reset_at) VALUES (1, ?, ?, ?, ?)",
                (pinned.public_key, pinned.sealed, pinned.made_at, pinned.reset_at),
            )
            events.add(
                EventKind.APPROVER_CHANGED,
                None,
                {"change": how, "key": pinned.fingerprint, "was": was, "by": by, "grantsVoided": voided},
            )

        # Shielded, so that store and memory never part ways.
        with anyio.CancelScope(shield=True):
            await self._journal.events.transact(work)
            self.pinned = pinned
        return pinned


def _pinned(row: sqlite3.Row) -> Pinned:
    """Return what a row says of the approver.

    Raises:
        ValueError: the row is torn. Then there is no approver, so nothing is approved until a person makes one.
    """
    key, sealed = row["public_key"], row["sealed"]
    if key is not None and (len(key) != KEY_BYTES or not sealed):
        raise ValueError("its key is none")
    return Pinned(key, sealed, a_moment_or_none(row["made_at"]), a_moment_or_none(row["reset_at"]))
