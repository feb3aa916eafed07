"""The provider that runs a command in the lease's mount: sandboxed, bounded, and gone with everything it started."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from sublet.protocol.text import clean
from sublet.supervisor.agent_config import AgentConfig
from sublet.supervisor.claude_events import ClaudeEvents
from sublet.supervisor.codex_events import CodexEvents
from sublet.supervisor.gemini_events import GeminiEvents
from sublet.supervisor.job import EndReason, Job, Outcome, Report
from sublet.supervisor.launch import Sandbox
from sublet.supervisor.limits import Limiter, told
from sublet.supervisor.output import Translate
from sublet.supervisor.presets import PRESETS
from sublet.supervisor.processes import ProcessOwners
from sublet.supervisor.program_noise import quiet_errors
from sublet.supervisor.program_run import ProgramEnd, ProgramPlan, ProgramRunner
from sublet.supervisor.prompt_kind import prompt_kind
from sublet.supervisor.provider_config import CommandConfig, PresetConfig

MAX_SUMMARY_CHARS = 8_000
MIN_WORDS = 3
_OF_SCRIPTS = frozenset(";|&$<>=(){}[]*\\`")

_NO_SCRIPT = frozenset({2, 126, 127})
"""Exit statuses of a shell that could not read its script, or found no such program."""
_A_SHELL = (
    "This agent is a shell and no language model. It runs what it is given as a script, and this looks like prose. "
    "Give it commands, such as `make test`, or ask an agent that takes prose."
)
_SIGNAL_BASE = 128  # a shell, and bubblewrap, tell the death of their child by signal N as status 128 + N


def plan(config: AgentConfig, sandbox: Sandbox, environ: Mapping[str, str]) -> ProgramPlan:
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
    return ProgramPlan(
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
        owners: is told whose processes run.
        limiter: holds it to the agent's limits; by default the guard alone does, which can't see the scratch directory.
    """

    runs_program: Final = True
    """Tells ``model.runs_program``."""

    def __init__(
        self,
        config: AgentConfig,
        sandbox: Sandbox,
        environ: Mapping[str, str] | None = None,
        *,
        limiter: Limiter | None = None,
        owners: ProcessOwners | None = None,
    ) -> None:
        environment = dict(os.environ if environ is None else environ)
        self._limits = config.limits
        self._sandbox = sandbox
        own = owners.of(config) if owners is not None else None
        wanted = plan(config, sandbox, environment)
        self._takes = prompt_kind(config)
        told, errors = _translations(config)
        self._runner = ProgramRunner(wanted, config.limits, sandbox, environment, limiter, own, told, errors)

    async def run(self, job: Job, report: Report) -> Outcome:
        """Run the command for ``job`` and return how it ended: ``ProgramRunner.run``.

        Raises:
            SubletError: the sandbox refuses the launch.
        """
        return self._outcome(await self._runner.run(job, report), job.prompt)

    def _outcome(self, end: ProgramEnd, prompt: str) -> Outcome:
        answer, stderr = end.stdout.last_word or end.stdout.end(MAX_SUMMARY_CHARS), end.stderr.end(MAX_SUMMARY_CHARS)
        stdout, stderr = (clean(text[-MAX_SUMMARY_CHARS:], MAX_SUMMARY_CHARS).strip() for text in (answer, stderr))
        summary = stdout or stderr
        if stdout and stderr and not (end.ended is not None and end.ended.how == "exit" and end.ended.number == 0):
            # The reason of a failure is usually on stderr, so it gets the end, and at least half of the room.
            errors = stderr[-(MAX_SUMMARY_CHARS // 2) :]
            summary = f"{stdout[-(MAX_SUMMARY_CHARS - len(errors) - 2) :]}\n\n{errors}"
        if end.met is not None:
            return Outcome("limit", summary, detail=told(self._limits, end.met))
        how = how_it_ended(end, "" if stdout else stderr, sandboxed=bool(self._sandbox.enforced))
        if how.exit_code in _NO_SCRIPT and self._takes == "script" and is_prose(prompt):
            summary = f"{summary[: MAX_SUMMARY_CHARS - len(_A_SHELL) - 2]}\n\n{_A_SHELL}".strip()
        return replace(how, summary=summary)


_EVENTS: Final[Mapping[str, Translate]] = {
    "claude-events": ClaudeEvents,
    "codex-events": CodexEvents,
    "gemini-events": GeminiEvents,
}


def _translations(config: AgentConfig) -> tuple[Translate | None, Translate | None]:
    """Return what turns what a program prints, and what it prints of errors, into what it says."""
    provider = config.provider
    if not isinstance(provider, PresetConfig):
        return None, None
    return _EVENTS.get(PRESETS[provider.name].told_by), quiet_errors(provider.name)


def is_prose(prompt: str) -> bool:
    """Tell whether a prompt looks like a sentence and like no script: some words, and nothing that a shell has."""
    line = prompt.strip().partition("\n")[0]
    words = line.split()
    return len(words) >= MIN_WORDS and words[0].isalpha() and words[0][0].isupper() and not set(line) & _OF_SCRIPTS


def how_it_ended(end: ProgramEnd, stderr: str, *, sandboxed: bool) -> Outcome:
    """Return how a program ended that met no limit, without what it said.

    Args:
        end: its end.
        stderr: the cleaned end of what it printed on standard error, where it printed nothing else.
        sandboxed: whether it was started by way of the sandbox's program.
    """
    ended = end.ended
    if end.failure:
        return Outcome("crashed", "", detail=end.failure, launched=False)
    if ended is None:
        return Outcome("timeout", "", detail=f"ended after {end.seconds:.0f} s, when its time was over")
    if ended.how == "start":
        return Outcome("crashed", "", detail=f"the command could not be started: {ended.reason}", launched=False)
    if ended.how == "signal":
        return Outcome("crashed", "", detail=_killed_by(ended.number, ended.reason))
    if sandboxed and ended.number == 1 and stderr.startswith("bwrap: "):
        return Outcome("crashed", "", 1, "the sandbox could not be set up, or not start the command", launched=False)
    if _SIGNAL_BASE < ended.number <= _SIGNAL_BASE + signal.SIGRTMAX:
        return Outcome("crashed", "", ended.number, _killed_by(ended.number - _SIGNAL_BASE, ""))
    reason: EndReason = "done" if ended.number == 0 else "failed"
    return Outcome(reason, "", ended.number, "" if ended.number == 0 else f"exit status {ended.number}")


def _killed_by(number: int, reason: str) -> str:
    with contextlib.suppress(ValueError):
        return f"ended by {signal.Signals(number).name}" + (f": {reason}" if reason else "")
    return f"ended by signal {number}"
