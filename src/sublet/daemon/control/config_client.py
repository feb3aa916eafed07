"""Typed client of the configuration: ``ConfigApi`` as its owner calls it."""

from __future__ import annotations

from sublet.daemon.api.config_models import ConfigView
from sublet.daemon.control.transport import Transport


class ConfigClient:
    """Failures are ``SubletError``."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def show_config(self) -> ConfigView:
        """Return every value that holds, and where it comes from."""
        return await self._transport.fetch(ConfigView, "GET", "/v1/config")
