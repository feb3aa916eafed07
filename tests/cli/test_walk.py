"""Every command there is, run wrongly and without a daemon: it says why it can't work and what to do, never a trace."""

from __future__ import annotations

import enum
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main

from sublet.cli import app as app_module
from sublet.cli.app import run

Params = list[str]
SERVES = {("up",): "serves until it is stopped", ("mcp",): "is the relay, which starts before the command line"}
"""Commands that go on where nothing is wrong, so that they are run wrongly alone."""


def commands(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield every command of the tree with the words that name it."""
    found = getattr(command, "commands", None)
    if found is None or path in SERVES:
        yield path, command
    for name, one in (found or {}).items():
        yield from commands(one, (*path, name))


COMMAND = typer.main.get_command(app_module.app)
TREE = dict(commands(COMMAND))


def needed(command: Any) -> Params:
    """Return arguments that satisfy the shape of a command, though there is nothing that they name."""
    given: Params = []
    for one in command.params:
        if not one.required:
            continue
        kind = one.type_descriptor.annotation
        value = str(next(iter(kind)).value) if isinstance(kind, type) and issubclass(kind, enum.Enum) else "1"
        given += [one.opts[-1], value] if one.param_type_name == "option" else [value]
    return given


@pytest.fixture
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let commands find a user without a daemon, without configuration, and without anybody to ask."""
    for name in list(os.environ):
        if name.startswith(("SUBLET", "XDG_")):
            monkeypatch.delenv(name)
    (tmp_path / "home").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("SUBLET_HOME", str(tmp_path / "sublet"))
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    monkeypatch.chdir(tmp_path / "home")
    monkeypatch.setattr(sys, "stdin", None)  # as Python leaves it where stdin was closed
    monkeypatch.setattr(app_module, "app", COMMAND)  # made once, and not for every run


def ran(capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[int, str, str]:
    """Run a command; the output goes to no terminal."""
    status = run(argv)
    out, err = capsys.readouterr()
    assert "Traceback" not in out + err
    assert "internal error" not in out + err
    return status, out, err


def error_of(out: str) -> dict[str, str]:
    """Return the error that a command has printed for scripts."""
    found = json.loads(out.splitlines()[-1])["error"]
    assert found["code"]
    assert found["message"]
    return dict(found)


def test_the_walk_goes_everywhere() -> None:
    assert len(TREE) > 80
    assert {("up",), ("peers", "add"), ("room", "list")} <= TREE.keys()


@pytest.mark.parametrize("path", TREE, ids=" ".join)
@pytest.mark.usefixtures("alone")
def test_an_option_that_is_none_is_named_with_the_way_to_help(
    path: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    status, out, err = ran(capsys, *path, "--nonsense")
    assert (status, out) == (2, "")
    assert "nonsense" in err
    assert "--help" in err
    status, out, err = ran(capsys, *path, "--json", "--nonsense")
    assert (status, err) == (2, "")
    found = error_of(out)
    assert found["code"] == "INVALID_ARGUMENT"
    assert "--help" in found["hint"]


@pytest.mark.parametrize("path", [one for one in TREE if one not in SERVES], ids=" ".join)
@pytest.mark.usefixtures("alone")
def test_without_a_daemon_it_says_why_and_what_next(path: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    argv = [*path, *needed(TREE[path])]
    status, out, err = ran(capsys, *argv)
    if status:
        assert len(err.strip().splitlines()) >= 2, "a message, and the next step"
    takes_json = any("--json" in one.opts for one in TREE[path].params)
    if takes_json:
        status, out, err = ran(capsys, *argv, "--json")
        assert err == ""
        if status:
            assert error_of(out)["hint"]
        else:
            for line in out.splitlines():
                json.loads(line)
