"""Capabilities for the command line's tests: one, which says what it was called with."""

from __future__ import annotations

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
from support.answering import answers


class FakeCapabilities:
    """One that works, ``say``, and a directory with one that does not."""

    @answers(LIST_CAPABILITIES)
    async def list_capabilities(self, request: Nothing) -> CapabilityList:
        view = CapabilityView(id="say", name="Say", version="1", description="says it", command="echo", enabled=True)
        problem = CapabilityProblem(directory="/c/bad", problem="module.json: id: missing")
        return CapabilityList(capabilities=[view], problems=[problem], capabilitySnapshotVersion="0123456789abcdef")

    @answers(INSPECT_CAPABILITY)
    async def inspect_capability(self, request: InspectCapability) -> CapabilityDetail:
        return CapabilityDetail.model_validate(
            {
                "id": request.capability_id,
                "level": request.level,
                "text": f"level {request.level} within {request.budget}",
                "tokens": 4,
                "left_out": 0,
                "capabilitySnapshotVersion": "0123456789abcdef",
            }
        )

    @answers(VERIFY_CAPABILITY)
    async def verify_capability(self, request: VerifyCapability) -> CapabilityChecks:
        check = CapabilityCheck(name="version", ok=False, detail="it ended with status 1")
        return CapabilityChecks(id=request.capability_id, ok=False, checks=[check])

    @answers(RUN_CAPABILITY)
    async def run_capability(self, request: RunCapability) -> CapabilityRun:
        said = " ".join([*request.args, request.stdin]).strip()
        failed = request.args == ["fail"]
        return CapabilityRun(
            id=request.capability_id, exit_code=int(failed), reason="", stdout="" if failed else said, stderr=""
        )
