"""This daemon as a device of somebody who is at home at another one: what it has asked for, and what came of it.

Rules: one entity at a time, kept in a file beside the keys. Once a device of the entity has added this one, its record
says so; the record is asked for until then, and the person of this daemon speaks as that entity from then on. Who is
removed speaks as its own again, and says in `device list` what has happened. Weak: rooms that were this daemon's
person's own stay with that entity, as which nobody speaks here meanwhile.
"""

from __future__ import annotations

import asyncio
import base64
import os
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

import anyio
import structlog
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from sublet.daemon.peering.identity import Identity
from sublet.daemon.rooms.entities import NONCE_BYTES, human_of
from sublet.disk.durable import write_durably
from sublet.disk.plain_file import read_plain
from sublet.protocol.encoding import b64
from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.ezagent.errors import Refused
from sublet.protocol.ezagent.identity import EntityRecord, parse_record
from sublet.protocol.ezagent.ids import EntityId
from sublet.protocol.ezagent.sealing.device_link import DeviceLink
from sublet.protocol.ezagent.sealing.device_statements import prove_held
from sublet.protocol.ezagent.sealing.devices import DeviceList, evaluate
from sublet.protocol.ezagent.sealing.wire import device_id

if TYPE_CHECKING:
    from sublet.messaging.identities.keyring import LocalEntity
    from sublet.messaging.service import MessagingService

FILE: Final = "device.json"
MAX_FILE_BYTES: Final = 64 << 10
ASK_SECONDS: Final = 2.0
"""How often it is asked whether this device was added."""
LOOK_SECONDS: Final = 15.0
"""How often it is looked whether it was removed."""

log = structlog.get_logger(__name__)


class Kept(BaseModel):
    """What is kept of whom this daemon has asked, and what came of it."""

    model_config = ConfigDict(defer_build=True, frozen=True, extra="forbid")

    entity: str = Field(max_length=512)
    name: str = Field(max_length=64)
    standing: Literal["waits", "device", "removed"] = "waits"
    record: str = Field(default="", max_length=MAX_FILE_BYTES)
    """The entity's record, in base64, once this is a device of it."""


class OwnDevice:
    """Knows as whom the person of this daemon speaks.

    Args:
        identity: the daemon's key is that of the device.
        state_dir: holds the file.
    """

    def __init__(self, identity: Identity, state_dir: Path) -> None:
        self._identity = identity
        self._file = state_dir / FILE
        self._changed = asyncio.Event()
        self.kept = self._read()

    @property
    def person(self) -> EntityId:
        """Return as whom the person of this daemon speaks."""
        kept = self.kept
        return kept.entity if kept is not None and kept.standing == "device" else human_of(self._identity.node_id)

    @property
    def standing(self) -> Literal["own", "device", "removed"]:
        """Return whether that is an entity of its own."""
        return "own" if self.kept is None or self.kept.standing == "waits" else self.kept.standing

    @property
    def waits_for(self) -> EntityId | None:
        """Return the entity that has not added this device by now."""
        return self.kept.entity if self.kept is not None and self.kept.standing == "waits" else None

    def link(self, entity: EntityId, name: str) -> DeviceLink:
        """Ask to become a device of an entity, and return the link for it. Blocks on the disk.

        Raises:
            SubletError: ``CONFLICT``: it is a device already, or was removed; ``UNAVAILABLE``: it can't be kept.
        """
        if self.kept is not None and self.kept.standing != "waits":
            how = "is a device" if self.kept.standing == "device" else "was removed as a device, which is for good,"
            raise SubletError(
                LocalCode.CONFLICT,
                f"this daemon {how} of {self.kept.entity}",
                "A home of its own has a key of its own: SUBLET_HOME=DIR sublet up",
            )
        self._keep(Kept(entity=entity, name=name))
        key = self._identity.key
        seal_key = bytes(key.to_curve25519_private_key().public_key)
        return DeviceLink(entity, self._identity.public_key, seal_key, prove_held(key, entity, seal_key), name)

    def look(self) -> None:
        """Look at once whether this device was added."""
        self._changed.set()

    def local(self) -> LocalEntity | None:
        """Return the entity that this daemon is a device of; None where it is of none."""
        kept = self.kept
        if kept is None or kept.standing != "device":
            return None
        try:
            return self._entity(parse_record(base64.b64decode(kept.record, validate=True)))
        except (Refused, ValueError) as error:
            log.warning("the entity that this is a device of can't be read", entity=kept.entity, reason=str(error))
            return None

    async def run(self, service: MessagingService) -> None:
        """Become a device once it was added, and note when it was removed, until cancelled."""
        while True:
            self._changed.clear()
            try:
                await self._look(service)
            except SubletError as error:
                log.warning("it is not known whether this device was added or removed", reason=error.message)
            wait = ASK_SECONDS if self.waits_for is not None else LOOK_SECONDS
            with anyio.move_on_after(wait):
                await self._changed.wait()

    async def _look(self, service: MessagingService) -> None:
        kept = self.kept
        if kept is None or kept.standing == "removed":
            return
        await service.asking.key(kept.entity)
        if kept.standing == "device" and await service.on_engine(lambda engine: kept.entity in engine.keyring.local):
            return
        record = await service.on_engine(lambda engine: engine.keyring.record(kept.entity))
        devices, own = self._devices(record), device_id(self._identity.public_key)
        if record is not None and devices is not None and devices.find(own) is not None:
            if kept.standing == "waits":
                encoded = b64(record.encode())
                await asyncio.to_thread(self._keep, kept.model_copy(update={"standing": "device", "record": encoded}))
            await service.add(self._entity(record))
            await service.devices.tell(kept.entity)
            log.info("this daemon is a device now", entity=kept.entity, device=kept.name)
        elif kept.standing == "device" and devices is not None and own in devices.removed:  # which is for good
            await asyncio.to_thread(self._keep, kept.model_copy(update={"standing": "removed"}))
            log.warning("this daemon was removed as a device", entity=kept.entity, device=kept.name)

    def _devices(self, record: EntityRecord | None) -> DeviceList | None:
        try:
            return evaluate(record.entity_id, record.key, record.statements) if record is not None else None
        except Refused:
            return None

    def _entity(self, record: EntityRecord) -> LocalEntity:
        from sublet.messaging.identities.keyring import LocalEntity

        return LocalEntity(record, self._identity.key, int.from_bytes(os.urandom(NONCE_BYTES), "big"))

    def _read(self) -> Kept | None:
        try:
            return Kept.model_validate_json(read_plain(self._file, MAX_FILE_BYTES))
        except FileNotFoundError:
            return None
        except (OSError, ValidationError) as error:
            log.warning("of whom this is a device can't be read", file=str(self._file), reason=type(error).__name__)
            return None

    def _keep(self, kept: Kept) -> None:
        try:
            write_durably(self._file, kept.model_dump_json().encode())
        except OSError as error:
            raise SubletError(
                LocalCode.UNAVAILABLE, f"{self._file} can't be written: {error.strerror}", "Make room for it."
            ) from None
        self.kept = kept
