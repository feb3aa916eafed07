"""The console script: which way a command goes, and that the relay's way stays short."""

from __future__ import annotations

import subprocess
import sys
from types import ModuleType

import pytest

from sublet.cli import entry


@pytest.mark.parametrize("arguments", [[], ["status"], ["mcp", "install"], ["mcp", "--help"]])
def test_everything_but_the_bare_relay_goes_to_the_app(monkeypatch: pytest.MonkeyPatch, arguments: list[str]) -> None:
    app = ModuleType("sublet.cli.app")
    vars(app)["run"] = lambda: 7
    monkeypatch.setitem(sys.modules, "sublet.cli.app", app)
    monkeypatch.setattr(sys, "argv", ["sublet", *arguments])
    assert entry.main() == 7


def test_the_module_is_the_console_script() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "sublet", "mcp"], stdin=subprocess.DEVNULL, capture_output=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
