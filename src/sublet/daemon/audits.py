"""The audit of one delegation as its record keeps it: the report, or why there is none (AWCP 6.4, DESIGN 4.8)."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import anyio
import structlog

from sublet.daemon.background import in_background
from sublet.daemon.records import DelegationRecord, error_view
from sublet.daemon.reports import audit_view
from sublet.protocol.errors import LocalCode, SubletError
from sublet.workspace.audit import Auditor
from sublet.workspace.model import ViewRules

AUDIT_SECONDS = 600.0
"""How long an audit is waited for, and with it the directory's lock is held."""

log = structlog.get_logger(__name__)


async def audited(
    auditor: Auditor,
    record: DelegationRecord,
    rules: ViewRules,
    touched: Collection[bytes],
    *,
    overflow: bool,
    served: tuple[int, int] | None = None,
) -> dict[str, object]:
    """Return what the record gains by the audit: a report with its snapshot, or an error. Nothing is raised.

    Args:
        auditor: makes it.
        record: has a snapshot and no audit yet.
        rules: those of the lease.
        touched: raw paths that the lease changed.
        overflow: whether ``touched`` is incomplete.
        served: device and inode of the directory that was lent, where that is known.
    """
    assert record.snapshot is not None
    root = Path(record.workspace)
    try:
        with anyio.fail_after(AUDIT_SECONDS):
            if served is not None:
                await in_background(_check_same, root, served)
            result = await in_background(auditor.result, record.snapshot, root, rules, touched, overflow)
    except SubletError as error:
        failure = error
    except TimeoutError:
        failure = SubletError(
            LocalCode.UNAVAILABLE, f"the audit took longer than {AUDIT_SECONDS:.0f} s", "Lend a smaller directory."
        )
    except Exception:
        log.exception("the audit broke", delegation_id=record.id)
        failure = SubletError(LocalCode.INTERNAL, "the audit failed by an internal error", "See the daemon's log.")
    else:
        return {"audit": audit_view(result), "result_snapshot": result.result}
    log.warning("no audit could be made", delegation_id=record.id, reason=str(failure))
    return {"audit_error": error_view(failure)}


def _check_same(root: Path, served: tuple[int, int]) -> None:
    """Refuse to report on another directory than the one that was lent: it would clear the executor of all it did.

    Raises:
        SubletError: ``UNAVAILABLE`` where the directory was moved, removed or replaced.
    """
    try:
        status = root.lstat()
    except OSError:
        status = None
    if status is None or (status.st_dev, status.st_ino) != served:
        raise SubletError(
            LocalCode.UNAVAILABLE,
            "the directory was moved, removed or replaced during the lease, so its audit can't be made",
            "What the executor wrote went with the directory that was lent; compare that one yourself.",
        )
