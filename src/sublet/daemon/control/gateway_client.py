"""Typed client of the gateways' area: ``GatewayApi`` as its owner calls it."""

from __future__ import annotations

from sublet.daemon.api.gateway_models import GatewayDetail, GatewayList, GatewaySent, GatewayView, SendToGateway
from sublet.daemon.control.transport import Transport
from sublet.policy.capabilities.module_file import MODULE_ID
from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.text import clean_line


class GatewayClient:
    """Failures are ``SubletError``."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def list_gateways(self) -> GatewayList:
        """Return all gateways."""
        return await self._transport.fetch(GatewayList, "GET", "/v1/gateways")

    async def get_gateway(self, gateway_id: str) -> GatewayDetail:
        """Return one, with what its side needs to connect."""
        return await self._transport.fetch(GatewayDetail, "GET", _path(gateway_id))

    async def start_gateway(self, gateway_id: str) -> GatewayView:
        """Start one."""
        return await self._transport.fetch(GatewayView, "POST", f"{_path(gateway_id)}/start", body={})

    async def stop_gateway(self, gateway_id: str) -> GatewayView:
        """Stop one."""
        return await self._transport.fetch(GatewayView, "POST", f"{_path(gateway_id)}/stop", body={})

    async def send_to_gateway(self, gateway_id: str, request: SendToGateway) -> GatewaySent:
        """Have one deliver a message."""
        return await self._transport.fetch(GatewaySent, "POST", f"{_path(gateway_id)}/send", body=request)


def _path(gateway_id: str) -> str:
    """Return the path of a gateway.

    Raises:
        SubletError: ``INVALID_ARGUMENT`` for what is no id, and would mean something else in a path.
    """
    if not MODULE_ID.fullmatch(gateway_id):
        what = f"{clean_line(gateway_id, 80)!r} is no id of a gateway"
        raise SubletError(LocalCode.INVALID_ARGUMENT, what, "See: sublet gateway list")
    return f"/v1/gateways/{gateway_id}"
