"""What a new device shows, as a link or a QR code, for an existing device of its entity to add it (ezagent 4.1).

``sublet-device:`` and base64url of ``version u8 · entity u16+bytes · key 32 bytes · sealing key 32 bytes · signature 64
bytes · name u16+bytes``. Nothing in it is secret: the signature shows that the new device holds its key and wants to
speak for the entity, and who adds it compares the fingerprint that both show.
"""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass
from typing import Final

from sublet.protocol.ezagent.errors import Refused, malformed
from sublet.protocol.ezagent.ids import MAX_ENTITY_CHARS, EntityId, checked_entity_id
from sublet.protocol.ezagent.sealing.device_statements import MAX_NAME_BYTES
from sublet.protocol.ezagent.sealing.wire import KEY_BYTES, SIGNATURE_BYTES, Reader, with_length

SCHEME: Final = "sublet-device:"
MAX_LINK_CHARS: Final = 1_024
_VERSION: Final = b"\x01"


@dataclass(frozen=True, slots=True)
class DeviceLink:
    """A device that wants to speak for an entity.

    Args:
        entity: for whom.
        key: the device's raw public key, which is that of its daemon.
        seal_key: its X25519 key.
        held: from ``device_statements.prove_held``.
        name: for people, at most ``MAX_NAME_BYTES``.
    """

    entity: EntityId
    key: bytes
    seal_key: bytes
    held: bytes
    name: str

    def encode(self) -> str:
        """Return what is shown, in characters that need no quoting in a shell."""
        parts = (_VERSION, with_length(self.entity.encode()), self.key, self.seal_key, self.held)
        raw = b"".join((*parts, with_length(self.name.encode())))
        return SCHEME + base64.urlsafe_b64encode(raw).decode().rstrip("=")


def parse_link(text: str) -> DeviceLink:
    """Return what a link says; that the device holds its key is checked when it is added.

    Raises:
        Refused: ``MALFORMED``.
    """
    given = text.strip()
    if not given.startswith(SCHEME) or len(given) > MAX_LINK_CHARS:
        raise malformed("this is no link of a device")
    body = given.removeprefix(SCHEME)
    try:
        reader = Reader(base64.b64decode(body + "=" * (-len(body) % 4), altchars=b"-_", validate=True))
        if reader.take(len(_VERSION)) != _VERSION:
            raise malformed("a link of another form")
        entity = checked_entity_id(reader.text(MAX_ENTITY_CHARS))
        keys = reader.take(KEY_BYTES), reader.take(KEY_BYTES), reader.take(SIGNATURE_BYTES)
        found = DeviceLink(entity, *keys, reader.text(MAX_NAME_BYTES))
        reader.end()
    except (binascii.Error, ValueError) as error:
        raise error if isinstance(error, Refused) else malformed("this is no link of a device") from None
    return found
