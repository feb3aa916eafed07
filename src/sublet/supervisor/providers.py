"""Makes what does the work of an agent, by the type of its provider (DESIGN 4.9)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from sublet.protocol.canonical import JsonValue
from sublet.protocol.errors import ErrorCode, SubletError
from sublet.supervisor.a2a_config import A2aConfig
from sublet.supervisor.agent_config import AgentConfig
from sublet.supervisor.chat.conversations import Conversations
from sublet.supervisor.command import CommandProvider
from sublet.supervisor.job import Job, Provider
from sublet.supervisor.launch import Sandbox
from sublet.supervisor.lease_files import OpenFiles
from sublet.supervisor.limits import Limiter
from sublet.supervisor.model_config import ModelConfig
from sublet.supervisor.processes import ProcessOwners
from sublet.supervisor.provider_config import AcpConfig, IflowConfig, SuperConfig
from sublet.supervisor.remote_agent import RemoteAgentProvider, RemoteAgents
from sublet.supervisor.tools import ToolSource


class SignChain(Protocol):
    """Signs the chain of a call that an agent makes by a plain A2A message."""

    def __call__(self, agent_id: str, job: Job, text: str, *, recipient: str) -> dict[str, JsonValue]:
        """Return the message's metadata.

        Args:
            agent_id: who calls.
            job: what it works on while it does.
            text: the message.
            recipient: fingerprint of the called daemon's key, as its agent card names it.
        """


@dataclass(frozen=True, slots=True)
class ProviderTools:
    """What providers are given by the daemon: what confines what they start, and what holds it to its limits."""

    sandbox: Sandbox
    limiter: Limiter | None = None
    owners: ProcessOwners | None = None
    """Is told whose processes run: a provider that starts any says so, as ``CommandProvider`` does."""
    sign_chain: SignChain | None = None
    """Makes the metadata of a message to another daemon's agent, so that the call carries its chain."""
    super_agent: Callable[[AgentConfig], Provider] | None = None
    """Makes an agent that consists of others; only the daemon knows them all."""
    files: OpenFiles | None = None
    """Opens the files of a job's lease, for providers that work on them by tools of ours."""
    conversations: Path | None = None
    """Where conversations with models are kept; a private directory."""
    source: ToolSource | None = None
    """Tools besides a provider's own, such as capabilities."""
    remote: RemoteAgents | None = None
    """Speaks with agents elsewhere."""


def make_provider(config: AgentConfig, tools: ProviderTools) -> Provider:
    """Return the provider of ``config``; nothing is started yet."""
    if isinstance(config.provider, SuperConfig):
        if tools.super_agent is None:
            raise TypeError("super agents need the other agents of the daemon")
        return tools.super_agent(config)
    if isinstance(config.provider, AcpConfig | IflowConfig):
        try:  # its package is an extra, and only loaded where an agent needs it
            from sublet.supervisor.acp.provider import AcpProvider
        except ModuleNotFoundError as error:
            raise SubletError(
                ErrorCode.DEP_MISSING,
                f"agent {config.id} speaks the Agent Client Protocol, and the package for it is not here: {error.name}",
                "Install it: pip install 'sublet[acp]'",
            ) from None
        return AcpProvider(
            config,
            tools.sandbox,
            limiter=tools.limiter,
            owners=tools.owners,
            files=tools.files,
            source=tools.source,
        )
    if isinstance(config.provider, A2aConfig):
        if tools.remote is None:
            raise TypeError("an agent elsewhere needs something to speak with it")
        return RemoteAgentProvider(config, tools.remote)
    if isinstance(config.provider, ModelConfig):
        if tools.files is None or tools.conversations is None:
            raise TypeError("a model needs the files of its leases, and a place for its conversations")
        from sublet.supervisor.chat.provider import ModelProvider, ModelTools

        given = ModelTools(
            tools.files, tools.sandbox, Conversations(tools.conversations), tools.limiter, tools.owners, tools.source
        )
        return ModelProvider(config, given)
    return CommandProvider(config, tools.sandbox, limiter=tools.limiter, owners=tools.owners)
