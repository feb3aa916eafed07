"""The devices of an entity: daemons that speak as it, each with a key of its own (ezagent 4.1, "device keys").

What one device says of another is a statement in the entity's record, which goes wherever that goes. A removal is for
good, and the device that is removed gets no key of a sealed room any more. Weak: what it has signed by then counts in
logs, and who has not heard of its removal takes more of it.
"""

from __future__ import annotations

from sublet.messaging.calls import device_calls as calls
from sublet.messaging.declaring.operating import OperationContext
from sublet.messaging.identities.keyring import LocalEntity
from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.ezagent.errors import Refused
from sublet.protocol.ezagent.identity import MAX_STATEMENTS
from sublet.protocol.ezagent.sealing.device_link import parse_link
from sublet.protocol.ezagent.sealing.device_statements import DeviceStatement, add, parse_statement, remove
from sublet.protocol.ezagent.sealing.devices import MAX_DEVICES, Device, DeviceList, tip
from sublet.protocol.ezagent.sealing.wire import device_id
from sublet.protocol.ids import node_id


def list_devices(context: OperationContext) -> list[calls.DeviceFound]:
    """Return the devices that speak for the caller, the first one first."""
    return [_view(context, one) for one in _devices(context).devices]


def add_device(context: OperationContext, link: str) -> calls.DeviceFound:
    """Let another device speak for the caller, by the link that it shows.

    Raises:
        SubletError: ``INVALID_ARGUMENT``: it is no link, or one for somebody else; ``CONFLICT``: the device is one
            already or was removed, its name is taken, or there are too many.
    """
    try:
        asked = parse_link(link)
    except Refused:
        raise SubletError(
            LocalCode.INVALID_ARGUMENT, "this is no link of a device", "The new device shows it: sublet device link"
        ) from None
    if asked.entity != context.entity:
        raise SubletError(
            LocalCode.INVALID_ARGUMENT,
            f"the device wants to speak for {asked.entity}, and you are {context.entity}",
            "Have it show a link for you: sublet device link, there.",
        )
    before, own = _devices(context), _own(context)
    device = device_id(asked.key)
    if before.find(device) is not None:
        raise SubletError(LocalCode.CONFLICT, "that device speaks for you already", "See: sublet device list")
    if device in before.removed:
        raise SubletError(
            LocalCode.CONFLICT, "that device was removed, which is for good", "Give it a new home, and so a new key."
        )
    if not asked.name or any(one.name == asked.name for one in before.devices):
        raise SubletError(LocalCode.CONFLICT, "another device has that name", "Have it show a link with another name.")
    if len(before.devices) >= MAX_DEVICES or len(own.record.statements) >= MAX_STATEMENTS - len(before.devices):
        raise SubletError(
            LocalCode.CONFLICT, f"{context.entity} has had too many devices", "Removals need the places that are left."
        )
    last = tip(own.device, own.record.statements)
    try:
        said = add(own.key, context.entity, last, asked.key, asked.name, asked.seal_key, asked.held)
        _say(context, own, parse_statement(said.encode()))
    except (Refused, ValueError):
        raise SubletError(
            LocalCode.INVALID_ARGUMENT, "whoever made this link does not hold the device's key", "Have it made anew."
        ) from None
    found = _devices(context).find(device)
    assert found is not None, "it was added"
    return _view(context, found)


def remove_device(context: OperationContext, device: str) -> calls.DeviceFound:
    """Let a device speak for the caller no more, for good.

    Raises:
        SubletError: ``NOT_FOUND``: there is none of that name or id, or there are several; ``CONFLICT``: it is this
            one, or so much was said of these devices that nothing more is kept.
    """
    known = _devices(context)
    found = [one for one in known.devices if device and (one.name == device or one.id.hex().startswith(device))]
    if len(found) != 1:
        raise SubletError(LocalCode.NOT_FOUND, "no one device has that name or id", "See: sublet device list")
    [gone], own = found, _own(context)
    if gone.id == own.device:
        raise SubletError(
            LocalCode.CONFLICT, "a device does not remove itself", "Remove it where another device of yours is."
        )
    seen = tip(gone.id, own.record.statements)
    view = _view(context, gone)
    last = tip(own.device, own.record.statements)
    _say(context, own, remove(own.key, context.entity, last, gone.verify_key, seen))
    if _devices(context).find(gone.id) is not None:
        raise SubletError(
            LocalCode.CONFLICT,
            f"{gone.name or 'the first device'} still speaks for you: a device has said so much that no more is kept",
            "Remove it with your first device; or leave your rooms, and be invited as somebody else.",
        )
    return view


def _say(context: OperationContext, own: LocalEntity, statement: DeviceStatement) -> None:
    """Keep what this device says in the record, and have the keys of sealed rooms follow."""
    context.parts.intake.learn(own.record.with_statements((statement,)).encode())
    context.parts.seals.devices_changed(context.entity)


def _own(context: OperationContext) -> LocalEntity:
    own = context.parts.keyring.local.get(context.entity)
    if own is None:
        raise SubletError(
            LocalCode.CONFLICT, "this device was removed", "What it had stays; add it anew with another home."
        )
    return own


def _devices(context: OperationContext) -> DeviceList:
    found = context.parts.keyring.devices(context.entity)
    if found is None:
        raise SubletError(LocalCode.NOT_FOUND, f"nobody here knows {context.entity}", "See: sublet whoami")
    return found


def _view(context: OperationContext, device: Device) -> calls.DeviceFound:
    record = context.parts.keyring.record(context.entity)
    assert record is not None, "its devices are known"
    is_first = device.id == device_id(record.key)
    own = context.parts.keyring.local.get(context.entity)
    return {
        "id": device.id.hex(),
        "name": device.name,
        "node_id": record.home if is_first else node_id(device.verify_key),
        "this": own is not None and device.id == own.device,
        "first": is_first,
    }
