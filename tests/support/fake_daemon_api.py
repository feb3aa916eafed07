"""A ``DaemonApi`` in memory, driven by the test: delegations go where the test pushes them."""

from __future__ import annotations

import asyncio

from sublet.daemon.api.audit_models import AuditReport
from sublet.daemon.api.daemon_models import PruneReport, PruneRequest
from sublet.daemon.api.models import (
    AssignmentView,
    ChangeSet,
    CreateDelegation,
    DelegationView,
    ErrorView,
    EventPage,
    FollowUpView,
    ResultView,
)
from sublet.daemon.api.operation import Nothing
from sublet.daemon.api.peers import LIST_PEERS, SHOW_DIRECTORY, AgentView, Directory, PeerView
from sublet.daemon.api.review_models import Applied, ApplyRequest, Discarded, ResultPatch, Review, Undone
from sublet.policy.model import Subject
from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.events import Event, EventFilter, EventKind
from sublet.protocol.ids import new_delegation_id
from sublet.protocol.lifecycle import DelegationState
from support.answering import AnsweringTable, plays

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
        self.applies: list[ApplyRequest] = []
        self.events: list[Event] = []
        self.requests: list[CreateDelegation] = []
        self.callers: list[Subject] = []
        self.peers = [a_peer()]
        self.lend_roots = ["/srv/projects"]
        self.max_ttl_seconds = 7200
        self.refuses: SubletError | None = None
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
            created_at=AT,
            updated_at=AT,
            remaining_seconds=request.ttl_seconds,
        )
        await self.push(found, state="created")
        return self.delegations[found]

    async def get_status(self, delegation_id: str, caller: Subject) -> DelegationView:
        return self._find(delegation_id)

    async def wait_for_result(self, delegation_id: str, timeout: float, caller: Subject) -> DelegationView:
        return self._find(delegation_id)

    async def list_delegations(self, caller: Subject, *, limit: int = 50, active: bool = False) -> list[DelegationView]:
        return list(self.delegations.values())[::-1][:limit]

    async def events_since(
        self,
        cursor: int,
        caller: Subject,
        *,
        delegation_id: str | None = None,
        session_id: str | None = None,
        kind: str | None = None,
        timeout: float = 0,
        limit: int = 100,
    ) -> EventPage:
        cursor = min(cursor, len(self.events))  # one from the future counts as the newest

        def found() -> list[Event]:
            only = EventFilter(
                delegation_id=delegation_id, session_id=session_id, kind=EventKind(kind) if kind else None
            )
            return [e for e in self.events[cursor:] if only.fits(e)][:limit]

        async with self._news:
            try:
                async with asyncio.timeout(timeout):
                    await self._news.wait_for(lambda: bool(found()))
            except TimeoutError:
                pass
            events = found()
        return EventPage(events=events, cursor=events[-1].seq if events else cursor)

    async def get_audit_report(self, delegation_id: str, caller: Subject, *, patch: bool = False) -> AuditReport:
        self._find(delegation_id)
        report = self.audits.get(delegation_id, AuditReport())
        return report if patch else report.model_copy(update={"patch": None})

    async def extend_delegation(self, delegation_id: str, seconds: int, caller: Subject) -> DelegationView:
        wanted = self._find(delegation_id).ttl_seconds + seconds
        await self.change(delegation_id, ttl_seconds=min(wanted, self.max_ttl_seconds))
        return self._find(delegation_id)

    async def say(
        self, delegation_id: str, prompt: str, caller: Subject, *, follow_up_id: str | None = None
    ) -> DelegationView:
        said = {one.id: one for one in self._find(delegation_id).follow_ups}
        named = follow_up_id or f"fup_{len(said)}"
        said.setdefault(named, FollowUpView(id=named, prompt=prompt, state="delivered"))
        await self.change(delegation_id, follow_ups=list(said.values()))
        return self._find(delegation_id)

    async def cancel_delegation(self, delegation_id: str, caller: Subject) -> DelegationView:
        if self._find(delegation_id).state is not DelegationState.CANCELLED:
            await self.change(delegation_id, state=DelegationState.CANCELLED)
        return self._find(delegation_id)

    async def review_delegation(self, delegation_id: str, caller: Subject, *, patch: bool = False) -> Review:
        self._find(delegation_id)
        self.callers.append(caller)
        found = self.reviews[delegation_id]
        return found if patch else found.model_copy(update={"patch": None})

    async def result_patch(self, delegation_id: str, caller: Subject) -> ResultPatch:
        raise NotImplementedError

    async def apply_delegation(self, delegation_id: str, request: ApplyRequest, caller: Subject) -> Applied:
        self.callers.append(caller)
        self.applies.append(request)
        review = self.reviews[delegation_id]
        if review.conflicts and not request.partial:
            return Applied(delegation_id=delegation_id, conflicts=review.conflicts, change_set=review.change_set)
        status = "partly_applied" if review.conflicts else "applied"
        return Applied(
            delegation_id=delegation_id,
            applied=[file.path for file in review.files if file.outcome != "conflict"],
            conflicts=review.conflicts,
            change_set=self._closed(delegation_id, status),
            undo=delegation_id,
        )

    async def discard_delegation(self, delegation_id: str, caller: Subject) -> Discarded:
        self.callers.append(caller)
        return Discarded(delegation_id=delegation_id, change_set=self._closed(delegation_id, "discarded"))

    async def undo_delegation(self, delegation_id: str, caller: Subject) -> Undone:
        self.callers.append(caller)
        files = [file.path for file in self.reviews[delegation_id].files]
        return Undone(delegation_id=delegation_id, undone=files, change_set=self._closed(delegation_id, "undone"))

    def _closed(self, delegation_id: str, status: str) -> ChangeSet:
        review = self.reviews[delegation_id]
        changes = review.change_set.model_copy(update={"status": status})
        self.reviews[delegation_id] = review.model_copy(update={"change_set": changes})
        return changes

    @plays(SHOW_DIRECTORY)
    async def show_directory(self, request: Nothing, caller: Subject) -> Directory:
        self.callers.append(caller)
        return Directory(node_id=NODE_ID, peers=self.peers, lend_roots=self.lend_roots)

    async def prune_resources(self, request: PruneRequest, caller: Subject) -> PruneReport:
        return PruneReport()

    @plays(LIST_PEERS)
    async def list_peers(self, request: Nothing, caller: Subject) -> list[PeerView]:
        return self.peers

    async def list_assignments(self, caller: Subject, *, limit: int = 50, active: bool = False) -> list[AssignmentView]:
        return []
