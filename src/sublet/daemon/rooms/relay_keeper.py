"""Keeps this daemon at its relay: the registration and its renewal, the uplink, and what the relay is told of rooms.

Rules: the relay is told whom we are paired with and which rooms we have taken up, and forwards nothing else to us; of
rooms of which one of ours is an owner it is told who is in them. All of that is told again whenever the link is new.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import anyio
import structlog
from nacl.signing import SigningKey

from sublet.daemon.config.config_file import bus_endpoint
from sublet.daemon.rooms.relay_desk import AsksRelay, RelayDesk, RelayRefused
from sublet.daemon.rooms.relay_registration import FILE, Registration, RegistrationFiles
from sublet.protocol import ids
from sublet.protocol.bounded_json import parse_json
from sublet.protocol.canonical import JsonValue
from sublet.protocol.encoding import b64, unb64
from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.relay.attendance import Attendance
from sublet.protocol.relay.errors import RelayRefusal
from sublet.protocol.relay.name_record import NameRecord
from sublet.protocol.relay.requests import KEY_BYTES, NONCE_BYTES, AccountRequest, RequestAction, encode_request
from sublet.protocol.relay.room_statement import RoomHomes, RoomStatement, make_statement, parse_statement

if TYPE_CHECKING:
    from sublet.messaging.backends.zenoh_config import Uplink
    from sublet.messaging.backends.zenoh_network import ZenohNetwork
    from sublet.messaging.engine.engine import Engine
    from sublet.messaging.ports.rows import EventRow
    from sublet.messaging.service import MessagingService

LOOK_SECONDS: Final = 15.0
"""How often it is looked whether a certificate is due, or the relay has not been told something yet."""
SETTLE_SECONDS: Final = 0.05
"""How long changes are gathered before the relay is told."""
ANSWER_SECONDS: Final = 5.0
LEAST_SECONDS: Final = 0.5
MAX_LIFE_SECONDS: Final = 90 * 86_400
"""Of a certificate: what ends later is not believed, and would never be renewed."""
RETRY_SECONDS: Final = 60.0
"""After a renewal that has failed."""
_ROOM_EVENTS: Final = ("room.member.", "room.config.", "room.created")

log = structlog.get_logger(__name__)


class RelayKeeper:
    """See the module.

    Args:
        key: the daemon's identity key.
        directory: private, for the registration.
        relay: where the relay is, ``tls/HOST:PORT``; None for none.
        authority: PEM file by which it is known; None for the system's.
        contacts: returns the node ids of the paired daemons; ``wake`` is called when they have changed.
        ask: makes what asks a registration port, by its URL.
        clock: Unix seconds.
    """

    def __init__(
        self,
        key: SigningKey,
        directory: Path,
        relay: str | None,
        authority: Path | None,
        contacts: Callable[[], Iterable[str]],
        ask: Callable[[str, Path | None], AsksRelay] = RelayDesk,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.relay = relay
        self._key = key
        self._files = RegistrationFiles(directory)
        self._authority = authority
        self._contacts = contacts
        self._ask = ask
        self._clock = clock
        self._registration: Registration | None = None
        self._is_read = False
        self._changed = asyncio.Event()
        self._busy = anyio.Lock()
        self._tried_at = 0.0
        self._epoch = 0
        self._told: tuple[int, bytes] | None = None
        self._stated: dict[str, RoomHomes] = {}
        """What the relay knows of rooms, over the link of ``_stated_over``."""
        self._stated_over = 0
        self._next_room = ""
        """Where stating rooms goes on, after the relay has taken no more."""
        self._why = ""

    def wake(self) -> None:
        """Look again what the relay has to be told."""
        self._changed.set()

    @property
    def linked(self) -> bool:
        """Whether the relay has taken up what we want to hear over the link that there is now."""
        return self._told is not None

    async def registration(self) -> Registration | None:
        """Return our registration at the relay that is configured; None where there is none."""
        if not self._is_read:
            self._registration = await asyncio.to_thread(self._files.read)
            self._is_read = True
        found = self._registration
        return found if found is not None and found.relay == self.relay else None

    async def register(self, name: str, at: str | None = None) -> Registration:
        """Register a name at the relay, or get another certificate for the one that is ours.

        Args:
            name: the name.
            at: ``HOST:PORT`` of the registration port; by default the port after the relay's.

        Raises:
            SubletError: ``INVALID_ARGUMENT`` where there is no relay; ``CONFLICT`` where the name is another's, or we
                have another one; ``UNAVAILABLE`` where the relay can't be asked, and what it refuses.
        """
        if self.relay is None:
            raise SubletError(
                LocalCode.INVALID_ARGUMENT,
                "there is no relay to register at",
                "Start the daemon with one: sublet up --relay tls/HOST:PORT --relay-ca FILE",
            )
        desk = f"https://{at}" if at is not None else _desk_of(self.relay)
        made = await self._admitted(RequestAction.REGISTER, self.relay, desk, name)
        self._why = ""
        self._changed.set()
        return made

    async def record(self, name: str) -> NameRecord:
        """Return what the relay says of a name.

        Raises:
            SubletError: ``INVALID_ARGUMENT`` where there is no relay; what it refuses; ``UNAVAILABLE``.
        """
        known = await self.registration()
        if self.relay is None:
            raise SubletError(LocalCode.INVALID_ARGUMENT, "there is no relay to ask", "See sublet up --relay.")
        asks = self._ask(known.desk if known is not None else _desk_of(self.relay), self._authority)
        return await asks.record(name, unb64(known.relay_key, KEY_BYTES) if known is not None else None)

    async def run(self, network: ZenohNetwork, service: MessagingService) -> None:
        """Keep to the relay until cancelled.

        Args:
            network: has the uplink.
            service: has the rooms.
        """
        loop = asyncio.get_running_loop()
        wake = partial(_soon, loop, self._changed.set)
        network.on_change(wake)
        await service.on_engine(partial(_listen, wake))
        used: Uplink | None = None
        try:
            while True:
                self._changed.clear()
                await self._renew()
                wanted = await self._uplink()
                if wanted != used:
                    await asyncio.to_thread(network.use_relay, wanted)
                    used = wanted
                await self._tell(network, service)
                with anyio.move_on_after(await self._pause()):
                    await self._changed.wait()
                    await anyio.sleep(SETTLE_SECONDS)
        finally:
            self._told = None

    def remarks(self) -> list[str]:
        """Return what is wrong with the relay."""
        if self.relay is None:
            return []
        if self._why:
            return [f"the relay {self.relay} {self._why}"]
        if self._is_read and (self._registration is None or self._registration.relay != self.relay):
            return [f"this daemon has no name at the relay {self.relay}; get one: sublet register NAME"]
        return []

    async def _admitted(self, action: RequestAction, relay: str, desk: str, name: str) -> Registration:
        async with self._busy:
            asks = self._ask(desk, self._authority)
            domain = await asks.domain()
            csr = await asyncio.to_thread(self._files.request)
            now, public = int(self._clock()), bytes(self._key.verify_key)
            request = AccountRequest(action, domain, public, name, csr, now, os.urandom(NONCE_BYTES))
            given = await asks.admit(action, encode_request(request, self._key))
            if given.record.key != public or given.record.entity_id != f"@{name}:{domain}":
                raise SubletError(
                    LocalCode.UNAVAILABLE, "the relay says that the name is somebody else's", "Ask whoever runs it."
                )
            if not now < given.expires_at <= now + MAX_LIFE_SECONDS:
                raise SubletError(
                    LocalCode.UNAVAILABLE,
                    "the relay gives a certificate that has ended, or ends after more than 90 days",
                    "See that the clocks of both are right, or ask whoever runs it.",
                )
            before, relay_key = await self.registration(), b64(given.relay_key)
            if before is not None and before.relay == relay and before.relay_key != relay_key:
                raise SubletError(
                    LocalCode.KEY_CHANGED,
                    f"the relay {relay} has another key than when this daemon registered",
                    f"Ask whoever runs it. If it was made anew: remove {self._files.directory / FILE}, restart the"
                    " daemon, and register again.",
                )
            made = Registration(
                relay=relay,
                desk=desk,
                domain=domain,
                name=name,
                relay_key=relay_key,
                slot=given.slot,
                renewed_at=now,
                expires_at=given.expires_at,
            )
            await asyncio.to_thread(self._files.keep, made, given)
            self._registration, self._is_read = made, True
            return made

    async def _renew(self) -> None:
        known, now = await self.registration(), self._clock()
        if known is None or now < known.due_at or now - self._tried_at < RETRY_SECONDS:
            return
        self._tried_at = now
        try:
            await self._admitted(RequestAction.RENEW, known.relay, known.desk, known.name)
            self._why = ""
        except RelayRefused as refused:
            self._why = f"has given no new certificate: {refused.message}"
            log.warning("the relay gives no new certificate", code=refused.said)
        except SubletError as error:
            log.info("the certificate for the relay could not be renewed, which is tried again", reason=error.message)
            if now > known.expires_at:
                self._why = f"can't be asked for a new certificate: {error.message}"

    async def _pause(self) -> float:
        """Return after how many seconds it is looked again, though nothing has changed."""
        known = await self.registration()
        due = known.due_at - self._clock() if known is not None else LOOK_SECONDS
        return min(LOOK_SECONDS, max(LEAST_SECONDS, due))

    async def _uplink(self) -> Uplink | None:
        from sublet.messaging.backends.zenoh_config import Uplink

        known = await self.registration()
        if known is None or known.expires_at <= self._clock():
            return None
        return Uplink(
            known.relay,
            known.slot,
            ids.node_id(bytes(self._key.verify_key)),
            self._files.certificate,
            self._files.key,
            self._authority,
        )

    async def _tell(self, network: ZenohNetwork, service: MessagingService) -> None:
        """Tell the relay what it does not know yet."""
        from sublet.messaging.membership.room_homes import homes_to_state, rooms_here

        epoch = network.relay_epoch()
        if epoch == 0:
            self._told = None
            return

        def read(engine: Engine) -> tuple[frozenset[str], Mapping[str, RoomHomes]]:
            rooms = rooms_here(engine)
            return rooms, homes_to_state(engine, rooms)

        rooms, homes = await service.on_engine(read)
        wants = Attendance(frozenset(self._contacts()), rooms).encode()
        if self._told != (epoch, wants):
            answer = await self._asked(network, "relay/attend", wants)
            if answer is None or "ok" not in answer:
                return
            self._told = (epoch, wants)
            network.known_at_relay()
        if self._stated_over != epoch:
            self._stated.clear()
            self._stated_over = epoch
        await self._state_all(network, homes)

    async def _state_all(self, network: ZenohNetwork, homes: Mapping[str, RoomHomes]) -> None:
        """State the rooms that the relay does not know, from where it was left off until no answer comes.

        A relay answers so many questions at a time, and none beyond; what is left follows when it is looked again.
        """
        left = [
            room for room, one in homes.items() if self._stated.get(room) != one and len(one.writers | one.readers) > 1
        ]
        begin = self._next_room
        for room in sorted(room for room in left if room >= begin) + sorted(room for room in left if room < begin):
            self._next_room = room
            if not await self._state(network, room, homes[room]):
                return

    async def _state(self, network: ZenohNetwork, room: str, homes: RoomHomes) -> bool:
        """Tell the relay who is in a room, unless it knows; tell whether it has answered."""
        known = await self._asked(network, "relay/statement", room.encode())
        registration = await self.registration()
        if known is None or registration is None:
            return False
        if "ok" not in known:
            return True
        before: RoomStatement | None = None
        if isinstance(said := known["ok"], str):
            with suppress(RelayRefusal):
                before = parse_statement(said.encode(), registration.domain)
        if before is not None and before.homes == homes:
            self._stated[room] = homes
            return True
        version = before.version + 1 if before is not None else 1
        statement = make_statement(registration.domain, room, homes, version, self._key)
        taken = await self._asked(network, "relay/room", statement.encode())
        if taken is not None and "ok" in taken:
            self._stated[room] = homes
        return taken is not None

    async def _asked(self, network: ZenohNetwork, key: str, payload: bytes) -> dict[str, JsonValue] | None:
        """Return what the relay answers, with ``ok`` or with ``error``; None where it does not."""
        raw = await asyncio.to_thread(network.ask_relay, key, payload, ANSWER_SECONDS)
        try:
            answer = parse_json(raw) if raw is not None else None
        except ValueError:
            answer = None
        if isinstance(answer, dict) and "ok" in answer:
            return answer
        error = answer.get("error") if isinstance(answer, dict) else None
        code = error.get("code") if isinstance(error, dict) else None
        log.info("the relay has not taken what it was told", key=key, code=code if isinstance(code, str) else None)
        return {"error": code} if isinstance(error, dict) else None


def _desk_of(relay: str) -> str:
    host, port, _ = bus_endpoint(relay)
    return f"https://{f'[{host}]' if ':' in host else host}:{port + 1}"


def _listen(wake: Callable[[], None], engine: Engine) -> None:
    """Wake whenever it may have changed who is in a room, at which daemons they are, or which rooms are here."""
    engine.events.listeners.append(partial(_room_events, wake))
    keyring, moves = engine.keyring, [engine.keyring.moves]

    def learned(_: str) -> None:
        if moves[0] != keyring.moves:
            moves[0] = keyring.moves
            wake()

    keyring.learned.append(learned)
    for listeners in (engine.here.agreed, engine.here.let_go):
        listeners.append(lambda _: wake())


def _room_events(wake: Callable[[], None], rows: list[EventRow]) -> None:
    if any(row.kind.startswith(_ROOM_EVENTS) for row in rows):
        wake()


def _soon(loop: asyncio.AbstractEventLoop, run: Callable[[], None]) -> None:
    with suppress(RuntimeError):  # the loop has ended, and nothing needs it any more
        loop.call_soon_threadsafe(run)
