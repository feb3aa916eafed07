"""Opens the audit log of a daemon where its configuration has it."""

from __future__ import annotations

from pathlib import Path

from sublet.daemon.audit_log.log import AuditLog
from sublet.daemon.audit_log.memory import LogMemory
from sublet.daemon.config.daemon_config import DaemonConfig
from sublet.daemon.peering.identity import Identity
from sublet.daemon.storage.store import Store
from sublet.protocol.errors import LocalCode, SubletError


async def open_audit_log(config: DaemonConfig, store: Store, identity: Identity) -> AuditLog:
    """Return the audit log of this daemon.

    Raises:
        SubletError: ``UNAVAILABLE`` where it can't be read or written.
    """
    directory = Path(config.home.state_dir) / "audit-log"
    try:
        return await AuditLog.open(directory, LogMemory(store), identity.key)
    except OSError as error:
        raise SubletError(
            LocalCode.UNAVAILABLE, f"the audit log in {directory} can't be used: {error.strerror}", "Check its disk."
        ) from None
