"""Keys of devices, which records may hold and nothing of ours makes yet."""

from __future__ import annotations

from nacl.signing import SigningKey

from sublet.protocol.ezagent.identity import Device, device_bytes
from sublet.protocol.ezagent.ids import EntityId


def make_device(entity: EntityId, name: str, key: bytes, identity_key: SigningKey) -> Device:
    """Return a device's key signed by the identity key of its entity."""
    return Device(name, key, identity_key.sign(device_bytes(entity, name, key)).signature)
