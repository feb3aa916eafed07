"""What an agent lacks on this machine before it can work: its program, the adapter to it, a key or login.

Told before anybody lends it a directory, with what to install. A login is looked for where the program keeps it, so one
that is kept elsewhere is not seen: for want of one nothing is refused.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sublet.supervisor.agent_config import AgentConfig
from sublet.supervisor.model_config import ModelConfig
from sublet.supervisor.presets import ACP_PRESETS, PRESETS, Preset
from sublet.supervisor.provider_config import AcpConfig, CommandConfig, IflowConfig, PresetConfig

_ACP_PACKAGE: Final = "acp"


@dataclass(frozen=True, slots=True)
class Lack:
    """Something that an agent needs and has not got here.

    Args:
        what: the thing, without saying where on this machine it was looked for: peers are told it.
        remedy: what its owner can do.
        certain: whether it can't work without, as far as anybody can tell from outside.
    """

    what: str
    remedy: str
    certain: bool = True

    def __str__(self) -> str:
        return f"{self.what}. {self.remedy}"


def lacks(config: AgentConfig, environ: Mapping[str, str] | None = None) -> list[Lack]:
    """Return what ``config`` lacks here, what is certain first. Looks at files; blocks for a moment.

    Args:
        config: an agent of ``agent.json``.
        environ: the daemon's environment; by default that of this process.
    """
    around = os.environ if environ is None else environ
    preset = _preset(config)
    found = [*_package(config), *_program(_argv(config, preset), preset, around)]
    if preset is not None and not any(around.get(name) for name in config.environment):
        found += _login(preset, around)
    if isinstance(config.provider, ModelConfig) and (key := config.provider.api_key_env) and not around.get(key):
        found.append(
            Lack(f"the variable {key} with its key is not set", "Start the daemon with it set.", certain=False)
        )
    return found


def unable(config: AgentConfig, environ: Mapping[str, str] | None = None) -> Lack | None:
    """Return what keeps ``config`` from working for certain; None where nothing is known to."""
    return next((lack for lack in lacks(config, environ) if lack.certain), None)


def unready_lines(agents: Iterable[AgentConfig]) -> list[str]:
    """Return what those of ``agents`` that can't work lack, one line each."""
    return [f"agent {one.id}: {'; '.join(map(str, missing))}" for one in agents if (missing := lacks(one))]


def _preset(config: AgentConfig) -> Preset | None:
    provider = config.provider
    if isinstance(provider, PresetConfig):
        return PRESETS[provider.name]
    if isinstance(provider, IflowConfig):
        return ACP_PRESETS["iflow"].program
    if isinstance(provider, AcpConfig) and provider.preset is not None:
        return ACP_PRESETS[provider.preset].program
    return None


def _argv(config: AgentConfig, preset: Preset | None) -> tuple[str, ...]:
    if preset is not None:
        return preset.argv
    return config.provider.argv if isinstance(config.provider, CommandConfig | AcpConfig) else ()


def _package(config: AgentConfig) -> list[Lack]:
    if isinstance(config.provider, AcpConfig | IflowConfig) and importlib.util.find_spec(_ACP_PACKAGE) is None:
        return [Lack("the package for the Agent Client Protocol is missing", "Install it: pip install 'sublet[acp]'")]
    return []


def _program(argv: tuple[str, ...], preset: Preset | None, environ: Mapping[str, str]) -> list[Lack]:
    if not argv or ("/" in argv[0] and not argv[0].startswith("/")):
        return []  # below the directory that will be lent, which nobody knows yet
    if shutil.which(argv[0], path=environ.get("PATH", os.defpath)) is not None:
        return []
    how = f"Install it: {preset.install}" if preset is not None and preset.install else "Install it, or correct argv."
    name = Path(argv[0]).name
    return [Lack(f"its program `{name}` is missing", f"{how} (The daemon looks for it on its own PATH.)")]


def _login(preset: Preset, environ: Mapping[str, str]) -> list[Lack]:
    home = Path(environ.get("HOME", "/nonexistent"))
    if not preset.login_variables or any(environ.get(name) for name in (*preset.login_variables, *preset.other_logins)):
        return []
    if any((home / file).is_file() for file in preset.login_files):
        return []
    return [Lack("no key and no login was found for it", preset.log_in, certain=False)]
