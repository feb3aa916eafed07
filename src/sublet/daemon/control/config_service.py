"""``ConfigApi``: the configuration that the daemon runs with."""

from __future__ import annotations

import asyncio

from sublet.daemon.api.config_models import ConfigView
from sublet.daemon.config import DaemonConfig
from sublet.daemon.config_view import config_view
from sublet.daemon.gatekeeper import Gatekeeper
from sublet.daemon.operations import operations
from sublet.policy.model import Action, Subject


@operations
class ConfigService:
    """Implements ``ConfigApi``.

    Args:
        gate: asks policy.
        config: as the daemon began with it.
    """

    def __init__(self, gate: Gatekeeper, config: DaemonConfig) -> None:
        self._gate = gate
        self._config = config

    async def show_config(self, caller: Subject) -> ConfigView:
        """``ConfigApi.show_config``."""
        await self._gate.ask(caller, Action.DAEMON_CONTROL, "config")
        return await asyncio.to_thread(config_view, self._config, running=True)
