"""The delegator of the model: drives the delegation core, serves its files, and does what people ask of it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from sublet.protocol.bounds import AccessMode
from sublet.protocol.delegation import core, phases
from sublet.protocol.delegation.events import (
    AcceptCame,
    CallerLeft,
    CancelCame,
    Created,
    DoneCame,
    Event,
    ExtensionAllowed,
    ExtensionAnswered,
    Failed,
    FollowUpAnswered,
    FollowUpDue,
    FollowUpSaid,
    FollowUpUnheard,
    FoundAgain,
    InviteDue,
    InviteUnheard,
    Opened,
    Prepared,
    ProgressCame,
    ReadAsOver,
    Settled,
    TakenOver,
    TimePassed,
    Undone,
)
from sublet.protocol.delegation.outputs import (
    Answer,
    AskPolicy,
    Deliver,
    DeliverLater,
    FindAgain,
    Follow,
    GiveBack,
    InviteLater,
    Lengthen,
    Open,
    Output,
    Prepare,
    Record,
    Refuse,
    Revoke,
    SendExtension,
    SendInvite,
    SendStart,
    Serve,
    Settle,
)
from sublet.protocol.delegation.state import Delegation, ExtensionAsked, FollowUpNews
from sublet.protocol.errors import ErrorCode, SubletError
from sublet.protocol.lifecycle import DELEGATION_TABLE, DelegationEvent, DelegationState, advance, is_terminal
from sublet.protocol.messages import (
    Accept,
    Done,
    FollowUp,
    Invite,
    Start,
)
from sublet.protocol.prompt_state import PromptState
from sublet.protocol.times import rfc3339_of, unix_seconds
from support.delegation_model.journal import delegation_kept
from support.delegation_model.world import WALL, Process, World, check

if TYPE_CHECKING:
    from support.delegation_model.executor import Executor

DLG = "dlg_1"
POLICY_LONGEST = 300
HEARD_SECONDS = 4.0
POLL_SECONDS = 3.0
S = DelegationState


def accept_of(world: World) -> Accept:
    """Return what an executor agrees to; not each of them can be believed to narrow."""
    random = world.random
    return Accept.model_validate(
        {
            "delegation_id": DLG,
            "remote_mount": {"mount_point": "/m/dlg_1" if random.random() < 0.98 else "m"},
            "remote_constraints": {
                "accepted_access_mode": random.choice(["ro", "rw", "rw"]),
                "max_ttl_seconds": random.choice([20, 60, 600]),
                "public_key": "ssh-ed25519 AAAA",
            },
            "sublet": {"renewable": random.random() < 0.9},
        }
    )


class Delegator(Process):
    """``disk`` and ``owes`` outlive the process: the record, and whether the executor has yet to hear of the end."""

    executor: Executor

    def __init__(self, world: World) -> None:
        super().__init__(world, "delegator", 0.0)
        random = world.random
        mode: AccessMode = random.choice(["ro", "rw", "rw"])
        self.asked = Delegation(
            DLG, "bob", mode, random.choice([15, 60, 120]), WALL, patient=random.random() < 0.5,
            within=WALL + 100 if random.random() < 0.2 else None,
        )  # fmt: skip
        self.invitation = Invite.model_validate(
            {
                "delegation_id": DLG,
                "task": {"description": "d", "prompt": "p"},
                "lease": {"ttl_seconds": self.asked.ttl_seconds, "access_mode": mode},
                "workspace": {"export_name": "awcp/dlg_1"},
            }
        )
        self.state = self.asked
        self.disk: Delegation | None = None
        self.serving: float | None = None
        self.locked = False
        self.owes = False
        self.granted = 0
        self.told: S | None = None
        self.writes = 0
        self.once_running: list[tuple[float, Callable[[], None]]] = []
        self._taken_over: int | None = None
        self._unheard = False
        self._attempt = 0
        self._answered: set[int] = set()
        self._keys = 0

    # What people do

    def begin(self) -> None:
        self.feed(Created())

    def cancel(self) -> None:
        if self.up:
            self.feed(CancelCame(SubletError(ErrorCode.CANCELLED, "somebody cancelled")))

    def extend(self) -> None:
        if self.up:
            self._keys += 1
            seconds = self.world.random.choice([10, 100, 1000])
            key = f"key_{self._keys}"
            self.feed(ExtensionAsked(key, seconds, POLICY_LONGEST, self.asked.within))
            if self.world.chance(0.1):
                self.during_life(self.world.random.uniform(0, 5), lambda: self.feed(CallerLeft(key)))

    def say(self, follow_up_id: str, prompt: str) -> None:
        if self.up:
            self.feed(FollowUpSaid(follow_up_id, prompt, hashlib.sha256(prompt.encode()).hexdigest()))

    def look(self) -> None:
        """Read the state as a face shows it: an end that was read stays."""
        if not self.up or self.disk is None:
            return
        shown = self.disk.state
        if not self.disk.done and not is_terminal(DELEGATION_TABLE, shown) and self._lapsed(self.disk):
            shown = advance(DELEGATION_TABLE, shown, DelegationEvent.EXPIRE)
            self.feed(ReadAsOver())
        if is_terminal(DELEGATION_TABLE, shown):
            check(self.told in (None, shown), "an end that was told stays")
            self.told = shown

    def _lapsed(self, record: Delegation) -> bool:
        return record.expires_at is not None and unix_seconds(record.expires_at) <= self.now.wall - 1e-6

    # What the executor does

    def lets_in(self) -> bool:
        return self.up and self.serving is not None and self.now.steady < self.serving

    def written(self) -> None:
        """Take a write, where the executor is let in."""
        if self.lets_in():
            self.writes += 1
            check(
                self.disk is not None and self.disk.state in (S.STARTED, S.RUNNING), "files are served in a lease only"
            )
            check(not self._disk.done, "access ends with DONE")
            check(self.told is None, "nothing is written after an end was told")
            check(
                self._disk.expires_at is not None and not self._lapsed(self._disk), "nothing is written after the lease"
            )

    def hear_end(self, end: Done | SubletError) -> None:
        if not self.up or self.state.state is S.CREATED:
            return
        if isinstance(end, SubletError):
            self.guarded(Failed(end, by_peer=True))
        else:
            failure = SubletError(ErrorCode.TASK_FAILED, "quota") if self.world.chance(0.05) else None
            self.guarded(DoneCame(_heard(end.sublet.prompts), failure))

    def hear_progress(self, prompts: tuple[PromptState, ...]) -> None:
        if self.up:
            self.guarded(ProgressCame(True, _heard(prompts)))

    # The core

    def guarded(self, event: Event) -> None:
        """Feed in a call of its own, which dies alone."""
        self.during_life(0, lambda: self.feed(event))

    def feed(self, event: Event) -> None:
        self.world.steps["delegator"] += 1
        durable = self.state
        after, outputs = core.step(self.state, event, self.now)
        for output in outputs:
            self.may_die()
            if isinstance(output, Record):
                if self.world.chance(self.world.weather.fail):
                    self.state = durable
                    self.feed(Undone(output, self.world.failure()))
                    return
                self._journal(output)
                durable = output.now
            else:
                self._do(output)
        self.may_die()
        self.state = after
        if self.serving is not None:
            check(not core_over(after) and not after.left, "access is cut in the step that ends")
            check(self.disk is None or not core_over(self.disk), "access is cut with the journalled end")
        if (at := phases.wake_at(after)) < float("inf"):
            self.during_life(at - self.now.steady + 1e-6, lambda: self.feed(TimePassed()))

    @property
    def _disk(self) -> Delegation:
        assert self.disk is not None
        return self.disk

    def _journal(self, record: Record) -> None:
        old, new = self.disk, delegation_kept(record.now)
        check(new.generation == self.life_generation(old), "each process has a generation of its own")
        if old is None:
            check(new.state is S.CREATED, "a delegation begins at the beginning")
        else:
            check(new.generation >= old.generation, "the generation never falls")
            if old.state is not new.state:
                check(new.state in DELEGATION_TABLE[old.state].values(), "only the table's transitions are journalled")
                check(not old.done or new.state is S.COMPLETED, "DONE is undone by nothing")
            check(not old.done or new.done, "DONE is undone by nothing")
            check(new.access_mode == "ro" or old.access_mode == "rw", "access is never widened")
            check(not old.settled, "what is settled does not change")
            longer = new.ttl_seconds - old.ttl_seconds
            check(longer <= max(0, record.extended), "a lease is lengthened by an extension alone")
        check(new.ttl_seconds <= max(self.asked.ttl_seconds, POLICY_LONGEST), "no lease is longer than policy allows")
        if new.expires_at is not None and self.asked.within is not None:
            check(unix_seconds(new.expires_at) <= self.asked.within + 1, "no lease outlives its caller's")
        if new.state is S.RUNNING:
            for seconds, call in self.once_running:
                self.during_life(seconds, call)
            self.once_running.clear()
        self.disk = new

    def life_generation(self, old: Delegation | None) -> int:
        """Return the generation that this process writes."""
        return self._taken_over or (1 if old is None else old.generation)

    def _do(self, output: Output) -> None:
        world = self.world
        match output:
            case Prepare() | FindAgain() | Open():
                self._prepare(output)
            case SendInvite():
                check(self._disk.state is S.INVITED, "INVITE is sent only once that is durable")
                self.owes = True
                self._invite()
            case InviteLater(seconds):
                self.during_life(seconds, lambda: self.feed(InviteDue()))
            case Serve(deadline):
                check(self._disk.state in (S.STARTED, S.RUNNING), "files are served only once that is durable")
                check(not core_over(self._disk), "what is over is not served")
                self.serving = deadline
            case SendStart():
                check(self._disk.state is S.STARTED, "START is sent only once that is durable")
                self._send_start()
                self._poll(follow=False)
            case Follow():
                self._poll(follow=True)
            case AskPolicy(key, more):
                error = SubletError(ErrorCode.DECLINED, "policy") if world.chance(world.weather.deny) else None
                self.during_life(world.random.choice([0.0, 3.0]), lambda: self.feed(ExtensionAllowed(key, more, error)))
            case SendExtension(key, more):
                self._extend(key, more)
            case Lengthen(seconds):
                check(self.serving is not None, "only what is served is lengthened")
                self.serving = (self.serving or 0) + seconds
                left = unix_seconds(self._disk.expires_at or "") - self.now.wall
                check(self.serving - self.now.steady <= left + 0.01, "nothing is served for longer than is journalled")
                check(seconds <= self.granted, "nothing is lengthened by more than the executor granted")
            case Deliver(said):
                check(
                    said.id in [one.id for one in self._disk.follow_ups], "a follow-up is sent only once it is durable"
                )
                self._deliver(said.id, said.prompt)
            case DeliverLater(seconds):
                self.during_life(seconds, lambda: self.feed(FollowUpDue()))
            case Answer(key) if not key.startswith("key_"):
                check(
                    key in [one.id for one in self._disk.follow_ups], "a follow-up is answered only once it is durable"
                )
            case Revoke():
                self.serving = None
            case Settle(tell):
                check(self.serving is None, "the audit is made once access is cut")
                self._settle(tell)
            case GiveBack(untold):
                self.locked = False
                check(untold or not self._unheard, "an executor that was not told is told later")
                check(
                    untold or world.weather.lose > 0 or not self.executor.works(),
                    "who may hold a task is told of the end",
                )
                if untold:
                    self._tell_late()
                else:
                    self.owes = False
            case Answer() | Refuse():
                pass

    def _prepare(self, output: Prepare | FindAgain | Open) -> None:
        self.locked = True
        event: Event = (
            Opened() if isinstance(output, Open) else Prepared() if isinstance(output, Prepare) else FoundAgain()
        )
        if self.world.chance(0.03):
            event = Failed(SubletError(ErrorCode.WORKSPACE_INVALID, "the directory is gone"))
        self.during_life(self.world.random.choice([0.0, 0.2, 3.0]), lambda: self.feed(event))

    # Messages

    def _invite(self) -> None:
        self._attempt += 1
        attempt, life, executor = self._attempt, self.life, self.executor

        def answered(said: Accept | SubletError) -> None:
            self.world.send(lambda: heard(said))

        def heard(said: Accept | SubletError) -> None:
            if not self.up or self.life != life:
                return
            fresh = attempt == self._attempt and attempt not in self._answered
            self._answered.add(attempt)
            if isinstance(said, Accept):
                self.guarded(AcceptCame(self._lied(said)))
            elif fresh:
                self.guarded(Failed(said, by_peer=True))

        def unheard(sent: bool) -> None:
            if attempt == self._attempt and attempt not in self._answered:
                self._answered.add(attempt)
                self.feed(InviteUnheard(_unreachable(), sent))

        if not executor.up:
            self.during_life(0.1, lambda: unheard(False))
            return
        self.world.send(lambda: self._arrive(lambda: executor.invite(self.invitation, answered)))
        self.during_life(HEARD_SECONDS, lambda: unheard(True))

    def _lied(self, accept: Accept) -> Accept:
        """Return what an executor says that takes what it was not offered."""
        if not self.world.chance(self.world.weather.lie):
            return accept
        wide = {"accepted_access_mode": "rw", "max_ttl_seconds": 10_000}
        return accept.model_copy(update={"remote_constraints": accept.remote_constraints.model_copy(update=wide)})

    def _arrive(self, call: Callable[[], None]) -> None:
        if self.executor.up:
            self.executor.during_life(0, call)

    def _start(self, follow_up: FollowUp | None = None, more: int = 0) -> Start:
        state = self.state
        assert state.expires_at is not None or self._disk.expires_at is not None
        expires_at = unix_seconds(state.expires_at or self._disk.expires_at or "")
        left = max(1, int((self.serving or 0.0) - self.now.steady))
        mode = self._disk.access_mode
        if self.world.chance(self.world.weather.lie):
            # As a delegator says it that takes more than was accepted.
            expires_at, left = expires_at + 1000, left + 1000
            mode = "rw" if self.world.random.random() < 0.2 else mode
        return Start.model_validate(
            {
                "delegation_id": DLG,
                "lease": {"expires_at": rfc3339_of(expires_at + more), "access_mode": mode},
                "mount": {
                    "endpoint": {"host": "h", "port": 1, "user": DLG},
                    "export_locator": "/",
                    "credential": "publickey:x",
                },
                "sublet": {
                    "host_key": "ssh-ed25519 AAAA",
                    "remaining_seconds": left + more,
                    "generation": self._disk.generation,
                    "follow_up": follow_up,
                },
            }
        )

    def _send_start(self) -> None:
        start = self._start()
        self.world.send(lambda: self._arrive(lambda: self.executor.start(start, self._refused)))

    def _refused(self, said: Accept | SubletError) -> None:
        if isinstance(said, SubletError):
            self.world.send(lambda: self.hear_end(said))

    def _poll(self, *, follow: bool) -> None:
        """Re-read the executor's task from time to time, as a broken stream is gone on with."""
        if self.serving is None:
            return
        task, executor = self.executor.task, self.executor
        if executor.up and not self.world.chance(self.world.weather.lose):
            if isinstance(task, Done | SubletError):
                self.hear_end(task)
            elif task is None:
                self.hear_end(SubletError(ErrorCode.TASK_FAILED, "the task is not known"))
            elif task == "pending":
                self._send_start()
            elif follow:
                start, follow = self._start(), False
                self.world.send(lambda: self._arrive(lambda: executor.renew(start, lambda _: None)))
            else:
                executor.progress()
        self.during_life(POLL_SECONDS, lambda: self._poll(follow=follow))

    def _renewal(
        self, start: Start, heard: Callable[[Accept | SubletError], None], unheard: Callable[[], None]
    ) -> None:
        life = self.life

        def answered(said: Accept | SubletError) -> None:
            self.world.send(lambda: heard(said) if self.up and self.life == life else None)

        self.world.send(lambda: self._arrive(lambda: self.executor.renew(start, answered)))
        self.during_life(HEARD_SECONDS, unheard)

    def _extend(self, key: str, more: int) -> None:
        start = self._start(more=more)
        asked = start.sublet.remaining_seconds or 0

        def heard(said: Accept | SubletError) -> None:
            if isinstance(said, Accept):
                agreed = said.remote_constraints.max_ttl_seconds or 0
                self.granted = more - (asked - agreed)
                self.guarded(ExtensionAnswered(key, more, asked, agreed))
            else:
                self.guarded(ExtensionAnswered(key, more, error=said))

        self._renewal(start, heard, lambda: self.feed(ExtensionAnswered(key, more, error=_unreachable())))

    def _deliver(self, follow_up_id: str, prompt: str) -> None:
        start = self._start(FollowUp(id=follow_up_id, prompt=prompt))

        def heard(said: Accept | SubletError) -> None:
            why = "" if isinstance(said, Accept) else said.message
            self.guarded(FollowUpAnswered(follow_up_id, why))

        self._renewal(start, heard, lambda: self.feed(FollowUpUnheard(follow_up_id)))

    # The end

    def _settle(self, tell: bool) -> None:
        told: list[bool] = []

        def settled() -> None:
            self._unheard = tell and not told
            self.feed(Settled(not self._unheard))

        if tell:
            self.world.send(lambda: self._arrive(lambda: self.executor.cancel(lambda _: told.append(True))))
        self.during_life(3.0, settled)

    def _tell_late(self) -> None:
        """Tell the executor of the end until it has heard."""
        if not self.owes:
            return

        def told(_: Accept | SubletError) -> None:
            self.owes = False

        self.world.send(lambda: self._arrive(lambda: self.executor.cancel(told)))
        self.during_life(5.0, self._tell_late)

    # Life and death

    def died(self) -> None:
        self.serving = None
        self.locked = False

    def restarted(self) -> None:
        if self.disk is None:
            self.state = self.asked
            return
        self.state, self._taken_over = self.disk, self.disk.generation + 1
        if self.disk.settled:
            self._tell_late()
            return
        self.feed(TakenOver())


def core_over(state: Delegation) -> bool:
    """Tell whether nothing may be reached any more."""
    return state.done or is_terminal(DELEGATION_TABLE, state.state)


def _heard(prompts: Iterable[PromptState]) -> tuple[FollowUpNews, ...]:
    return tuple(FollowUpNews(one.follow_up_id, one.state) for one in prompts if one.follow_up_id is not None)


def _unreachable() -> SubletError:
    from support.delegation_model.executor import unreachable

    return unreachable()
