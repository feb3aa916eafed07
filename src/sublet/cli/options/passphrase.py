"""Passphrases: read from the terminal and nowhere else, kept for one command and no longer (DESIGN 9.2)."""

from __future__ import annotations

import getpass
import os
from typing import TYPE_CHECKING

from sublet.protocol.errors import LocalCode, SubletError

if TYPE_CHECKING:
    from nacl.signing import SigningKey

    from sublet.daemon.api.approvals import ApproverView
    from sublet.daemon.control.client import ControlClient as Control

TERMINAL = "/dev/tty"


def ask(prompt: str) -> str:
    """Return what is typed on the terminal, unseen; neither stdin nor the environment is looked at.

    Raises:
        SubletError: ``INVALID_ARGUMENT`` where there is no terminal.
    """
    try:
        os.close(os.open(TERMINAL, os.O_RDWR | os.O_NOCTTY))
    except OSError:
        raise SubletError(
            LocalCode.INVALID_ARGUMENT,
            "a passphrase is read from a terminal, and there is none",
            "Run it in a terminal. No option, no variable and no pipe takes a passphrase.",
        ) from None
    try:
        return getpass.getpass(prompt)
    except EOFError:
        raise SubletError(LocalCode.INVALID_ARGUMENT, "no passphrase was given", "Try again.") from None


async def approver_of(control: Control) -> ApproverView:
    """Return whose approval counts."""
    from sublet.daemon.api.approvals import GET_APPROVER
    from sublet.daemon.api.operation import Nothing

    return await control.call(GET_APPROVER, Nothing())


def ask_new() -> str:
    """Return a new passphrase that was typed twice.

    Raises:
        SubletError: ``INVALID_ARGUMENT`` where the two differ.
    """
    first = ask("New passphrase: ")
    if ask("Once more: ") != first:
        raise SubletError(LocalCode.INVALID_ARGUMENT, "the two passphrases differ", "Try again.")
    return first


def unlocked(approver: ApproverView) -> SigningKey:
    """Return the approver's key, which the passphrase opens in this process.

    Raises:
        SubletError: ``APPROVER_MISSING``, ``PASSPHRASE_WRONG``.
    """
    from sublet.protocol.encoding import unb64
    from sublet.protocol.sealed_key import unseal
    from sublet.protocol.signing import KEY_BYTES
    from sublet.protocol.statements import missing

    public_key = unb64(approver.public_key or "", KEY_BYTES)
    if public_key is None or approver.sealed is None:
        raise missing()
    return unseal(approver.sealed, ask("Passphrase: "), public_key)
