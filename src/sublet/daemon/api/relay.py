"""Operations on the relay: our name there, and whose a name is (ezagent 7.4)."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from sublet.daemon.api.base import Request, View
from sublet.daemon.api.operation import Asks, Nothing, Operation
from sublet.daemon.api.peers import GivenName, PeerView
from sublet.policy.decision import Action

Name = Annotated[str, Field(min_length=1, max_length=64)]


class RegisterName(Request):
    """Register a name at the relay, or get another certificate for ours."""

    name: Name
    at: Annotated[str, Field(max_length=300)] | None = Field(
        default=None, description="HOST:PORT of the registration port, if it is not the one after the relay's"
    )


class RelayView(View):
    """How this daemon stands at its relay."""

    relay: str | None = Field(default=None, description="Where it is; none where none is configured")
    entity_id: str | None = Field(default=None, description="Our name there, an alias of this daemon")
    node_id: str
    fingerprint: str = Field(description="Of our key: who pairs with us by our name has to know it")
    slot: str | None = None
    expires_at: str | None = Field(default=None, description="When the certificate ends, which is renewed before")
    linked: bool = Field(default=False, description="Whether the relay carries our rooms now")
    remarks: list[str] = Field(default=[], description="What is wrong")


class PairByName(Request):
    """Pair with the daemon that has a name at the relay, if its key is the one that is meant."""

    entity_id: Annotated[str, Field(max_length=4096, description="Its name there: @bob:relay.example")]
    name: GivenName
    fingerprint: Annotated[str, Field(max_length=128, description="Of its key, as `sublet register` shows it there")]


PAIR_BY_NAME = Operation(
    "relay.pair",
    "POST",
    "/v1/relay/peers",
    PairByName,
    PeerView,
    asks=Asks(Action.PEER_PAIR, "{name}"),
    summary="Pin the key of the daemon that has a name at the relay; both sides have to, to share rooms over it.",
    status=201,
)
REGISTER_NAME = Operation(
    "relay.register",
    "POST",
    "/v1/relay/name",
    RegisterName,
    RelayView,
    asks=Asks(Action.DAEMON_CONTROL),
    summary="Register a name for this daemon at its relay, which gives it a certificate.",
)
SHOW_RELAY = Operation(
    "relay.show",
    "GET",
    "/v1/relay",
    Nothing,
    RelayView,
    asks=Asks(Action.DAEMON_CONTROL),
    summary="Return how this daemon stands at its relay.",
)
