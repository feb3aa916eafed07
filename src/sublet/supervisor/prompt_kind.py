"""What a prompt to an agent is: words, a script, or whatever its program makes of it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final, Literal

from sublet.supervisor.agent_config import AgentConfig
from sublet.supervisor.provider_config import CommandConfig, PresetConfig

_SHELLS: Final = frozenset({"sh", "bash", "dash", "zsh", "ksh", "fish", "busybox"})


def prompt_kind(config: AgentConfig) -> Literal["prose", "script", "anything"]:
    """Tell what a prompt to the agent is: a task in words, a script, or whatever its own program makes of it."""
    provider = config.provider
    if isinstance(provider, PresetConfig):
        return "script" if provider.name == "shell" else "prose"
    if isinstance(provider, CommandConfig):
        return "script" if _reads_script(provider.argv) else "anything"
    return "prose"


def _reads_script(argv: Sequence[str]) -> bool:
    """Tell whether this is a shell that reads its standard input; with ``-c`` or a file it runs its own script."""
    options = argv[1:]
    alone = all(one.startswith("-") and (one.startswith("--") or "c" not in one) for one in options)
    return Path(argv[0]).name in _SHELLS and alone
