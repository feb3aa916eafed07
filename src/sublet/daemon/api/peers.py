"""Operations on peers: the daemons that are paired with this one, and the links by which they pair."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from sublet.daemon.api.base import Request, View
from sublet.daemon.api.delegation_views import SandboxView
from sublet.daemon.api.operation import ANY_SEGMENT, Asks, Hides, Nothing, Operation, Segment
from sublet.policy.decision import Action

DEFAULT_LINK_SECONDS = 600
"""How long a pairing link is valid."""
PeerName = Annotated[str, Segment(ANY_SEGMENT.fits, "name of a peer", "See: sublet peers list")]
GivenName = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9._-]{0,62}$")]


class AgentView(View):
    """An agent that a peer offers."""

    id: str
    description: str = ""
    skills: list[str] = Field(default=[])
    takes: str = Field(default="", description="What a prompt to it is: prose, a script, or anything; empty: unknown")
    why_not: str = Field(default="", description="Why it can't work at present, as its daemon said")
    sandbox: SandboxView | None = Field(
        default=None, description="How it was held when it last took work from here, as its daemon said"
    )


class PeerView(View):
    """A paired daemon."""

    name: str
    node_id: str
    fingerprint: str
    a2a_url: str | None = Field(description="None where the peer can't be called from here")
    paired_at: str
    agents: list[AgentView] = Field(default=[])
    usable: bool = True
    why_not: str = ""
    note: str = Field(default="", description="Why it is not called what it calls itself; empty where it is")
    rooms: str = Field(default="", description="Why no rooms are shared with it; empty where they are, or may be")
    clock: str = Field(default="", description="By how much its clock differs from this machine's; empty: hardly")
    was: str | None = Field(default=None, description="Its name here until now, where it has just got another")


class Directory(View):
    """What a caller may use, and why not the rest (DESIGN 5 ``directory``)."""

    node_id: str
    peers: list[PeerView]
    lend_roots: list[str]


class CreatePairLink(Request):
    """How long a pairing link is valid."""

    ttl_seconds: int = DEFAULT_LINK_SECONDS


class PairLink(View):
    """A one-time pairing link."""

    link: str
    expires_at: str
    a2a_url: str
    fingerprint: str
    id: str = Field(default="", description="What lists and events call it; nobody can pair by that")
    cursor: int = Field(default=0, description="Sequence number of the event of its making")


class PairLinkView(View):
    """A pairing link that was made here, and who used it."""

    id: str
    state: Literal["open", "used", "over"] = Field(description="over: nobody used it in time, or it was guessed at")
    made_at: str
    made_by: str
    expires_at: str
    used_at: str | None = None
    peer: str | None = Field(default=None, description="What the daemon is called that used it; None once removed")
    fingerprint: str | None = Field(default=None, description="Of the key of the daemon that used it")


class AddPeer(Request):
    """Use a pairing link."""

    link: Annotated[str, Field(max_length=4096)]
    name: GivenName


class OnePeer(Request):
    """A peer, by its name here."""

    name: PeerName


class RenamePeer(OnePeer):
    """Call a peer something else here."""

    new_name: GivenName


SHOW_DIRECTORY = Operation(
    "peers.directory",
    "GET",
    "/v1/directory",
    Nothing,
    Directory,
    asks=Asks(Action.DELEGATION_READ),
    summary="Return the peers and agents that the caller may use, why not the others, and what may be lent.",
)
CREATE_PAIR_LINK = Operation(
    "peers.create_link",
    "POST",
    "/v1/pair-links",
    CreatePairLink,
    PairLink,
    asks=Asks(Action.PEER_PAIR),
    summary="Make a one-time pairing link.",
    status=201,
)
LIST_PAIR_LINKS = Operation(
    "peers.list_links",
    "GET",
    "/v1/pair-links",
    Nothing,
    list[PairLinkView],
    asks=Asks(Action.PEER_PAIR),
    summary="Return the pairing links that were made here last, the newest first, and who used each.",
)
ADD_PEER = Operation(
    "peers.add",
    "POST",
    "/v1/peers",
    AddPeer,
    PeerView,
    asks=Asks(Action.PEER_PAIR, "{name}"),
    summary="Use the other side's pairing link.",
    status=201,
)
LIST_PEERS = Operation(
    "peers.list",
    "GET",
    "/v1/peers",
    Nothing,
    list[PeerView],
    asks=Asks(Action.PEER_MANAGE),
    summary="Return all paired daemons, without their agents.",
    hides=Hides(Action.DELEGATION_CREATE, "name"),
)
RENAME_PEER = Operation(
    "peers.rename",
    "POST",
    "/v1/peers/{name}/rename",
    RenamePeer,
    PeerView,
    asks=Asks(Action.PEER_MANAGE, "{name}"),
    summary="Call a peer something else here; refused where a rule, a grant or an agent knows it by its name.",
)
REMOVE_PEER = Operation(
    "peers.remove",
    "DELETE",
    "/v1/peers/{name}",
    OnePeer,
    PeerView,
    asks=Asks(Action.PEER_MANAGE, "{name}"),
    summary="Forget a peer: its key, and with it all its access.",
)
