"""Operations on capabilities: programs that agents may use, told one level at a time."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from sublet.daemon.api.base import Request, View
from sublet.daemon.api.operation import Asks, AsksInside, Nothing, Operation, Segment
from sublet.policy.capabilities.disclosure import MAX_BUDGET
from sublet.policy.capabilities.module_file import MODULE_ID, TOOL_PREFIX, Argument
from sublet.policy.decision import Action

MAX_STDIN_CHARS = 200_000


CapabilityId = Annotated[str, Segment(MODULE_ID.fullmatch, "id of a capability", "See: sublet capability list")]


class OneCapability(Request):
    """Names the capability that an operation is about, by the id in its ``module.json``."""

    capability_id: CapabilityId


class VerifyCapability(OneCapability):
    """A capability to try."""

    @property
    def check(self) -> bool:
        """Always true: it is only tried."""
        return True


class InspectCapability(OneCapability):
    """Which level of a capability to tell, within which budget of estimated tokens."""

    level: Annotated[int, Field(ge=1, le=3)] = 1
    budget: Annotated[int, Field(ge=16, le=MAX_BUDGET)] | None = None


class RunCapability(OneCapability):
    """What to call a capability with."""

    args: Annotated[list[Argument], Field(max_length=64, default_factory=list)]
    stdin: Annotated[str, Field(max_length=MAX_STDIN_CHARS)] = ""


class CapabilityView(View):
    """A capability at a glance, which is its first level."""

    id: str
    name: str
    version: str
    description: str
    command: str
    enabled: bool


class CapabilityProblem(View):
    """A directory that holds no capability that could be used, and why."""

    directory: str
    problem: str


class CapabilityList(View):
    """All there are, what is wrong with others, and the digest of the whole."""

    capabilities: list[CapabilityView]
    problems: list[CapabilityProblem]
    capabilitySnapshotVersion: str


class CapabilityDetail(View):
    """One level of one capability."""

    id: str
    level: Literal[1, 2, 3]
    text: str
    tokens: int
    left_out: int
    capabilitySnapshotVersion: str


class CapabilityCheck(View):
    """Whether its program was found, or answered to ``--help`` or ``--version``; ``detail`` is what was seen."""

    name: Literal["availability", "help", "version"]
    ok: bool
    detail: str


class CapabilityChecks(View):
    """Whether a capability can be used here."""

    id: str
    ok: bool
    checks: list[CapabilityCheck]


class CapabilityRun(View):
    """How a run ended. ``exit_code`` is None where it was ended, for ``reason``."""

    id: str
    exit_code: int | None
    reason: str
    stdout: str
    stderr: str


_CAPABILITIES = "/v1/capabilities"
_CAPABILITY = f"{_CAPABILITIES}/{{capability_id}}"
_TOOL = f"{TOOL_PREFIX}{{capability_id}}"

LIST_CAPABILITIES = Operation(
    "capabilities.list",
    "GET",
    _CAPABILITIES,
    Nothing,
    CapabilityList,
    asks=Asks(Action.CAPABILITY_READ),
    summary="Return all capabilities, each by its first level, and what is wrong with others.",
)
INSPECT_CAPABILITY = Operation(
    "capabilities.inspect",
    "GET",
    _CAPABILITY,
    InspectCapability,
    CapabilityDetail,
    asks=Asks(Action.CAPABILITY_READ, _TOOL, ("level",)),
    summary="Return one level of a capability.",
)
VERIFY_CAPABILITY = Operation(
    "capabilities.verify",
    "POST",
    f"{_CAPABILITY}/verify",
    VerifyCapability,
    CapabilityChecks,
    asks=Asks(Action.CAPABILITY_RUN, _TOOL, ("check",)),
    summary="Try whether a capability can be used here.",
)
RUN_CAPABILITY = Operation(
    "capabilities.run",
    "POST",
    f"{_CAPABILITY}/run",
    RunCapability,
    CapabilityRun,
    asks=AsksInside("a run is a call that may need a person's approval of its arguments", (Action.CAPABILITY_RUN,)),
    summary="Run a capability in the sandbox.",
)
