"""One program of an agent from its start to its end: sandboxed, held to its limits, gone with all it started."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import anyio

from sublet.protocol.patterns import Pattern
from sublet.stop_time import within
from sublet.supervisor.agent_config import LimitsConfig
from sublet.supervisor.closed_paths import ClosedPath, closed_paths
from sublet.supervisor.guarded_process import NO_INPUT, Ended, GuardedProcess
from sublet.supervisor.held_job import HeldJob
from sublet.supervisor.job import Job, Output, Report, Stream
from sublet.supervisor.job_env import PROMPT, copy_login, job_environment, make_home, write_prompt
from sublet.supervisor.launch import Launch, Sandbox
from sublet.supervisor.limits import Cage, GuardAlone, Limiter
from sublet.supervisor.output import Capture, Translate, Translated, drain, flush_regularly
from sublet.supervisor.processes import Own
from sublet.supervisor.program import program_paths
from sublet.supervisor.run_time import RunTime

DRAIN_SECONDS = 2.0
LEAVE_SECONDS = 2.0
"""How long a program that was talked with may take to end by itself once its input is closed."""

_PLACEHOLDER = Pattern(r"\{(workspace|meta|prompt_file|scratch|delegation_id|access_mode)\}")


@dataclass(frozen=True, slots=True)
class ProgramPlan:
    """What running an agent's program takes on this machine, under this sandbox.

    ``logins`` are files below the owner's home that the agent's own empty home gets copies of; ``settings`` are
    variables for which the daemon's environment has no value.
    """

    argv: tuple[str, ...]
    environment: tuple[str, ...]
    readable: tuple[Path, ...]
    allow_network: bool
    logins: tuple[str, ...] = ()
    settings: tuple[tuple[str, str], ...] = ()
    timeout_seconds: float | None = None
    verbatim: bool = False
    """Whether ``argv`` is as it stands: arguments of others' are no templates."""


@dataclass(frozen=True, slots=True)
class Conversation:
    """What whoever talks with a program has of it: its two ends, where to put its words, and what counts its output."""

    process: GuardedProcess
    said: Capture
    count: Callable[[int], None]
    beside: Callable[[Sequence[str]], AbstractAsyncContextManager[GuardedProcess]]
    """Runs another program in the same sandbox, held to the same limits, without what the first one needs to log in."""


@dataclass(frozen=True, slots=True)
class ProgramEnd:
    """How a program ended: by which status or limit, what it printed, and after how many seconds.

    ``failure`` says why it could not be started at all, where it could not.
    """

    ended: Ended | None
    met: str | None
    stdout: Capture
    stderr: Capture
    seconds: float
    failure: str = ""


class ProgramRunner:
    """Runs a program once per job.

    Args:
        plan: what it takes.
        limits: what it may use.
        sandbox: confines it.
        environ: the environment from which allowed variables are taken.
        own: holds a process for this agent's while it runs, so that it passes for nobody else.
        limiter: holds it to its limits; by default the guard alone does, which can't see the scratch directory.
        translate: makes what turns its standard output into what it says; by default it says what it prints.
        errors: the same of its standard error.
    """

    def __init__(
        self,
        plan: ProgramPlan,
        limits: LimitsConfig,
        sandbox: Sandbox,
        environ: Mapping[str, str],
        limiter: Limiter | None = None,
        own: Own | None = None,
        translate: Translate | None = None,
        errors: Translate | None = None,
    ) -> None:
        self._own = own or _nobody
        self._plan = plan
        self._limits = limits
        self._sandbox = sandbox
        self._environ = environ
        self._limiter = limiter or GuardAlone()
        self._translate, self._errors = translate, errors

    async def run(
        self, job: Job, report: Report, converse: Callable[[Conversation], Awaitable[None]] | None = None
    ) -> ProgramEnd:
        """Run the program for ``job`` and return how it ended.

        Time is limited by the lease and by the agent's own limit. Cancelling the call kills the whole process tree
        before it returns. A dead mount can hold a process for a while after its kill: see ``LINK_LOSS_SECONDS``.

        Args:
            job: what is to be done; without ``converse`` its prompt is the program's standard input.
            report: is told what is printed.
            converse: talks with the program over its standard input and output; when it returns, the program ends.

        Raises:
            SubletError: the sandbox refuses the launch.
        """
        closed = await closed_paths(job)
        try:
            with anyio.CancelScope(shield=True):  # what is opened has to be known, to be closed
                launch, argv, prompt = await asyncio.to_thread(self._prepare, job, closed)
        except OSError as error:
            failure = f"its private directory can't be made: {error.strerror}"
            return ProgramEnd(None, None, Capture("stdout", report), Capture("stderr", report), 0.0, failure)
        try:
            with anyio.CancelScope(shield=True):  # what is made has to be known, to be removed
                held = HeldJob(self._limits, await asyncio.to_thread(self._cage, job))
            try:
                return await self._run(job, launch, argv, None if converse else prompt, held, report, converse)
            finally:
                with anyio.CancelScope(shield=True):
                    await asyncio.to_thread(held.cage.close)
        finally:
            os.close(prompt)

    async def _run(
        self,
        job: Job,
        launch: Launch,
        argv: Sequence[str],
        stdin: int | None,
        held: HeldJob,
        report: Report,
        converse: Callable[[Conversation], Awaitable[None]] | None,
    ) -> ProgramEnd:
        stdout = _capture("stdout", report, self._translate, str(job.workspace))
        stderr = _capture("stderr", report, self._errors, str(job.workspace))
        captures = stdout, stderr
        try:
            process = await GuardedProcess.start(
                argv,
                launch.env,
                launch.cwd,
                stdin,
                groups=held.cage.descriptors,
                watched=held.watched(),
                ready=job.guard,
            )
        except OSError as error:
            failure = f"the guard of the command can't be started: {error.strerror}"
            return ProgramEnd(None, None, stdout, stderr, 0.0, failure)
        ended: Ended | None = None
        clean_end = True
        time = RunTime(job, self._plan.timeout_seconds)

        def beside(argv: Sequence[str]) -> AbstractAsyncContextManager[GuardedProcess]:
            return self._beside(replace(launch, argv=argv), job, held)

        drained = [(process.stderr, stderr)] if converse else [(process.stdout, stdout), (process.stderr, stderr)]
        try:
            async with asyncio.TaskGroup() as group:
                drains = [group.create_task(drain(stream, capture, held.printed)) for stream, capture in drained]
                helpers = [group.create_task(flush_regularly(captures)), group.create_task(held.watch(process.stop))]
                try:
                    with contextlib.suppress(TimeoutError), self._own(process.pid, job):
                        async with time.limiting():
                            if converse is not None:
                                await converse(Conversation(process, stdout, held.printed, beside))
                                ended = await process.leave(within(LEAVE_SECONDS))
                            else:
                                ended = await process.wait()
                finally:
                    with anyio.CancelScope(shield=True):
                        clean_end = await process.close()
                    for helper in helpers:
                        helper.cancel()
                await asyncio.wait(drains, timeout=within(DRAIN_SECONDS))
                for task in drains:
                    task.cancel()
        finally:
            for capture in captures:
                capture.finish()
        if not clean_end:
            report(Output("note", "A process still waits for the mount; it ends as soon as the mount is gone."))
        met = await asyncio.to_thread(held.finally_met, ended)
        return ProgramEnd(ended, met, stdout, stderr, time.given_seconds)

    @asynccontextmanager
    async def _beside(self, launch: Launch, job: Job, held: HeldJob) -> AsyncIterator[GuardedProcess]:
        """Run another program of the job, and end it."""
        launch = replace(launch, env=job_environment(job, self._environ, ()))
        confined = await asyncio.to_thread(self._sandbox.wrap, launch)
        process = await GuardedProcess.start(
            confined, launch.env, launch.cwd, NO_INPUT, groups=held.cage.descriptors, watched=held.watched()
        )
        try:
            with self._own(process.pid, job):
                yield process
        finally:
            with anyio.CancelScope(shield=True):
                await process.close()

    def _cage(self, job: Job) -> Cage:
        limits = self._limits
        return self._limiter.open(
            job.delegation_id,
            memory_bytes=limits.memory_bytes,
            processes=limits.processes,
            cpu_seconds=limits.cpu_seconds,
            scratch=job.scratch,
            scratch_bytes=limits.scratch_bytes,
        )

    def _prepare(self, job: Job, closed: Sequence[ClosedPath]) -> tuple[Launch, Sequence[str], int]:
        """Make the files of the run, the launch, and a descriptor of the prompt.

        Runs in a thread: it looks at disks, though never at the mount.
        """
        make_home(job)
        for login in self._plan.logins:
            copy_login(job, Path(self._environ.get("HOME", "/nonexistent")) / login, login)
        values = {
            "workspace": str(job.workspace),
            "meta": str(job.meta),
            "prompt_file": str(job.scratch / PROMPT),
            "scratch": str(job.scratch),
            "delegation_id": job.delegation_id,
            "access_mode": job.access_mode,
        }

        def filled(text: str) -> str:
            return _PLACEHOLDER.sub(lambda found: values[found[1]], text)

        argv = list(self._plan.argv) if self._plan.verbatim else [filled(argument) for argument in self._plan.argv]
        env = job_environment(job, self._environ, self._plan.environment)
        for name, value in self._plan.settings:
            env.setdefault(name, filled(value))
        env["SUBLET_PROMPT_FILE"] = values["prompt_file"]
        writable = [job.scratch, job.mount_point] if job.access_mode == "rw" else [job.scratch]
        # A program in the scratch directory is there already.
        programs = [one for one in program_paths(argv[0], env["PATH"]) if not Path(one).is_relative_to(job.scratch)]
        readable = [*self._plan.readable, *programs]
        launch = Launch(
            argv=argv,
            env=env,
            cwd=job.workspace,
            writable=writable,
            readable=readable if job.access_mode == "rw" else [job.mount_point, *readable],
            allow_network=self._plan.allow_network,
            scratch_bytes=self._limits.scratch_bytes,
            closed=closed,
        )
        argv = list(self._sandbox.wrap(launch))
        return launch, argv, write_prompt(job)  # last, since nothing may fail between that and its being closed


def _nobody(_pid: int, _job: Job) -> contextlib.AbstractContextManager[None]:
    return contextlib.nullcontext()


def _capture(stream: Stream, report: Report, translate: Translate | None, root: str) -> Capture:
    return Capture(stream, report) if translate is None else Translated(stream, report, translate, root)
