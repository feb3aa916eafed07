"""``GatewayApi``: one method per operation, and before each the question to policy (SuperAgent 8)."""

from __future__ import annotations

from sublet.daemon.api.gateway_models import (
    GatewayDetail,
    GatewayList,
    GatewayProblem,
    GatewaySent,
    GatewayView,
    SendToGateway,
)
from sublet.daemon.gatekeeper import Gatekeeper
from sublet.daemon.modules.gateways import Gateway, Gateways
from sublet.daemon.operations.asking import operations
from sublet.policy.model import Action, Subject


@operations
class GatewayService:
    """Implements ``GatewayApi``."""

    def __init__(self, gate: Gatekeeper, gateways: Gateways) -> None:
        self._gate = gate
        self._gateways = gateways

    async def list_gateways(self, caller: Subject) -> GatewayList:
        """``GatewayApi.list_gateways``."""
        await self._gate.ask(caller, Action.GATEWAY_READ, "*")
        found, problems = self._gateways.views()
        return GatewayList(
            gateways=[_view(one) for one in found if not self._gate.hides(caller, Action.GATEWAY_READ, one.module.id)],
            problems=[GatewayProblem(directory=where, problem=what) for where, what in sorted(problems.items())],
        )

    async def get_gateway(self, gateway_id: str, caller: Subject) -> GatewayDetail:
        """``GatewayApi.get_gateway``."""
        # With its token whoever sees it can pose as the gateway.
        await self._gate.ask(caller, Action.GATEWAY_MANAGE, gateway_id)
        one = self._gateways.get(gateway_id)
        return GatewayDetail(**_view(one).model_dump(), url=self._gateways.url(one.module), token=one.token or None)

    async def start_gateway(self, gateway_id: str, caller: Subject) -> GatewayView:
        """``GatewayApi.start_gateway``."""
        await self._gate.ask(caller, Action.GATEWAY_MANAGE, gateway_id)
        await self._gateways.start(gateway_id)
        return _view(self._gateways.get(gateway_id))

    async def stop_gateway(self, gateway_id: str, caller: Subject) -> GatewayView:
        """``GatewayApi.stop_gateway``."""
        await self._gate.ask(caller, Action.GATEWAY_MANAGE, gateway_id)
        await self._gateways.stop(gateway_id)
        return _view(self._gateways.get(gateway_id))

    async def send_to_gateway(self, gateway_id: str, request: SendToGateway, caller: Subject) -> GatewaySent:
        """``GatewayApi.send_to_gateway``."""
        await self._gate.ask(caller, Action.MODULE_DISPATCH, gateway_id)
        output = await self._gateways.send_message(gateway_id, request.message, request.mode)
        return GatewaySent(id=gateway_id, output=output)


def _view(one: Gateway) -> GatewayView:
    module = one.module
    return GatewayView(
        id=module.id,
        name=module.name,
        direction=module.direction,
        protocol=module.protocol,
        modes=[*module.mode.supported],
        load=module.load,
        state=one.state,
        detail=one.detail,
        health=one.health,
    )
