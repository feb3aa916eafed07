"""What faces exchange about capabilities."""

from __future__ import annotations

from typing import Annotated, Literal, Protocol

from pydantic import BaseModel, Field

from sublet.daemon.api.base import Request
from sublet.policy.capabilities.disclosure import MAX_BUDGET
from sublet.policy.capabilities.module_file import Argument
from sublet.policy.model import Subject

MAX_STDIN_CHARS = 200_000


class InspectCapability(Request):
    """Which level of a capability to tell, within which budget of estimated tokens."""

    level: Annotated[int, Field(ge=1, le=3)] = 1
    budget: Annotated[int, Field(ge=16, le=MAX_BUDGET)] | None = None


class RunCapability(Request):
    """What to call a capability with."""

    args: Annotated[list[Argument], Field(max_length=64, default_factory=list)]
    stdin: Annotated[str, Field(max_length=MAX_STDIN_CHARS)] = ""


class CapabilityView(BaseModel):
    """A capability at a glance, which is its first level."""

    id: str
    name: str
    version: str
    description: str
    command: str
    enabled: bool


class CapabilityProblem(BaseModel):
    """A directory that holds no capability that could be used, and why."""

    directory: str
    problem: str


class CapabilityList(BaseModel):
    """All there are, what is wrong with others, and the digest of the whole."""

    capabilities: list[CapabilityView]
    problems: list[CapabilityProblem]
    capabilitySnapshotVersion: str


class CapabilityDetail(BaseModel):
    """One level of one capability."""

    id: str
    level: Literal[1, 2, 3]
    text: str
    tokens: int
    left_out: int
    capabilitySnapshotVersion: str


class CapabilityCheck(BaseModel):
    """One check of a capability."""

    name: Literal["availability", "help", "version"]
    ok: bool
    detail: str


class CapabilityChecks(BaseModel):
    """Whether a capability can be used here."""

    id: str
    ok: bool
    checks: list[CapabilityCheck]


class CapabilityRun(BaseModel):
    """How a run ended. ``exit_code`` is None where it was ended, for ``reason``."""

    id: str
    exit_code: int | None
    reason: str
    stdout: str
    stderr: str


class CapabilityApi(Protocol):
    """Operations on capabilities; each asks policy first. Failures are ``SubletError``."""

    async def list_capabilities(self, caller: Subject) -> CapabilityList:
        """Return all, each by its first level."""

    async def inspect_capability(
        self, capability_id: str, request: InspectCapability, caller: Subject
    ) -> CapabilityDetail:
        """Return one level of one."""

    async def verify_capability(self, capability_id: str, caller: Subject) -> CapabilityChecks:
        """Try whether one can be used here."""

    async def run_capability(self, capability_id: str, request: RunCapability, caller: Subject) -> CapabilityRun:
        """Run one."""
