"""What the faces exchange with the daemon about whom it knows: peers, pairing links, tokens."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from sublet.daemon.api.base import Request, View
from sublet.daemon.api.delegation_views import SandboxView

DEFAULT_LINK_SECONDS = 600
"""How long a pairing link is valid."""


class AgentView(View):
    """An agent that a peer offers."""

    id: str
    description: str = ""
    skills: list[str] = Field(default=[])
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
    was: str | None = Field(default=None, description="Its name here until now, where pairing again gave it another")


class Directory(View):
    """What a caller may use, and why not the rest (DESIGN 5 ``directory``)."""

    node_id: str
    peers: list[PeerView]
    lend_roots: list[str]


class PairLink(View):
    """A one-time pairing link."""

    link: str
    expires_at: str
    a2a_url: str
    fingerprint: str


class AddPeer(Request):
    """Use a pairing link."""

    link: Annotated[str, Field(max_length=4096)]
    name: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9._-]{0,62}$")]


class TokenView(View):
    """A token for plain A2A clients; ``token`` is shown once, when it is made."""

    name: str
    created_at: str
    expires_at: str | None = None
    token: str | None = None
