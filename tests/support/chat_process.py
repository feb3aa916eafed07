"""Runs the scripted chat endpoint as a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

STUB = Path(__file__).with_name("chat_stub.py")
Step = dict[str, Any]


@dataclass(frozen=True)
class ChatStub:
    """A running endpoint."""

    base_url: str
    log: Path

    def requests(self) -> list[dict[str, Any]]:
        """Return every request so far."""
        return [json.loads(line) for line in self.log.read_text().splitlines()] if self.log.exists() else []

    def results(self) -> list[str]:
        """Return the results of tools that the last request holds, in order."""
        return [str(one["content"]) for one in self.requests()[-1]["body"]["messages"] if one["role"] == "tool"]

    def agent(self, **more: Any) -> dict[str, Any]:
        """Return an entry of ``agent.json`` that asks it."""
        provider = {"type": "model", "base_url": self.base_url, "model": "stub", **more.pop("provider", {})}
        return {"id": "coder", "provider": provider, **more}


@contextmanager
def chat_stub(base: Path, script: Sequence[Step]) -> Iterator[ChatStub]:
    """Run the endpoint with ``script``; its files are in ``base``."""
    base.mkdir(parents=True, exist_ok=True)
    file, log = base / "script.json", base / "requests.jsonl"
    file.write_text(json.dumps(list(script)))
    with subprocess.Popen([sys.executable, "-I", str(STUB), str(file), str(log)], stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            port = int(process.stdout.readline())
            yield ChatStub(f"http://127.0.0.1:{port}/v1", log)
        finally:
            process.kill()
