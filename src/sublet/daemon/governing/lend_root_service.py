"""Serves the operations of ``api.lend_roots``."""

from __future__ import annotations

import os

from sublet.daemon.api.lend_roots import ADD_LEND_ROOT, LIST_LEND_ROOTS, REMOVE_LEND_ROOT, LendRoot
from sublet.daemon.api.operation import Nothing
from sublet.daemon.governing.gatekeeper import Gatekeeper, looked_up
from sublet.daemon.governing.lend_roots import LendRoots, real_directory
from sublet.daemon.operations.table import serves
from sublet.policy.decision import Action, Subject


class LendRootService:
    """Keeps the list of directories below which MCP hosts may lend."""

    def __init__(self, gate: Gatekeeper, lend_roots: LendRoots) -> None:
        self._gate = gate
        self._lend_roots = lend_roots

    @serves(LIST_LEND_ROOTS)
    async def list_lend_roots(self, request: Nothing, caller: Subject) -> list[str]:
        return self._lend_roots.paths()

    @serves(ADD_LEND_ROOT)
    async def add_lend_root(self, request: LendRoot, caller: Subject) -> list[str]:
        real = await looked_up(real_directory, request.path)
        await self._gate.ask(caller, Action.LEND_ROOT_MANAGE, real, path=real)
        await self._gate.ask(caller, Action.WORKSPACE_LEND, real, path=real)
        return await self._lend_roots.add(real)

    @serves(REMOVE_LEND_ROOT)
    async def remove_lend_root(self, request: LendRoot, caller: Subject) -> list[str]:
        return await self._lend_roots.remove(await looked_up(os.path.realpath, request.path))
