"""Runs programs for one job, one after the other, each in the sandbox and all together held to the agent's limits."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import anyio

from sublet import deadlines
from sublet.stop_time import within
from sublet.supervisor.agent_config import AgentConfig
from sublet.supervisor.closed_paths import closed_paths
from sublet.supervisor.guarded_process import NO_INPUT, Ended, GuardedProcess
from sublet.supervisor.held_job import HeldJob
from sublet.supervisor.job import Job, Output
from sublet.supervisor.job_env import job_environment, make_home
from sublet.supervisor.launch import Launch, Sandbox
from sublet.supervisor.limits import Cage, GuardAlone, Limiter, told
from sublet.supervisor.output import Capture, drain
from sublet.supervisor.processes import Own
from sublet.supervisor.program import program_paths

DRAIN_SECONDS: Final = 2.0
HEAD_CHARS: Final = 16_000
TAIL_CHARS: Final = 24_000


class LimitMet(Exception):
    """All programs of the job together have met a limit; its text is the end of a sentence about the agent."""


@dataclass(frozen=True, slots=True)
class Ran:
    """How a program ended, None where its time was over first, and what it printed, bounded."""

    ended: Ended | None
    stdout: str
    stderr: str


class ConfinedRuns:
    """Programs of one job. ``close`` it always.

    Args:
        config: the agent.
        job: the job.
        sandbox: confines them.
        environ: the daemon's environment.
        limiter: holds them to the agent's limits; by default the guard of each alone does.
        own: is told whose processes they are.
    """

    def __init__(
        self,
        config: AgentConfig,
        job: Job,
        sandbox: Sandbox,
        environ: Mapping[str, str],
        limiter: Limiter | None = None,
        own: Own | None = None,
    ) -> None:
        self._own = own
        self._config = config
        self._job = job
        self._sandbox = sandbox
        self._environ = environ
        self._limiter = limiter or GuardAlone()
        self._held: HeldJob | None = None
        self._opening = asyncio.Lock()

    async def start(
        self, argv: Sequence[str], names: Sequence[str] = (), stdin: int | None = NO_INPUT
    ) -> GuardedProcess:
        """Start a program in the job's directory; whoever starts it closes it.

        Args:
            argv: program and arguments.
            names: variables of the daemon's environment that it gets besides the agent's own.
            stdin: descriptor of its standard input, which stays the caller's; None to write to it.

        Raises:
            SubletError: the sandbox refuses it.
            OSError: it can't be started.
        """
        held = await self._open()
        launch = replace(await asyncio.to_thread(self._launch, argv, names), closed=await closed_paths(self._job))
        confined = await asyncio.to_thread(self._sandbox.wrap, launch)
        return await GuardedProcess.start(
            confined, launch.env, launch.cwd, stdin, groups=held.cage.descriptors, watched=held.watched()
        )

    def owned(self, process: GuardedProcess) -> AbstractContextManager[None]:
        """Hold a process that was started for the agent's, while the block runs."""
        return contextlib.nullcontext() if self._own is None else self._own(process.pid, self._job)

    async def run(self, argv: Sequence[str], seconds: float) -> Ran:
        """Run a program for at most ``seconds`` and return how it ended; cancelling ends all that it started.

        Raises:
            LimitMet: it was ended by a limit.
            SubletError: the sandbox refuses it.
            OSError: it can't be started.
        """
        process = await self.start(argv)
        held = await self._open()
        texts = {"stdout": _Collected(), "stderr": _Collected()}
        captures = [
            Capture("stdout", texts["stdout"], head_chars=HEAD_CHARS, tail_chars=TAIL_CHARS),
            Capture("stderr", texts["stderr"], head_chars=HEAD_CHARS, tail_chars=TAIL_CHARS),
        ]
        ended: Ended | None = None
        with self.owned(process):
            async with asyncio.TaskGroup() as group:
                drains = [
                    group.create_task(drain(stream, capture, held.printed))
                    for stream, capture in zip((process.stdout, process.stderr), captures, strict=True)
                ]
                watch = group.create_task(held.watch(process.stop))
                try:
                    with contextlib.suppress(TimeoutError):
                        async with deadlines.timeout(seconds):
                            ended = await process.wait()
                finally:
                    with anyio.CancelScope(shield=True):
                        await process.close()
                    watch.cancel()
                await asyncio.wait(drains, timeout=within(DRAIN_SECONDS))
                for task in drains:
                    task.cancel()
        for capture in captures:
            capture.finish()
        met = await asyncio.to_thread(held.finally_met, ended)
        if met is not None:
            raise LimitMet(told(self._config.limits, met))
        return Ran(ended, texts["stdout"].text(), texts["stderr"].text())

    async def close(self) -> None:
        """End whatever is left."""
        if self._held is not None:
            with anyio.CancelScope(shield=True):
                await asyncio.to_thread(self._held.cage.close)

    async def _open(self) -> HeldJob:
        async with self._opening:
            if self._held is not None:
                return self._held
            with anyio.CancelScope(shield=True):  # what is made has to be known, to be removed
                await asyncio.to_thread(make_home, self._job)
                held = self._held = HeldJob(self._config.limits, await asyncio.to_thread(self._cage))
            return held

    def _cage(self) -> Cage:
        limits = self._config.limits
        return self._limiter.open(
            self._job.delegation_id,
            memory_bytes=limits.memory_bytes,
            processes=limits.processes,
            cpu_seconds=limits.cpu_seconds,
            scratch=self._job.scratch,
            scratch_bytes=limits.scratch_bytes,
        )

    def _launch(self, argv: Sequence[str], names: Sequence[str]) -> Launch:
        """Return the launch. Runs in a thread: it looks for the program on the disk, though never at the mount."""
        job, config = self._job, self._config
        env = job_environment(job, self._environ, (*config.environment, *names))
        shown = [Path(path).expanduser() for path in config.sandbox.readable]
        shown += program_paths(argv[0], env["PATH"])
        writes = job.access_mode == "rw"
        return Launch(
            argv=argv,
            env=env,
            cwd=job.workspace,
            writable=[job.scratch, job.mount_point] if writes else [job.scratch],
            readable=shown if writes else [job.mount_point, *shown],
            allow_network=config.allow_network,
            scratch_bytes=config.limits.scratch_bytes,
        )


class _Collected:
    """What a program printed, as one text."""

    def __init__(self) -> None:
        self._pieces: list[str] = []

    def __call__(self, output: Output) -> None:
        if output.dropped_chars:
            self._pieces.append(f"\n[… {output.dropped_chars:,} characters left out …]\n")
        self._pieces.append(output.text)

    def text(self) -> str:
        """Return what was printed until now, and where characters were left out of it."""
        return "".join(self._pieces)
