"""What faces exchange about gateways."""

from __future__ import annotations

from typing import Literal, Protocol

from pydantic import BaseModel, JsonValue

from sublet.daemon.api.base import Request
from sublet.policy.model import Subject
from sublet.protocol.gateway import DeliveryMode

State = Literal["connected", "starting", "stopped", "failed"]


class SendToGateway(Request):
    """What a gateway is to deliver, and how; as its module says by default."""

    message: JsonValue
    mode: DeliveryMode | None = None


class GatewayView(BaseModel):
    """A gateway as it is now."""

    id: str
    name: str
    direction: str
    protocol: str
    modes: list[str]
    load: str
    state: State
    detail: str = ""
    health: str = ""


class GatewayDetail(GatewayView):
    """A gateway with what its own side needs to connect: only where it connects to us."""

    url: str | None = None
    token: str | None = None


class GatewayProblem(BaseModel):
    """A directory that holds no gateway that could be used, and why."""

    directory: str
    problem: str


class GatewayList(BaseModel):
    """All there are."""

    gateways: list[GatewayView]
    problems: list[GatewayProblem]


class GatewaySent(BaseModel):
    """What came of a message: ``output`` is the gateway's result, of a ``sync`` one."""

    id: str
    output: JsonValue = None


class GatewayApi(Protocol):
    """Operations on gateways; each asks policy first. Failures are ``SubletError``."""

    async def list_gateways(self, caller: Subject) -> GatewayList:
        """Return all."""

    async def get_gateway(self, gateway_id: str, caller: Subject) -> GatewayDetail:
        """Return one, with its token."""

    async def start_gateway(self, gateway_id: str, caller: Subject) -> GatewayView:
        """Start one, or let it connect."""

    async def stop_gateway(self, gateway_id: str, caller: Subject) -> GatewayView:
        """Stop one."""

    async def send_to_gateway(self, gateway_id: str, request: SendToGateway, caller: Subject) -> GatewaySent:
        """Have one deliver a message."""
