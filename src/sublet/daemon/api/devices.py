"""Operations on devices: which daemons speak as the person of this one, and as whom this one speaks (ezagent 4.1)."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from sublet.daemon.api.base import Request, View
from sublet.daemon.api.operation import Asks, Nothing, Operation, Segment
from sublet.daemon.api.peers import GivenName
from sublet.policy.decision import Action
from sublet.protocol.patterns import Pattern

_DEVICE = Pattern(r"[a-z0-9][a-z0-9._-]{0,63}\Z")
DeviceName = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9._-]{0,31}$")]


class LinkDevice(Request):
    """Have this daemon become a device of the person of another one."""

    peer: GivenName = Field(description="The paired daemon whose person this one is to speak as")
    name: DeviceName = Field(description="What that person calls this device: a-z, 0-9, dot, dash, underscore")


class AddDevice(Request):
    """Let a device speak as the person of this daemon."""

    link: Annotated[str, Field(max_length=1_024, description="As `sublet device link` shows it there")]


class OneDevice(Request):
    """A device that is spoken of by its name, or the beginning of its id."""

    device: Annotated[str, Segment(_DEVICE.match, "name or id of a device", "See: sublet device list")]


class DeviceView(View):
    """A device that speaks as somebody."""

    id: str
    name: str = Field(description="Empty for the first one, whose key the entity began with")
    node_id: str
    this: bool = Field(description="Whether it is this daemon")


class DevicesView(View):
    """As whom the person of this daemon speaks, and by which devices."""

    entity_id: str
    devices: list[DeviceView]
    waits_for: str | None = Field(
        default=None, description="The entity for which this daemon has shown a link, and is no device yet"
    )
    standing: Literal["own", "device", "removed"] = Field(
        description="own: the entity is at home here; device: elsewhere; removed: it was elsewhere, until it removed "
        "this device"
    )


class DeviceLinkView(View):
    """What a new device shows."""

    entity_id: str
    link: str = Field(description="Nothing in it is secret")
    fingerprint: str = Field(description="Of this daemon's key; whoever adds the device is shown the same")


class DeviceChange(DeviceView):
    """A device that was added or removed, and the fingerprint of its key where it was added."""

    fingerprint: str = ""


LIST_DEVICES = Operation(
    "devices.list",
    "GET",
    "/v1/devices",
    Nothing,
    DevicesView,
    asks=Asks(Action.DAEMON_CONTROL),
    summary="Return as whom the person of this daemon speaks, and which devices do.",
)
LINK_DEVICE = Operation(
    "devices.link",
    "POST",
    "/v1/devices/link",
    LinkDevice,
    DeviceLinkView,
    asks=Asks(Action.DAEMON_CONTROL),
    summary="Make a link by which the person of a paired daemon lets this one speak as them.",
)
ADD_DEVICE = Operation(
    "devices.add",
    "POST",
    "/v1/devices",
    AddDevice,
    DeviceChange,
    asks=Asks(Action.DAEMON_CONTROL),
    summary="Let the device that shows this link speak as the person of this daemon.",
    status=201,
)
REMOVE_DEVICE = Operation(
    "devices.remove",
    "DELETE",
    "/v1/devices/{device}",
    OneDevice,
    DeviceChange,
    asks=Asks(Action.DAEMON_CONTROL),
    summary="Let a device speak as the person of this daemon no more, for good.",
)
