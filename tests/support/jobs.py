"""Jobs and agents for tests of providers."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from sublet.supervisor.agent_config import AgentConfig
from sublet.supervisor.job import Job, JobResource, Output


class Log:
    """A report that keeps everything."""

    def __init__(self) -> None:
        self.pieces: list[Output] = []

    def __call__(self, piece: Output) -> None:
        self.pieces.append(piece)

    def text(self, stream: str = "stdout") -> str:
        return "".join(piece.text for piece in self.pieces if piece.stream == stream)


def job(root: Path, prompt: str, *, seconds: float = 30, access_mode: str = "rw") -> Job:
    """Return a job in a plain directory below ``root``, laid out as a mount is."""
    mount, scratch = root / "mount", root / "scratch"
    mode: Literal["ro", "rw"] = "ro" if access_mode == "ro" else "rw"
    for directory in (mount / "workspace", mount / "meta", scratch):
        directory.mkdir(parents=True, exist_ok=True)
    return Job(
        delegation_id="dlg_" + "0" * 32,
        description="a test",
        prompt=prompt,
        access_mode=mode,
        resources=[JobResource("workspace", mount / "workspace", mode)],
        meta=mount / "meta",
        scratch=scratch,
        mount_point=mount,
        remaining_seconds=seconds,
        expires_at="2030-01-01T00:00:00Z",
        gate=None,
    )


def command(*argv: str, **more: object) -> AgentConfig:
    """Return an agent that runs ``argv``, by default the prompt as a shell script."""
    provider = {"type": "command", "argv": argv or ("sh", "-s")}
    return AgentConfig.model_validate({"id": "test", "provider": provider, **more})
