"""The desk of a relay: accounts get slots and certificates, and rooms their statements; each once it is on the disk.

Any thread may call. What decides is in ``accounts``, ``slots`` and ``membership``; this puts the parts together, and
keeps a change before anybody hears of it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from nacl.signing import SigningKey

from sublet.messaging.relay.accounts import Account, Accounts
from sublet.messaging.relay.authority import Authority, requested_key
from sublet.messaging.relay.membership import RoomTable
from sublet.messaging.relay.slots import SlotRow, Slots
from sublet.messaging.relay.store import RENEWED, RelayStore
from sublet.protocol.canonical import JsonValue
from sublet.protocol.encoding import b64
from sublet.protocol.relay.errors import RelayCode, RelayRefusal, invalid
from sublet.protocol.relay.name_record import NameRecord, sign_record
from sublet.protocol.relay.requests import MAX_AGE_SECONDS, AccountRequest, RequestAction, parse_request
from sublet.protocol.relay.room_statement import RoomStatement, parse_statement
from sublet.protocol.relay.slot_keys import slot_name, slot_number

MAX_ACCOUNTS: Final = 200_000
"""Names, those that were revoked among them."""

ROTATED: Final = "rotated"


@dataclass(frozen=True, slots=True)
class Terms:
    """What an operator may change while the relay runs.

    Args:
        is_open: whether anybody may register a new name.
        certificate_life: of clients.
    """

    is_open: bool
    certificate_life: timedelta


class Registry:
    """See the module.

    Args:
        domain: of the relay.
        key: signs what it says of names.
        authority: issues certificates.
        store: keeps what has changed.
        slots: how many there are.
        terms: returns what holds now.
        clock: Unix seconds.

    Raises:
        SubletError: the store can't be read.
    """

    def __init__(
        self,
        domain: str,
        key: SigningKey,
        authority: Authority,
        store: RelayStore,
        slots: int,
        terms: Callable[[], Terms],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.domain = domain
        self._key = key
        self._authority = authority
        self._store = store
        self._terms = terms
        self._clock = clock
        self._count = slots
        self._lock = threading.RLock()
        self.accounts = Accounts(domain, store.accounts())
        self.slots = Slots(slots, store.slots())
        self.rooms = RoomTable(store.statements(domain))
        self.cut: list[Callable[[str], None]] = []
        """Told of each slot that is nobody's any more, by its name."""
        self._seen = store.changes()

    @property
    def public_key(self) -> bytes:
        """The key by which the relay's records are known."""
        return bytes(self._key.verify_key)

    def account_of(self, slot: str) -> Account | None:
        """Return whose a slot is now; None where it is nobody's who counts."""
        number = slot_number(slot)
        name = self.slots.account(number) if number is not None else None
        account = self.accounts.get(name) if name is not None else None
        return account if account is not None and not account.revoked else None

    def slot_of(self, node: str) -> str | None:
        """Return the slot of a daemon, by its node id."""
        account = self.accounts.of_node(node)
        number = self.slots.of(account.name) if account is not None else None
        return slot_name(number) if number is not None else None

    def lookup(self, name: str) -> NameRecord:
        """Return what the relay says of a name, signed.

        Raises:
            RelayRefusal: ``ENTITY_NOT_FOUND``.
        """
        account = self.accounts.get(name)
        if account is None:
            raise RelayRefusal(RelayCode.ENTITY_NOT_FOUND, "nobody has this name here")
        return self._record(account)

    def answer(self, action: RequestAction, raw: bytes) -> dict[str, JsonValue]:
        """Do what a signed request asks for, and return the answer. Blocks on the disk.

        Raises:
            RelayRefusal: it is refused, and nothing has changed.
        """
        now = self._clock()
        request = parse_request(raw, action, self.domain, now)
        with self._lock:
            if not self._store.first_seen(request.nonce, request.at + MAX_AGE_SECONDS):
                raise RelayRefusal(RelayCode.INVALID_SIGNATURE, "the request was received before")
            match action:
                case RequestAction.REGISTER:
                    return self._registered(request, now)
                case RequestAction.RENEW:
                    return self._admitted(self.accounts.require(request.name, request.key), request, RENEWED, now)
                case RequestAction.ROTATE:
                    if not request.new_key:
                        raise invalid("a rotation names the new key")
                    account = self.accounts.rotated(request.name, request.key, request.new_key)
                    return self._admitted(account, request, ROTATED, now)
                case RequestAction.REVOKE:
                    self.accounts.require(request.name, request.key)
                    return {"record": self.revoke(request.name).as_json()}

    def revoke(self, name: str) -> NameRecord:
        """Let a name stand for nobody any more, and cut whoever has it. Blocks on the disk.

        Raises:
            RelayRefusal: ``ENTITY_NOT_FOUND``.
        """
        with self._lock:
            account = self.accounts.revoked(name)
            if account != self.accounts.get(name):
                row = self.slots.forget(name)
                self._store.keep_account(account, row, "revoked", int(self._clock()))
                self.accounts.put(account)
                if row is not None:
                    self._cut(slot_name(row.number))
            return self._record(account)

    def state_room(self, raw: bytes, sender: str) -> RoomStatement:
        """Take the statement of a room from a daemon, by its node id. Blocks on the disk.

        Raises:
            RelayRefusal: it does not count, and nothing has changed.
        """
        statement = parse_statement(raw, self.domain)
        with self._lock:
            if self.accounts.of_node(sender) is None:
                raise RelayRefusal(RelayCode.PERMISSION_DENIED, "this daemon has no name here")
            self.rooms.check(statement)
            self._store.keep_statement(statement)
            self.rooms.put(statement)
        return statement

    def look_again(self) -> None:
        """Take what another process has changed in the store, such as a name that its operator has revoked."""
        seen = self._store.changes()
        if seen == self._seen:
            return
        self._seen = seen
        with self._lock:
            accounts, slots = self._store.accounts(), Slots(self._count, self._store.slots())
            lost = [
                slot_name(number)
                for number in range(self._count)
                if self.slots.account(number) is not None and self.slots.account(number) != slots.account(number)
            ]
            self.accounts, self.slots = Accounts(self.domain, accounts), slots
        for slot in lost:
            self._cut(slot)

    def _registered(self, request: AccountRequest, now: float) -> dict[str, JsonValue]:
        is_new = self.accounts.get(request.name) is None
        account = self.accounts.registered(request.name, request.key, int(now))
        if is_new and not self._terms().is_open:
            raise RelayRefusal(RelayCode.PERMISSION_DENIED, "this relay takes no new names")
        if is_new and len(self.accounts) >= MAX_ACCOUNTS:
            raise RelayRefusal(RelayCode.QUOTA_EXCEEDED, "this relay takes no more names")
        return self._admitted(account, request, "registered" if is_new else RENEWED, now)

    def _admitted(self, account: Account, request: AccountRequest, what: str, now: float) -> dict[str, JsonValue]:
        """Keep an account with a new certificate for its slot, and return what it is told."""
        wanted = requested_key(request.csr)
        if what == ROTATED:
            self._leave_slot(account, now)
        before = self.slots.of(account.name)
        number = self.slots.next_for(account.name, now)
        issued = self._authority.admit(wanted, slot_name(number), self._terms().certificate_life)
        row = self.slots.assign(account.name, issued.until, now)
        self._keep(account, row, what, now)
        self.accounts.put(account)
        if before is not None and before != number:
            self._cut(slot_name(before))
        return {
            "record": self._record(account).as_json(),
            "relay_key": b64(self.public_key),
            "slot": slot_name(number),
            "certificate": issued.pem,
            "expires_at": issued.until,
        }

    def _leave_slot(self, account: Account, now: float) -> None:
        """Take the slot away whose certificates were made for a key that counts no more."""
        known, row = self.accounts.get(account.name), self.slots.forget(account.name)
        if row is not None and known is not None:
            self._store.keep_account(known, row, RENEWED, int(now))
            self._cut(slot_name(row.number))

    def _keep(self, account: Account, row: SlotRow, what: str, now: float) -> None:
        try:
            self._store.keep_account(account, row, what, int(now))
        except BaseException:
            # What is not on the disk was not given away; the slot rests, since its certificate was made.
            self.slots.forget(account.name)
            raise

    def _record(self, account: Account) -> NameRecord:
        bare = NameRecord(
            f"@{account.name}:{self.domain}", account.key, account.version, account.registered_at, account.revoked
        )
        return sign_record(bare, self._key)

    def _cut(self, slot: str) -> None:
        for cut in self.cut:
            cut(slot)
