"""What ``agent.json`` says of a chat model that works here with governed tools, and of the MCP servers it may use."""

from __future__ import annotations

import ipaddress
from typing import Annotated, Final, Literal
from urllib.parse import urlsplit

from pydantic import Field, StringConstraints, field_validator, model_validator

from sublet.supervisor.config_parts import Argument, ConfigPart, Line, Variable

MAX_MCP_SERVERS: Final = 16
MAX_INSTRUCTIONS_CHARS: Final = 32_000

Address = Annotated[str, StringConstraints(min_length=8, max_length=2_000, pattern=r"^https?://[^\s\x00-\x1f\x7f]+$")]
ServerName = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9_-]{0,30}$")]


class Prices(ConfigPart):
    """What a million tokens cost, in whatever currency ``max_cost`` counts."""

    input_per_million: Annotated[float, Field(ge=0, le=1_000_000)]
    output_per_million: Annotated[float, Field(ge=0, le=1_000_000)]


class ModelConfig(ConfigPart):
    """A chat model on an endpoint that speaks OpenAI's chat completions, working with tools that are governed here."""

    type: Literal["model"]
    base_url: Address = Field(description="To which /chat/completions is added; https, or this machine's loopback")
    model: Line = Field(description="The model's name there")
    api_key_env: Variable | None = Field(
        default=None, description="Name of the daemon's environment variable that holds the key; the key is never here"
    )
    allow_plaintext: bool = Field(default=False, description="Whether http is allowed to other machines")
    instructions: Annotated[str, StringConstraints(max_length=MAX_INSTRUCTIONS_CHARS)] = Field(
        default="", description="What the model is told before every task, besides what it needs to know of its tools"
    )
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    max_answer_tokens: Annotated[int, Field(ge=1, le=1_000_000)] | None = Field(
        default=None, description="Longest single answer; by default the endpoint's own bound"
    )
    context_tokens: Annotated[int, Field(ge=2_000, le=10_000_000)] = Field(
        default=100_000, description="What fits into one request; older results of tools are left out beyond it"
    )
    max_tokens: Annotated[int, Field(ge=1, le=10_000_000_000)] = Field(
        default=2_000_000, description="Tokens of one task, in and out, over all its requests"
    )
    max_steps: Annotated[int, Field(ge=1, le=10_000)] = Field(default=100, description="Requests of one task")
    json_schema: bool | None = Field(
        default=None,
        description="Whether the endpoint is told of an answer's schema (response_format); by default it is, until it "
        "refuses that. The prompt holds the schema in any case",
    )
    prices: Prices | None = None
    max_cost: Annotated[float, Field(gt=0, le=1_000_000_000)] | None = Field(
        default=None, description="Cost of one task; needs prices"
    )

    @model_validator(mode="after")
    def _consistent(self) -> ModelConfig:
        if self.max_cost is not None and self.prices is None:
            raise ValueError("max_cost needs prices: without them nobody knows what a task costs")
        check_address(self.base_url, "base_url", allow_plaintext=self.allow_plaintext)
        return self


class McpServerConfig(ConfigPart):
    """An MCP server whose tools a model may call: a program that is run in the agent's sandbox, or a URL."""

    command: Argument | None = Field(default=None, description="Program to start; it speaks MCP on stdin and stdout")
    args: Annotated[tuple[Argument, ...], Field(max_length=256)] = ()
    env: Annotated[tuple[Variable, ...], Field(max_length=64)] = Field(
        default=(), description="Names of the daemon's environment variables that it gets; values are never here"
    )
    url: Address | None = Field(default=None, description="Of a server that speaks streamable HTTP")
    token_env: Variable | None = Field(
        default=None, description="Name of the environment variable that holds the bearer token for the URL"
    )
    allow_plaintext: bool = False

    @field_validator("env")
    @classmethod
    def _not_ours(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        if any(name.startswith(("SUBLET_", "LD_")) for name in names):
            raise ValueError("SUBLET_* and LD_* can't be passed on")
        return names

    @model_validator(mode="after")
    def _one_of_both(self) -> McpServerConfig:
        if (self.command is None) == (self.url is None):
            raise ValueError("give either a command or a url")
        if self.url is None:
            if self.token_env is not None or self.allow_plaintext:
                raise ValueError("token_env and allow_plaintext belong to a url")
            return self
        if self.args or self.env:
            raise ValueError("args and env belong to a command")
        check_address(self.url, "url", allow_plaintext=self.allow_plaintext)
        return self


def check_address(url: str, name: str, *, allow_plaintext: bool) -> None:
    """Refuse an address that would send secrets in the clear, or that carries them itself.

    Raises:
        ValueError: saying what is wrong with it.
    """
    parts = urlsplit(url)
    if not parts.hostname:
        raise ValueError(f"{name} names no host")
    if parts.username is not None or parts.password is not None:
        raise ValueError(f"{name} holds a user or password: name an environment variable instead")
    if parts.query or parts.fragment:
        raise ValueError(f"{name} ends with the path: no query, no fragment")
    if parts.scheme == "http" and not allow_plaintext and not _is_loopback(parts.hostname):
        raise ValueError(f"{name} is neither https nor on this machine: use https, or set allow_plaintext knowingly")


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
