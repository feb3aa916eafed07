"""Finds the room that an address names, and opens the conversation of two where there is none."""

from __future__ import annotations

import asyncio

from sublet.daemon.governing.gatekeeper import Gatekeeper
from sublet.daemon.rooms.addressing import MAX_SHOWN_CHARS, Addresses, direct_name
from sublet.daemon.rooms.entities import daemon_of
from sublet.daemon.rooms.speaking import Speaking
from sublet.messaging.calls import room_calls
from sublet.policy.model import Action, Subject
from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.ezagent.ids import EntityId, RoomId, entity_domain
from sublet.protocol.text import clean_line


class RoomFinder:
    """Finds rooms for services, which have asked whether the caller may read rooms at all.

    Args:
        gate: asks policy before a room is opened.
        speaking: runs operations as the caller's entity.
        addresses: reads whom a message is for.
    """

    def __init__(self, gate: Gatekeeper, speaking: Speaking, addresses: Addresses) -> None:
        self._gate = gate
        self._speaking = speaking
        self._addresses = addresses
        self._opening = asyncio.Lock()

    async def find(self, given: str, caller: Subject, open_for: int | None = None) -> RoomId:
        """Return the room that an address names.

        Args:
            given: the address.
            caller: who asks.
            open_for: bytes that are to be said; a room for two is then opened where there is none.

        Raises:
            SubletError: ``NOT_FOUND`` for nothing, ``INVALID_ARGUMENT`` for several rooms or the caller itself.
        """
        found = self._addresses.read(given, await self._speaking.call(caller, room_calls.list_rooms))
        if found.room_id is not None:
            return found.room_id
        assert found.entity is not None
        me = self._speaking.entity(caller)
        if found.entity == me:
            raise SubletError(LocalCode.INVALID_ARGUMENT, f"{me} is you", "Name somebody else.")
        async with self._opening:
            known = await self._direct(me, found.entity, caller)
            if known is not None:
                return known
            if open_for is None:
                what = f"there is no conversation with {found.entity} yet"
                raise SubletError(LocalCode.NOT_FOUND, what, "send_message opens one.")
            await self._gate.ask(caller, Action.ROOM_MANAGE, "*")
            await self._gate.ask(caller, Action.ROOM_SEND, "*", size_bytes=open_for)
            await self.require(found.entity, caller)
            name = direct_name(me, found.entity)
            made = await self._speaking.call(caller, room_calls.create, name=name, invite=[found.entity])
            return str(made["room_id"])

    def entity(self, given: str) -> EntityId:
        """Return the entity that an address names, which need not exist.

        Raises:
            SubletError: ``NOT_FOUND``, or ``INVALID_ARGUMENT``: it names a room.
        """
        found = self._addresses.read(given, ())
        if found.entity is None:
            raise SubletError(LocalCode.INVALID_ARGUMENT, "that is a room, and nobody", "Give @entity or AGENT@PEER.")
        return found.entity

    async def require(self, entity: EntityId, caller: Subject) -> None:
        """Refuse to invite or to address an entity that does not exist.

        A daemon that can't be reached now is not asked: what is said waits for it.

        Raises:
            SubletError: ``NOT_FOUND``: no such daemon is paired, or it says that it has nobody of that name.
        """
        domain, shown = entity_domain(entity), clean_line(entity, MAX_SHOWN_CHARS)
        if domain == entity_domain(self._speaking.entity(caller)):
            await self._speaking.call(caller, room_calls.get_pubkey, entity_id=entity)
            return
        if not self._addresses.is_paired(domain):
            what = f"no paired daemon is {clean_line(domain, MAX_SHOWN_CHARS)!r}"
            raise SubletError(LocalCode.NOT_FOUND, what, "See: sublet peers")
        if await self._answers(entity, caller) or not await self._answers(daemon_of(domain), caller):
            return
        if await self._answers(entity, caller):  # whose daemon had only just begun
            return
        raise SubletError(
            LocalCode.NOT_FOUND,
            f"there is no {shown} there",
            "See its agents: `sublet peers show NAME`, or the tool directory.",
        )

    async def require_known(self, entity: EntityId, caller: Subject) -> None:
        """Refuse to invite an entity that does not exist, as far as this daemon and those paired with it know.

        Raises:
            SubletError: ``NOT_FOUND``: see ``require``; of other daemons nobody is asked.
        """
        domain = entity_domain(entity)
        if domain == entity_domain(self._speaking.entity(caller)) or self._addresses.is_paired(domain):
            await self.require(entity, caller)

    async def _answers(self, entity: EntityId, caller: Subject) -> bool:
        """Tell whether an entity is there now and shows that it holds its key."""
        try:
            await self._speaking.call(caller, room_calls.verify_peer, entity_id=entity)
        except SubletError:
            return False
        return True

    async def _direct(self, me: EntityId, other: EntityId, caller: Subject) -> RoomId | None:
        """Return the room of just these two that one of them has opened; of several, the oldest."""
        name = direct_name(me, other)
        rooms = await self._speaking.call(caller, room_calls.list_rooms)
        for room in sorted((room for room in rooms if room["name"] == name), key=lambda room: str(room["room_id"])):
            config = await self._speaking.call(caller, room_calls.get, room_id=room["room_id"])
            if set(config["members"]) == {me, other} and config["config"].get("created_by") in (me, other):
                return str(room["room_id"])
        return None
