"""Calls around the devices of an entity (ezagent 4.1)."""

from __future__ import annotations

from typing import TypedDict

from sublet.messaging.calls.engine_call import engine_call


class DeviceFound(TypedDict):
    """A device that speaks for the caller; ``this`` is the daemon that answers."""

    id: str
    name: str
    node_id: str
    this: bool
    first: bool


@engine_call("identity.devices")
def devices() -> list[DeviceFound]:
    """Return the devices that speak for the caller, the first one first."""
    raise NotImplementedError


@engine_call("identity.add_device")
def add_device(link: str) -> DeviceFound:
    """Let another device speak for the caller, by the link that it shows."""
    raise NotImplementedError


@engine_call("identity.remove_device")
def remove_device(device: str) -> DeviceFound:
    """Let a device speak for the caller no more, by its name or the beginning of its id."""
    raise NotImplementedError
