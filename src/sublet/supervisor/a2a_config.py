"""What ``agent.json`` says of an agent elsewhere that does the work, by the A2A protocol."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from sublet.supervisor.config_parts import ConfigPart, Line, Variable
from sublet.supervisor.model_config import Address, check_address


class A2aConfig(ConfigPart):
    """Another agent, which gets the prompt as text, and nothing of the lent directories."""

    type: Literal["a2a"]
    peer: Line | None = Field(default=None, description="Name of a paired peer")
    url: Address | None = Field(
        default=None, description="https address of any A2A agent, whose card is below it; policy has to allow the host"
    )
    token_env: Variable | None = Field(
        default=None, description="Name of the environment variable that holds the bearer token for the URL"
    )

    @model_validator(mode="after")
    def _one_of_both(self) -> A2aConfig:
        if (self.peer is None) == (self.url is None):
            raise ValueError("name either a peer or a url")
        if self.url is None:
            if self.token_env is not None:
                raise ValueError("token_env belongs to a url: a peer knows this daemon by its key")
            return self
        if not self.url.startswith("https://"):
            raise ValueError("url is https: who else but a paired peer answers would not be known")
        check_address(self.url, "url", allow_plaintext=False)
        return self
