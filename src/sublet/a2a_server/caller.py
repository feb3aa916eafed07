"""Who is calling: a paired daemon or the holder of a plain token, and how the SDK is told."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import cast

from a2a.auth.user import User
from a2a.extensions.common import HTTP_EXTENSION_HEADER, get_requested_extensions
from a2a.server.context import ServerCallContext
from a2a.server.routes.common import ServerCallContextBuilder
from a2a.utils.constants import VERSION_HEADER
from starlette.requests import Request

from sublet.daemon.ports.given_to_a2a import KnownPeer
from sublet.policy.decision import Subject
from sublet.protocol.ids import node_id

SCOPE_KEY = "sublet.caller"
STATE_KEY = "sublet.caller"


@dataclass(frozen=True, slots=True)
class Caller:
    """An authenticated caller.

    ``name`` is the peer's or the token's name; ``peer`` is None for a plain token. ``token_mark`` tells a token from
    others of its name. ``source_host`` is the IP address that the connection comes from. ``still_known`` tells whether
    it would be let in now.
    """

    name: str
    peer: KnownPeer | None
    source_host: str
    still_known: Callable[[], bool] = field(compare=False, repr=False)
    token_mark: str = ""

    @property
    def owner(self) -> str:
        """Whose tasks this caller sees.

        A peer's is bound to its key and a token's to its secret, so that a later one of the same name sees none.
        """
        return f"peer:{node_id(self.peer.public_key)}" if self.peer else f"token:{self.name}:{self.token_mark}"

    @property
    def subject(self) -> Subject:
        """The caller as policy knows it."""
        return Subject(kind="peer" if self.peer else "a2a", name=self.name)


def peer_of_owner(owner: str) -> str | None:
    """Return the node id in ``owner``, or None where it is a plain token's."""
    kind, _, name = owner.partition(":")
    return name if kind == "peer" else None


class CallerUser(User):
    """A caller as the SDK's user: its name scopes every read and write of the task store."""

    def __init__(self, owner: str) -> None:
        self._owner = owner

    @property
    def is_authenticated(self) -> bool:
        """Always: nobody else comes this far."""
        return True

    @property
    def user_name(self) -> str:
        """The owner of this caller's tasks."""
        return self._owner


class CallerContextBuilder(ServerCallContextBuilder):
    """Builds the SDK's call context from what the gate has established."""

    def build(self, request: Request) -> ServerCallContext:
        """Return the context; of the headers only the version goes on, so that no secret stays in memory."""
        caller = cast("Caller", request.scope[SCOPE_KEY])
        version = request.headers.get(VERSION_HEADER, "")
        return ServerCallContext(
            user=CallerUser(caller.owner),
            state={STATE_KEY: caller, "headers": {VERSION_HEADER: version}},
            requested_extensions=get_requested_extensions(request.headers.getlist(HTTP_EXTENSION_HEADER)),
        )


def caller_of(context: ServerCallContext) -> Caller:
    """Return who made the call of ``context``."""
    return cast("Caller", context.state[STATE_KEY])
