"""Where the agents that are offered come from, at the start and whenever files are read anew."""

from __future__ import annotations

from pathlib import Path

from sublet.protocol.errors import SubletError
from sublet.supervisor.agent_config import DEFAULT_AGENT_FILE, AgentConfig, load_agents


class AgentSource:
    """Where agents come from: the file that was chosen, or ``agent.json`` of the configuration, or the built-in one.

    A file that was there once and is gone offers nobody: what it allowed goes with it. A daemon that never had one
    offers the built-in agent.

    Args:
        chosen: the file that was named; None where none was.
        usual: where it would be by itself.
    """

    def __init__(self, chosen: Path | None, usual: Path) -> None:
        self.file = chosen or usual
        self._seen = chosen is not None
        self.gone = False
        """Whether a file that was there once was not when it was read last."""

    def load(self) -> list[AgentConfig]:
        """Return the agents that are offered now; none where the file is gone. Blocks.

        Raises:
            SubletError: ``INVALID_ARGUMENT`` naming what is wrong in the file.
        """
        self.gone = False
        try:
            found = load_agents(self.file)
        except SubletError as error:
            if not isinstance(error.__cause__, FileNotFoundError | NotADirectoryError):
                self._seen = True
                raise
            self.gone = self._seen
            return [] if self.gone else load_agents(DEFAULT_AGENT_FILE)
        self._seen = True
        return found
