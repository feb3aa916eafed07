"""Serves the configuration that the daemon runs with."""

from __future__ import annotations

import asyncio

from sublet.daemon.api.configuration import SHOW_CONFIG, ConfigView
from sublet.daemon.api.operation import Nothing
from sublet.daemon.config.config_view import config_view
from sublet.daemon.config.daemon_config import DaemonConfig
from sublet.daemon.governing.gatekeeper import Gatekeeper
from sublet.daemon.operations.table import serves
from sublet.policy.decision import Subject


class ConfigService:
    """Serves the operation of ``api.configuration``.

    Args:
        gate: asks policy.
        config: as the daemon began with it.
    """

    def __init__(self, gate: Gatekeeper, config: DaemonConfig) -> None:
        self._gate = gate
        self._config = config

    @serves(SHOW_CONFIG)
    async def show_config(self, request: Nothing, caller: Subject) -> ConfigView:
        return await asyncio.to_thread(config_view, self._config, running=True)
