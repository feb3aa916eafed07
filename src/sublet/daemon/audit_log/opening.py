"""Opens the audit log of a daemon where its configuration has it."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from nacl.signing import SigningKey

from sublet.daemon.audit_log.log import AuditLog
from sublet.daemon.audit_log.memory import LogMemory
from sublet.daemon.storage.store import Store
from sublet.protocol.errors import LocalCode, SubletError

AUDIT_LOG: Final = "audit-log"
"""Its directory, below that of the state."""


async def open_audit_log(directory: Path, store: Store, key: SigningKey) -> AuditLog:
    """Return the audit log in ``directory``, whose checkpoints ``key`` signs.

    Raises:
        SubletError: ``UNAVAILABLE`` where it can't be read or written.
    """
    try:
        return await AuditLog.open(directory, LogMemory(store), key)
    except OSError as error:
        raise SubletError(
            LocalCode.UNAVAILABLE, f"the audit log in {directory} can't be used: {error.strerror}", "Check its disk."
        ) from None
