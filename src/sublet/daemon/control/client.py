"""Typed client of the control API, for the command line and tests: ``DaemonApi`` as its owner calls it."""

from __future__ import annotations

from pydantic import TypeAdapter

from sublet.daemon.api.daemon_models import Check, ReloadReport, StatusView
from sublet.daemon.api.peer_models import DEFAULT_LINK_SECONDS, AddPeer, Directory, PairLink, PeerView, TokenView
from sublet.daemon.control.approval_client import ApprovalClient
from sublet.daemon.control.capability_client import CapabilityClient
from sublet.daemon.control.delivery_client import DeliveryClient
from sublet.daemon.control.gateway_client import GatewayClient
from sublet.daemon.control.replay_client import ReplayClient
from sublet.daemon.control.room_client import RoomClient
from sublet.daemon.control.room_clients import RoomMemberClient, RoomPeopleClient, RoomWatchClient
from sublet.daemon.control.room_file_client import RoomFileClient
from sublet.daemon.control.room_presence_client import RoomPresenceClient
from sublet.daemon.control.room_text_client import RoomTextClient
from sublet.daemon.control.talk_client import TalkClient
from sublet.daemon.control.transport import SocketTransport, part, read

_STRINGS: TypeAdapter[list[str]] = TypeAdapter(list[str])


class ControlClient(SocketTransport):
    """Speaks with the daemon of ``home``. To be used in ``async with``; failures are ``SubletError``."""

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
