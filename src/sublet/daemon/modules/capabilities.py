"""Serves the operations of ``api.capabilities``: what is told of capabilities and what runs of them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final, cast

from sublet.daemon.api.call_api import AskedCall, Begun, CallApi
from sublet.daemon.api.capabilities import (
    INSPECT_CAPABILITY,
    LIST_CAPABILITIES,
    RUN_CAPABILITY,
    VERIFY_CAPABILITY,
    CapabilityCheck,
    CapabilityChecks,
    CapabilityDetail,
    CapabilityList,
    CapabilityProblem,
    CapabilityRun,
    CapabilityView,
    InspectCapability,
    RunCapability,
    VerifyCapability,
)
from sublet.daemon.api.operation import Nothing
from sublet.daemon.governing.gatekeeper import Gatekeeper
from sublet.daemon.operations.table import serves
from sublet.policy.capabilities.disclosure import disclose
from sublet.policy.capabilities.module_file import TOOL_PREFIX, Level
from sublet.policy.decision import Action, Subject
from sublet.policy.tool_calls import tool_resource
from sublet.protocol.canonical import JsonValue
from sublet.protocol.errors import SubletError
from sublet.protocol.events import EventKeys, EventKind
from sublet.protocol.text import clean_line
from sublet.supervisor.agent import Emit
from sublet.supervisor.capabilities.registry import Capability, CapabilitySet, read_capabilities
from sublet.supervisor.capabilities.runs import CapabilityRuns, RunEnd, check_arguments

MAX_DETAIL_CHARS: Final = 300


class CapabilityRegistry:
    """What capabilities there are now; replaced all at once.

    Args:
        directories: where they lie, the one that counts first at the beginning.
    """

    def __init__(self, directories: Sequence[Path]) -> None:
        self.directories = tuple(directories)
        self.now = CapabilitySet()

    def version(self) -> str:
        """Return the version of what is in force."""
        return self.now.version

    def read(self) -> CapabilitySet:
        """Return what the directories say now, without using it. Blocks."""
        return read_capabilities(self.directories)

    def use(self, found: CapabilitySet) -> None:
        """Have ``found`` in force from now on; what runs goes on."""
        self.now = found


class CapabilityService:
    """Tells of capabilities, tries them and runs them."""

    def __init__(
        self, gate: Gatekeeper, calls: CallApi, registry: CapabilityRegistry, runs: CapabilityRuns, tell: Emit
    ) -> None:
        self._gate = gate
        self._calls = calls
        self._registry = registry
        self._runs = runs
        self._tell = tell

    @serves(LIST_CAPABILITIES)
    async def list_capabilities(self, request: Nothing, caller: Subject) -> CapabilityList:
        now = self._registry.now
        return CapabilityList(
            capabilities=[
                CapabilityView(**one.module.model_dump(include=set(CapabilityView.model_fields)))
                for name, one in sorted(now.found.items())
                if not self._gate.hides(caller, Action.CAPABILITY_READ, TOOL_PREFIX + name)
            ],
            problems=[
                CapabilityProblem(directory=clean_line(where), problem=clean_line(what, MAX_DETAIL_CHARS))
                for where, what in sorted(now.problems.items())
            ],
            capabilitySnapshotVersion=now.version,
        )

    @serves(INSPECT_CAPABILITY)
    async def inspect_capability(self, request: InspectCapability, caller: Subject) -> CapabilityDetail:
        now = self._registry.now
        capability = now.get(request.capability_id)
        documents = capability.documents
        if request.level == 2 and capability.module.help_args:
            helped = await self._runs.probe(capability, capability.module.help_args)
            documents = replace(documents, help=helped.stdout or helped.stderr)
        told = disclose(capability.module, documents, cast("Level", request.level), request.budget)
        return CapabilityDetail(
            id=told.id,
            level=told.level,
            text=told.text,
            tokens=told.tokens,
            left_out=told.left_out,
            capabilitySnapshotVersion=now.version,
        )

    @serves(VERIFY_CAPABILITY)
    async def verify_capability(self, request: VerifyCapability, caller: Subject) -> CapabilityChecks:
        capability = self._registry.now.get(request.capability_id)
        checks = [
            await self._check(capability, "availability"),
            await self._check(capability, "help"),
            await self._check(capability, "version"),
        ]
        return CapabilityChecks(id=request.capability_id, ok=all(check.ok for check in checks), checks=checks)

    @serves(RUN_CAPABILITY)
    async def run_capability(self, request: RunCapability, caller: Subject) -> CapabilityRun:
        capability_id = request.capability_id
        tool = TOOL_PREFIX + capability_id
        arguments: dict[str, JsonValue] = {"args": list(request.args)}
        resource = tool_resource(tool, arguments)
        if request.stdin:  # a person approves all that it is given
            arguments["stdin"] = request.stdin
        call = AskedCall(caller, Action.CAPABILITY_RUN, resource, tool, arguments)
        one = self._registry.now.found.get(capability_id)
        if one is not None and not self._gate.hides(caller, Action.CAPABILITY_RUN, tool):
            # Nobody is asked to approve, and no grant is spent on, what can't be run.
            await asyncio.to_thread(check_arguments, one.module, request.args)
        begun = await self._calls.begin(call, f"there is no capability {clean_line(capability_id, 80)!r}")
        error: str | None = "it was cut off"
        try:
            ended = await self._run(self._registry.now.get(capability_id), request, begun, caller)
            error = None if ended.ok else _why(ended)
        except SubletError as failure:
            error = failure.message
            raise
        finally:
            await self._calls.ended(begun, error)
        return CapabilityRun(
            id=capability_id,
            exit_code=ended.exit_code,
            reason=ended.reason,
            stdout=ended.stdout,
            stderr=ended.stderr,
        )

    async def _run(self, capability: Capability, request: RunCapability, begun: Begun, caller: Subject) -> RunEnd:
        """Run it, and journal that it is called and how it ended where no use of a grant does."""
        if begun.use is not None:
            return await self._runs.run(capability, request.args, stdin=request.stdin)
        tool = TOOL_PREFIX + capability.module.id
        told: dict[str, JsonValue] = {"tool": tool, "arguments": {"args": [clean_line(a, 200) for a in request.args]}}
        keys = EventKeys(agent_id=caller.name if caller.kind == "agent" else None)
        cause = await self._tell(EventKind.TOOL_CALL, keys, told)
        after: dict[str, JsonValue] = {"tool": tool}
        keys = keys.model_copy(update={"causation_id": cause})
        try:
            ended = await self._runs.run(capability, request.args, stdin=request.stdin)
        except SubletError as error:
            await self._tell(EventKind.TOOL_ERROR, keys, {**after, "error": error.message})
            raise
        if ended.ok:
            await self._tell(EventKind.TOOL_RESULT, keys, {**after, "exitCode": 0})
        else:
            failed: dict[str, JsonValue] = {**after, "error": _why(ended), "exitCode": ended.exit_code}
            await self._tell(EventKind.TOOL_ERROR, keys, failed)
        return ended

    async def _check(self, capability: Capability, name: str) -> CapabilityCheck:
        arguments = {
            "availability": capability.module.availability_check_args,
            "help": capability.module.help_args,
            "version": capability.module.version_args,
        }[name]
        if not arguments:
            return CapabilityCheck.model_validate({"name": name, "ok": True, "detail": "not asked for"})
        ended = await self._runs.probe(capability, arguments)
        said = clean_line(ended.stdout or ended.stderr, MAX_DETAIL_CHARS)
        detail = said if ended.ok else f"{_why(ended)}: {said}"
        return CapabilityCheck.model_validate({"name": name, "ok": ended.ok, "detail": detail})


def _why(ended: RunEnd) -> str:
    return ended.reason or f"it ended with status {ended.exit_code}"
