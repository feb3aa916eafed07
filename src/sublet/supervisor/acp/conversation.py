"""One prompt to an ACP agent: initialize, new or earlier session, prompt, and how it ended."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import Any, Final, cast

import acp
import anyio
import structlog
from acp.schema import (
    AgentCapabilities,
    ClientCapabilities,
    FileSystemCapabilities,
    Implementation,
    LoadSessionResponse,
    McpServerStdio,
    NewSessionResponse,
    ResumeSessionResponse,
    SessionModeState,
)

from sublet import deadlines
from sublet.supervisor.acp.asking import ToolQuestions
from sublet.supervisor.acp.client import AgentClient
from sublet.supervisor.acp.file_requests import FileRequests
from sublet.supervisor.acp.presets import AcpPlan
from sublet.supervisor.acp.stream import AgentStream
from sublet.supervisor.acp.terminals import Terminals
from sublet.supervisor.job import Job, Report
from sublet.supervisor.lease_files import LeaseFiles
from sublet.supervisor.program_run import Conversation
from sublet.supervisor.tool_server.names import SERVER
from sublet.supervisor.tool_server.opened import OwnTools

START_SECONDS: Final = 60.0
"""How long an agent may take to answer ``initialize``, and to begin a session."""
_AUTH_REQUIRED: Final = -32000

log = structlog.get_logger(__name__)


class Failed(Exception):
    """The conversation came to no end; the words say why."""


class AcpPrompt:
    """Talks with the agent of one job. ``stop_reason`` and ``session_id`` tell afterwards what came of it.

    Args:
        job: what is to be done.
        plan: its mode, and what sessions are told besides.
        version: ours, as the agent is told.
        report: is told what the agent does.
        files: the files of the lease, which it may then have us read and write.
        own: tools of ours that it is offered beside its own.
    """

    def __init__(
        self,
        job: Job,
        plan: AcpPlan,
        version: str,
        report: Report,
        files: LeaseFiles | None = None,
        own: OwnTools | None = None,
    ) -> None:
        self._job = job
        self._plan = plan
        self._version = version
        self._asking = ToolQuestions(job, report)
        self._files = files
        self._own = own
        self._servers: list[McpServerStdio] = []
        self.stop_reason = ""
        self.session_id: str | None = None
        self.failure = ""
        self._prompting = anyio.CancelScope()

    @property
    def was_refused(self) -> bool:
        """Whether a call of it was refused."""
        return self._asking.refused > 0

    async def hold(self, conversation: Conversation) -> None:
        """Talk until the prompt has ended, or it is clear that it never will; nothing is raised but a cancellation."""
        try:
            async with AsyncExitStack() as stack:
                terminals = await stack.enter_async_context(
                    Terminals.opened(self._job, self._asking, conversation.beside, conversation.count)
                )
                if self._own is not None:
                    entry = await stack.enter_async_context(self._own.opened(self._job, self._asking, self._version))
                    server = McpServerStdio(name=SERVER, command=entry.command, args=list(entry.args), env=[])
                    self._servers = [server]
                await self._hold(conversation, terminals)
        finally:
            await asyncio.shield(self._asking.finish())

    async def _hold(self, conversation: Conversation, terminals: Terminals) -> None:
        stream = AgentStream(conversation.process, conversation.count)
        files = FileRequests(self._job, self._files, self._asking) if self._files is not None else None
        decided = self._own.permissions if self._own is not None else frozenset()
        client = AgentClient(self._job, self._asking, conversation.said, self._left_mode, files, terminals, decided)
        connection = acp.connect_to_agent(cast("acp.Client", client), stream)
        try:
            await self._talk(connection, client)
        except Failed as error:
            self.failure = str(error)
        except acp.RequestError as error:
            needs = ": it needs a login that it has not got here" if error.code == _AUTH_REQUIRED else ""
            self.failure = f"it answered with an error: {error}{needs}"
        except TimeoutError:
            self.failure = f"it did not begin a session within {START_SECONDS:.0f} s"
        except ConnectionError:
            self.failure = stream.failure or "it ended in the middle of the conversation"
        except ValueError:
            # What the package could not validate; its words quote all that was sent.
            self.failure = "it answered with something that the protocol does not have"
        finally:
            self.failure = stream.failure or self.failure
            await asyncio.shield(connection.close())

    async def _talk(self, connection: acp.ClientSideConnection, client: AgentClient) -> None:
        async with deadlines.timeout(START_SECONDS):
            able = await connection.initialize(
                protocol_version=acp.PROTOCOL_VERSION,
                client_capabilities=self._offered(),
                client_info=Implementation(name="sublet", version=self._version),
            )
        if able.protocol_version != acp.PROTOCOL_VERSION:
            raise Failed(f"it speaks version {able.protocol_version} of the protocol and not {acp.PROTOCOL_VERSION}")
        async with deadlines.timeout(START_SECONDS):
            can = able.agent_capabilities or AgentCapabilities()
            try:
                modes = await self._session(connection, client, can)
            except acp.RequestError as error:
                offered = {method.id for method in able.auth_methods or []}
                method = next((one for one in self._plan.login_methods if one in offered), None)
                if error.code != _AUTH_REQUIRED or method is None:
                    raise
                # It has the key in its environment, and wants to be told to use it.
                await connection.authenticate(method_id=method)
                modes = await self._session(connection, client, can)
            await self._choose_mode(connection, modes)
        assert self.session_id is not None
        client.listening = True
        with self._prompting:
            answer = await connection.prompt(session_id=self.session_id, prompt=[acp.text_block(self._job.prompt)])
            self.stop_reason = answer.stop_reason

    def _offered(self) -> ClientCapabilities:
        """Return what the agent may ask of us."""
        files = self._files is not None
        return ClientCapabilities(fs=FileSystemCapabilities(read_text_file=files, write_text_file=files), terminal=True)

    def _left_mode(self, mode: str) -> None:
        """End the work: the agent would go on in a mode in which it may not ask any more."""
        if self._plan.mode not in (None, mode):
            self.failure = f"it went from mode {self._plan.mode!r} to {mode[:80]!r} by itself"
            self._prompting.cancel()

    async def _session(
        self, connection: acp.ClientSideConnection, client: AgentClient, able: AgentCapabilities
    ) -> SessionModeState | None:
        """Go on with the earlier session where the agent can, else begin a new one."""
        earlier = self._job.provider_session_id
        where: dict[str, Any] = {
            "cwd": str(self._job.workspace),
            "mcp_servers": self._servers,
            **self._plan.session_meta,
        }
        sessions = able.session_capabilities
        if earlier is not None:
            client.session_id = earlier
            try:
                if sessions is not None and sessions.resume is not None:
                    again = await connection.resume_session(session_id=earlier, **where)
                    self.session_id = earlier
                    return cast("ResumeSessionResponse", again).modes
                if able.load_session:
                    again = await connection.load_session(session_id=earlier, **where)
                    self.session_id = earlier
                    return cast("LoadSessionResponse", again).modes
            except acp.RequestError as error:
                if error.code == _AUTH_REQUIRED:
                    raise
                log.info("an agent can't go on with its session", reason=str(error)[:200])
                why = f"it answered {error}"
            else:
                why = "it can't load sessions"
            self._asking.note("session", f"the earlier one is lost, since {why}; a new one begins")
        made: NewSessionResponse = await connection.new_session(**where)
        self.session_id = client.session_id = made.session_id
        return made.modes

    async def _choose_mode(self, connection: acp.ClientSideConnection, modes: SessionModeState | None) -> None:
        """Set the configured mode; without one, the one that the agent begins with stays.

        Raises:
            Failed: the agent has no such mode: what was asked for can't be kept.
        """
        if self._plan.mode is None or (modes is not None and modes.current_mode_id == self._plan.mode):
            return
        offered = [mode.id for mode in modes.available_modes] if modes is not None else []
        if self._plan.mode not in offered:
            raise Failed(f"it has no mode {self._plan.mode!r}; it has {', '.join(offered) or 'none'}")
        assert self.session_id is not None
        await connection.set_session_mode(session_id=self.session_id, mode_id=self._plan.mode)
