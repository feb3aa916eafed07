"""Serves the operations on devices."""

from __future__ import annotations

import asyncio

from sublet.daemon.api.devices import (
    ADD_DEVICE,
    LINK_DEVICE,
    LIST_DEVICES,
    REMOVE_DEVICE,
    AddDevice,
    DeviceChange,
    DeviceLinkView,
    DevicesView,
    DeviceView,
    LinkDevice,
    OneDevice,
)
from sublet.daemon.api.operation import Nothing
from sublet.daemon.governing.gatekeeper import Gatekeeper
from sublet.daemon.operations.table import serves
from sublet.daemon.peering.identity import Identity
from sublet.daemon.peering.peers import PeerStore
from sublet.daemon.rooms.entities import human_of
from sublet.daemon.rooms.own_device import OwnDevice
from sublet.daemon.rooms.speaking import Speaking
from sublet.messaging.calls import device_calls, room_calls
from sublet.policy.decision import Subject
from sublet.protocol import ids
from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.ezagent.errors import Refused
from sublet.protocol.ezagent.sealing.device_link import parse_link

HUMAN = "human"


class DeviceService:
    """Serves the operations of ``api.devices``.

    Args:
        gate: asks policy.
        speaking: as whom callers speak.
        own: this daemon as a device of somebody else.
        identity: ours.
        peers: the paired daemons.
    """

    def __init__(
        self, gate: Gatekeeper, speaking: Speaking, own: OwnDevice, identity: Identity, peers: PeerStore
    ) -> None:
        self._gate = gate
        self._speaking = speaking
        self._own = own
        self._identity = identity
        self._peers = peers

    @serves(LIST_DEVICES)
    async def list_devices(self, request: Nothing, caller: Subject) -> DevicesView:
        _require_person(caller)
        found = await self._speaking.call(caller, device_calls.devices)
        return DevicesView(
            entity_id=self._own.person,
            devices=[_view(one) for one in found],
            waits_for=self._own.waits_for,
            standing=self._own.standing,
        )

    @serves(LINK_DEVICE)
    async def link(self, request: LinkDevice, caller: Subject) -> DeviceLinkView:
        """Make a link for the person of a peer.

        Raises:
            SubletError: ``NOT_FOUND``: no such peer; ``CONFLICT``: this daemon's person is in rooms of its own, or it
                is a device already.
        """
        _require_person(caller)
        node = self._peers.node_of(request.peer)
        if node is None:
            raise SubletError(LocalCode.NOT_FOUND, f"no peer is called {request.peer}", "See: sublet peers list")
        rooms = await self._speaking.call(caller, room_calls.list_rooms)
        if self._own.standing == "own" and (own := [one for one in rooms if one["created_by"] == self._own.person]):
            raise SubletError(
                LocalCode.CONFLICT,
                f"you have opened {len(own)} rooms here, in which nobody would speak as you any more",
                "Leave them first, or make this device with a home of its own.",
            )
        made = await asyncio.to_thread(self._own.link, human_of(node), request.name)
        self._own.look()
        return DeviceLinkView(entity_id=made.entity, link=made.encode(), fingerprint=self._identity.fingerprint)

    @serves(ADD_DEVICE)
    async def add(self, request: AddDevice, caller: Subject) -> DeviceChange:
        _require_person(caller)
        found = await self._speaking.call(caller, device_calls.add_device, link=request.link)
        await (await self._speaking.service()).devices.tell(self._own.person)
        try:
            fingerprint = ids.fingerprint(parse_link(request.link).key)
        except Refused:
            fingerprint = ""
        return DeviceChange(**_view(found).model_dump(), fingerprint=fingerprint)

    @serves(REMOVE_DEVICE)
    async def remove(self, request: OneDevice, caller: Subject) -> DeviceChange:
        _require_person(caller)
        found = await self._speaking.call(caller, device_calls.remove_device, device=request.device)
        await (await self._speaking.service()).devices.tell(self._own.person)
        return DeviceChange(**_view(found).model_dump())


def _view(found: device_calls.DeviceFound) -> DeviceView:
    return DeviceView(id=found["id"], name=found["name"], node_id=found["node_id"], this=found["this"])


def _require_person(caller: Subject) -> None:
    if caller.kind != HUMAN:
        raise SubletError(
            LocalCode.POLICY_DENIED, "only the person of this daemon has devices", "Ask the person: sublet device list"
        )
