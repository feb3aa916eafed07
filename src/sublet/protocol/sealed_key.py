"""The approver's private key, sealed by a passphrase: argon2id makes the key, secretbox encrypts (DESIGN 9.2).

Guessing is slow by the cost of argon2id alone: nothing counts attempts, since whoever can read the sealed key can guess
without asking us.
"""

from __future__ import annotations

from typing import Annotated, Final

import nacl.pwhash
import nacl.secret
import nacl.utils
from nacl.exceptions import CryptoError
from nacl.signing import SigningKey
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from sublet.protocol.encoding import b64, unb64
from sublet.protocol.errors import LocalCode, SubletError

MIN_PASSPHRASE_CHARS: Final = 8
MAX_PASSPHRASE_CHARS: Final = 1_024
OPERATIONS: Final = nacl.pwhash.argon2id.OPSLIMIT_MODERATE
MEMORY_BYTES: Final = nacl.pwhash.argon2id.MEMLIMIT_MODERATE
"""One guess takes 256 MiB and most of a second."""
MAX_OPERATIONS: Final = 16
MAX_MEMORY_BYTES: Final = 1 << 30
_SALT_BYTES: Final = nacl.pwhash.argon2id.SALTBYTES
_BOX_BYTES: Final = nacl.secret.SecretBox.NONCE_SIZE + 32 + nacl.secret.SecretBox.MACBYTES


class SealedKey(BaseModel):
    """A private key that only its passphrase opens; nothing of it is secret from whoever may read our state."""

    model_config = ConfigDict(defer_build=True, frozen=True, extra="forbid")

    kdf: Annotated[str, Field(pattern=r"^argon2id$")] = "argon2id"
    operations: Annotated[int, Field(ge=1, le=MAX_OPERATIONS)]
    memory_bytes: Annotated[int, Field(ge=8192, le=MAX_MEMORY_BYTES)]
    salt: str
    box: str


def seal(key: SigningKey, passphrase: str, *, operations: int = OPERATIONS, memory_bytes: int = MEMORY_BYTES) -> str:
    """Return ``key`` sealed by ``passphrase``, as the JSON of ``SealedKey``. Takes most of a second.

    Raises:
        SubletError: ``INVALID_ARGUMENT`` for a passphrase that is too short or too long.
    """
    if not MIN_PASSPHRASE_CHARS <= len(passphrase) <= MAX_PASSPHRASE_CHARS:
        raise SubletError(
            LocalCode.INVALID_ARGUMENT,
            f"a passphrase has {MIN_PASSPHRASE_CHARS} to {MAX_PASSPHRASE_CHARS} characters",
            "Several words that do not belong together are easy to remember and hard to guess.",
        )
    salt = nacl.utils.random(_SALT_BYTES)
    box = nacl.secret.SecretBox(_stretched(passphrase, salt, operations, memory_bytes)).encrypt(bytes(key))
    return SealedKey(
        operations=operations, memory_bytes=memory_bytes, salt=b64(salt), box=b64(bytes(box))
    ).model_dump_json()


def unseal(sealed: str, passphrase: str, public_key: bytes) -> SigningKey:
    """Return the private key. Takes most of a second.

    Raises:
        SubletError: ``PASSPHRASE_WRONG``; ``UNAVAILABLE`` where it is damaged, or not the key of ``public_key``.
    """
    try:
        parts = SealedKey.model_validate_json(sealed)
    except ValidationError:
        raise _damaged() from None
    salt, box = unb64(parts.salt, _SALT_BYTES), unb64(parts.box, _BOX_BYTES)
    if salt is None or box is None:
        raise _damaged()
    if len(passphrase) > MAX_PASSPHRASE_CHARS:
        raise _wrong()
    stretched = _stretched(passphrase, salt, parts.operations, parts.memory_bytes)
    try:
        key = SigningKey(nacl.secret.SecretBox(stretched).decrypt(box))
    except (CryptoError, ValueError):
        raise _wrong() from None
    if bytes(key.verify_key) != public_key:
        raise _damaged()
    return key


def _stretched(passphrase: str, salt: bytes, operations: int, memory_bytes: int) -> bytes:
    return nacl.pwhash.argon2id.kdf(
        nacl.secret.SecretBox.KEY_SIZE,
        passphrase.encode("utf-8", "surrogateescape"),
        salt,
        opslimit=operations,
        memlimit=memory_bytes,
    )


def _wrong() -> SubletError:
    return SubletError(LocalCode.PASSPHRASE_WRONG, "that is not the passphrase of the approver's key", "Try again.")


def _damaged() -> SubletError:
    return SubletError(
        LocalCode.UNAVAILABLE,
        "the approver's key is damaged",
        "Make another: sublet approver reset, then sublet approver init",
    )
