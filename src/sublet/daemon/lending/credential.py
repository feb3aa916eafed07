"""The credential of a lease: the executor's key, or one that is made for it (AWCP 4.3, DESIGN 9)."""

from __future__ import annotations

from typing import Final

import asyncssh

from sublet.protocol.errors import ErrorCode, SubletError
from sublet.workspace.ssh.keys import read_public_key

KEY_ALGORITHM: Final = "ssh-ed25519"


def credential(public_key: str | None) -> tuple[str, str]:
    """Return the key line to authorise and what START says about it; a private key leaves only for plain AWCP peers.

    Raises:
        SubletError: ``AUTH_FAILED`` for anything but an Ed25519 key.
    """
    if public_key is None:
        private = asyncssh.generate_private_key(KEY_ALGORITHM)
        return _line(private), private.export_private_key().decode()
    try:
        key = read_public_key(public_key)
    except ValueError:
        key = None
    if key is None or key.get_algorithm() != KEY_ALGORITHM:
        raise SubletError(
            ErrorCode.AUTH_FAILED,
            f"the public key in ACCEPT is no {KEY_ALGORITHM} key, so nobody could be let in by it",
            "The executor has to send the line of a public key, or leave it out.",
        )
    return _line(key), f"publickey:{key.get_fingerprint()}"


def _line(key: asyncssh.SSHKey) -> str:
    """Return the public half of ``key`` as an OpenSSH line in our own words: nothing of the peer's text stays."""
    return " ".join(key.export_public_key().decode().split()[:2])
