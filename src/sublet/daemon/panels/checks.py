"""Runs the check of a panel on a copy of a member's result: in the sandbox, without network, within bounds."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import anyio

from sublet.daemon.tasks.background import in_background
from sublet.disk.private_dir import make_fresh
from sublet.disk.removal import is_removed
from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.ids import new_delegation_id
from sublet.protocol.text import clean
from sublet.supervisor.agent_config import LimitsConfig
from sublet.supervisor.job import Job, JobResource, Output
from sublet.supervisor.launch import Sandbox
from sublet.supervisor.limits import Limiter
from sublet.supervisor.program_run import ProgramEnd, ProgramPlan, ProgramRunner

MAX_CHECKS_AT_ONCE: Final = 2
"""Of all panels; further ones wait."""
MAX_CHECK_OUTPUT_CHARS: Final = 2_000
"""Of what a check prints, the end is kept."""


@dataclass(frozen=True, slots=True)
class CheckEnd:
    """How a check ended: its status, or why it has none, and the end of what it printed."""

    exit_code: int | None
    reason: str
    output: str


class Checks:
    """Runs checks.

    Args:
        sandbox: confines them.
        scratch_root: below which each has a directory of its own.
        limiter: holds them to the limits of an agent.
    """

    def __init__(self, sandbox: Sandbox, scratch_root: Path, limiter: Limiter | None = None) -> None:
        self._sandbox = sandbox
        self._scratch_root = scratch_root
        self._limiter = limiter
        self._free = asyncio.Semaphore(MAX_CHECKS_AT_ONCE)

    def require(self) -> None:
        """Return if a check would be confined.

        Raises:
            SubletError: ``UNAVAILABLE``: what a check runs was written by others.
        """
        if "cwd_only" not in self._sandbox.enforced:
            raise SubletError(
                LocalCode.UNAVAILABLE,
                "a check runs what the members wrote, and this daemon runs without a sandbox",
                "Start the daemon without --unsandboxed, or leave out the check and look at the results yourself.",
            )

    async def run(self, command: str, seconds: float, copy: Callable[[Path], None]) -> CheckEnd:
        """Run a check and return how it ended; cancelling it ends all that it has started.

        Args:
            command: for ``sh -c``.
            seconds: how long it may take.
            copy: makes the new directory in which it is run, the result of a member. Blocks.
        """
        async with self._free:
            home = self._scratch_root / new_delegation_id()
            try:
                self.require()
                await in_background(_make, home, copy)
                printed = _End()
                plan = ProgramPlan(("sh", "-c", command), (), (), allow_network=False, verbatim=True)
                runner = ProgramRunner(plan, LimitsConfig(), self._sandbox, dict(os.environ), self._limiter)
                return _ended(await runner.run(_job(home, seconds), printed), printed.text())
            except SubletError as error:
                return CheckEnd(None, error.message, "")
            except OSError as error:
                return CheckEnd(None, f"its directory can't be made: {error.strerror}", "")
            finally:
                with anyio.CancelScope(shield=True):
                    await asyncio.to_thread(is_removed, home)


def _make(home: Path, copy: Callable[[Path], None]) -> None:
    make_fresh(home, "meta", "scratch")
    copy(home / "workspace")


def _job(home: Path, seconds: float) -> Job:
    workspace = home / "workspace"
    return Job(
        delegation_id=home.name,
        description="the check of a panel",
        prompt="",
        access_mode="rw",
        resources=[JobResource("workspace", workspace, "rw")],
        meta=home / "meta",
        scratch=home / "scratch",
        mount_point=workspace,
        remaining_seconds=seconds,
        expires_at="",
        gate=None,
    )


class _End:
    """A report that keeps the end of both streams, in the order in which they came."""

    def __init__(self) -> None:
        self._kept = ""

    def __call__(self, piece: Output) -> None:
        self._kept = (self._kept + piece.text)[-MAX_CHECK_OUTPUT_CHARS:]

    def text(self) -> str:
        """Return it without what could steer a terminal."""
        return clean(self._kept, MAX_CHECK_OUTPUT_CHARS)


def _ended(end: ProgramEnd, output: str) -> CheckEnd:
    if end.failure:
        return CheckEnd(None, end.failure, output)
    if end.ended is None:
        return CheckEnd(None, f"its time of {end.seconds:.0f} s was over", output)
    match end.ended.how:
        case "exit" if end.met is None:
            return CheckEnd(end.ended.number, "", output)
        case "start":
            return CheckEnd(None, f"it could not be started: {end.ended.reason}", output)
        case "signal" if end.met is None:
            return CheckEnd(None, f"it was ended by signal {end.ended.number}", output)
        case _:
            return CheckEnd(None, f"it met its limit of {end.met or end.ended.reason}", output)
