"""The provider that runs a command in the lease's mount: sandboxed, bounded, and gone with everything it started."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import anyio

from sublet.protocol.text import clean
from sublet.supervisor.agent_config import AgentConfig
from sublet.supervisor.guarded_process import Ended, GuardedProcess
from sublet.supervisor.held_job import HeldJob
from sublet.supervisor.limits import Cage, GuardAlone, Limiter, told
from sublet.supervisor.model import Deadline, EndReason, Job, JobResource, Launch, Outcome, Output, Report, Sandbox
from sublet.supervisor.output import Capture, drain, flush_regularly
from sublet.supervisor.presets import PRESETS
from sublet.supervisor.program import program_paths
from sublet.supervisor.provider_config import CommandConfig, PresetConfig

MAX_SUMMARY_CHARS = 8_000
MAX_LOGIN_BYTES = 1 << 20
DRAIN_SECONDS = 2.0

_ALWAYS = ("PATH", "LANG", "LC_ALL", "LC_CTYPE", "TERM", "TZ")
_PLACEHOLDER = re.compile(r"\{(workspace|meta|prompt_file|scratch|delegation_id|access_mode)\}")
_SIGNAL_BASE = 128  # a shell, and bubblewrap, tell the death of their child by signal N as status 128 + N


@dataclass(frozen=True, slots=True)
class CommandPlan:
    """What an agent's configuration comes to on this machine, under this sandbox.

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


def plan(config: AgentConfig, sandbox: Sandbox, environ: Mapping[str, str]) -> CommandPlan:
    """Return what running ``config`` takes.

    Args:
        config: one agent of ``agent.json``.
        sandbox: decides whether an agent's own checks may be left to it.
        environ: the daemon's environment.
    """
    names: tuple[str, ...] = ()
    logins: tuple[str, ...] = ()
    settings: tuple[tuple[str, str], ...] = ()
    if isinstance(config.provider, CommandConfig):
        argv = config.provider.argv
    elif isinstance(config.provider, PresetConfig):
        preset = PRESETS[config.provider.name]
        argv = preset.command(confined="cwd_only" in sandbox.enforced, model=config.provider.model)
        names, logins, settings = preset.environment, preset.logins(environ), preset.settings
    else:
        raise TypeError(f"a provider of type {config.provider.type} runs no command")
    return CommandPlan(
        argv=argv,
        environment=(*names, *config.environment),
        readable=tuple(Path(os.path.expanduser(path)) for path in config.sandbox.readable),
        allow_network=config.allow_network,
        logins=logins,
        settings=settings,
        timeout_seconds=config.timeout_seconds,
    )


class CommandProvider:
    """Runs one command per job.

    The prompt is on standard input and in a file. Standard output and error are reported in pieces while they come, as
    printed: whoever shows them cleans them. The outcome's summary is the cleaned end of standard output, or of
    standard error where there is none.

    Args:
        config: the agent.
        sandbox: confines what is started.
        environ: the environment from which allowed variables are taken; by default the daemon's own.
        limiter: holds it to the agent's limits; by default the guard alone does, which can't see the scratch directory.
    """

    def __init__(
        self,
        config: AgentConfig,
        sandbox: Sandbox,
        environ: Mapping[str, str] | None = None,
        *,
        limiter: Limiter | None = None,
    ) -> None:
        self._environ = dict(os.environ if environ is None else environ)
        self._limits = config.limits
        self._limiter = limiter or GuardAlone()
        self._sandbox = sandbox
        self._plan = plan(config, sandbox, self._environ)

    async def run(self, job: Job, report: Report) -> Outcome:
        """Run the command for ``job`` and return how it ended.

        Time is limited by the lease and by the agent's own limit. Cancelling the call kills the whole process tree
        before it returns. A dead mount can hold a process for a while after its kill: see ``LINK_LOSS_SECONDS``.

        Raises:
            SubletError: the sandbox refuses the launch.
        """
        prompt_file = job.scratch / "prompt.txt"
        launch, argv = await asyncio.to_thread(self._prepare, job, prompt_file)
        with anyio.CancelScope(shield=True):  # what is made has to be known, to be removed
            held = HeldJob(self._limits, await asyncio.to_thread(self._cage, job))
        try:
            return await self._run(job, launch, argv, prompt_file, held, report)
        finally:
            with anyio.CancelScope(shield=True):
                await asyncio.to_thread(held.cage.close)

    async def _run(
        self, job: Job, launch: Launch, argv: Sequence[str], prompt_file: Path, held: HeldJob, report: Report
    ) -> Outcome:
        deadline = job.deadline or Deadline(asyncio.get_running_loop().time() + job.remaining_seconds)
        try:
            process = await GuardedProcess.start(
                argv, launch.env, launch.cwd, prompt_file, groups=held.cage.descriptors, watched=held.watched()
            )
        except OSError as error:
            return Outcome(
                "crashed", "", detail=f"the guard of the command can't be started: {error.strerror}", launched=False
            )
        captures = Capture("stdout", report), Capture("stderr", report)
        ended: Ended | None = None
        clean_end = True
        began = asyncio.get_running_loop().time()

        def ends(at: float) -> float:
            """Return when it is ended: with the lease, which may be extended, or by the agent's own limit."""
            return min(at, began + self._plan.timeout_seconds) if self._plan.timeout_seconds else at

        try:
            async with asyncio.TaskGroup() as group:
                drains = [
                    group.create_task(drain(stream, capture, held.printed))
                    for stream, capture in zip((process.stdout, process.stderr), captures, strict=True)
                ]
                helpers = [group.create_task(flush_regularly(captures)), group.create_task(held.watch(process.stop))]
                try:
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout_at(ends(deadline.at)) as limit:
                            with deadline.watched(lambda at: _reschedule(limit, ends(at))):
                                ended = await process.wait()
                finally:
                    with anyio.CancelScope(shield=True):
                        clean_end = await process.close()
                    for helper in helpers:
                        helper.cancel()
                await asyncio.wait(drains, timeout=DRAIN_SECONDS)
                for task in drains:
                    task.cancel()
        finally:
            for capture in captures:
                capture.finish()
        if not clean_end:
            report(Output("note", "A process still waits for the mount; it ends as soon as the mount is gone."))
        met = await asyncio.to_thread(held.finally_met, ended)
        return self._outcome(ended, met, captures, ends(deadline.at) - began)

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

    def _prepare(self, job: Job, prompt_file: Path) -> tuple[Launch, Sequence[str]]:
        """Make the files of the run, and the launch. Runs in a thread: it looks at disks, though never at the mount."""
        home, temporary = job.scratch / "home", job.scratch / "tmp"
        for directory in (home, temporary):
            directory.mkdir(mode=0o700, exist_ok=True)
        _write_private(prompt_file, job.prompt.encode("utf-8", "replace"))
        _write_private(home / ".gitconfig", _git_settings(job))
        for login in self._plan.logins:
            _copy_login(Path(self._environ.get("HOME", "/nonexistent")) / login, home / login)
        values = {
            "workspace": str(job.workspace),
            "meta": str(job.meta),
            "prompt_file": str(prompt_file),
            "scratch": str(job.scratch),
            "delegation_id": job.delegation_id,
            "access_mode": job.access_mode,
        }

        def filled(text: str) -> str:
            return _PLACEHOLDER.sub(lambda found: values[found[1]], text)

        argv = [filled(argument) for argument in self._plan.argv]
        allowed = (*_ALWAYS, *self._plan.environment)
        env = {name: self._environ[name] for name in allowed if name in self._environ}
        env.setdefault("PATH", os.defpath)
        env.setdefault("LANG", "C.UTF-8")
        for name, value in self._plan.settings:
            env.setdefault(name, filled(value))
        env |= {
            "HOME": str(home),
            "TMPDIR": str(temporary),
            "SUBLET_DELEGATION_ID": job.delegation_id,
            "SUBLET_DEADLINE": job.expires_at,
            "SUBLET_REMAINING_SECONDS": str(int(job.remaining_seconds)),
            "SUBLET_WORKSPACE": values["workspace"],
            "SUBLET_RESOURCES": _listed(job.resources),
            "SUBLET_META": values["meta"],
            "SUBLET_PROMPT_FILE": values["prompt_file"],
            "SUBLET_ACCESS_MODE": job.access_mode,
        }
        writable = [job.scratch, job.mount_point] if job.access_mode == "rw" else [job.scratch]
        readable = [*self._plan.readable, *program_paths(argv[0], env["PATH"])]
        launch = Launch(
            argv=argv,
            env=env,
            cwd=job.workspace,
            writable=writable,
            readable=readable if job.access_mode == "rw" else [job.mount_point, *readable],
            allow_network=self._plan.allow_network,
            scratch_bytes=self._limits.scratch_bytes,
        )
        return launch, self._sandbox.wrap(launch)

    def _outcome(self, ended: Ended | None, met: str | None, captures: Sequence[Capture], seconds: float) -> Outcome:
        stdout, stderr = (clean(capture.end(MAX_SUMMARY_CHARS), MAX_SUMMARY_CHARS).strip() for capture in captures)
        summary = stdout or stderr
        if stdout and stderr and not (ended is not None and ended.how == "exit" and ended.number == 0):
            # The reason of a failure is usually on stderr, so it gets the end, and at least half of the room.
            errors = stderr[-(MAX_SUMMARY_CHARS // 2) :]
            summary = f"{stdout[-(MAX_SUMMARY_CHARS - len(errors) - 2) :]}\n\n{errors}"
        if met is not None:
            return Outcome("limit", summary, detail=told(self._limits, met))
        if ended is None:
            return Outcome("timeout", summary, detail=f"ended after {seconds:.0f} s, when its time was over")
        if ended.how == "start":
            detail = f"the command could not be started: {ended.reason}"
            return Outcome("crashed", summary, detail=detail, launched=False)
        if ended.how == "signal":
            return Outcome("crashed", summary, detail=_killed_by(ended.number, ended.reason))
        if self._sandbox.enforced and ended.number == 1 and not stdout and stderr.startswith("bwrap: "):
            detail = "the sandbox could not be set up, or not start the command"
            return Outcome("crashed", summary, 1, detail, launched=False)
        if _SIGNAL_BASE < ended.number <= _SIGNAL_BASE + signal.SIGRTMAX:
            return Outcome("crashed", summary, ended.number, _killed_by(ended.number - _SIGNAL_BASE, ""))
        reason: EndReason = "done" if ended.number == 0 else "failed"
        return Outcome(reason, summary, ended.number, "" if ended.number == 0 else f"exit status {ended.number}")


def _git_settings(job: Job) -> bytes:
    """Return git settings for the agent: it may use the lent directories, which look like somebody else's to it.

    Who commits is the agent, whoever the lender is.
    """
    paths = (str(lent.path).replace("\\", "\\\\").replace('"', '\\"') for lent in job.resources)
    trusted = "".join(f'\tdirectory = "{path}"\n' for path in paths)
    return f"[safe]\n{trusted}[user]\n\tname = agent\n\temail = agent@{job.delegation_id}\n".encode()


def _listed(resources: Sequence[JobResource]) -> str:
    """Return the directories of a job as JSON."""
    return json.dumps([{"name": r.name, "path": str(r.path), "access_mode": r.access_mode} for r in resources])


def _reschedule(limit: asyncio.Timeout, at: float) -> None:
    # What has run out already stays so.
    with contextlib.suppress(RuntimeError):
        limit.reschedule(at)


def _killed_by(number: int, reason: str) -> str:
    with contextlib.suppress(ValueError):
        return f"ended by {signal.Signals(number).name}" + (f": {reason}" if reason else "")
    return f"ended by signal {number}"


def _write_private(path: Path, data: bytes) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
    with os.fdopen(os.open(path, flags, 0o600), "wb") as file:
        file.write(data)


def _copy_login(source: Path, target: Path) -> None:
    """Copy a login file into the agent's own home, so that the agent can use it but change only its copy."""
    try:
        with source.open("rb") as file:
            data = file.read(MAX_LOGIN_BYTES)
    except OSError:
        return  # not logged in here; the agent will say so itself
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    _write_private(target, data)
