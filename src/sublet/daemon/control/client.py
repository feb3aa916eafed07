"""Typed client of the control API, for the command line and tests: ``DaemonApi`` as its owner calls it."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from types import TracebackType
from typing import TypeVar

from pydantic import BaseModel, TypeAdapter, ValidationError

from sublet.daemon.api.daemon_models import Check, PruneReport, PruneRequest, ReloadReport, StatusView
from sublet.daemon.api.models import (
    DEFAULT_LINK_SECONDS,
    MAX_WAIT_SECONDS,
    AssignmentView,
    AuditReport,
    CreateDelegation,
    DelegationView,
    EventPage,
)
from sublet.daemon.api.peer_models import AddPeer, Directory, PairLink, PeerView, TokenView
from sublet.daemon.api.review_models import Applied, ApplyRequest, Discarded, ResultPatch, Review, Undone
from sublet.daemon.control.approval_client import ApprovalClient
from sublet.daemon.control.capability_client import CapabilityClient
from sublet.daemon.control.config_client import ConfigClient
from sublet.daemon.control.delivery_client import DeliveryClient
from sublet.daemon.control.gateway_client import GatewayClient
from sublet.daemon.control.http import Fault, Query, TransportFailed, exchange
from sublet.daemon.control.policy_client import PolicyClient
from sublet.daemon.control.replay_client import ReplayClient
from sublet.daemon.control.room_client import RoomClient
from sublet.daemon.control.room_clients import RoomMarkClient, RoomMemberClient, RoomPeopleClient, RoomWatchClient
from sublet.daemon.control.room_file_client import RoomFileClient
from sublet.daemon.control.room_presence_client import RoomPresenceClient
from sublet.daemon.control.room_text_client import RoomTextClient
from sublet.daemon.control.supervisor_client import SupervisorClient
from sublet.daemon.control.talk_client import TalkClient
from sublet.daemon.control.web_client import WebClient
from sublet.daemon.paths import Home
from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.events import Event

ModelT = TypeVar("ModelT", bound=BaseModel)
T = TypeVar("T")

_SEGMENT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}\Z")
WITH_BODY = frozenset({"POST", "PATCH"})
_STRINGS: TypeAdapter[list[str]] = TypeAdapter(list[str])


class ControlClient:
    """Speaks with the daemon of ``home``. To be used in ``async with``; failures are ``SubletError``."""

    def __init__(self, home: Home) -> None:
        self._home = home

    async def __aenter__(self) -> ControlClient:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        """Nothing is kept between two calls."""

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
        async with aclosing(self.stream("GET", "/v1/events", query)) as events:
            async for _, data in events:
                yield Event.model_validate_json(data)
        raise self._unavailable(Fault.BROKEN)

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
        return _read(_STRINGS, await self.call("GET", "/v1/lend-roots"))

    async def add_lend_root(self, path: str) -> list[str]:
        """Allow MCP callers to lend below ``path``."""
        return _read(_STRINGS, await self.call("POST", "/v1/lend-roots", body={"path": path}))

    async def remove_lend_root(self, path: str) -> list[str]:
        """Take ``path`` off the list."""
        return _read(_STRINGS, await self.call("DELETE", "/v1/lend-roots", {"path": path}))

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
        await self.call("POST", "/v1/shutdown")

    @property
    def policy(self) -> PolicyClient:
        """The operations around policy and the audit log."""
        return PolicyClient(self)

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
    def web(self) -> WebClient:
        """The operations around the web page."""
        return WebClient(self)

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
    def marks(self) -> RoomMarkClient:
        """The operations on messages that are there."""
        return RoomMarkClient(self)

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
    def config(self) -> ConfigClient:
        """The operation that shows the configuration."""
        return ConfigClient(self)

    @property
    def texts(self) -> RoomTextClient:
        """The operations on texts that several write."""
        return RoomTextClient(self)

    @property
    def watching(self) -> RoomWatchClient:
        """The operations around watches."""
        return RoomWatchClient(self)

    @property
    def supervisor(self) -> SupervisorClient:
        """The operations around asking and sessions."""
        return SupervisorClient(self)

    async def stream(
        self,
        method: str,
        path: str,
        query: Query | None = None,
        *,
        body: BaseModel | Mapping[str, object] | None = None,
    ) -> AsyncGenerator[tuple[str, str], None]:
        """Yield server-sent events as they come: their kind and their data.

        Raises:
            SubletError: ``DAEMON_UNAVAILABLE`` where the connection breaks, or what the daemon says.
        """
        self._check_home()
        content = _encoded(body or {}) if method in WITH_BODY else None
        try:
            async with exchange(self._home.control_socket, method, path, query, content) as answer:
                if answer.status >= 400:
                    raise _failure(answer.status, await answer.body())
                kind = ""
                async for line in answer.lines():
                    name, _, value = line.partition(": ")
                    if name == "event":
                        kind = value
                    elif name == "data" and kind == "error":
                        raise SubletError.from_json(json.loads(value)["error"])
                    elif name == "data":
                        yield kind, value
        except TransportFailed as failed:
            raise self._unavailable(failed.fault) from None

    async def fetch(
        self,
        model: type[ModelT],
        method: str,
        path: str,
        query: Query | None = None,
        *,
        body: BaseModel | Mapping[str, object] | None = None,
    ) -> ModelT:
        """Return the one view that an operation answers with."""
        return _read(TypeAdapter(model), await self.call(method, path, query, body=body))

    async def fetch_many(self, model: type[ModelT], path: str, query: Query | None = None) -> list[ModelT]:
        """Return the views that an operation answers with."""
        return _read(TypeAdapter(list[model]), await self.call("GET", path, query))  # type: ignore[valid-type]

    async def call(
        self,
        method: str,
        path: str,
        query: Query | None = None,
        *,
        body: BaseModel | Mapping[str, object] | None = None,
    ) -> bytes:
        """Return what an operation answers, as it came."""
        self._check_home()
        content = _encoded(body or {}) if method in WITH_BODY else None
        try:
            async with exchange(self._home.control_socket, method, path, query, content) as answer:
                received = await answer.body()
        except TransportFailed as failed:
            raise self._unavailable(failed.fault) from None
        if answer.status >= 400:
            raise _failure(answer.status, received)
        return received

    def _check_home(self) -> None:
        if not self._home.verify_runtime():
            raise self._unavailable(Fault.ABSENT)

    def _unavailable(self, fault: Fault) -> SubletError:
        if fault is Fault.SILENT:
            return SubletError(
                LocalCode.DAEMON_UNAVAILABLE, "the daemon does not answer", "See its log, or stop it: `sublet down`."
            )
        if fault is Fault.ABSENT:
            why = f"no daemon answers for {self._home.root}"
        else:
            why = "the connection to the daemon broke"
        return SubletError(LocalCode.DAEMON_UNAVAILABLE, why, "Start it with `sublet up --detach`.")


def part(name: str) -> str:
    """Return an id or a name as a path segment.

    Raises:
        SubletError: ``INVALID_ARGUMENT`` for what no id or name looks like, and would mean something else in a path.
    """
    if not _SEGMENT.match(name):
        raise SubletError(LocalCode.INVALID_ARGUMENT, "that is no id and no name", "See `sublet ls`.")
    return name


def _encoded(body: BaseModel | Mapping[str, object]) -> bytes:
    """Return ``body`` as JSON.

    Raises:
        SubletError: ``INVALID_ARGUMENT`` for text that is not UTF-8, as arguments of a command line may be.
    """
    try:
        raw = body.model_dump_json() if isinstance(body, BaseModel) else json.dumps(body, ensure_ascii=False)
        return raw.encode()
    except ValueError:
        raise SubletError(
            LocalCode.INVALID_ARGUMENT, "an argument is not UTF-8", "Write it in UTF-8, or rename the directory."
        ) from None


def _bounded(timeout: float) -> float:
    return min(max(timeout, 0), MAX_WAIT_SECONDS)


def _read(adapter: TypeAdapter[T], raw: bytes) -> T:
    try:
        return adapter.validate_json(raw)
    except ValidationError:
        raise SubletError(
            LocalCode.INTERNAL, "the daemon's answer is not understood", "Restart it with this version of sublet."
        ) from None


def _failure(status: int, body: bytes) -> SubletError:
    try:
        return SubletError.from_json(json.loads(body)["error"])
    except (ValueError, KeyError, TypeError, AttributeError):
        return SubletError(LocalCode.INTERNAL, f"the daemon answered with HTTP status {status}", "See its log.")
