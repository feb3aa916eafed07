"""The console script: which way a command goes, and that the relay's way stays short."""

from __future__ import annotations

import os
import subprocess
import sys
from types import ModuleType

import pytest

from sublet.cli import entry
from sublet.cli.app import run
from sublet.cli.errors import Exit


@pytest.mark.parametrize("arguments", [[], ["status"], ["mcp", "install"], ["mcp", "--help"]])
def test_everything_but_the_bare_relay_goes_to_the_app(monkeypatch: pytest.MonkeyPatch, arguments: list[str]) -> None:
    app = ModuleType("sublet.cli.app")
    vars(app)["run"] = lambda: 7
    monkeypatch.setitem(sys.modules, "sublet.cli.app", app)
    monkeypatch.setattr(sys, "argv", ["sublet", *arguments])
    assert entry.main() == 7


def test_the_version_is_told_at_once_and_in_the_words_of_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    code = "import sys; sys.argv[1:] = ['--version']; from sublet.cli import entry; entry.main(); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True)
    words, _, loaded = done.stdout.partition("\n")
    assert not {"typer", "pydantic", "asyncio"} & set(loaded.split())
    assert run(["--version"]) == 0
    assert capsys.readouterr().out == f"{words}\n"


def test_whoever_reads_the_version_no_longer_ends_it_quietly() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [sys.executable, "-m", "sublet", "--version"], stdout=writing, stderr=subprocess.PIPE, check=False
    )
    os.close(writing)
    assert (done.returncode, done.stderr) == (entry.BROKEN_PIPE, b"")
    assert entry.BROKEN_PIPE == Exit.BROKEN_PIPE


def test_the_module_is_the_console_script() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "sublet", "mcp"], stdin=subprocess.DEVNULL, capture_output=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
