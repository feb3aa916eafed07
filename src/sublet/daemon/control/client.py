"""Typed client of the control API, for the command line and tests: ``DaemonApi`` as its owner calls it."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing

from sublet.daemon.api.audit_models import AuditReport
from sublet.daemon.api.base import MAX_WAIT_SECONDS
from sublet.daemon.api.daemon_models import PruneReport, PruneRequest
from sublet.daemon.api.models import AssignmentView, CreateDelegation, DelegationView, EventPage
from sublet.daemon.api.review_models import Applied, ApplyRequest, Discarded, ResultPatch, Review, Undone
from sublet.daemon.control.http import Fault, Query
from sublet.daemon.control.transport import SocketTransport, part
from sublet.protocol.events import Event


class ControlClient(SocketTransport):
    """Speaks with the daemon of ``home``. To be used in ``async with``; failures are ``SubletError``."""

    async def create_delegation(self, request: CreateDelegation) -> DelegationView:
        """Record a delegation and return its handle at once."""
        return await self.fetch(DelegationView, "POST", "/v1/delegations", body=request)

    async def get_status(self, delegation_id: str) -> DelegationView:
        """Return the delegation as it is now."""
        return await self.fetch(DelegationView, "GET", f"/v1/delegations/{part(delegation_id)}")

    async def wait_for_result(self, delegation_id: str, timeout: float) -> DelegationView:
        """Wait at most ``timeout`` seconds (capped at ``MAX_WAIT_SECONDS``) for the end, then return the view."""
        query = {"timeout": _bounded(timeout)}
        return await self.fetch(DelegationView, "GET", f"/v1/delegations/{part(delegation_id)}/wait", query)

    async def list_delegations(self, *, limit: int = 50, active: bool = False) -> list[DelegationView]:
        """Return the newest delegations first."""
        return await self.fetch_many(DelegationView, "/v1/delegations", {"limit": limit, "active": active})

    async def events_since(
        self,
        cursor: int,
        *,
        delegation_id: str | None = None,
        session_id: str | None = None,
        kind: str | None = None,
        timeout: float = 0,
        limit: int = 100,
    ) -> EventPage:
        """Return events after ``cursor`` that fit what is given, waiting at most ``timeout`` seconds for the first."""
        query: Query = {
            "cursor": cursor,
            "timeout": _bounded(timeout),
            "limit": limit,
            "delegation_id": delegation_id,
            "session_id": session_id,
            "kind": kind,
        }
        return await self.fetch(EventPage, "GET", "/v1/events/page", query)

    async def stream_events(
        self,
        cursor: int,
        *,
        delegation_id: str | None = None,
        session_id: str | None = None,
        kind: str | None = None,
    ) -> AsyncGenerator[Event, None]:
        """Yield events after ``cursor`` that fit what is given, as they happen, without end.

        ``seq`` is where to go on after a break.

        Raises:
            SubletError: ``DAEMON_UNAVAILABLE`` when the connection breaks, or what the daemon says.
        """
        query: Query = {"cursor": cursor, "delegation_id": delegation_id, "session_id": session_id, "kind": kind}
        async with aclosing(self.listen("GET", "/v1/events", query)) as events:
            async for _, data in events:
                yield Event.model_validate_json(data)
        raise self.unavailable(Fault.BROKEN)

    async def get_audit_report(self, delegation_id: str, *, patch: bool = False) -> AuditReport:
        """Return what the delegation changed, with the patch where asked for."""
        return await self.fetch(AuditReport, "GET", f"/v1/delegations/{part(delegation_id)}/audit", {"patch": patch})

    async def cancel_delegation(self, delegation_id: str) -> DelegationView:
        """Stop the delegation. Cancelling twice is no error."""
        return await self.fetch(DelegationView, "POST", f"/v1/delegations/{part(delegation_id)}/cancel")

    async def review_delegation(self, delegation_id: str, *, patch: bool = False) -> Review:
        """Return what a staged result would change, with the patch where asked for."""
        return await self.fetch(Review, "GET", f"/v1/delegations/{part(delegation_id)}/review", {"patch": patch})

    async def result_patch(self, delegation_id: str) -> ResultPatch:
        """Return the whole of a staged result as a patch."""
        return await self.fetch(ResultPatch, "GET", f"/v1/delegations/{part(delegation_id)}/patch")

    async def apply_delegation(self, delegation_id: str, request: ApplyRequest) -> Applied:
        """Merge a staged result into the directory."""
        return await self.fetch(Applied, "POST", f"/v1/delegations/{part(delegation_id)}/apply", body=request)

    async def discard_delegation(self, delegation_id: str) -> Discarded:
        """Drop a staged result."""
        return await self.fetch(Discarded, "POST", f"/v1/delegations/{part(delegation_id)}/discard")

    async def undo_delegation(self, delegation_id: str) -> Undone:
        """Take back what was applied of a staged result."""
        return await self.fetch(Undone, "POST", f"/v1/delegations/{part(delegation_id)}/undo")

    async def extend_delegation(self, delegation_id: str, seconds: int) -> DelegationView:
        """Lengthen the lease by agreement of both sides."""
        path = f"/v1/delegations/{part(delegation_id)}/extend"
        return await self.fetch(DelegationView, "POST", path, body={"seconds": seconds})

    async def say(self, delegation_id: str, prompt: str, *, follow_up_id: str | None = None) -> DelegationView:
        """Give the agent a further prompt in the same lease."""
        body = {"prompt": prompt, "follow_up_id": follow_up_id}
        return await self.fetch(DelegationView, "POST", f"/v1/delegations/{part(delegation_id)}/say", body=body)

    async def prune_resources(self, request: PruneRequest) -> PruneReport:
        """Remove what ended delegations left behind, as far as ``request`` says."""
        return await self.fetch(PruneReport, "POST", "/v1/prune", body=request)

    async def list_assignments(self, *, limit: int = 50, active: bool = False) -> list[AssignmentView]:
        """Return what is or was done here for peers, the newest first."""
        return await self.fetch_many(AssignmentView, "/v1/assignments", {"limit": limit, "active": active})


def _bounded(timeout: float) -> float:
    return min(max(timeout, 0), MAX_WAIT_SECONDS)
