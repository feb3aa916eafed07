"""Signs what we send: fresh nonce, our clock, the recipient's fingerprint (DESIGN 9.9)."""

from __future__ import annotations

import secrets
import time
from typing import TypeVar

from nacl.signing import SigningKey

from sublet.protocol.codec import AnyMessage
from sublet.protocol.signing import sign_message

MessageT = TypeVar("MessageT", bound=AnyMessage)

_NONCE_BYTES = 16


def signed(message: MessageT, key: SigningKey, recipient: str) -> MessageT:
    """Return ``message`` signed now by ``key`` for the key with fingerprint ``recipient``."""
    return sign_message(message, key, recipient=recipient, nonce=secrets.token_hex(_NONCE_BYTES), at=int(time.time()))
