"""What running an ACP agent takes: its program, what passes to it, and what it is told beside the protocol's fields."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from sublet.protocol.canonical import JsonValue
from sublet.supervisor.agent_config import AgentConfig
from sublet.supervisor.presets import ACP_PRESETS
from sublet.supervisor.program_run import ProgramPlan
from sublet.supervisor.provider_config import AcpConfig, IflowConfig


@dataclass(frozen=True, slots=True)
class AcpPlan:
    """How to start the program, which mode to ask for, the ``_meta`` of its sessions, and how it can log in.

    ``files`` tells whether it may have us read and write files.
    """

    program: ProgramPlan
    mode: str | None
    session_meta: Mapping[str, JsonValue]
    login_methods: tuple[str, ...] = ()
    files: bool = True


def acp_plan(config: AgentConfig, environ: Mapping[str, str]) -> AcpPlan:
    """Return what running ``config`` takes.

    Args:
        config: an agent whose provider speaks the Agent Client Protocol.
        environ: the daemon's environment.
    """
    provider = _provider(config)
    known = ACP_PRESETS[provider.preset] if provider.preset else None
    preset = known.program if known else None
    program = ProgramPlan(
        argv=preset.command(confined=True, model=provider.model) if preset else provider.argv,
        environment=(*(preset.environment if preset else ()), *config.environment),
        readable=tuple(Path(os.path.expanduser(path)) for path in config.sandbox.readable),
        allow_network=config.allow_network,
        logins=preset.logins(environ) if preset else (),
        settings=preset.settings if preset else (),
        timeout_seconds=config.timeout_seconds,
    )
    asking = known.asking_mode if known else None
    logins = tuple(method for name, method in known.login_methods if environ.get(name)) if known else ()
    meta = known.session_meta if known else {}
    return AcpPlan(program, provider.mode or asking, meta, logins, known is None or known.files)


def preset_of(config: AgentConfig) -> str | None:
    """Return the name of the preset of an agent, where it has one.

    Args:
        config: an agent whose provider speaks the Agent Client Protocol.
    """
    return _provider(config).preset


def _provider(config: AgentConfig) -> AcpConfig:
    provider = config.provider.as_acp() if isinstance(config.provider, IflowConfig) else config.provider
    if not isinstance(provider, AcpConfig):
        raise TypeError(f"a provider of type {provider.type} does not speak the Agent Client Protocol")
    return provider
