"""Words and shapes that all parts of ``agent.json`` are made of."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, StringConstraints

Id = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9._-]{0,62}$")]
Line = Annotated[str, StringConstraints(min_length=1, max_length=500, pattern=r"^[^\x00-\x1f\x7f]+$")]
Argument = Annotated[str, StringConstraints(max_length=32_768, pattern=r"^[^\x00]*$")]
Variable = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,127}$")]
Directory = Annotated[str, StringConstraints(min_length=1, max_length=4096, pattern=r"^(/|~/)[^\x00]*$|^~$")]


class ConfigPart(BaseModel):
    """A part of the file: what it does not know is an error."""

    model_config = ConfigDict(defer_build=True, extra="forbid", frozen=True, populate_by_name=True)
