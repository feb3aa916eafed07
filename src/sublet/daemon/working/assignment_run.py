"""One assignment from START to its end, on the executor's side: mount, work, unmount (AWCP 3, DESIGN 4)."""

from __future__ import annotations

import asyncio
import math
from pathlib import Path

import anyio
import asyncssh
import structlog

from sublet.daemon.ports.talking import TalkingWork
from sublet.daemon.working.data_link import DataLink, LinkState
from sublet.daemon.working.decisions import Decisions
from sublet.daemon.working.executor_tools import ExecutorTools
from sublet.daemon.working.follow_ups import NextFollowUps
from sublet.daemon.working.lease_job import make_job
from sublet.daemon.working.refusals import broken
from sublet.daemon.working.updates import Updates
from sublet.disk.private_dir import make_fresh
from sublet.disk.removal import is_removed
from sublet.protocol.assignment.events import AgentLaunched, PromptEnded, WorkEnded
from sublet.protocol.assignment.outputs import Prompt
from sublet.protocol.assignment.verdict import Ended
from sublet.protocol.errors import ErrorCode, SubletError
from sublet.protocol.messages import Done, Start
from sublet.protocol.names import parse_plain_name
from sublet.protocol.prompt_state import PromptState
from sublet.protocol.text import clean_line
from sublet.stop_time import within
from sublet.supervisor.guarded_process import ReadyGuard
from sublet.supervisor.job import Deadline, Outcome, runs_program
from sublet.workspace.carrier import Carried

LAST_WORD_SECONDS = 1.0
"""How long work whose changes were refused waits for the delegator to say why, once nothing is mounted."""
MAX_SHOWN_PROMPT_CHARS = 120
MAX_LAUNCHES = 5
"""How often an agent is started that could not begin because the link to its files broke just then."""

log = structlog.get_logger(__name__)


class AssignmentRun:
    """Does the work of one START: what it decides it asks of the core.

    ``updates`` yields progress until the end. Then either ``done`` is there or ``error`` says why not, and ``outcome``
    is what the provider said, where it came to that.

    Args:
        decisions: the assignment, whose START was taken.
        start: that START.
        host: where START came from, the only host that is dialled.
        deadline: when the lease ends, on the loop's clock; ``renew`` moves it.
        tools: what every assignment works with.
    """

    def __init__(self, decisions: Decisions, start: Start, host: str, deadline: float, tools: ExecutorTools) -> None:
        assert decisions.held.key is not None
        record = decisions.journalled
        self.deadline = Deadline(deadline)
        self.finished = asyncio.Event()
        self.done: Done | None = None
        self.error: SubletError | None = None
        self.outcome: Outcome | None = None
        self._decisions = decisions
        self._record = record
        self._start = start
        self._tools = tools
        self._link = DataLink(
            record.id,
            decisions.held.key,
            may_reverse=record.accept.sublet.reverse is not None,
            acceptor=tools.reverse,
            listener=self,
        )
        self._link.redirect(host, start)
        self._scope = anyio.CancelScope(deadline=deadline)
        self._unmounting = anyio.CancelScope(shield=True)
        self._returning: anyio.CancelScope | None = None
        self._told = asyncio.Event()
        self._lost: str | None = None
        self._flushed = False
        self._tried = False
        self._guard: ReadyGuard | None = None
        self._interrupted = 0
        self._left = ""
        self._news = Updates(record.id)
        self.updates = self._news.stream

    @property
    def id(self) -> str:
        """The delegation's id."""
        return self._record.id

    def work_of(self, delegator: str) -> TalkingWork:
        """Return what this needs to talk with the daemon of that node id."""
        return TalkingWork(
            self.id,
            self._record.agent,
            delegator,
            self._start.sublet.room_id,
            NextFollowUps(self._decisions),
            self._asking,
            self.deadline,
        )

    @property
    def _prompts(self) -> tuple[PromptState, ...]:
        return self._decisions.assignment.prompts.told

    def _asking(self, question: str | None, text: str) -> None:
        if self._decisions.assignment.prompts.taken:
            self._news.prompts = (PromptState(state="running"), *self._prompts)
        self._news.asking(question, text)

    def interrupt(self) -> None:
        """End the agent now; of what is still to be written out nothing is waited for."""
        self._scope.cancel()

    def wind_down(self, error: SubletError, at: float) -> None:
        """Let the agent go on until ``at`` on the loop's clock, and tell that it is to end then for ``error``.

        What it wrote until then is brought to the delegator, unlike after ``interrupt``.
        """
        self._told.set()
        self._scope.deadline = min(self._scope.deadline, at)
        self._news.note(f"\n{error.message}\n")

    def renew(self, start: Start, host: str, deadline: float, ends_at: float) -> None:
        """Go on with what a START says that has been granted: its endpoint from ``host``, until ``deadline``.

        The mount in force stays as it is; whoever dials next dials there. The agent ends at ``ends_at``.
        """
        self._start = start
        self._link.redirect(host, start)
        self.deadline.move(deadline)
        self._scope.deadline = ends_at

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

    async def work(self) -> WorkEnded:
        """Mount, run the provider and unmount, all before ``deadline``, and return what it came to."""
        failure: SubletError | None = None
        try:
            with self._scope:
                await self._mounted()
        except SubletError as error:
            failure = error
        except Exception:
            log.exception("assignment broke", delegation_id=self.id)
            failure = broken()
        said = self.outcome
        return WorkEnded(
            None if said is None else Ended(said.reason, said.summary, said.exit_code, said.why()),
            failure,
            flushed=self._flushed,
            lost=self._lost,
            left=self._left,
            link_losses=self._link.losses,
            interrupted_operations=self._interrupted,
        )

    def finish(self, end: Done | SubletError) -> None:
        """Let the reader of ``updates`` see the end; the first one counts."""
        if self.finished.is_set():
            return
        if isinstance(end, Done):
            self.done = end
        else:
            self.error = end
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
                ended = self._decisions.assignment.stopped is not None or anyio.current_time() >= self.deadline.at
                with self._unmounting:
                    self._flushed = await self._detached(mount, flush=not ended)
                self._interrupted, self._left = mount.interrupted, mount.left
            refused = mount.over_quota or (not self._flushed and self._start.lease.access_mode == "rw")
            if refused and not ended:
                # The delegator knows why changes were refused, and its word for it may still be on its way.
                with anyio.move_on_after(within(LAST_WORD_SECONDS)):
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
                # The last writes may still be on their way to the delegator.
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
                replies = await self._decisions.feed(PromptEnded(told, outcome.reason, outcome.exit_code))
                prompts = self._decisions.assignment.prompts
                if prompts.taken:
                    self._news.prompts = prompts.told
                    self._news.note("")
                follow_up = next((reply.follow_up for reply in replies if isinstance(reply, Prompt)), None)
                if follow_up is None:
                    return outcome
                prompt, told = follow_up.prompt, follow_up.id
                after = "" if outcome.reason == "done" else f" after {outcome.why()}"
                shown = clean_line(prompt.strip().partition("\n")[0], MAX_SHOWN_PROMPT_CHARS)
                self._news.prompts = (*prompts.told, PromptState(follow_up_id=told, state="running"))
                self._news.note(f"Follow-up {len(prompts.ended)} begins{after}: {shown}\n")
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
            await self._decisions.feed(AgentLaunched())
            outcome = await self._tools.provider(self._record.agent).run(job, self._news.output)
            broke = not mount.is_copy and (mount.cut.is_set() or mount.interrupted > interrupted)
            if outcome.launched or not broke or launches == MAX_LAUNCHES:
                return outcome
            log.info("the agent could not begin without its files", delegation_id=self.id, reason=outcome.detail)
            self._news.note("the agent could not begin without the lender's files; once more\n")
