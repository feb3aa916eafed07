"""A daemon that answers the command line from a script, for tests of what the command line makes of the answers."""

from __future__ import annotations

import base64
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field

from sublet.cli.reaching.connection import Session
from sublet.daemon.api.assignments import LIST_ASSIGNMENTS, AssignmentView
from sublet.daemon.api.audit_models import AuditReport, FileChange
from sublet.daemon.api.daemon import RELOAD, RUN_DOCTOR, SHOW_STATUS, STOP, Check, ReloadReport, StatusView, Stopping
from sublet.daemon.api.delegation_fields import ListNewest, OneDelegation, OneWithPatch
from sublet.daemon.api.delegation_views import ChangeSet, DelegationView, FollowUpView, LeaseUsageView, ResultView
from sublet.daemon.api.delegations import (
    AUDIT_DELEGATION,
    CANCEL_DELEGATION,
    CREATE_DELEGATION,
    EXTEND_DELEGATION,
    GET_DELEGATION,
    LIST_DELEGATIONS,
    SAY_MORE,
    WAIT_FOR_END,
    CreateDelegation,
    ExtendDelegation,
    SayMore,
    WaitForEnd,
)
from sublet.daemon.api.events import FOLLOW_EVENTS, READ_EVENTS, EventPage, FollowEvents, ReadEvents
from sublet.daemon.api.lend_roots import ADD_LEND_ROOT, LIST_LEND_ROOTS, REMOVE_LEND_ROOT, LendRoot
from sublet.daemon.api.operation import AnswerT, EventT, Feed, Nothing, NumberedT, Operation, RequestT, Streaming
from sublet.daemon.api.peers import (
    ADD_PEER,
    CREATE_PAIR_LINK,
    LIST_PAIR_LINKS,
    LIST_PEERS,
    REMOVE_PEER,
    RENAME_PEER,
    SHOW_DIRECTORY,
    AddPeer,
    CreatePairLink,
    Directory,
    OnePeer,
    PairLink,
    PairLinkView,
    PeerView,
    RenamePeer,
)
from sublet.daemon.api.pruning import PRUNE, PruneItem, PruneReport, PruneRequest
from sublet.daemon.api.replays import REPLAY, ReplayRequest, ReplayView
from sublet.daemon.api.results import (
    APPLY_RESULT,
    DISCARD_RESULT,
    EXPORT_RESULT,
    REVIEW_RESULT,
    UNDO_RESULT,
    Applied,
    ApplyResult,
    Conflict,
    Discarded,
    ResultPatch,
    Review,
    ReviewedFile,
    Undone,
)
from sublet.daemon.api.tokens import CREATE_TOKEN, LIST_TOKENS, REVOKE_TOKEN, CreateToken, OneToken, TokenView
from sublet.daemon.control.client import ControlClient
from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.events import Event, EventFilter, EventKind
from sublet.protocol.lifecycle import DelegationState
from support.answering import AnsweringCalls, answers, follows
from support.fake_approvals import FakeApprovals
from support.fake_capabilities import FakeCapabilities
from support.fake_policy import FakePolicy
from support.fake_supervisor import FakeSupervisor
from support.fake_web import FakeWeb

ID = "dlg_" + "0123456789abcdef" * 2
OTHER_ID = "dlg_" + "fedcba9876543210" * 2
FINGERPRINT = "SHA256:" + "A" * 43
AT = "2026-11-27T10:00:00.000Z"


def delegation(state: DelegationState = DelegationState.RUNNING, **changes: object) -> DelegationView:
    """Return a view of a delegation to bob."""
    base = DelegationView(
        delegation_id=ID,
        state=state,
        peer="bob",
        workspace_dir="/src/project",
        description="Make the tests pass.",
        access_mode="rw",
        ttl_seconds=3600,
        created_at=AT,
        updated_at="2026-11-27T10:00:12.000Z",
        expires_at="2026-11-27T11:00:00.000Z",
        remaining_seconds=3588 if state is DelegationState.RUNNING else None,
    )
    return base.model_copy(update=changes)


def completed(**changes: object) -> DelegationView:
    """Return a view of completed work that changed one file and added one."""
    report = AuditReport(
        added=["notes.md"],
        changed=["src/calc.py"],
        counts={"added": 1, "changed": 1},
        files=[
            FileChange(path="src/calc.py", change="changed", lines_added=1, lines_deleted=1),
            FileChange(path="notes.md", change="added", lines_added=3, lines_deleted=0),
        ],
        lines_added=4,
        lines_deleted=1,
    )
    facts: dict[str, object] = {
        "result": ResultView(final_summary="All tests pass now.", exit_code=0),
        "audit": report,
        "hidden": [".env"],
        "usage": LeaseUsageView(bytes_read=12_345, bytes_written=678, operations=90, files_touched=2),
    }
    return delegation(DelegationState.COMPLETED, **{**facts, **changes})


CHANGES = ChangeSet(changed=1, added=1, lines_added=4, lines_deleted=1)
CONFLICT = Conflict(
    path="src/calc.py",
    reason="you and the executor changed the same lines",
    yours="/src/project/src/calc.py",
    theirs="/state/theirs/calc.py",
)


def reviewed(**changes: object) -> Review:
    """Return a review of a pending result that changes one file and adds one."""
    review = Review(
        delegation_id=ID,
        workspace_dir="/src/project",
        change_set=CHANGES,
        files=[
            ReviewedFile(path="src/calc.py", change="changed", lines_added=1, lines_deleted=1, outcome="merged"),
            ReviewedFile(path="notes.md", change="added", lines_added=3, lines_deleted=0, outcome="clean"),
        ],
        patch="--- a/src/calc.py\n+++ b/src/calc.py\n@@ -1 +1 @@\n-a\n+b\n",
    )
    return review.model_copy(update=changes)


def applied(**changes: object) -> Applied:
    """Return what applying it comes to."""
    report = Applied(
        delegation_id=ID,
        applied=["src/calc.py", "notes.md"],
        change_set=CHANGES.model_copy(update={"status": "applied"}),
        undo=ID,
    )
    return report.model_copy(update=changes)


def undone(**changes: object) -> Undone:
    """Return what taking it back comes to."""
    report = Undone(
        delegation_id=ID,
        undone=["src/calc.py", "notes.md"],
        change_set=CHANGES.model_copy(update={"status": "undone"}),
    )
    return report.model_copy(update=changes)


def printed(seq: int, text: str) -> Event:
    """Return an event of output."""
    return Event(seq=seq, at=AT, kind=EventKind.DELEGATION_OUTPUT, delegation_id=ID, data={"text": text})


@dataclass
class FakeControl(ControlClient):
    """Answers from its fields. ``views`` are what a delegation reads as, one after the other; the last one stays."""

    views: deque[DelegationView] = field(default_factory=lambda: deque([completed()]))
    listed: list[DelegationView] = field(default_factory=list)
    work: list[AssignmentView] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    coming: list[Event] = field(default_factory=list)
    replayed: ReplayView | None = None
    peers: list[PeerView] = field(default_factory=list)
    audit: AuditReport = field(default_factory=AuditReport)
    review: Review = field(default_factory=lambda: reviewed())
    whole_patch: bytes = b"diff --git a/x b/x\n"
    applied: Applied = field(default_factory=lambda: applied())
    undone: Undone = field(default_factory=lambda: undone())
    checks: list[Check] = field(default_factory=list)
    roots: list[str] = field(default_factory=list)
    was: str | None = None
    failure: SubletError | None = None
    requests: list[object] = field(default_factory=list)
    asking: FakeSupervisor = field(default_factory=lambda: FakeSupervisor())
    ruling: FakePolicy = field(default_factory=lambda: FakePolicy())

    async def call(self, operation: Operation[RequestT, AnswerT], request: RequestT) -> AnswerT:
        """Answer as the fakes do."""
        fakes = (self, self.asking, self.ruling, FakeWeb(), FakeCapabilities(), FakeApprovals())
        return await AnsweringCalls(*fakes).call(operation, request)

    async def stream(self, operation: Streaming[RequestT, EventT], request: RequestT) -> AsyncGenerator[EventT, None]:
        """Tell what the fakes do."""
        async with aclosing(AnsweringCalls(self.asking).stream(operation, request)) as events:
            async for event in events:
                yield event

    async def follow(self, feed: Feed[RequestT, NumberedT], request: RequestT) -> AsyncGenerator[NumberedT, None]:
        """Tell what the fakes do."""
        async with aclosing(AnsweringCalls(self).follow(feed, request)) as events:
            async for event in events:
                yield event

    def session(self) -> Session:
        """Return a session whose daemon this is."""

        @asynccontextmanager
        async def connect() -> AsyncIterator[FakeControl]:
            if self.failure is not None:
                raise self.failure
            yield self

        return Session(connect=connect, owner=lambda: None)

    def _view(self) -> DelegationView:
        return self.views.popleft() if len(self.views) > 1 else self.views[0]

    @answers(CREATE_DELEGATION)
    async def create_delegation(self, request: CreateDelegation) -> DelegationView:
        self.requests.append(request)
        return self._view()

    @answers(GET_DELEGATION)
    async def get_status(self, request: OneDelegation) -> DelegationView:
        if request.delegation_id not in {ID, OTHER_ID}:
            gone = f"there is no delegation {request.delegation_id}"
            raise SubletError(LocalCode.NOT_FOUND, gone, "Run `sublet ls --all`.")
        return self._view()

    @answers(WAIT_FOR_END)
    async def wait_for_result(self, request: WaitForEnd) -> DelegationView:
        return self._view()

    @answers(LIST_DELEGATIONS)
    async def list_delegations(self, request: ListNewest) -> list[DelegationView]:
        self.requests.append({"limit": request.limit, "active": request.active})
        return self.listed[: request.limit]

    @answers(READ_EVENTS)
    async def events_since(self, request: ReadEvents) -> EventPage:
        only = EventFilter(session_id=request.session_id, kind=request.kind)
        page = [event for event in self.events if event.seq > request.cursor and only.fits(event)][: request.limit]
        return EventPage(events=page, cursor=page[-1].seq if page else request.cursor)

    @follows(FOLLOW_EVENTS)
    async def stream_events(self, request: FollowEvents) -> AsyncGenerator[Event, None]:
        only = EventFilter(session_id=request.session_id, kind=request.kind)
        for event in self.coming:
            if event.seq > request.cursor and only.fits(event):
                yield event
        raise SubletError(LocalCode.DAEMON_UNAVAILABLE, "the connection to the daemon broke")

    @answers(REPLAY)
    async def replay(self, request: ReplayRequest) -> ReplayView:
        self.requests.append({"replay": request.session_id, "current": request.current})
        assert self.replayed is not None
        return self.replayed

    @answers(AUDIT_DELEGATION)
    async def get_audit_report(self, request: OneWithPatch) -> AuditReport:
        return self.audit if request.patch else self.audit.model_copy(update={"patch": None})

    @answers(EXTEND_DELEGATION)
    async def extend_delegation(self, request: ExtendDelegation) -> DelegationView:
        self.requests.append({"extend": request.delegation_id, "seconds": request.seconds})
        view = delegation(DelegationState.RUNNING)
        return view.model_copy(update={"ttl_seconds": view.ttl_seconds + request.seconds})

    @answers(SAY_MORE)
    async def say(self, request: SayMore) -> DelegationView:
        self.requests.append({"say": request.delegation_id, "prompt": request.prompt, "id": request.follow_up_id})
        said = FollowUpView(id=request.follow_up_id or "fup_1", prompt=request.prompt, state="delivered")
        return delegation(DelegationState.RUNNING).model_copy(update={"follow_ups": [said]})

    @answers(CANCEL_DELEGATION)
    async def cancel_delegation(self, request: OneDelegation) -> DelegationView:
        self.requests.append({"cancel": request.delegation_id})
        return delegation(DelegationState.CANCELLED)

    @answers(REVIEW_RESULT)
    async def review_delegation(self, request: OneWithPatch) -> Review:
        self.requests.append({"review": request.delegation_id, "patch": request.patch})
        return self.review if request.patch else self.review.model_copy(update={"patch": None})

    @answers(EXPORT_RESULT)
    async def result_patch(self, request: OneDelegation) -> ResultPatch:
        whole = base64.b64encode(self.whole_patch).decode()
        return ResultPatch(delegation_id=request.delegation_id, base64=whole)

    @answers(APPLY_RESULT)
    async def apply_delegation(self, request: ApplyResult) -> Applied:
        self.requests.append(request)
        return self.applied

    @answers(DISCARD_RESULT)
    async def discard_delegation(self, request: OneDelegation) -> Discarded:
        changes = CHANGES.model_copy(update={"status": "discarded"})
        return Discarded(delegation_id=request.delegation_id, change_set=changes)

    @answers(UNDO_RESULT)
    async def undo_delegation(self, request: OneDelegation) -> Undone:
        return self.undone

    @answers(PRUNE)
    async def prune_resources(self, request: PruneRequest) -> PruneReport:
        self.requests.append({"prune": request.model_dump(exclude_defaults=True)})
        item = PruneItem(
            kind="delegations",
            id="dlg_0123456789abcdef",
            what="dlg_0123456789abcdef of /home/ann/api",
            ended_at="2026-01-01T00:00:00Z",
            bytes=2_048,
            reason="it is over",
        )
        counts = {"delegations": 1, "assignments": 2, "shadows": 1}
        return PruneReport(dry_run=request.dry_run, counts=counts, events=30, bytes=5_242_880, items=[item])

    @answers(SHOW_DIRECTORY)
    async def show_directory(self, request: Nothing) -> Directory:
        return Directory(node_id="node-" + "a" * 16, peers=self.peers, lend_roots=self.roots)

    @answers(CREATE_PAIR_LINK)
    async def create_pair_link(self, request: CreatePairLink) -> PairLink:
        self.requests.append({"ttl_seconds": request.ttl_seconds})
        link = "sublet-pair:" + "x" * 200
        return PairLink(link=link, expires_at=AT, a2a_url="http://127.0.0.1:8642", fingerprint=FINGERPRINT)

    @answers(LIST_PAIR_LINKS)
    async def list_pair_links(self, request: Nothing) -> list[PairLinkView]:
        facts = {"made_at": AT, "made_by": "human", "expires_at": AT}
        return [
            PairLinkView(id="0a", state="used", used_at=AT, peer="bob", fingerprint=FINGERPRINT, **facts),
            PairLinkView(id="0b", state="over", **facts),
        ]

    @answers(ADD_PEER)
    async def add_peer(self, request: AddPeer) -> PeerView:
        self.requests.append(request)
        return peer(request.name).model_copy(update={"was": self.was})

    @answers(LIST_PEERS)
    async def list_peers(self, request: Nothing) -> list[PeerView]:
        # The daemon's own list knows no agents; who shows agents asks the directory.
        return [peer.model_copy(update={"agents": []}) for peer in self.peers]

    @answers(REMOVE_PEER)
    async def remove_peer(self, request: OnePeer) -> PeerView:
        return peer(request.name)

    @answers(RENAME_PEER)
    async def rename_peer(self, request: RenamePeer) -> PeerView:
        return peer(request.new_name)

    @answers(CREATE_TOKEN)
    async def create_token(self, request: CreateToken) -> TokenView:
        self.requests.append({"name": request.name, "ttl_seconds": request.ttl_seconds})
        return TokenView(name=request.name, created_at=AT, token="secret-token")

    @answers(LIST_TOKENS)
    async def list_tokens(self, request: Nothing) -> list[TokenView]:
        return [TokenView(name="ci", created_at=AT, token="leaked")]

    @answers(REVOKE_TOKEN)
    async def revoke_token(self, request: OneToken) -> TokenView:
        return TokenView(name=request.name, created_at=AT)

    @answers(LIST_LEND_ROOTS)
    async def list_lend_roots(self, request: Nothing) -> list[str]:
        return self.roots

    @answers(ADD_LEND_ROOT)
    async def add_lend_root(self, request: LendRoot) -> list[str]:
        self.roots.append(request.path)
        return self.roots

    @answers(REMOVE_LEND_ROOT)
    async def remove_lend_root(self, request: LendRoot) -> list[str]:
        self.roots.remove(request.path)
        return self.roots

    @answers(SHOW_STATUS)
    async def status(self, request: Nothing) -> StatusView:
        return StatusView(
            pid=4242,
            version="0.1.0",
            home="/home/alice/.config/sublet",
            node_id="node-" + "a" * 16,
            fingerprint=FINGERPRINT,
            a2a_url="http://127.0.0.1:8642",
            sftp="127.0.0.1:8622",
            control_socket="/run/user/1000/sublet/control.sock",
            started_at=AT,
            uptime_seconds=65,
            peers=1,
            delegations={"running": 1, "completed": 3},
            slots=5,
            agents=["shell"],
            sandbox="bubblewrap",
        )

    @answers(RUN_DOCTOR)
    async def doctor(self, request: Nothing) -> list[Check]:
        return self.checks

    @answers(LIST_ASSIGNMENTS)
    async def list_assignments(self, request: ListNewest) -> list[AssignmentView]:
        self.requests.append({"work": request.limit, "active": request.active})
        return self.work

    @answers(RELOAD)
    async def reload(self, request: Nothing) -> ReloadReport:
        return ReloadReport(agents=["shell"], policy_file="/c/policy.json", agent_file="/c/agent.json")

    @answers(STOP)
    async def stop(self, request: Nothing) -> Stopping:
        self.requests.append("shutdown")
        return Stopping()


def peer(name: str = "bob") -> PeerView:
    """Return a paired daemon."""
    return PeerView(
        name=name, node_id="node-" + "b" * 16, fingerprint=FINGERPRINT, a2a_url="http://127.0.0.1:9642", paired_at=AT
    )


def views(*them: DelegationView) -> deque[DelegationView]:
    """Return ``them`` in the form that ``FakeControl`` takes."""
    return deque(them)


def unavailable() -> SubletError:
    """Return what a client raises where no daemon runs."""
    return SubletError(LocalCode.DAEMON_UNAVAILABLE, "no daemon is running", "Start it: sublet up --detach")


def lines(text: str) -> Sequence[str]:
    """Return the lines of ``text`` that hold anything, trimmed."""
    return [line.strip() for line in text.splitlines() if line.strip()]
