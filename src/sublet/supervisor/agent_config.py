"""``agent.json``: which agents this daemon offers, and what does their work (SuperAgent 7.3 plus the card's needs)."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class AgentConfig(BaseModel):
    """One agent of ``agent.json``."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    id: str
    role: str = "executor"
    description: str = ""
