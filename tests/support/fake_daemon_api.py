"""A daemon in memory, driven by the test: delegations go where the test pushes them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

from sublet.daemon.api.assignments import LIST_ASSIGNMENTS, AssignmentView
from sublet.daemon.api.audit_models import AuditReport
from sublet.daemon.api.delegation_fields import ListNewest, OneDelegation, OneWithPatch
from sublet.daemon.api.delegation_views import ChangeSet, DelegationView, ErrorView, FollowUpView, ResultView
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
from sublet.daemon.api.federation import (
    BROADCAST,
    FIND_AGENT,
    LIST_ALL_AGENTS,
    LIST_BROADCASTS,
    Broadcast,
    BroadcastHeard,
    BroadcastSent,
    BroadcastView,
    FederatedAgentView,
    Find,
    FoundAgent,
    ListBroadcasts,
)
from sublet.daemon.api.operation import Nothing
from sublet.daemon.api.panels import (
    APPLY_MEMBER,
    CANCEL_PANEL,
    CREATE_PANEL,
    DISCARD_PANEL,
    GET_PANEL,
    REVIEW_PANEL,
    WAIT_FOR_PANEL,
    ApplyMember,
    CreatePanel,
    OnePanel,
    PanelApplied,
    PanelChange,
    PanelDiscarded,
    PanelFile,
    PanelReview,
    PanelView,
    WaitForPanel,
)
from sublet.daemon.api.peers import LIST_PEERS, SHOW_DIRECTORY, AgentView, Directory, PeerView
from sublet.daemon.api.results import (
    APPLY_RESULT,
    DISCARD_RESULT,
    REVIEW_RESULT,
    UNDO_RESULT,
    Applied,
    ApplyResult,
    Discarded,
    Review,
    Undone,
)
from sublet.daemon.times import rfc3339
from sublet.policy.decision import Subject
from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.events import Event, EventKind
from sublet.protocol.ids import new_delegation_id
from sublet.protocol.lifecycle import DelegationState
from support.answering import AnsweringTable, plays, plays_feed

AT = "2026-11-28T10:00:00Z"
NODE_ID = "node-aaaaaaaaaaaaaaaa"


def a_peer(name: str = "bob", **changes: object) -> PeerView:
    """Return a paired peer with one agent."""
    return PeerView.model_validate(
        {
            "name": name,
            "node_id": "node-bbbbbbbbbbbbbbbb",
            "fingerprint": "SHA256:" + "B" * 43,
            "a2a_url": "http://127.0.0.1:8642",
            "paired_at": AT,
            "agents": [AgentView(id="default", description="Runs commands", skills=["shell"])],
            **changes,
        }
    )


class FakeDaemonApi:
    """See module. ``requests`` and ``callers`` record what the face asked for, in order."""

    def __init__(self) -> None:
        self.delegations: dict[str, DelegationView] = {}
        self.audits: dict[str, AuditReport] = {}
        self.reviews: dict[str, Review] = {}
        self.applies: list[ApplyResult] = []
        self.events: list[Event] = []
        self.requests: list[CreateDelegation] = []
        self.callers: list[Subject] = []
        self.waits = 0
        self.peers = [a_peer()]
        self.cancelled: list[str] = []
        self.lend_roots = ["/srv/projects"]
        self.max_ttl_seconds = 7200
        self.refuses: SubletError | None = None
        self.elsewhere: list[FederatedAgentView] = []
        self.panels: dict[str, PanelView] = {}
        self.panel_requests: list[CreatePanel] = []
        self.broadcasts: list[BroadcastView] = []
        self.breaks: Exception | None = None
        self._keys: dict[tuple[str, str], str] = {}
        self._news = asyncio.Condition()

    @property
    def table(self) -> AnsweringTable:
        """What it plays, as a table of operations."""
        return AnsweringTable(self)

    async def push(self, delegation_id: str, kind: EventKind = EventKind.DELEGATION_STATE, **data: str | int) -> None:
        """Append an event."""
        async with self._news:
            seq = len(self.events) + 1
            self.events.append(
                Event(seq=seq, at=AT, kind=kind, delegation_id=delegation_id, data={**data}),
            )
            view = self.delegations[delegation_id]
            self.delegations[delegation_id] = view.model_copy(update={"cursor": seq})
            self._news.notify_all()

    async def change(self, delegation_id: str, **changes: object) -> None:
        """Change a delegation and say so."""
        view = self.delegations[delegation_id]
        self.delegations[delegation_id] = view.model_copy(update=changes)
        await self.push(delegation_id, state=str(self.delegations[delegation_id].state))

    async def output(self, delegation_id: str, text: str) -> None:
        """Let the executor print ``text``."""
        await self.push(delegation_id, EventKind.DELEGATION_OUTPUT, stream="stdout", text=text, dropped_chars=0)

    async def finish(self, delegation_id: str, summary: str = "All tests pass.", **result: object) -> None:
        """Let the executor finish."""
        done = ResultView.model_validate({"final_summary": summary, "exit_code": 0, **result})
        await self.change(delegation_id, state=DelegationState.COMPLETED, result=done)

    async def fail(self, delegation_id: str, error: ErrorView) -> None:
        """Let the delegation end in an error."""
        await self.change(delegation_id, state=DelegationState.ERROR, error=error)

    def _find(self, delegation_id: str) -> DelegationView:
        if self.breaks is not None:
            raise self.breaks
        if delegation_id not in self.delegations:
            raise SubletError(LocalCode.NOT_FOUND, f"there is no delegation {delegation_id}", "List them.")
        return self.delegations[delegation_id]

    @plays(CREATE_DELEGATION)
    async def create_delegation(self, request: CreateDelegation, caller: Subject) -> DelegationView:
        self.requests.append(request)
        self.callers.append(caller)
        if self.refuses is not None:
            raise self.refuses
        key = (caller.name, request.idempotency_key or "")
        if request.idempotency_key is not None and key in self._keys:
            return self._find(self._keys[key])
        found = new_delegation_id()
        self._keys[key] = found
        self.delegations[found] = DelegationView(
            delegation_id=found,
            state=DelegationState.CREATED,
            peer=request.peer,
            workspace_dir=request.workspace_dir,
            description=request.description or request.prompt.partition("\n")[0][:500],
            access_mode=request.access_mode,
            result_mode=request.result_mode,
            ttl_seconds=request.ttl_seconds,
            created_at=rfc3339(),
            updated_at=AT,
            remaining_seconds=request.ttl_seconds,
        )
        await self.push(found, state="created")
        return self.delegations[found]

    @plays(GET_DELEGATION)
    async def get_status(self, request: OneDelegation, caller: Subject) -> DelegationView:
        return self._find(request.delegation_id)

    @plays(WAIT_FOR_END)
    async def wait_for_result(self, request: WaitForEnd, caller: Subject) -> DelegationView:
        return self._find(request.delegation_id)

    @plays(LIST_DELEGATIONS)
    async def list_delegations(self, request: ListNewest, caller: Subject) -> list[DelegationView]:
        found = list(self.delegations.values())[::-1]
        if request.before is not None:
            found = found[found.index(self._find(request.before)) + 1 :]
        return found[: request.limit]

    @plays(READ_EVENTS)
    async def events_since(self, request: ReadEvents, caller: Subject) -> EventPage:
        cursor = min(request.cursor, len(self.events))  # one from the future counts as the newest

        def found() -> list[Event]:
            only = request.only(sessions=True)
            return [e for e in self.events[cursor:] if only.fits(e)][: request.limit]

        self.waits += request.timeout > 0
        async with self._news:
            try:
                async with asyncio.timeout(request.timeout):
                    await self._news.wait_for(lambda: bool(found()))
            except TimeoutError:
                pass
            events = found()
        return EventPage(events=events, cursor=events[-1].seq if events else cursor)

    @plays_feed(FOLLOW_EVENTS)
    async def follow_events(self, request: FollowEvents, caller: Subject) -> AsyncGenerator[list[Event], None]:
        asked = ReadEvents(**request.model_dump())
        while True:
            page = await self.events_since(asked, caller)
            yield page.events
            asked = asked.model_copy(update={"cursor": page.cursor, "timeout": 15.0})

    @plays(AUDIT_DELEGATION)
    async def get_audit_report(self, request: OneWithPatch, caller: Subject) -> AuditReport:
        self._find(request.delegation_id)
        report = self.audits.get(request.delegation_id, AuditReport())
        return report if request.patch else report.model_copy(update={"patch": None})

    @plays(EXTEND_DELEGATION)
    async def extend_delegation(self, request: ExtendDelegation, caller: Subject) -> DelegationView:
        wanted = self._find(request.delegation_id).ttl_seconds + request.seconds
        await self.change(request.delegation_id, ttl_seconds=min(wanted, self.max_ttl_seconds))
        return self._find(request.delegation_id)

    @plays(SAY_MORE)
    async def say(self, request: SayMore, caller: Subject) -> DelegationView:
        said = {one.id: one for one in self._find(request.delegation_id).follow_ups}
        named = request.follow_up_id or f"fup_{len(said)}"
        said.setdefault(named, FollowUpView(id=named, prompt=request.prompt, state="delivered"))
        await self.change(request.delegation_id, follow_ups=list(said.values()))
        return self._find(request.delegation_id)

    @plays(CANCEL_DELEGATION)
    async def cancel_delegation(self, request: OneDelegation, caller: Subject) -> DelegationView:
        if self._find(request.delegation_id).state is not DelegationState.CANCELLED:
            self.cancelled.append(request.delegation_id)
            await self.change(request.delegation_id, state=DelegationState.CANCELLED)
        return self._find(request.delegation_id)

    @plays(REVIEW_RESULT)
    async def review_delegation(self, request: OneWithPatch, caller: Subject) -> Review:
        self._find(request.delegation_id)
        self.callers.append(caller)
        found = self.reviews[request.delegation_id]
        return found if request.patch else found.model_copy(update={"patch": None})

    @plays(APPLY_RESULT)
    async def apply_delegation(self, request: ApplyResult, caller: Subject) -> Applied:
        self.callers.append(caller)
        self.applies.append(request)
        review = self.reviews[request.delegation_id]
        if review.conflicts and not request.partial:
            return Applied(
                delegation_id=request.delegation_id, conflicts=review.conflicts, change_set=review.change_set
            )
        status = "partly_applied" if review.conflicts else "applied"
        return Applied(
            delegation_id=request.delegation_id,
            applied=[file.path for file in review.files if file.outcome != "conflict"],
            conflicts=review.conflicts,
            change_set=self._closed(request.delegation_id, status),
            undo=request.delegation_id,
        )

    @plays(DISCARD_RESULT)
    async def discard_delegation(self, request: OneDelegation, caller: Subject) -> Discarded:
        self.callers.append(caller)
        found = request.delegation_id
        return Discarded(delegation_id=found, change_set=self._closed(found, "discarded"))

    @plays(UNDO_RESULT)
    async def undo_delegation(self, request: OneDelegation, caller: Subject) -> Undone:
        self.callers.append(caller)
        found = request.delegation_id
        files = [file.path for file in self.reviews[found].files]
        return Undone(delegation_id=found, undone=files, change_set=self._closed(found, "undone"))

    def _closed(self, delegation_id: str, status: str) -> ChangeSet:
        review = self.reviews[delegation_id]
        changes = review.change_set.model_copy(update={"status": status})
        self.reviews[delegation_id] = review.model_copy(update={"change_set": changes})
        return changes

    @plays(SHOW_DIRECTORY)
    async def show_directory(self, request: Nothing, caller: Subject) -> Directory:
        self.callers.append(caller)
        return Directory(node_id=NODE_ID, peers=self.peers, lend_roots=self.lend_roots)

    @plays(LIST_ALL_AGENTS)
    async def list_all_agents(self, request: Nothing, caller: Subject) -> list[FederatedAgentView]:
        return self.elsewhere

    @plays(FIND_AGENT)
    async def find_agent(self, request: Find, caller: Subject) -> FoundAgent:
        one = self.elsewhere[0]
        return FoundAgent(address=one.address, peer=one.peer, agent_id=one.agent_id, why="the only one")

    @plays(BROADCAST)
    async def broadcast(self, request: Broadcast, caller: Subject) -> BroadcastSent:
        said = BroadcastView(
            message_id="m1",
            from_agent="human@here.local",
            peer=None,
            message_type=request.message_type,
            text=request.text,
            at=AT,
        )
        self.broadcasts.append(said)
        heard = [BroadcastHeard(peer="bob"), BroadcastHeard(peer="eve", why_not="policy takes no such events")]
        return BroadcastSent(
            message_id="m1", room_id="!agent-broadcast:here.local", from_agent=said.from_agent, at=AT, heard=heard
        )

    @plays(LIST_BROADCASTS)
    async def list_broadcasts(self, request: ListBroadcasts, caller: Subject) -> list[BroadcastView]:
        return self.broadcasts[-request.limit :]

    @plays(CREATE_PANEL)
    async def create_panel(self, request: CreatePanel, caller: Subject) -> PanelView:
        self.panel_requests.append(request)
        return next(iter(self.panels.values()))

    @plays(GET_PANEL)
    async def get_panel(self, request: OnePanel, caller: Subject) -> PanelView:
        return self.panels[request.panel_id]

    @plays(WAIT_FOR_PANEL)
    async def wait_for_panel(self, request: WaitForPanel, caller: Subject) -> PanelView:
        self.panels[request.panel_id] = self.panels[request.panel_id].model_copy(update={"state": "over"})
        return self.panels[request.panel_id]

    @plays(CANCEL_PANEL)
    async def cancel_panel(self, request: OnePanel, caller: Subject) -> PanelView:
        self.cancelled.append(request.panel_id)
        return self.panels[request.panel_id].model_copy(update={"state": "over"})

    @plays(REVIEW_PANEL)
    async def review_panel(self, request: OnePanel, caller: Subject) -> PanelReview:
        changes = [PanelChange(member=one, change="changed", lines_added=one, lines_deleted=0) for one in (1, 2)]
        return PanelReview(panel=self.panels[request.panel_id], files=[PanelFile(path="a\nb.py", changes=changes)])

    @plays(APPLY_MEMBER)
    async def apply_member(self, request: ApplyMember, caller: Subject) -> PanelApplied:
        panel = self.panels[request.panel_id]
        one = panel.members[request.member - 1]
        assert one.change_set is not None
        closed = one.change_set.model_copy(update={"status": "applied"})
        applied = Applied(delegation_id=one.delegation_id, applied=["a.py"], change_set=closed)
        others = [each.delegation_id for each in panel.members if each is not one]
        return PanelApplied(panel_id=panel.panel_id, member=request.member, applied=applied, discarded=others)

    @plays(DISCARD_PANEL)
    async def discard_panel(self, request: OnePanel, caller: Subject) -> PanelDiscarded:
        panel = self.panels[request.panel_id]
        return PanelDiscarded(panel_id=panel.panel_id, discarded=[one.delegation_id for one in panel.members])

    @plays(LIST_PEERS)
    async def list_peers(self, request: Nothing, caller: Subject) -> list[PeerView]:
        return self.peers

    @plays(LIST_ASSIGNMENTS)
    async def list_assignments(self, request: ListNewest, caller: Subject) -> list[AssignmentView]:
        return []
