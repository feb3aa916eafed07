"""A sandbox that confines nothing, and tells what it was asked for."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from sublet.workspace.sandbox.bubblewrap import ConfinedLaunch, Unsandboxed


@dataclass
class Recorder(Unsandboxed):
    """Confines nothing, and tells what it was asked for."""

    launches: list[ConfinedLaunch] = field(default_factory=list)

    def wrap(self, launch: ConfinedLaunch) -> Any:
        self.launches.append(launch)
        return super().wrap(launch)
