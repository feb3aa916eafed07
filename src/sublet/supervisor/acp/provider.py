"""The provider that talks with an agent program by the Agent Client Protocol (DESIGN 4.9)."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from importlib.metadata import version
from typing import Final

import anyio

from sublet.protocol.text import clean
from sublet.supervisor.acp.conversation import AcpPrompt
from sublet.supervisor.acp.presets import acp_plan, preset_of
from sublet.supervisor.agent_config import AgentConfig
from sublet.supervisor.command import MAX_SUMMARY_CHARS, how_it_ended
from sublet.supervisor.governance_config import command_namespace
from sublet.supervisor.job import EndReason, Job, Outcome, Output, Report
from sublet.supervisor.launch import Sandbox
from sublet.supervisor.lease_files import OpenFiles
from sublet.supervisor.limits import Limiter, told
from sublet.supervisor.processes import ProcessOwners
from sublet.supervisor.program_noise import quiet_errors
from sublet.supervisor.program_run import ProgramEnd, ProgramRunner
from sublet.supervisor.tool_server.names import named
from sublet.supervisor.tool_server.opened import OwnTools, interpreter_paths
from sublet.supervisor.tools import ToolSource

_STOPPED: Mapping[str, tuple[EndReason, str]] = {
    "end_turn": ("done", ""),
    "max_tokens": ("limit", "met its own bound of tokens"),
    "max_turn_requests": ("limit", "met its own bound of steps"),
    "refusal": ("failed", "it refuses to do that"),
    "cancelled": ("cancelled", "it says that it was cancelled"),
}
_STDERR_SHARE = MAX_SUMMARY_CHARS // 4


class AcpProvider:
    """Starts the program once per job, in the sandbox, and gives it the prompt in a session.

    Every permission that it asks for is decided by the job's gate. That it asks at all is up to the program: what
    confines it is the sandbox.

    Args:
        config: an agent whose provider is of type ``acp``.
        sandbox: confines what is started.
        environ: the environment from which allowed variables are taken; by default the daemon's own.
        owners: is told whose processes run.
        limiter: holds it to the agent's limits.
        files: opens the files of a lease, which the agent may then have us read and write.
        source: tools of ours that the agent is offered beside its own, in a server of its session.
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
        files: OpenFiles | None = None,
        source: ToolSource | None = None,
    ) -> None:
        environment = dict(os.environ if environ is None else environ)
        self._limits = config.limits
        self._plan = acp_plan(config, environment)
        self._sandbox = sandbox
        self._files = files if self._plan.files else None
        self._agent_id = config.id
        self._source = source
        self._owners = owners
        self._namespace = command_namespace(config.governance)
        own = owners.of(config) if owners is not None else None
        program = self._plan.program
        if source is not None:
            program = replace(program, readable=(*program.readable, *interpreter_paths()))
        # Its log is quoted where the work fails: there too without what says nothing.
        errors = quiet_errors(preset_of(config) or "")
        self._runner = ProgramRunner(program, config.limits, sandbox, environment, limiter, own, errors=errors)

    async def run(self, job: Job, report: Report) -> Outcome:
        """Give ``job`` to the agent and return how it ended, with the session that a later job can go on with.

        Raises:
            SubletError: the sandbox refuses the launch.
        """
        files = self._files(job) if self._files is not None else None
        talk = AcpPrompt(job, self._plan, version("sublet"), report, files, self._own_tools(job))
        try:
            end = await self._runner.run(job, _without_noise(report), talk.hold)
        finally:
            if files is not None:
                with anyio.CancelScope(shield=True):
                    await files.aclose()
        return self._outcome(talk, end)

    def _own_tools(self, job: Job) -> OwnTools | None:
        """Return the tools of ours that it is offered for this job, if any."""
        source, owners = self._source, self._owners
        if source is None or not (offers := named(source.offers(self._agent_id), self._namespace)):
            return None

        def whose(pid: int) -> bool:
            if owners is None:
                return True  # nobody knows whose processes run; the directory is private
            try:
                found = owners.owner(pid)
            except ProcessLookupError:
                return False
            return found is not None and (found.agent_id, found.job.delegation_id) == (
                self._agent_id,
                job.delegation_id,
            )

        return OwnTools(offers, source, whose, self._agent_id)

    def _outcome(self, talk: AcpPrompt, end: ProgramEnd) -> Outcome:
        said = clean(end.stdout.end(MAX_SUMMARY_CHARS), MAX_SUMMARY_CHARS).strip()
        if talk.stop_reason and end.met is None:
            reason, detail = _STOPPED.get(talk.stop_reason, ("failed", f"it stopped for {talk.stop_reason!r}"))
            if reason == "cancelled" and talk.was_refused:
                reason, detail = "failed", "it ended when a call was refused"
            return Outcome(reason, said, detail=detail, provider_session_id=talk.session_id)
        errors = clean(end.stderr.end(_STDERR_SHARE), _STDERR_SHARE).strip()
        summary = f"{said}\n\n{errors}".strip()[-MAX_SUMMARY_CHARS:]
        if end.met is not None:
            return Outcome("limit", summary, detail=told(self._limits, end.met), provider_session_id=talk.session_id)
        if talk.failure:
            how = how_it_ended(end, errors, sandboxed=bool(self._sandbox.enforced))
            detail = f"{talk.failure} ({how.detail})" if how.detail and how.reason != "timeout" else talk.failure
            return Outcome("crashed", summary, how.exit_code, detail, how.launched, talk.session_id)
        how = how_it_ended(end, errors, sandboxed=bool(self._sandbox.enforced))
        return Outcome(how.reason, summary, how.exit_code, how.detail, how.launched, talk.session_id)


def _without_noise(report: Report) -> Report:
    """Leave out what the program prints beside the protocol: its own log, which the end of a failure still quotes."""

    def told(output: Output) -> None:
        if output.stream != "stderr":
            report(output)

    return told
