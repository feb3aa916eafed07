"""Serves the operations of ``api.offices``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from sublet import deadlines
from sublet.daemon.api.offices import (
    CLOSE_OFFICE,
    CREATE_OFFICE,
    CREATE_OFFICE_TOKEN,
    KICK_OFFICE_MEMBER,
    LIST_OFFICES,
    CreateOffice,
    CreateOfficeToken,
    KickedMember,
    KickMember,
    OfficeList,
    OfficeMember,
    OfficeToken,
    OfficeView,
    OneOffice,
)
from sublet.daemon.api.operation import Nothing
from sublet.daemon.governing.gatekeeper import Gatekeeper
from sublet.daemon.offices.store import Office, OfficeStore
from sublet.daemon.operations.table import serves
from sublet.offices.calls import Calls
from sublet.offices.rules import Offices
from sublet.offices.seats import Effect, Seat
from sublet.policy.decision import Subject
from sublet.protocol.errors import LocalCode, SubletError

START_SECONDS: Final = 10.0
"""How long the face may take to listen after the first office was opened."""


class Sends(Protocol):
    """Sends members away."""

    def dismiss(self, effects: Sequence[Effect]) -> None:
        """Carry out what a person has decided, at once."""


class Listens(Protocol):
    """Knows where offices are served."""

    @property
    def address(self) -> str:
        """The URL for clients; empty while nothing is served."""

    async def listening(self) -> str:
        """Return the URL for clients, once there is one."""


@dataclass(frozen=True, slots=True)
class OfficeParts:
    """What the service is made of; ``certificate`` is that of the URL, where it has TLS."""

    gate: Gatekeeper
    store: OfficeStore
    offices: Offices
    calls: Calls
    desk: Sends
    place: Listens
    certificate: Callable[[], str | None]


class OfficeService:
    """Opens and closes offices, makes tokens and sends members away."""

    def __init__(self, parts: OfficeParts) -> None:
        self._parts = parts
        self._gate = parts.gate

    @serves(CREATE_OFFICE)
    async def create_office(self, request: CreateOffice, caller: Subject) -> OfficeView:
        office = await self._parts.store.create(request.name)
        return self._view(office)

    @serves(LIST_OFFICES)
    async def list_offices(self, request: Nothing, caller: Subject) -> OfficeList:
        return OfficeList(
            offices=[self._view(one) for one in self._parts.store.list()],
            url=self._parts.place.address or None,
            certificate=self._parts.certificate(),
        )

    @serves(CREATE_OFFICE_TOKEN)
    async def create_token(self, request: CreateOfficeToken, caller: Subject) -> OfficeToken:
        office = self._parts.store.get(request.office)
        try:
            async with deadlines.timeout(START_SECONDS):
                url = await self._parts.place.listening()
        except TimeoutError:
            raise SubletError(
                LocalCode.UNAVAILABLE,
                "offices are not served",
                "See `sublet status` for why; the address is offices.listen in config.json.",
            ) from None
        secret, seat, replaced = await self._parts.store.create_token(
            office, request.role, request.name, replace=request.replace
        )
        if replaced is not None:
            self._send_away([replaced], "its token was replaced")
        return OfficeToken(
            office_id=office.id,
            role=seat.role,
            name=seat.name,
            token=secret,
            url=url,
            certificate=self._parts.certificate(),
        )

    @serves(KICK_OFFICE_MEMBER)
    async def kick_member(self, request: KickMember, caller: Subject) -> KickedMember:
        office = self._parts.store.get(request.office)
        there = {member.seat for member in self._parts.offices.members_of(office.id)}
        seat = await self._parts.store.revoke(office, request.name)
        self._send_away([seat], "a person has sent it away")
        return KickedMember(office_id=office.id, name=seat.name, role=seat.role, was_connected=seat in there)

    @serves(CLOSE_OFFICE)
    async def close_office(self, request: OneOffice, caller: Subject) -> OfficeView:
        office = self._parts.store.get(request.office)
        view = self._view(office)
        self._send_away(await self._parts.store.close(office), "the office was closed")
        return view

    def _send_away(self, seats: Sequence[Seat], why: str) -> None:
        ids = {seat.token_id for seat in seats}
        self._parts.desk.dismiss(self._parts.offices.revoke(ids, why))

    def _view(self, office: Office) -> OfficeView:
        there = {member.seat: member.sid for member in self._parts.offices.members_of(office.id)}
        return OfficeView(
            office_id=office.id,
            name=office.name,
            created_at=office.created_at,
            members=[
                OfficeMember(
                    name=seat.name,
                    role=seat.role,
                    connected=seat in there,
                    calls=len(self._parts.calls.of(there[seat])) if seat in there else 0,
                )
                for seat in self._parts.store.seats(office)
            ],
        )
