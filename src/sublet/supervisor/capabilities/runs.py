"""Runs a capability: arguments held against its schema first, sandboxed, bounded, in a directory of its own."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import anyio

from sublet.disk.private_dir import PrivateDir, make_fresh
from sublet.disk.removal import is_removed
from sublet.policy.capabilities.module_file import MAX_ARGUMENT_CHARS, MAX_ARGUMENTS, CapabilityModule
from sublet.policy.request_rules import NOT_NARROWED
from sublet.protocol.errors import ErrorCode, LocalCode, SubletError
from sublet.protocol.ids import new_delegation_id
from sublet.protocol.text import clean
from sublet.supervisor.agent_config import LimitsConfig
from sublet.supervisor.capabilities.registry import Capability
from sublet.supervisor.job import Job, JobResource, Output
from sublet.supervisor.launch import Sandbox
from sublet.supervisor.limits import Limiter
from sublet.supervisor.program_run import ProgramEnd, ProgramPlan, ProgramRunner

MAX_OUTPUT_CHARS: Final = 64_000
CHECK_SECONDS: Final = 10.0
"""How long a check, or what prints the help, may take."""
MAX_AT_ONCE: Final = 8


@dataclass(frozen=True, slots=True)
class RunEnd:
    """How a run ended: its status, None where it has none, why not where it did not end by itself, what it printed."""

    exit_code: int | None
    reason: str
    stdout: str
    stderr: str

    @property
    def ok(self) -> bool:
        """Whether it did what was asked."""
        return self.exit_code == 0


class CapabilityRuns:
    """Runs capabilities, at most ``MAX_AT_ONCE`` at once; others wait.

    Args:
        sandbox: confines them.
        scratch_root: below which each run has a directory of its own.
        limiter: holds them to their limits.
        environ: from which the variables that a module names are taken.
    """

    def __init__(
        self,
        sandbox: Sandbox,
        scratch_root: Path,
        limiter: Limiter | None = None,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        self._sandbox = sandbox
        self._scratch_root = scratch_root
        self._limiter = limiter
        self._environ = dict(os.environ if environ is None else environ)
        self._free = asyncio.Semaphore(MAX_AT_ONCE)

    async def run(
        self, capability: Capability, arguments: Sequence[str], *, stdin: str = "", job: Job | None = None
    ) -> RunEnd:
        """Run it with ``arguments`` behind its own default ones.

        Args:
            capability: what is run.
            arguments: what it is called with.
            stdin: its standard input.
            job: the work for which it runs, in whose directories; by default it has an empty one of its own.

        Raises:
            SubletError: ``INVALID_ARGUMENT`` for arguments that its schema refuses; ``UNAVAILABLE``.
        """
        await asyncio.to_thread(check_arguments, capability.module, arguments)
        argv = [*capability.module.default_args, *arguments]
        return await self._run(capability, argv, stdin, capability.module.timeout_seconds, job)

    async def probe(self, capability: Capability, arguments: Sequence[str]) -> RunEnd:
        """Run it with one of the lists of arguments that its module names for checks."""
        seconds = min(CHECK_SECONDS, capability.module.timeout_seconds)
        return await self._run(capability, arguments, "", seconds, None)

    async def _run(
        self, capability: Capability, arguments: Sequence[str], stdin: str, seconds: float, job: Job | None
    ) -> RunEnd:
        async with self._free:
            home = self._scratch_root / new_delegation_id()
            try:
                program = await asyncio.to_thread(_make, home, capability)
                own_job = _job(home, stdin, seconds, job)
                plan = ProgramPlan(
                    argv=(program, *arguments),
                    environment=capability.module.environment,
                    readable=(),
                    allow_network=capability.module.network,
                    timeout_seconds=seconds,
                    verbatim=True,
                )
                printed = _Printed()
                runner = ProgramRunner(plan, LimitsConfig(), self._sandbox, self._environ, self._limiter)
                return _ended(await runner.run(own_job, printed), printed)
            finally:
                with anyio.CancelScope(shield=True):
                    await asyncio.to_thread(is_removed, home)


def check_arguments(module: CapabilityModule, arguments: Sequence[str]) -> None:
    """Hold arguments against the module's schema. May take some tenths of a second: call it in a thread.

    Raises:
        SubletError: ``INVALID_ARGUMENT``.
    """
    if len(arguments) > MAX_ARGUMENTS or any(len(one) > MAX_ARGUMENT_CHARS or "\0" in one for one in arguments):
        raise _refused(module, f"at most {MAX_ARGUMENTS} arguments of {MAX_ARGUMENT_CHARS} characters are taken")
    if module.arguments is None:
        return
    from sublet.policy.guardrail.schema import CheckedSchema  # loaded by whoever uses one

    issues = CheckedSchema(module.schema_of_arguments()).issues(list(arguments))
    if issues:
        raise _refused(module, "; ".join(issue.line() for issue in issues[:3]))


def _refused(module: CapabilityModule, why: str) -> SubletError:
    return SubletError(
        LocalCode.INVALID_ARGUMENT,
        f"capability {module.id} does not take these arguments: {why}",
        f"See: sublet capability inspect {module.id} --level 2",
    )


def _make(home: Path, capability: Capability) -> str:
    """Make the directories of a run, and return its program: of the module's own, the copy that was read before."""
    make_fresh(home, "workspace", "meta", "scratch")
    if capability.program is None or capability.module.own_file is None:
        return capability.module.command
    with PrivateDir.open(home / "scratch") as scratch:
        scratch.write(capability.module.own_file, capability.program, mode=0o700)
    return str(home / "scratch" / capability.module.own_file)


def _job(home: Path, stdin: str, seconds: float, job: Job | None) -> Job:
    workspace = home / "workspace"
    return Job(
        delegation_id=home.name,
        description="capability",
        prompt=stdin,
        access_mode=job.access_mode if job else "rw",
        resources=job.resources if job else [JobResource("workspace", workspace, "rw")],
        meta=job.meta if job else home / "meta",
        scratch=home / "scratch",
        mount_point=job.mount_point if job else workspace,
        remaining_seconds=min(seconds, job.remaining_seconds) if job else seconds,
        expires_at=job.expires_at if job else "",
        gate=job.gate if job else None,
        narrowing=job.narrowing if job else NOT_NARROWED,
    )


class _Printed:
    """A report that keeps the beginning of each stream."""

    def __init__(self) -> None:
        self._kept: dict[str, list[str]] = {"stdout": [], "stderr": [], "note": []}
        self._left = dict.fromkeys(self._kept, MAX_OUTPUT_CHARS)

    def __call__(self, piece: Output) -> None:
        self._kept[piece.stream].append(piece.text[: self._left[piece.stream]])
        self._left[piece.stream] -= len(self._kept[piece.stream][-1])

    def of(self, stream: str) -> str:
        """Return what was printed there, without what could steer a terminal."""
        return clean("".join(self._kept[stream]), MAX_OUTPUT_CHARS)


def _ended(end: ProgramEnd, printed: _Printed) -> RunEnd:
    stdout, stderr = printed.of("stdout"), printed.of("stderr")
    if end.failure:
        raise SubletError(ErrorCode.TASK_FAILED, end.failure)
    if end.ended is None:
        return RunEnd(None, f"its time of {end.seconds:.0f} s was over", stdout, stderr)
    match end.ended.how:
        case "exit" if end.met is None:
            return RunEnd(end.ended.number, "", stdout, stderr)
        case "start":
            return RunEnd(None, f"it could not be started: {end.ended.reason}", stdout, stderr)
        case "signal" if end.met is None:
            return RunEnd(None, f"it was ended by signal {end.ended.number}", stdout, stderr)
        case _:
            return RunEnd(None, f"it met its limit of {end.met or end.ended.reason}", stdout, stderr)
