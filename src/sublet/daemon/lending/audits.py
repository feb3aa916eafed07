"""The audit of one delegation as its record keeps it: the report, or why there is none (AWCP 6.4, DESIGN 4.8)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import anyio
import structlog

from sublet import deadlines
from sublet.daemon.api.reports import audit_view
from sublet.daemon.storage.records import DelegationRecord, error_view
from sublet.daemon.tasks.background import in_background
from sublet.protocol.errors import LocalCode, SubletError
from sublet.workspace.audit.auditor import Auditor
from sublet.workspace.audit.reporting import MAX_PATCH_BYTES, AuditResult, Patch
from sublet.workspace.export import LeaseUsage, LentDirectory
from sublet.workspace.git.history import UNKNOWN, brought
from sublet.workspace.git.refs import MovedRef
from sublet.workspace.sandbox.git_sandbox import GitSandbox
from sublet.workspace.view.own_rules import with_own

AUDIT_SECONDS = 600.0
"""How long an audit is waited for, and with it the directory's lock is held."""

log = structlog.get_logger(__name__)


Sealing = Callable[[LentDirectory], AuditResult]
"""Takes the result out of a private view and tells what was changed in it. It blocks."""


async def audited(
    auditor: Auditor,
    record: DelegationRecord,
    resources: Sequence[LentDirectory],
    usage: LeaseUsage,
    staged: Mapping[str, Sealing] | None = None,
) -> dict[str, object]:
    """Return what the record gains by the audit: a report with its snapshots, or an error. Nothing is raised.

    Of several directories, those that can't be audited are named in the report of the others, and by the error.

    Args:
        auditor: makes it.
        record: has snapshots and no audit yet.
        resources: the directories, with the rules of the lease.
        usage: what the lease changed, as far as that is known.
        staged: by the name of the directory, what tells of those that were not lent themselves.
    """
    results: dict[str, AuditResult] = {}
    refs: dict[str, list[MovedRef]] = {}
    bring: dict[str, list[bytes]] = {}
    failures: dict[str, SubletError] = {}
    deadline = anyio.current_time() + AUDIT_SECONDS
    for one in resources:
        lent = replace(one, rules=with_own(one.rules, usage.own.get(one.name)))
        seal = (staged or {}).get(lent.name)
        audit = partial(_live, auditor, record, lent, usage) if seal is None else partial(seal, lent)
        found = await _of_one(audit, record, deadline)
        if isinstance(found, AuditResult):
            results[lent.name] = found
            if record.request.git == "rw" and lent.access_mode == "rw":
                refs[lent.name] = await _moved(auditor, record, lent, deadline)
                bring[lent.name] = await _brought(lent, refs[lent.name], deadline)
        else:
            failures[lent.name] = found
            log.warning("no audit could be made", delegation_id=record.id, resource=lent.name, reason=str(found))
    news: dict[str, object] = {}
    if results:
        snapshots = {name: result.result for name, result in results.items()}
        news |= {"audit": audit_view(results, failures, refs, usage.marks, bring), "result_snapshots": snapshots}
    if failures:
        news["audit_error"] = error_view(next(iter(failures.values())))
    return news


def _live(auditor: Auditor, record: DelegationRecord, lent: LentDirectory, usage: LeaseUsage) -> AuditResult:
    if (served := usage.roots.get(lent.name)) is not None:
        _check_same(lent.path, served)
    touched = usage.touched.get(lent.name, set())
    return auditor.result(record.snapshots[lent.name], lent.path, lent.rules, touched, usage.touched_overflow)


async def _of_one(
    audit: Callable[[], AuditResult], record: DelegationRecord, deadline: float
) -> AuditResult | SubletError:
    """Return the audit of one directory, or why there is none."""
    try:
        async with deadlines.timeout_at(deadline):
            return await in_background(audit)
    except SubletError as error:
        return error
    except TimeoutError:
        return SubletError(
            LocalCode.UNAVAILABLE, f"the audit took longer than {AUDIT_SECONDS:.0f} s", "Lend a smaller directory."
        )
    except Exception:
        log.exception("the audit broke", delegation_id=record.id)
        return SubletError(LocalCode.INTERNAL, "the audit failed by an internal error", "See the daemon's log.")


async def _moved(auditor: Auditor, record: DelegationRecord, lent: LentDirectory, deadline: float) -> list[MovedRef]:
    """Return which references of the directory were moved; where that can't be told, one that says so."""
    try:
        async with deadlines.timeout_at(deadline):
            return await in_background(auditor.moved_refs, lent.path, record.snapshots[lent.name])
    except (SubletError, TimeoutError) as error:
        log.warning("references could not be compared", delegation_id=record.id, reason=str(error))
        return [MovedRef(b"*", b"unknown", b"unknown")]


async def _brought(lent: LentDirectory, refs: list[MovedRef], deadline: float) -> list[bytes]:
    """Return which hidden and locked names the moved references would bring in by a checkout."""
    try:
        async with deadlines.timeout_at(deadline):
            return await in_background(brought, lent.path, refs, lent.rules, GitSandbox())
    except TimeoutError:
        return [UNKNOWN]


def patch_of(auditor: Auditor, record: DelegationRecord) -> Patch:
    """Return what the delegation changed as one patch; of several directories, each file's name begins with its own.

    It blocks: call it in a thread.

    Raises:
        SubletError: as ``Auditor.patch``.
    """
    several = len(record.resources) > 1
    text, left, truncated = "", MAX_PATCH_BYTES, False
    for lent in record.resources:
        if lent.name not in record.result_snapshots:
            continue
        made = auditor.patch(
            Path(lent.path),
            record.snapshots[lent.name],
            record.result_snapshots[lent.name],
            below=lent.name if several else "",
            limit=left,
        )
        text += made.text
        left = max(0, left - len(made.text))
        truncated |= made.truncated
    return Patch(text, truncated)


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
