"""One assignment from START to its end, on the executor's side: mount, work, unmount (AWCP 3, DESIGN 4)."""

from __future__ import annotations

import asyncio
import math
from pathlib import Path

import anyio
import asyncssh
import structlog

from sublet.daemon.storage.records import AssignmentRecord
from sublet.daemon.working.data_link import DataLink, LinkState
from sublet.daemon.working.executor_tools import ExecutorTools
from sublet.daemon.working.follow_ups import FollowUps
from sublet.daemon.working.lease_job import make_job
from sublet.daemon.working.talking import Work
from sublet.daemon.working.updates import Updates
from sublet.daemon.working.verdict import why_not_done
from sublet.disk.private_dir import make_fresh
from sublet.disk.removal import is_removed
from sublet.protocol.errors import ErrorCode, SubletError
from sublet.protocol.messages import Done, DoneExtension, PromptState, Start
from sublet.protocol.names import parse_plain_name
from sublet.protocol.text import clean_line
from sublet.supervisor.guarded_process import ReadyGuard
from sublet.supervisor.model import Deadline, Outcome, runs_program
from sublet.workspace.carrier import Carried

LAST_WORD_SECONDS = 1.0
"""How long work whose changes were refused waits for the delegator to say why, once nothing is mounted."""
LEASE_END_SLACK_SECONDS = 0.5
"""What ends this close to the end of the lease, unfinished, was ended by the lease."""
MAX_SHOWN_PROMPT_CHARS = 120
MAX_LAUNCHES = 5
"""How often an agent is started that could not begin because the link to its files broke just then."""

log = structlog.get_logger(__name__)


class AssignmentRun:
    """Does the work of one START.

    ``updates`` yields progress until the end. Then either ``done`` is there or ``error`` says why not, and ``outcome``
    is what the provider said, where it came to that. From ``over`` on nothing can be renewed any more.

    Args:
        record: the assignment.
        start: the START that has been checked.
        key: our half of the lease's credential.
        host: where START came from, the only host that is dialled.
        deadline: when the lease ends, on the loop's clock; ``renew`` moves it.
        tools: what every assignment works with.
    """

    def __init__(
        self,
        record: AssignmentRecord,
        start: Start,
        key: asyncssh.SSHKey,
        host: str,
        deadline: float,
        tools: ExecutorTools,
    ) -> None:
        self.renewing = asyncio.Lock()
        self.over = False
        self.follow_ups = FollowUps()
        self.began = anyio.current_time()
        self.deadline = Deadline(deadline)
        self.finished = asyncio.Event()
        self.done: Done | None = None
        self.error: SubletError | None = None
        self.outcome: Outcome | None = None
        self._record = record
        self._start = start
        self._tools = tools
        self._link = DataLink(
            record.id,
            key,
            may_reverse=record.accept.sublet.reverse is not None,
            acceptor=tools.reverse,
            listener=self,
        )
        self._link.redirect(host, start)
        self._scope = anyio.CancelScope()
        self._unmounting = anyio.CancelScope(shield=True)
        self._returning: anyio.CancelScope | None = None
        self._stopped: SubletError | None = None
        self._failed: SubletError | None = None
        self._told = asyncio.Event()
        self._lost: str | None = None
        self._flushed = False
        self._tried = False
        self._began_work = False
        self._guard: ReadyGuard | None = None
        self._interrupted = 0
        self._left = ""
        self._news = Updates(record.id)
        self.updates = self._news.stream

    @property
    def id(self) -> str:
        """The delegation's id."""
        return self._record.id

    def work_of(self, lender: str) -> Work:
        """Return what this needs to talk with the daemon of that node id."""
        return Work(
            self.id,
            self._record.agent,
            lender,
            self._start.sublet.room_id,
            self.follow_ups,
            self._asking,
            self.deadline,
        )

    def _asking(self, question: str | None, text: str) -> None:
        if self.follow_ups.any:
            self._news.prompts = (PromptState(state="running"), *self.follow_ups.prompts)
        self._news.asking(question, text)

    def stop(self, error: SubletError) -> None:
        """End the work; the reason told is the first one given."""
        if self._stopped is None:
            self._stopped = error
        self._scope.cancel()

    def wind_down(self, error: SubletError, seconds: float) -> None:
        """Let the agent go on for ``seconds``, and then end its work as failed for ``error``, whatever it came to.

        What it wrote until then is brought to the delegator, unlike after ``stop``.
        """
        if self._failed is not None or self._stopped is not None:
            return
        self._failed = error
        self._told.set()
        self._scope.deadline = min(self._scope.deadline, anyio.current_time() + seconds)
        self._news.note(f"\n{error.message}\n")
        self.follow_ups.close()

    def renew(self, start: Start, host: str, deadline: float) -> None:
        """Go on with what a START says that has been checked: its endpoint from ``host``, until ``deadline``.

        The mount in force stays as it is; whoever dials next dials there.
        """
        self._start = start
        self._link.redirect(host, start)
        self.deadline.move(deadline)
        if self._failed is None:
            self._scope.deadline = deadline
        if start.sublet.follow_up is not None:
            self.follow_ups.add(start.sublet.follow_up)

    def ask_to_dial(self) -> None:
        """``LinkListener.ask_to_dial``."""
        self._news.phase("need_reverse")

    def link_changed(self, state: LinkState, why: str) -> None:
        """``LinkListener.link_changed``."""
        self._news.link = state
        text = "the link to the lender's files "
        text += "is back" if state == "up" else f"was lost ({why}); work in them fails until it is back"
        self._news.note(text + "\n")

    def abandon(self) -> None:
        """Leave what can't be unmounted in time to the next start. For the stop of the daemon."""
        self._scope.cancel()
        if self._returning is not None:
            self._returning.cancel()
        self._unmounting.cancel()

    async def work(self) -> None:
        """Mount, run the provider and unmount, all before ``deadline``. Nothing is raised."""
        try:
            self._scope.deadline = min(self._scope.deadline, self.deadline.at)
            with self._scope:
                await self._mounted()
            self.error = self._why_not_done()
        except SubletError as error:
            self.error = self._stopped or self._failed or error
        except Exception:
            log.exception("assignment broke", delegation_id=self.id)
            self.error = SubletError(ErrorCode.TASK_FAILED, "the executor had an internal error", "See its log.")
        finally:
            self.over = True
            self.follow_ups.close()
        if self.error is None and self.outcome is not None:
            self.done = Done(
                delegation_id=self.id,
                final_summary=self.outcome.summary,
                sublet=DoneExtension(
                    exit_code=self.outcome.exit_code,
                    link_losses=self._link.losses,
                    interrupted_operations=self._interrupted,
                    prompts=list(self.follow_ups.prompts),
                ),
            )

    def broke(self) -> None:
        """Let it be over by an error of ours."""
        self.over, self.done = True, None
        self.error = self.error or SubletError(
            ErrorCode.TASK_FAILED, "the executor had an internal error", "See its log."
        )

    def finish(self, failure: SubletError | None = None) -> None:
        """Let the reader of ``updates`` see the end; ``failure`` replaces a DONE that could not be journalled."""
        if failure is not None:
            self.error, self.done = self.error or failure, None
        self._news.close()
        self.finished.set()

    async def _mounted(self) -> None:
        """Connect, mount, work and unmount."""
        self._news.phase("mounting")
        try:
            if runs_program(self._tools.provider(self._record.agent)):
                # It takes about as long as the mount, and needs nothing of it.
                with anyio.CancelScope(shield=True):
                    self._guard = await ReadyGuard.start()
            mount = await self._link.view(self._attach)
            try:
                self._news.phase("running")
                await self._while_mounted(mount)
                self._news.phase("unmounting")
            finally:
                ended = self._stopped is not None or anyio.current_time() >= self.deadline.at
                with self._unmounting:
                    self._flushed = await self._detached(mount, flush=not ended)
                self._interrupted, self._left = mount.interrupted, mount.left
            refused = mount.over_quota or (not self._flushed and self._start.lease.access_mode == "rw")
            if refused and not ended:
                # The delegator knows why changes were refused, and its word for it may still be on its way.
                with anyio.move_on_after(LAST_WORD_SECONDS):
                    await self._told.wait()
        finally:
            self._link.close()
            if self._guard is not None:
                with anyio.CancelScope(shield=True):
                    await self._guard.close()

    async def _detached(self, mount: Carried, *, flush: bool) -> bool:
        """Give the view up, and tell whether everything has arrived.

        Of a lease that is over, nothing can be written out any more: that is not waited for.
        """
        with anyio.CancelScope(deadline=self.deadline.at if flush else math.inf):
            return await mount.detach(flush=flush)
        return await mount.detach(flush=False)

    async def _attach(self, connection: asyncssh.SSHClientConnection) -> Carried:
        """Bring the view over ``connection``, again where an earlier try has left nothing of its place."""
        carrier = self._tools.carriers[self._record.accept.sublet.transport]
        mount_point = Path(self._record.mount_point)
        if self._tried:
            await asyncio.to_thread(carrier.reserve, self.id)
        self._tried = True
        return await carrier.attach(mount_point, connection, self._start.mount.export_locator)

    async def _while_mounted(self, mount: Carried) -> None:
        """Run the provider for as long as its mount lives, or may come back."""
        outcome: Outcome | SubletError | None = None
        async with anyio.create_task_group() as group:

            async def end_when_lost() -> None:
                await mount.lost.wait()
                self._lost = mount.why_lost
                group.cancel_scope.cancel()

            async def keep_link() -> None:
                self._lost = (await self._link.keep(mount)).message
                group.cancel_scope.cancel()

            group.start_soon(end_when_lost)
            group.start_soon(keep_link)
            group.start_soon(mount.attend)
            outcome = await self._provide(mount)
            if isinstance(outcome, Outcome):
                self.outcome = outcome
            if self._start.lease.access_mode == "rw":
                # The last writes may still be on their way to the lender.
                await self._bring_back(mount)
            group.cancel_scope.cancel()
        if isinstance(outcome, SubletError):
            raise outcome

    async def _bring_back(self, mount: Carried) -> None:
        """Bring to the delegator what comes back at the end, over every link that there is until it has arrived.

        What ends the work lets a transfer that is under way come to its end, as ``detach`` would.
        """
        while True:
            await self._link.restored(mount)
            with anyio.CancelScope(deadline=self.deadline.at, shield=True) as self._returning:
                if await mount.bring_back():
                    return
            if self._returning.cancelled_caught:
                return  # the lease is over, or the daemon stops: nothing more is brought

    async def _provide(self, mount: Carried) -> Outcome | SubletError:
        """Give the agent its prompt, and then every follow-up, in the same mount and the same private directory.

        The last outcome counts, since a follow-up may mend what failed; how each prompt ended is told beside it.
        """
        scratch = self._tools.scratch_root / parse_plain_name(self.id)
        try:
            await asyncio.to_thread(make_fresh, scratch)
        except OSError as error:
            return SubletError(
                ErrorCode.TASK_FAILED,
                f"the agent's private directory can't be made: {error.strerror}",
                "Ask its owner to look at the disk that holds the state directory.",
            )
        try:
            prompt, told, session = self._record.invite.task.prompt, None, None
            while True:
                outcome = await self._launch(prompt, mount, scratch, session)
                session = outcome.provider_session_id or session
                self.follow_ups.ended(told, outcome)
                if self.follow_ups.any:
                    self._news.prompts = self.follow_ups.prompts
                    self._news.note("")
                if outcome.reason in ("timeout", "cancelled") or (follow_up := self.follow_ups.next()) is None:
                    return outcome
                prompt, told = follow_up.prompt, follow_up.id
                after = "" if outcome.reason == "done" else f" after {outcome.why()}"
                shown = clean_line(prompt.strip().partition("\n")[0], MAX_SHOWN_PROMPT_CHARS)
                text = f"Follow-up {self.follow_ups.worked_on} begins{after}: {shown}\n"
                self._news.prompts = (*self.follow_ups.prompts, PromptState(follow_up_id=told, state="running"))
                self._news.note(text)
        except SubletError as error:
            return error
        finally:
            with anyio.CancelScope(shield=True):
                await asyncio.to_thread(is_removed, scratch)

    async def _launch(self, prompt: str, mount: Carried, scratch: Path, session: str | None) -> Outcome:
        """Run the agent once its files are there; where it could not begin since the link broke, then once more."""
        launches = 0
        while True:
            if not mount.is_copy:
                await self._link.restored(mount)
            if not mount.is_there:
                # An agent must not begin in the bare directory below: the work ends as soon as the loss is noticed.
                await mount.lost.wait()
            launches, interrupted = launches + 1, mount.interrupted
            job = make_job(
                self._record,
                self._start,
                prompt,
                mount_point=mount.path,
                scratch=scratch,
                deadline=self.deadline,
                gate=lambda resources: self._tools.gate(self._record, resources, self.deadline, self._news.waiting),
                session=session,
                guard=self._guard,
            )
            self._began_work = True
            outcome = await self._tools.provider(self._record.agent).run(job, self._news.output)
            broke = not mount.is_copy and (mount.cut.is_set() or mount.interrupted > interrupted)
            if outcome.launched or not broke or launches == MAX_LAUNCHES:
                return outcome
            log.info("the agent could not begin without its files", delegation_id=self.id, reason=outcome.detail)
            self._news.note("the agent could not begin without the lender's files; once more\n")

    def _why_not_done(self) -> SubletError | None:
        late = anyio.current_time() >= self.deadline.at - LEASE_END_SLACK_SECONDS
        return why_not_done(
            self.id,
            self.outcome,
            self.follow_ups.prompts,
            late=late,
            began=self._began_work,
            # Work whose last writes did not all arrive is not done (DESIGN 4.1).
            missing=not self._flushed and self._start.lease.access_mode == "rw",
            lost=self._lost,
            stopped=self._stopped,
            failed=self._failed,
            left=self._left,
        )
