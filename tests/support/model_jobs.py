"""A model's provider with everything it works with, in plain directories and against a scripted endpoint."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from sublet.daemon.working.job_files import job_files
from sublet.supervisor.agent_config import AgentConfig
from sublet.supervisor.chat.conversations import Conversations
from sublet.supervisor.chat.endpoint import Endpoint
from sublet.supervisor.chat.provider import ModelProvider, ModelTools
from sublet.supervisor.job import Job, Outcome
from sublet.supervisor.model_config import ModelConfig
from sublet.supervisor.tools import ToolSource
from sublet.workspace.sandbox.bubblewrap import BubblewrapSandbox
from support.chat_process import ChatStub, Step, chat_stub
from support.gates import ListGate
from support.jobs import Log, job

SILENCE_SECONDS = 30.0


@dataclass
class ModelWorld:
    """One agent, one directory, one endpoint."""

    root: Path
    stub: ChatStub
    config: AgentConfig
    environ: Mapping[str, str]
    gate: ListGate = field(default_factory=ListGate)
    log: Log = field(default_factory=Log)
    silence_seconds: float = SILENCE_SECONDS
    source: ToolSource | None = None

    @property
    def workspace(self) -> Path:
        """The directory that is lent."""
        return self.root / "mount" / "workspace"

    def provider(self) -> ModelProvider:
        """Return the provider; it waits for nothing before it asks again, and not long for an endpoint."""
        tools = ModelTools(
            job_files, BubblewrapSandbox(), Conversations(self.root / "conversations"), source=self.source
        )

        def endpoint(config: ModelConfig, key: str) -> Endpoint:
            return Endpoint(config, key, pause=lambda _: None, silence_seconds=self.silence_seconds)

        return ModelProvider(self.config, tools, self.environ, endpoint=endpoint)

    def job(self, prompt: str = "Work.", *, access_mode: str = "rw", seconds: float = 30, **more: Any) -> Job:
        """Return a job."""
        made = job(self.root, prompt, access_mode=access_mode, seconds=seconds)
        return replace(made, gate=self.gate, **more)

    async def run(self, prompt: str = "Work.", **more: Any) -> Outcome:
        """Have it work."""
        return await self.provider().run(self.job(prompt, **more), self.log)


@contextmanager
def model_world(
    root: Path, script: Sequence[Step], *, environ: Mapping[str, str] | None = None, **agent: Any
) -> Iterator[ModelWorld]:
    """Run the endpoint with ``script`` and return the rest of the world around it."""
    job(root, "")
    with chat_stub(root / "chat", script) as stub:
        config = AgentConfig.model_validate(stub.agent(**agent))
        yield ModelWorld(root, stub, config, {"PATH": "/usr/bin:/bin", **(environ or {})})
