"""Serves the operations of ``api.gateways`` (SuperAgent 8)."""

from __future__ import annotations

from sublet.daemon.api.gateways import (
    GET_GATEWAY,
    LIST_GATEWAYS,
    SEND_TO_GATEWAY,
    START_GATEWAY,
    STOP_GATEWAY,
    GatewayDetail,
    GatewayList,
    GatewayProblem,
    GatewaySent,
    GatewayView,
    OneGateway,
    SendToGateway,
)
from sublet.daemon.api.operation import Nothing
from sublet.daemon.governing.gatekeeper import Gatekeeper
from sublet.daemon.modules.gateways import Gateway, Gateways
from sublet.daemon.operations.table import serves
from sublet.policy.decision import Subject


class GatewayService:
    """Tells of gateways, starts and stops them, and has them deliver."""

    def __init__(self, gate: Gatekeeper, gateways: Gateways) -> None:
        self._gate = gate
        self._gateways = gateways

    @serves(LIST_GATEWAYS)
    async def list_gateways(self, request: Nothing, caller: Subject) -> GatewayList:
        found, problems = self._gateways.views()
        return GatewayList(
            gateways=[_view(one) for one in found],
            problems=[GatewayProblem(directory=where, problem=what) for where, what in sorted(problems.items())],
        )

    @serves(GET_GATEWAY)
    async def get_gateway(self, request: OneGateway, caller: Subject) -> GatewayDetail:
        gateway = self._gateways.get(request.gateway_id)
        return GatewayDetail(
            **_view(gateway).model_dump(), url=self._gateways.url(gateway.module), token=gateway.token or None
        )

    @serves(START_GATEWAY)
    async def start_gateway(self, request: OneGateway, caller: Subject) -> GatewayView:
        await self._gateways.start(request.gateway_id)
        return _view(self._gateways.get(request.gateway_id))

    @serves(STOP_GATEWAY)
    async def stop_gateway(self, request: OneGateway, caller: Subject) -> GatewayView:
        await self._gateways.stop(request.gateway_id)
        return _view(self._gateways.get(request.gateway_id))

    @serves(SEND_TO_GATEWAY)
    async def send_to_gateway(self, request: SendToGateway, caller: Subject) -> GatewaySent:
        output = await self._gateways.send_message(request.gateway_id, request.message, request.mode)
        return GatewaySent(id=request.gateway_id, output=output)


def _view(gateway: Gateway) -> GatewayView:
    module = gateway.module
    return GatewayView(
        id=module.id,
        name=module.name,
        version=module.version,
        description=module.description,
        direction=module.direction,
        protocol=module.protocol,
        modes=[*module.mode.supported],
        load=module.load,
        state=gateway.state,
        detail=gateway.detail,
        health=gateway.health,
    )
