"""Capabilities for the command line's tests: one, which says what it was called with."""

from __future__ import annotations

from sublet.daemon.api.capabilities import (
    CapabilityCheck,
    CapabilityChecks,
    CapabilityDetail,
    CapabilityList,
    CapabilityProblem,
    CapabilityRun,
    CapabilityView,
    RunCapability,
)
from sublet.daemon.control.capability_client import CapabilityClient


class FakeCapabilities(CapabilityClient):
    """One that works, ``say``, and a directory with one that does not."""

    def __init__(self) -> None:
        """Nothing is connected."""

    async def list_capabilities(self) -> CapabilityList:
        view = CapabilityView(id="say", name="Say", version="1", description="says it", command="echo", enabled=True)
        problem = CapabilityProblem(directory="/c/bad", problem="module.json: id: missing")
        return CapabilityList(capabilities=[view], problems=[problem], capabilitySnapshotVersion="0123456789abcdef")

    async def inspect_capability(
        self, capability_id: str, *, level: int = 1, budget: int | None = None
    ) -> CapabilityDetail:
        return CapabilityDetail.model_validate(
            {
                "id": capability_id,
                "level": level,
                "text": f"level {level} within {budget}",
                "tokens": 4,
                "left_out": 0,
                "capabilitySnapshotVersion": "0123456789abcdef",
            }
        )

    async def verify_capability(self, capability_id: str) -> CapabilityChecks:
        check = CapabilityCheck(name="version", ok=False, detail="it ended with status 1")
        return CapabilityChecks(id=capability_id, ok=False, checks=[check])

    async def run_capability(self, capability_id: str, request: RunCapability) -> CapabilityRun:
        said = " ".join([*request.args, request.stdin]).strip()
        failed = request.args == ["fail"]
        return CapabilityRun(
            id=capability_id, exit_code=int(failed), reason="", stdout="" if failed else said, stderr=""
        )
