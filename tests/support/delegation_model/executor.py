"""The executor of the model: drives the assignment core, mounts and works in the delegator's files."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING

from sublet.protocol.assignment import core, phases
from sublet.protocol.assignment.events import (
    AgentLaunched,
    CallerLeft,
    Event,
    InviteCame,
    InvitePrepared,
    InviteRefused,
    PolicySaid,
    PromptEnded,
    QuestionAsked,
    RenewalCame,
    Restarted,
    StartCame,
    StopCame,
    TimePassed,
    Undone,
    WindDownCame,
    WorkEnded,
)
from sublet.protocol.assignment.outputs import (
    Answer,
    AskPolicy,
    Begin,
    Consider,
    Finish,
    Free,
    Interrupt,
    Output,
    Prompt,
    Record,
    Refuse,
    Renew,
    TakeSlot,
    Tell,
    WindDown,
)
from sublet.protocol.assignment.phases import Phase
from sublet.protocol.assignment.state import Assignment, State
from sublet.protocol.assignment.verdict import Ended
from sublet.protocol.errors import ErrorCode, LocalCode, SubletError
from sublet.protocol.lifecycle import ASSIGNMENT_TABLE, AssignmentState, is_terminal
from sublet.protocol.messages import Accept, Done, Invite, Start
from support.delegation_model.journal import assignment_kept
from support.delegation_model.world import Process, World, check

if TYPE_CHECKING:
    from support.delegation_model.delegator import Delegator

OWNER = "SHA256:" + "A" * 43
LONGEST = 600.0
Reply = Callable[[Accept | SubletError], None]


def silent(_: Accept | SubletError) -> None:
    """Hear no answer."""


class Executor(Process):
    """``disk`` and ``task`` outlive the process; ``task`` is what the A2A side tells of the work."""

    delegator: Delegator

    def __init__(self, world: World) -> None:
        super().__init__(world, "executor", world.random.choice([0.0, -300.0, 300.0]))
        self.state: State = None
        self.disk: Assignment | None = None
        self.task: str | Done | SubletError | None = None
        self.slots = 0
        self.begun = 0
        self.prompted: Counter[str] = Counter()
        self.promised: Accept | None = None
        self.allowed: dict[int, AskPolicy] = {}
        self.agent = 0
        self._askers: list[Reply] = []

    # Messages

    def invite(self, invite: Invite, reply: Reply) -> None:
        self.feed(InviteCame(invite, OWNER), reply)
        if self.world.chance(0.02):
            self.feed(CallerLeft(SubletError(ErrorCode.CANCELLED, "the caller left")))

    def start(self, start: Start, reply: Reply) -> None:
        self.feed(StartCame(start, OWNER), lambda said: self._started(said, reply))

    def renew(self, start: Start, reply: Reply) -> None:
        self.feed(RenewalCame(start, OWNER, LONGEST), reply)

    def cancel(self, reply: Reply) -> None:
        self.feed(StopCame(SubletError(ErrorCode.CANCELLED, "the delegator cancelled"), OWNER))
        reply(SubletError(ErrorCode.CANCELLED, "heard"))

    def _started(self, said: Accept | SubletError, reply: Reply) -> None:
        if isinstance(said, SubletError) and phases.phase_of(self.state) in (Phase.ENDED, Phase.UNKNOWN):
            self.task = self.task if isinstance(self.task, Done | SubletError) else said
            reply(said)

    # The core

    def feed(self, event: Event, reply: Reply = silent) -> None:
        self.world.steps["executor"] += 1
        before = self.state
        after, outputs = core.step(before, event, self.now)
        durable = before
        for output in outputs:
            self.may_die()
            if isinstance(output, Record | TakeSlot) and self.world.chance(self.world.weather.fail):
                self.state = durable
                self.feed(Undone(output, self.world.failure()), reply)
                return
            if isinstance(output, Record):
                durable = output.now
            self._do(output, event, reply)
        self.may_die()
        self.state = after
        check((self.slots == 1) == self._should_hold(), "what is held is given back once, and only once it is over")
        if (at := phases.wake_at(after)) < float("inf"):
            self.during_life(at - self.now.steady + 1e-6, lambda: self.feed(TimePassed()))

    def _should_hold(self) -> bool:
        return isinstance(self.state, Assignment) and self.state.holds

    def _do(self, output: Output, event: Event, reply: Reply) -> None:
        match output:
            case Consider():
                self._askers.append(reply)
                self.during_life(self.world.random.uniform(0, 0.1), self._considered)
            case Record():
                self._journal(output)
            case Answer(accept):
                self._answer(accept, event, reply)
            case Refuse(error):
                self._each_asker(error, event, reply)
            case AskPolicy():
                self._ask(output, reply)
            case Begin(start, deadline):
                self._begin(start, deadline)
            case Renew(start, deadline, ends_at):
                check(ends_at <= deadline, "no renewal goes on beyond a lease")
                self._renewed(start, deadline)
            case Interrupt():
                self.during_life(self.world.random.uniform(0, 0.5), lambda: self._unmount(None, self.agent))
            case Prompt(follow_up):
                self.prompted[follow_up.id] += 1
                check(self.prompted[follow_up.id] == 1, "a follow-up is worked on once")
                if isinstance(event, PromptEnded):
                    self._work(follow_up.id)
            case Finish():
                agent = self.agent
                self.during_life(0.1, lambda: self._unmount(Ended("done", "all done", 0), agent))
            case Tell(end):
                done = isinstance(end, Done)
                check(not done or self._disk.state is AssignmentState.COMPLETED, "DONE is told only once it is durable")
                self.task = end
                self.world.send(lambda: self.delegator.hear_end(end))
            case Free():
                self.slots -= 1
                check(self.slots == 0, "slots are given back exactly once")
            case TakeSlot() | WindDown():
                check(self.slots == 1, "work runs in a slot that was promised")

    @property
    def _disk(self) -> Assignment:
        assert self.disk is not None
        return self.disk

    def _journal(self, record: Record) -> None:
        old, new = self.disk, assignment_kept(record.now)
        if old is None:
            check(new.state is AssignmentState.PENDING, "an assignment begins at the beginning")
        elif old.state is not new.state:
            check(new.state in ASSIGNMENT_TABLE[old.state].values(), "only the table's transitions are journalled")
        else:
            check(not is_terminal(ASSIGNMENT_TABLE, old.state), "what is over does not change")
        check(old is None or new.generation >= old.generation, "the generation never falls")
        self.disk = new

    def _answer(self, accept: Accept, event: Event, reply: Reply) -> None:
        check(self.disk is not None, "ACCEPT is said only once it is durable")
        if isinstance(event, InviteCame | InvitePrepared):
            check(self.promised in (None, accept), "one INVITE has one ACCEPT")
            self.promised = accept
            self.task = self.task or "pending"
            asked, said = self._disk.invite, accept.remote_constraints
            check((said.max_ttl_seconds or 0) <= asked.lease.ttl_seconds, "ACCEPT narrows the time")
            check(
                said.accepted_access_mode == "ro" or asked.lease.access_mode == "rw", "ACCEPT never widens the access"
            )
        self._each_asker(accept, event, reply)

    def _each_asker(self, said: Accept | SubletError, event: Event, reply: Reply) -> None:
        if isinstance(event, InvitePrepared | InviteRefused):
            askers, self._askers = self._askers, []
            for asker in askers:
                asker(said)
        else:
            reply(said)

    def _considered(self) -> None:
        from support.delegation_model.delegator import accept_of

        assert not isinstance(self.state, Assignment)
        if self.world.chance(self.world.weather.deny):
            holds = self.world.chance(0.5)
            self.slots += holds
            self.feed(InviteRefused(SubletError(ErrorCode.DECLINED, "no agent"), holds))
            return
        self.slots += 1
        check(self.slots == 1, "an INVITE holds one slot")
        self.feed(InvitePrepared(accept_of(self.world), 60.0))

    def _ask(self, question: AskPolicy, reply: Reply) -> None:
        error = SubletError(ErrorCode.DECLINED, "policy") if self.world.chance(self.world.weather.deny) else None
        seconds = self.world.random.choice([0.0, 0.1, 5.0, 30.0]) if not self.world.calm else 0.0

        def decided() -> None:
            if error is None:
                self.allowed[id(question)] = question
            self.feed(PolicySaid(question, error, LONGEST), reply)

        self.during_life(seconds, decided)

    # The work

    def _begin(self, start: Start, deadline: float) -> None:
        self.begun += 1
        check(self.begun == 1, "work is begun once")
        check(self._disk.state is AssignmentState.ACTIVE, "work is begun only once that is durable")
        granted = [one for one in self.allowed.values() if not one.renews and one.start is start]
        check(bool(granted), "policy is asked before work is begun")
        check(deadline <= max(one.grant.until for one in granted) + 1e-6, "work has no more time than policy allowed")
        accepted = self._disk.accept.remote_constraints
        check(
            deadline - self.now.steady <= (accepted.max_ttl_seconds or 0) + 1e-6, "START has no more time than ACCEPT"
        )
        check(
            accepted.accepted_access_mode == "rw" or self._disk.access_mode == "ro",
            "START has no more access than ACCEPT",
        )
        self.task = "working"
        self.deadline = deadline
        self.during_life(self.world.random.uniform(0.02, 1), self._mounted)

    def _renewed(self, start: Start, deadline: float) -> None:
        assert isinstance(self.state, Assignment)
        granted = [one for one in self.allowed.values() if one.renews and one.start is start]
        check(bool(granted), "policy is asked before a renewal")
        limit = max(one.grant.until for one in granted)
        check(deadline <= limit + 1e-6, "a renewal has no more time than policy allowed")
        check(deadline <= self.state.began + LONGEST + 1e-6, "no renewal goes beyond the executor's own limit")
        longer = deadline > self.deadline + 1e-6
        old = self.state.expires_at
        check(not longer or old is None or self._disk.expires_at != old, "time is added only by an extension")
        check(start.sublet.generation >= self.state.generation, "a zombie changes nothing")
        self.deadline = deadline

    def _mounted(self) -> None:
        if phases.phase_of(self.state) is not Phase.WORKING:
            return
        if not self.delegator.lets_in():
            error = SubletError(ErrorCode.MOUNT_FAILED, "the delegator does not let us in")
            self._unmount(None, self.agent, error)
            return
        self.feed(AgentLaunched())
        self.progress()
        self._work(None)

    def progress(self) -> None:
        prompts = self.state.prompts.told if isinstance(self.state, Assignment) else ()
        self.world.send(lambda: self.delegator.hear_progress(prompts))

    def _work(self, follow_up: str | None) -> None:
        agent = self.agent
        for second in range(self.world.random.choice([1, 3, 20, 60])):
            self.during_life(second, lambda: self._write(agent))
        if self.world.random.random() < 0.2:
            self.during_life(0.7, lambda: self._ask_back(agent))
        reason = self.world.random.choice(["done", "done", "done", "failed", "timeout"])
        self.during_life(second + 0.5, lambda: self._prompt_ended(follow_up, reason, agent))

    def _ask_back(self, agent: int) -> None:
        if agent == self.agent and phases.phase_of(self.state) is Phase.WORKING:
            self.feed(QuestionAsked())

    def _write(self, agent: int) -> None:
        if agent == self.agent and phases.phase_of(self.state) is Phase.WORKING:
            self.delegator.written()

    def _prompt_ended(self, follow_up: str | None, reason: str, agent: int) -> None:
        state = self.state
        if agent == self.agent and isinstance(state, Assignment) and not state.interrupted:
            self.feed(PromptEnded(follow_up, reason, 0))
            self.progress()

    def _unmount(self, ended: Ended | None, agent: int, failure: SubletError | None = None) -> None:
        if agent != self.agent or phases.phase_of(self.state) is not Phase.WORKING:
            return
        self.agent += 1
        self.feed(WorkEnded(ended, failure, flushed=not self.world.chance(0.05)))

    def works(self) -> bool:
        """Tell whether work goes on here that nobody has told to end."""
        state = self.state
        return phases.phase_of(state) is Phase.WORKING and isinstance(state, Assignment) and not state.interrupted

    def wind_down(self) -> None:
        self.feed(WindDownCame(SubletError(ErrorCode.TASK_FAILED, "quota exceeded"), 5.0, OWNER))

    # Life and death

    def died(self) -> None:
        self.state = None
        self.slots = 0
        self.agent += 1
        self.allowed.clear()
        self._askers.clear()

    def restarted(self) -> None:
        # As the A2A side does: what it was at is over.
        if self.task in ("pending", "working"):
            self.task = SubletError(ErrorCode.TASK_FAILED, "the executor's daemon stopped unexpectedly")
        self.state = self.disk
        error = SubletError(ErrorCode.TASK_FAILED, "the executor's daemon stopped unexpectedly")
        self.feed(Restarted(error))


def unreachable() -> SubletError:
    """Return what a call comes to that nobody answers."""
    return SubletError(LocalCode.PEER_UNREACHABLE, "nobody answers")
