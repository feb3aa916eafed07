"""Operations on gateways: programs that bring requests and carry answers."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import JsonValue

from sublet.daemon.api.base import Request, View
from sublet.daemon.api.operation import Asks, Hides, Nothing, Operation, Segment
from sublet.policy.capabilities.module_file import MODULE_ID
from sublet.policy.decision import Action
from sublet.protocol.gateway import DeliveryMode

State = Literal["connected", "starting", "stopped", "failed"]


GatewayId = Annotated[str, Segment(MODULE_ID.fullmatch, "id of a gateway", "See: sublet gateway list")]


class OneGateway(Request):
    """Names the gateway that an operation is about, by the id in its ``module.json``."""

    gateway_id: GatewayId


class SendToGateway(OneGateway):
    """What a gateway is to deliver, and how; as its module says by default."""

    message: JsonValue
    mode: DeliveryMode | None = None


class GatewayView(View):
    """A gateway as it is now."""

    id: str
    name: str
    version: str = ""
    description: str = ""
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


class GatewayProblem(View):
    """A directory that holds no gateway that could be used, and why."""

    directory: str
    problem: str


class GatewayList(View):
    """All there are."""

    gateways: list[GatewayView]
    problems: list[GatewayProblem]


class GatewaySent(View):
    """What came of a message: ``output`` is the gateway's result, of a ``sync`` one."""

    id: str
    output: JsonValue = None


_GATEWAYS = "/v1/gateways"
_GATEWAY = f"{_GATEWAYS}/{{gateway_id}}"
_MANAGES = Asks(Action.GATEWAY_MANAGE, "{gateway_id}")

LIST_GATEWAYS = Operation(
    "gateways.list",
    "GET",
    _GATEWAYS,
    Nothing,
    GatewayList,
    asks=Asks(Action.GATEWAY_READ),
    summary="Return all gateways, and what is wrong with others.",
    hides=Hides(Action.GATEWAY_READ, "id", "gateways"),
)
GET_GATEWAY = Operation(
    "gateways.get",
    "GET",
    _GATEWAY,
    OneGateway,
    GatewayDetail,
    asks=_MANAGES,  # whoever sees its token can pose as the gateway
    summary="Return one gateway, with its token.",
)
START_GATEWAY = Operation(
    "gateways.start",
    "POST",
    f"{_GATEWAY}/start",
    OneGateway,
    GatewayView,
    asks=_MANAGES,
    summary="Start a gateway's program, or let it connect.",
)
STOP_GATEWAY = Operation(
    "gateways.stop",
    "POST",
    f"{_GATEWAY}/stop",
    OneGateway,
    GatewayView,
    asks=_MANAGES,
    summary="Stop a gateway. What waits for it is rejected.",
)
SEND_TO_GATEWAY = Operation(
    "gateways.send",
    "POST",
    f"{_GATEWAY}/send",
    SendToGateway,
    GatewaySent,
    asks=Asks(Action.MODULE_DISPATCH, "{gateway_id}"),
    summary="Have a gateway deliver a message.",
)
