"""What ``agent.json`` says of a provider, by its type (SuperAgent 7.3, DESIGN 4.9)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Literal

from pydantic import (
    BeforeValidator,
    Discriminator,
    Field,
    StringConstraints,
    field_validator,
    model_validator,
)

from sublet.supervisor.a2a_config import A2aConfig
from sublet.supervisor.config_parts import Argument, ConfigPart, Id, Line
from sublet.supervisor.model_config import ModelConfig
from sublet.supervisor.presets import ACP_PRESETS, PRESETS


class CommandConfig(ConfigPart):
    """A program of this machine. The prompt comes on its standard input, so ``["sh", "-s"]`` runs it as a script."""

    type: Literal["command"]
    argv: Annotated[tuple[Argument, ...], Field(min_length=1, max_length=256)] = Field(
        description="Program and arguments, never a shell line. {workspace}, {meta}, {prompt_file}, {scratch}, "
        "{delegation_id} and {access_mode} are replaced, anything else in braces stays."
    )

    @field_validator("argv")
    @classmethod
    def _fixed_program(cls, argv: tuple[str, ...]) -> tuple[str, ...]:
        if not argv[0] or "{" in argv[0]:
            raise ValueError("the program itself is fixed: it is not empty and holds no placeholder")
        return argv


class PresetConfig(ConfigPart):
    """A well-known agent program that is installed here."""

    type: Literal["preset"]
    name: Literal["claude", "codex", "gemini", "shell"]
    model: Line | None = Field(default=None, description="Model to ask for, where the program has a choice")

    @model_validator(mode="after")
    def _model_only_where_chosen(self) -> PresetConfig:
        if self.model is not None and not PRESETS[self.name].model_option:
            raise ValueError(f"preset '{self.name}' has no model to choose")
        return self


class SuperStep(ConfigPart):
    """One worker of a super agent, and what it is told before the request."""

    agent: Id
    task: Annotated[str, StringConstraints(max_length=8_000)] = ""


def _step(value: object) -> object:
    return {"agent": value} if isinstance(value, str) else value


class SuperConfig(ConfigPart):
    """Other agents of this file that do the work together, in the directory that this one is given."""

    type: Literal["super"]
    workers: Annotated[tuple[Annotated[SuperStep, BeforeValidator(_step)], ...], Field(min_length=1, max_length=16)] = (
        Field(description="Ids of agents of this file; or objects of such an id and a task")
    )
    mode: Literal["sequential", "parallel"] = Field(
        default="sequential", description="One after the other, each told what the one before has done; or all at once"
    )
    on_failure: Literal["stop", "continue"] = Field(
        default="stop", description="Whether the first that fails ends it, or the others go on without it"
    )


class AcpConfig(ConfigPart):
    """A program of this machine that speaks the Agent Client Protocol; policy decides on every permission it asks."""

    type: Literal["acp"]
    preset: Literal["claude", "codex", "gemini", "opencode", "iflow"] | None = Field(
        default=None, description="A well-known one, by its own program; leave out argv then"
    )
    argv: Annotated[tuple[Argument, ...], Field(max_length=256)] = Field(
        default=(), description="Program and arguments of any other, as for type 'command'"
    )
    model: Line | None = Field(default=None, description="Model to ask for, where the program has a choice")
    mode: Line | None = Field(
        default=None,
        description="Session mode to set, by default that in which a preset asks before it acts; an agent that has no "
        "such mode, or leaves it, is ended",
    )

    @model_validator(mode="after")
    def _one_program(self) -> AcpConfig:
        if (self.preset is None) == (not self.argv):
            raise ValueError("name either a preset or the argv of the program")
        if self.argv and (not self.argv[0] or "{" in self.argv[0]):
            raise ValueError("the program itself is fixed: it is not empty and holds no placeholder")
        if self.model is not None and not (self.preset and ACP_PRESETS[self.preset].program.model_option):
            raise ValueError("only a preset with a choice takes a model: gemini and iflow")
        return self


class IflowConfig(ConfigPart):
    """iFlow, by the Agent Client Protocol: short for type ``acp`` with that preset."""

    type: Literal["iflow"]
    model: Line | None = None
    mode: Line | None = None

    def as_acp(self) -> AcpConfig:
        """Return the provider that it stands for."""
        return AcpConfig(type="acp", preset="iflow", model=self.model, mode=self.mode)


ProviderConfig = Annotated[
    CommandConfig | PresetConfig | SuperConfig | AcpConfig | IflowConfig | ModelConfig | A2aConfig,
    Discriminator("type"),
]


PROVIDER_TYPES = frozenset({"command", "preset", "super", "acp", "iflow", "model", "a2a"})
"""What ``type`` may be."""


def check_workers(providers: Mapping[str, ProviderConfig]) -> None:
    """Refuse super agents whose workers are not there, or that work for themselves by whatever way.

    Args:
        providers: by the id of the agent.

    Raises:
        ValueError: naming the agents, in the order in which they call each other.
    """
    done: set[str] = set()

    def follow(name: str, path: Sequence[str]) -> None:
        if name in path:
            raise ValueError(f"agents work for themselves: {' → '.join((*path[path.index(name) :], name))}")
        if name in done:
            return
        provider = providers[name]
        for step in provider.workers if isinstance(provider, SuperConfig) else ():
            if step.agent not in providers:
                raise ValueError(f"agent '{name}' has the worker '{step.agent}', which is none of these agents")
            follow(step.agent, (*path, name))
        done.add(name)

    for name in providers:
        follow(name, ())
