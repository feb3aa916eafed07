"""Finds the room that an address names, and opens the conversation of two where there is none."""

from __future__ import annotations

import asyncio

from sublet.daemon.governing.gatekeeper import Gatekeeper
from sublet.daemon.rooms.addressing import MAX_SHOWN_CHARS, Addresses, direct_name
from sublet.daemon.rooms.entities import daemon_of
from sublet.daemon.rooms.speaking import Speaking
from sublet.messaging.calls import room_calls
from sublet.policy.decision import Action, Subject
from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.ezagent.ids import EntityId, RoomId
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
            waits = await self._waits(me, found.entity, caller)
            if open_for is None:
                raise _no_conversation(found.entity, waits)
            await self._gate.ask(caller, Action.ROOM_MANAGE, "*")
            if waits is not None and await (await self._speaking.service()).invited.accept(waits):
                return waits  # whoever answers somebody says yes to talking with them
            await self._gate.ask(caller, Action.ROOM_SEND, "*", size_bytes=open_for)
            await self.require(found.entity, caller)
            name = direct_name(me, found.entity)
            level = self._speaking.encryption
            made = await self._speaking.call(
                caller, room_calls.create, name=name, invite=[found.entity], encryption=level
            )
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
        home = await self._speaking.home(entity)
        if home == self._speaking.node_id:
            await self._speaking.call(caller, room_calls.get_pubkey, entity_id=entity)
        elif self._addresses.is_paired(home):
            await self._require_there(entity, home, caller)
        else:
            raise _nowhere(home, "See: sublet peers")

    async def require_known(self, entity: EntityId, caller: Subject) -> None:
        """Refuse to invite an entity that does not exist, or of which nothing is known here.

        Somebody of a daemon that is not paired can be invited if this daemon has their key, as it has of the members of
        its rooms and of those who knock, or if they answer now, as through a relay or a peer of a peer.

        Raises:
            SubletError: ``NOT_FOUND``: see ``require``, or it is neither known nor reachable.
        """
        home = await self._speaking.home(entity)
        if home == self._speaking.node_id or self._addresses.is_paired(home):
            await self.require(entity, caller)
        elif not await self._is_met(entity, caller) and not await self._answers(entity, caller):
            raise _nowhere(
                home, "Pair with it (see: sublet peers), or have a member invite them whose daemon is paired with it."
            )

    async def _require_there(self, entity: EntityId, home: str, caller: Subject) -> None:
        if await self._answers(entity, caller) or not await self._answers(daemon_of(home), caller):
            return
        if await self._answers(entity, caller):  # whose daemon had only just begun
            return
        raise SubletError(
            LocalCode.NOT_FOUND,
            f"there is no {clean_line(entity, MAX_SHOWN_CHARS)} there",
            "See its agents: `sublet peers show NAME`, or the tool directory.",
        )

    async def _is_met(self, entity: EntityId, caller: Subject) -> bool:
        """Tell whether this daemon has the entity's key."""
        try:
            await self._speaking.call(caller, room_calls.get_pubkey, entity_id=entity)
        except SubletError:
            return False
        return True

    async def _answers(self, entity: EntityId, caller: Subject) -> bool:
        """Tell whether an entity is there now and shows that it holds its key."""
        try:
            await self._speaking.call(caller, room_calls.verify_peer, entity_id=entity)
        except SubletError:
            return False
        return True

    async def _waits(self, me: EntityId, other: EntityId, caller: Subject) -> RoomId | None:
        """Return the room of just these two into which the other one invites; None for none."""
        name, two = direct_name(me, other), {me, other}
        for one in await self._speaking.invitations(caller):
            if one.name == name and one.by == other and set(one.members) == two and one.member_count == len(two):
                return one.room_id
        return None

    async def _direct(self, me: EntityId, other: EntityId, caller: Subject) -> RoomId | None:
        """Return the room of just these two that one of them has opened; of several, the oldest."""
        name = direct_name(me, other)
        rooms = await self._speaking.call(caller, room_calls.list_rooms)
        for room in sorted((room for room in rooms if room["name"] == name), key=lambda room: str(room["room_id"])):
            config = await self._speaking.call(caller, room_calls.get, room_id=room["room_id"])
            if set(config["members"]) == {me, other} and config["config"].get("created_by") in (me, other):
                return str(room["room_id"])
        return None


def _no_conversation(other: EntityId, waits: RoomId | None) -> SubletError:
    if waits is not None:
        what = f"{other} wants to talk with you, and you have not said yes"
        return SubletError(LocalCode.NOT_FOUND, what, f"sublet room accept {waits}, or answer: sublet send.")
    return SubletError(LocalCode.NOT_FOUND, f"there is no conversation with {other} yet", "send_message opens one.")


def _nowhere(home: str, hint: str) -> SubletError:
    what = f"no paired daemon is {clean_line(home, MAX_SHOWN_CHARS)!r}"
    return SubletError(LocalCode.NOT_FOUND, what, hint)
