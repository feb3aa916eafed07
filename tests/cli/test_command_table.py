"""The list of commands needs no module of a command, and says what the modules say."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from typer.main import get_command

from sublet.cli.app import app
from sublet.cli.command_table import TABLE, Commands, import_command

LOADED_WITHOUT = {"asyncio", "pydantic", "rich", "sublet.protocol.events"}
"""What the list of commands does without: each takes as long as all the rest of it."""


@pytest.mark.parametrize("name", TABLE)
def test_the_table_says_what_the_module_of_a_command_says(name: str) -> None:
    entry = TABLE[name]
    command = import_command(name, entry)
    assert command.name == name
    assert command.get_short_help_str(1_000) == entry.text
    assert getattr(command, "rich_help_panel", None) == entry.panel
    assert not command.hidden


def test_a_group_of_commands_stands_in_the_table_under_its_own_name() -> None:
    groups = {name for name, command in Commands().items() if hasattr(command, "commands")}
    assert {"config", "peers", "token", "audit", "sessions", "room", "watch", "policy", "mcp"} <= groups


def test_the_command_line_has_the_commands_of_the_table_and_no_others() -> None:
    root = get_command(app)
    context = typer.Context(root)
    assert list(getattr(root, "commands")) == list(TABLE)  # noqa: B009 - the type of groups is typer's secret
    assert getattr(root, "get_command")(context, "nonsense") is None  # noqa: B009
    assert app.registered_commands == []
    assert app.registered_groups == []


def loaded_by(*words: str, home: Path | None = None) -> set[str]:
    """Return the modules that are loaded after a command; it finds no daemon in ``home``."""
    code = f"import sys; from sublet.cli.app import run; run({list(words)}); print([name for name in sys.modules])"
    environment = {**os.environ, **({"SUBLET_HOME": str(home)} if home else {})}
    done = subprocess.run(
        [sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True, env=environment
    )
    return set(done.stdout.splitlines()[-1].strip("[]").replace("'", "").split(", "))


def test_the_list_of_commands_loads_none_of_them() -> None:
    loaded = loaded_by("--help")
    assert not loaded & LOADED_WITHOUT
    assert not loaded & {f"sublet.cli.commands.{entry.where.partition(':')[0]}" for entry in TABLE.values()}


def test_a_command_loads_its_own_module_alone() -> None:
    modules = {f"sublet.cli.commands.{entry.where.partition(':')[0]}" for entry in TABLE.values()}
    assert loaded_by("ls", "--help") & modules == {"sublet.cli.commands.lending.delegations"}


def test_a_name_that_is_nearly_one_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    from sublet.cli.app import run

    assert run(["statu"]) == 2
    assert "Did you mean 'status'" in capsys.readouterr().err


FORBIDDEN = {"starlette", "uvicorn", "zenoh", "mcp", "a2a", "sqlite3", "sublet.messaging", "sublet.supervisor"}
"""What belongs to the daemon, and no command loads."""


@pytest.mark.parametrize(
    ("words", "ours", "all_"),
    [(["--help"], 30, 220), (["ls", "--help"], 40, 340), (["ls"], 64, 470), (["room", "list"], 60, 470)],
)
def test_a_command_loads_few_modules(words: list[str], ours: int, all_: int, tmp_path: Path) -> None:
    """The time of a command is that of its modules, which can be counted where time can not."""
    loaded = loaded_by(*words, home=tmp_path)
    assert not loaded & FORBIDDEN
    assert len({name for name in loaded if name.startswith("sublet.")}) <= ours
    assert len(loaded) <= all_
    declared = {name for name in loaded if name.startswith("sublet.daemon.operations.")}
    assert declared <= {"sublet.daemon.operations.calling"}


def test_the_version_loads_one_module_beside_its_way_there() -> None:
    code = "import sys; sys.argv[1:] = ['--version']; from sublet.cli import entry; entry.main(); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True)
    ours = {name for name in done.stdout.splitlines()[-1].split() if name.startswith("sublet.")}
    way = {"sublet.cli", "sublet.cli.entry", "sublet.cli.standard_streams"}
    assert ours == {*way, "sublet.cli.rendering", "sublet.cli.rendering.version"}
