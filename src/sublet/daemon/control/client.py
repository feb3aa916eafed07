"""Typed client of the control API, for the command line and tests: ``DaemonApi`` as its owner calls it."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing

from pydantic import TypeAdapter

from sublet.daemon.api.audit_models import AuditReport
from sublet.daemon.api.base import MAX_WAIT_SECONDS
from sublet.daemon.api.daemon_models import Check, PruneReport, PruneRequest, ReloadReport, StatusView
from sublet.daemon.api.models import DEFAULT_LINK_SECONDS, AssignmentView, CreateDelegation, DelegationView, EventPage
from sublet.daemon.api.peer_models import AddPeer, Directory, PairLink, PeerView, TokenView
from sublet.daemon.api.review_models import Applied, ApplyRequest, Discarded, ResultPatch, Review, Undone
from sublet.daemon.control.approval_client import ApprovalClient
from sublet.daemon.control.capability_client import CapabilityClient
from sublet.daemon.control.delivery_client import DeliveryClient
from sublet.daemon.control.gateway_client import GatewayClient
from sublet.daemon.control.http import Fault, Query
from sublet.daemon.control.replay_client import ReplayClient
from sublet.daemon.control.room_client import RoomClient
from sublet.daemon.control.room_clients import RoomMemberClient, RoomPeopleClient, RoomWatchClient
from sublet.daemon.control.room_file_client import RoomFileClient
from sublet.daemon.control.room_presence_client import RoomPresenceClient
from sublet.daemon.control.room_text_client import RoomTextClient
from sublet.daemon.control.talk_client import TalkClient
from sublet.daemon.control.transport import SocketTransport, part, read
from sublet.protocol.events import Event

_STRINGS: TypeAdapter[list[str]] = TypeAdapter(list[str])


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

    async def directory(self) -> Directory:
        """Return the peers and agents, and why not the others."""
        return await self.fetch(Directory, "GET", "/v1/directory")

    async def create_pair_link(self, *, ttl_seconds: int = DEFAULT_LINK_SECONDS) -> PairLink:
        """Make a one-time pairing link."""
        return await self.fetch(PairLink, "POST", "/v1/pair-links", body={"ttl_seconds": ttl_seconds})

    async def add_peer(self, request: AddPeer) -> PeerView:
        """Use the other side's pairing link."""
        return await self.fetch(PeerView, "POST", "/v1/peers", body=request)

    async def list_peers(self) -> list[PeerView]:
        """Return all paired daemons."""
        return await self.fetch_many(PeerView, "/v1/peers")

    async def remove_peer(self, name: str) -> PeerView:
        """Forget a peer: its key, and with it all its access."""
        return await self.fetch(PeerView, "DELETE", f"/v1/peers/{part(name)}")

    async def create_token(self, name: str, ttl_seconds: int | None) -> TokenView:
        """Make a bearer token for a plain A2A client."""
        return await self.fetch(TokenView, "POST", "/v1/tokens", body={"name": name, "ttl_seconds": ttl_seconds})

    async def list_tokens(self) -> list[TokenView]:
        """Return the tokens, without their secrets."""
        return await self.fetch_many(TokenView, "/v1/tokens")

    async def revoke_token(self, name: str) -> TokenView:
        """Make a token useless."""
        return await self.fetch(TokenView, "DELETE", f"/v1/tokens/{part(name)}")

    async def list_lend_roots(self) -> list[str]:
        """Return the directories below which MCP callers may lend."""
        return read(_STRINGS, await self.send("GET", "/v1/lend-roots"))

    async def add_lend_root(self, path: str) -> list[str]:
        """Allow MCP callers to lend below ``path``."""
        return read(_STRINGS, await self.send("POST", "/v1/lend-roots", body={"path": path}))

    async def remove_lend_root(self, path: str) -> list[str]:
        """Take ``path`` off the list."""
        return read(_STRINGS, await self.send("DELETE", "/v1/lend-roots", {"path": path}))

    async def status(self) -> StatusView:
        """Return the daemon at a glance."""
        return await self.fetch(StatusView, "GET", "/v1/status")

    async def doctor(self) -> list[Check]:
        """Check what this machine has and lacks."""
        return await self.fetch_many(Check, "/v1/doctor")

    async def reload(self) -> ReloadReport:
        """Have agents and policy read anew."""
        return await self.fetch(ReloadReport, "POST", "/v1/reload")

    async def shutdown(self) -> None:
        """Ask the daemon to stop."""
        await self.send("POST", "/v1/shutdown")

    @property
    def capabilities(self) -> CapabilityClient:
        """The operations on capabilities."""
        return CapabilityClient(self)

    @property
    def approvals(self) -> ApprovalClient:
        """The operations around approvals, grants and the approver's key."""
        return ApprovalClient(self)

    @property
    def gateways(self) -> GatewayClient:
        """The operations on gateways."""
        return GatewayClient(self)

    @property
    def replays(self) -> ReplayClient:
        """The operations on recorded sessions."""
        return ReplayClient(self)

    @property
    def rooms(self) -> RoomClient:
        """The operations around rooms."""
        return RoomClient(self)

    @property
    def talk(self) -> TalkClient:
        """The operations around whom somebody talks with."""
        return TalkClient(self)

    @property
    def delivery(self) -> DeliveryClient:
        """The operations on messages that were sent."""
        return DeliveryClient(self)

    @property
    def members(self) -> RoomMemberClient:
        """The operations around who is in a room."""
        return RoomMemberClient(self)

    @property
    def people(self) -> RoomPeopleClient:
        """The operations around people in rooms."""
        return RoomPeopleClient(self)

    @property
    def presence(self) -> RoomPresenceClient:
        """The operations around who is there, and drafts."""
        return RoomPresenceClient(self)

    @property
    def files(self) -> RoomFileClient:
        """The operations on files in rooms."""
        return RoomFileClient(self)

    @property
    def texts(self) -> RoomTextClient:
        """The operations on texts that several write."""
        return RoomTextClient(self)

    @property
    def watching(self) -> RoomWatchClient:
        """The operations around watches."""
        return RoomWatchClient(self)


def _bounded(timeout: float) -> float:
    return min(max(timeout, 0), MAX_WAIT_SECONDS)
