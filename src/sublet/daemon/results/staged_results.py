"""Results that are kept apart until somebody has looked at them: review, apply, discard, undo (DESIGN 4.7).

The workspace layer keeps the change sets and applies them atomically; here it is decided when that may be done, and the
delegation's record says what became of it. What is asked for goes on in a task of its own, whether or not the caller
waits for the answer.
"""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Final, Literal, TypeVar

import anyio
import structlog

from sublet.daemon.api.delegation_views import ChangeSet
from sublet.daemon.api.results import Applied, ApplyResult, Discarded, ResultPatch, Review, Undone
from sublet.daemon.results.result_store import ResultStore
from sublet.daemon.storage.journal import Journal
from sublet.daemon.storage.records import DelegationRecord
from sublet.daemon.tasks.background import in_background
from sublet.daemon.tasks.own_tasks import OwnTasks
from sublet.daemon.times import rfc3339
from sublet.protocol.canonical import JsonValue
from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.events import EventKind
from sublet.protocol.text import clean_line
from sublet.stop_time import within
from sublet.workspace.locks import DirectoryLocks, Wants

LOCK_SECONDS: Final = 2.0
"""How long an apply waits for a lease that is just being prepared; one that works keeps the directory for longer."""
ANSWER_SECONDS: Final = 40.0
"""How long a caller waits; what was begun goes on all the same."""
STOP_SECONDS: Final = 3.0
"""How long a stop of the daemon waits for what is under way; what is not done then is recovered by the next start."""
MAX_UNDER_WAY: Final = 64

T = TypeVar("T")

log = structlog.get_logger(__name__)


class StagedResults:
    """The operations on staged results; ``serve`` must run for any that changes something.

    Args:
        journal: keeps the records.
        locks: directories in use; an apply holds its own for as long as it lasts.
        store: keeps and applies the change sets.
    """

    def __init__(self, journal: Journal, locks: DirectoryLocks, store: ResultStore) -> None:
        self._journal = journal
        self._locks = locks
        self._store = store
        self._under_way: dict[str, anyio.Event] = {}
        self._tasks = OwnTasks()

    async def serve(self) -> None:
        """Do what is asked for until cancelled; what is under way then has a moment to come to its end."""
        await self._tasks.run(stop=self._finish)

    async def _finish(self) -> None:
        with anyio.move_on_after(within(STOP_SECONDS)):
            for done in list(self._under_way.values()):
                await done.wait()

    async def workspaces(self, delegation_id: str) -> list[str]:
        """Return the real paths of the directories into which the result of a delegation would be written.

        Raises:
            SubletError: ``NOT_FOUND``.
        """
        return [str(path) for path in self._store.directories(await self._journal.require_delegation(delegation_id))]

    async def review(self, delegation_id: str, *, patch: bool) -> Review:
        """Return what a result would change, and what would stand in the way now.

        Raises:
            SubletError: as ``_settled``, or what keeps it from being compared.
        """
        record = await self._settled(delegation_id)
        return await in_background(self._store.review, record, patch)

    async def patch(self, delegation_id: str) -> ResultPatch:
        """Return the whole result as a patch.

        Raises:
            SubletError: as ``review``; ``UNAVAILABLE`` where it is too large.
        """
        record = await self._settled(delegation_id)
        raw = await in_background(self._store.whole_patch, record)
        left_out = await in_background(self._store.left_out, record)
        return ResultPatch(delegation_id=record.id, base64=base64.b64encode(raw).decode(), left_out=left_out)

    async def apply(self, request: ApplyResult, who: str) -> Applied:
        """Merge a result into the directory, or make a branch of it.

        Raises:
            SubletError: as ``_settled``; ``CONFLICT`` where it is not pending, or a lease has the directory;
                ``UNAVAILABLE`` where it takes longer than a caller waits.
        """

        async def work() -> Applied:
            record = await self._settled(request.delegation_id)
            if request.branch is not None:
                return await self._branch(record, request.branch, who)
            _check_status(record, "apply")
            async with self._changing(record):
                report = await in_background(self._store.apply, record, request)
                await self._note(record, report.change_set, "apply", who, len(report.applied), len(report.conflicts))
            return report

        return await self._alone(request.delegation_id, work)

    async def undo(self, delegation_id: str, who: str) -> Undone:
        """Take back what was applied, or what a live lease wrote.

        Raises:
            SubletError: as ``apply``; ``CONFLICT`` where nothing is applied, or it was taken back already.
        """

        async def work() -> Undone:
            record = await self._journal.require_delegation(delegation_id)
            if record.request.result_mode != "staged" and record.change_set is None:
                return await self._take_back(record, who)
            record = await self._settled(delegation_id)
            _check_status(record, "undo")
            async with self._changing(record):
                report = await in_background(self._store.undo, record)
                await self._note(record, report.change_set, "undo", who, len(report.undone), len(report.conflicts))
            return report

        return await self._alone(delegation_id, work)

    async def _take_back(self, record: DelegationRecord, who: str) -> Undone:
        """Take back what a live lease wrote, merged with what changed since."""
        _check_live(record)
        async with self._changing(record):
            report = await in_background(self._store.take_back, record)
            changed = record.model_copy(update={"taken_back": True, "updated_at": rfc3339()})
            data = _review_event("undo", who, "undone", len(report.undone), len(report.conflicts))
            await self._journal.save_delegation(changed, EventKind.DELEGATION_REVIEW, data)
        return report

    async def discard(self, delegation_id: str, who: str) -> Discarded:
        """Drop a result.

        Raises:
            SubletError: as ``_settled``; ``CONFLICT`` where it is not pending.
        """

        async def work() -> Discarded:
            record = await self._settled(delegation_id)
            _check_status(record, "discard")
            changes = _changes(record).model_copy(update={"status": "discarded"})
            # Told first: a result that is said to be there and is gone would be worse than one that still takes room.
            await self._note(record, changes, "discard", who, 0, 0)
            await in_background(self._store.discard, record)
            return Discarded(delegation_id=record.id, change_set=changes)

        return await self._alone(delegation_id, work)

    async def note(self, delegation_id: str, changed: Callable[[DelegationRecord], DelegationRecord]) -> None:
        """Write into the record of a settled delegation what somebody has found of its result.

        Args:
            delegation_id: whose.
            changed: returns the record as it is then.

        Raises:
            SubletError: ``NOT_FOUND``; ``CONFLICT`` where something else is under way with it, ``UNAVAILABLE`` where
                the daemon is stopping.
        """

        async def work() -> None:
            await self._journal.save_delegation(changed(await self._journal.require_delegation(delegation_id)))

        await self._alone(delegation_id, work)

    async def recover(self) -> None:
        """Tell truthfully what became of the results that were being applied when the last process was killed.

        To be called before what it held is released.
        """
        concerned = {held.owner for held in await self._journal.resources.open_resources() if held.kind == "apply"}
        for delegation_id in concerned.union(await in_background(self._store.recover)):
            record = await self._journal.load_delegation(delegation_id)
            if record is None or record.change_set is None:
                continue
            try:
                changes = await in_background(self._store.changes, record)
            except SubletError as error:
                log.warning("what became of a result can't be told", delegation_id=record.id, reason=str(error))
                continue
            if changes != record.change_set:
                await self._note(record, changes, "recover", "the daemon", 0, 0)

    async def _branch(self, record: DelegationRecord, branch: str, who: str) -> Applied:
        exported = await in_background(self._store.branch, record, branch)
        changes = _changes(record).model_copy(
            update={"branch": branch, "branch_error": None, "branch_left_out": exported.left_out}
        )
        await self._note(record, changes, "branch", who, 0, 0)
        left_out = await in_background(self._store.left_out, record)
        return Applied(
            delegation_id=record.id, change_set=changes, branch=branch, commit=exported.commit, left_out=left_out
        )

    async def _settled(self, delegation_id: str) -> DelegationRecord:
        """Return a delegation that has a result to look at.

        Raises:
            SubletError: ``NOT_FOUND`` where there is none, ``CONFLICT`` where it is not over yet.
        """
        record = await self._journal.require_delegation(delegation_id)
        if record.request.result_mode != "staged" and record.change_set is None:
            raise SubletError(
                LocalCode.NOT_FOUND,
                f"{record.id} was no staged delegation: what was written is in the directory already",
                f"See: sublet diff {record.id}",
            )
        if not record.settled:
            raise SubletError(
                LocalCode.CONFLICT,
                f"{record.id} is {record.state}, so its result is not complete yet",
                f"Wait for its end: sublet output {record.id} --follow",
            )
        if record.change_set is None:
            why = record.audit_error.message if record.audit_error else "it ended before any access was given"
            raise SubletError(LocalCode.NOT_FOUND, f"{record.id} has no result: {why}", "Delegate again.")
        return record

    @asynccontextmanager
    async def _changing(self, record: DelegationRecord) -> AsyncIterator[None]:
        """Hold the directories of a delegation against all leases, and journal that they are about to be changed.

        Raises:
            SubletError: ``CONFLICT`` where a lease has one of them.
        """
        wants: Wants = [(path, "rw") for path in self._store.directories(record)]
        async with AsyncExitStack() as held:
            try:
                await held.enter_async_context(
                    self._locks.acquire(wants, owner=f"the result of {record.id}", timeout=LOCK_SECONDS)
                )
            except SubletError as error:
                if error.code is not LocalCode.CONFLICT:
                    raise
                raise SubletError(
                    LocalCode.CONFLICT,
                    f"nothing was changed: {error.message}",
                    "Try again when it is over, or cancel it: sublet ls",
                ) from None
            number = await self._journal.resources.acquire(record.id, "apply", {})
            try:
                yield
            except SubletError:
                await self._journal.resources.release(number)
                raise
            # What fails in another way is looked at by the next start.
            await self._journal.resources.release(number)

    async def _note(
        self, record: DelegationRecord, changes: ChangeSet, action: str, who: str, done: int, conflicts: int
    ) -> None:
        """Journal what became of a result, in the record and as an event."""
        changed = record.model_copy(update={"change_set": changes, "updated_at": rfc3339()})
        data = _review_event(action, who, changes.status, done, conflicts)
        await self._journal.save_delegation(changed, EventKind.DELEGATION_REVIEW, data)

    async def _alone(self, delegation_id: str, work: Callable[[], Awaitable[T]]) -> T:
        """Run ``work`` in a task of ours, alone for its delegation, and return what it returns.

        Raises:
            SubletError: ``CONFLICT`` where something else is under way with the delegation, ``UNAVAILABLE`` where
                the daemon is stopping or the answer does not come in time, or what ``work`` raises.
        """
        if delegation_id in self._under_way:
            raise SubletError(
                LocalCode.CONFLICT, f"something else is being done with {delegation_id}", "Try again in a moment."
            )
        if not self._tasks.open or len(self._under_way) >= MAX_UNDER_WAY:
            raise SubletError(LocalCode.UNAVAILABLE, "nothing can be applied now", "Try again in a moment.")
        outcome: list[T | Exception] = []
        done = self._under_way[delegation_id] = anyio.Event()
        self._tasks.start("work on a staged result", self._run, delegation_id, work, outcome)
        with anyio.move_on_after(ANSWER_SECONDS):
            await done.wait()
        if not outcome:
            raise SubletError(
                LocalCode.UNAVAILABLE,
                f"it takes longer than {ANSWER_SECONDS:.0f} s, and goes on",
                f"Look for its end: sublet review {delegation_id} --stat",
            )
        [found] = outcome
        if isinstance(found, Exception):
            raise found
        return found

    async def _run(self, delegation_id: str, work: Callable[[], Awaitable[T]], outcome: list[T | Exception]) -> None:
        try:
            with anyio.CancelScope(shield=True):
                outcome.append(await work())
        except Exception as error:
            outcome.append(error)
        finally:
            self._under_way.pop(delegation_id).set()


def _review_event(action: str, who: str, status: str, done: int, conflicts: int) -> dict[str, JsonValue]:
    return {
        "action": action,
        "by": clean_line(who, 200),
        "status": status,
        "files": done,
        "conflicts": conflicts,
    }


def _check_live(record: DelegationRecord) -> None:
    """Refuse to take back a live lease that goes on, wrote nothing, or was taken back.

    Raises:
        SubletError: ``CONFLICT`` or ``NOT_FOUND``.
    """
    if record.taken_back:
        raise SubletError(
            LocalCode.CONFLICT,
            f"{record.id} was taken back already",
            f"See what it had changed: sublet diff {record.id}",
        )
    if not record.settled:
        raise SubletError(
            LocalCode.CONFLICT,
            f"{record.id} is {record.state}, so it is still writing",
            f"Wait for its end, or cancel it: sublet cancel {record.id}",
        )
    if record.access_mode == "ro":
        raise SubletError(LocalCode.NOT_FOUND, f"{record.id} was lent for reading only", "There is nothing to undo.")
    if not record.result_snapshots:
        why = record.audit_error.message if record.audit_error else "it ended before any access was given"
        raise SubletError(LocalCode.NOT_FOUND, f"{record.id} can't be taken back: {why}", "There is nothing to undo.")


def _changes(record: DelegationRecord) -> ChangeSet:
    assert record.change_set is not None
    return record.change_set


def _check_status(record: DelegationRecord, action: Literal["apply", "discard", "undo"]) -> None:
    """Refuse what makes no sense with a result of this status.

    Raises:
        SubletError: ``CONFLICT``.
    """
    status = _changes(record).status
    is_applied = status in ("applied", "partly_applied")
    if is_applied if action == "undo" else status in ("pending", "undone"):
        return
    hints = {
        "pending": f"Apply it first: sublet apply {record.id}",
        "undone": f"To apply it again: sublet apply {record.id}",
        "applied": f"To take it back: sublet undo {record.id}",
        "partly_applied": f"To take that back: sublet undo {record.id}",
    }
    raise SubletError(
        LocalCode.CONFLICT,
        f"the result of {record.id} can't be {_PAST[action]}: it is {_IS[status]}",
        hints.get(status, "Delegate again for a new result."),
    )


_PAST = {"apply": "applied", "undo": "undone", "discard": "discarded"}
_IS = {
    "pending": "not applied",
    "applied": "applied already",
    "partly_applied": "applied in part already",
    "undone": "taken back already",
    "discarded": "discarded",
}
