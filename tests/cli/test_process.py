"""The real program: its help, its statuses without a daemon, completion, and a reader that goes away."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import IO

import pytest

from sublet.cli.app import run
from sublet.cli.errors import MEANING

COMMANDS = [
    *("up", "down", "status", "doctor", "pair", "peers", "token", "allow"),
    *("delegate", "ls", "output", "say", "extend", "cancel", "diff", "audit", "prune", "policy", "mcp"),
]


def sublet(home: Path, *argv: str, **env: str) -> subprocess.CompletedProcess[str]:
    """Run the program with a home of its own."""
    return subprocess.run(
        [sys.executable, "-P", "-m", "sublet", *argv],
        env={**os.environ, "SUBLET_HOME": str(home), "COLUMNS": "100", **env},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )


def test_help_names_every_command_and_exit_status(tmp_path: Path) -> None:
    done = sublet(tmp_path, "--help")

    assert (done.returncode, done.stderr) == (0, "")
    for name in COMMANDS:
        assert f"\n  {name} " in done.stdout
    for status, meaning in MEANING.items():
        assert f"{status.value:>3}  {meaning}" in done.stdout


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_explains_itself(capsys: pytest.CaptureFixture[str], name: str) -> None:
    assert run([name, "-h"]) == 0

    out, err = capsys.readouterr()
    assert err == ""
    assert out.startswith(f"Usage: sublet {name} ")
    assert "..." not in out.partition("\n")[2], "no sentence is cut"


def test_a_group_without_a_command_shows_its_help(tmp_path: Path) -> None:
    done = sublet(tmp_path, "policy")

    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("Usage: sublet policy")


def test_a_question_that_lacks_something_is_refused_in_our_words(tmp_path: Path) -> None:
    done = sublet(tmp_path, "policy", "explain")

    assert (done.returncode, done.stdout) == (2, "")
    assert "Invalid value: give subject, action and resource, or the number of an entry of the audit log" in done.stderr
    assert "validation error" not in done.stderr
    assert "pydantic" not in done.stderr


@pytest.mark.parametrize("argv", [("ls",), ("output", "last"), ("status",)])
def test_without_a_daemon_it_says_so(tmp_path: Path, argv: tuple[str, ...]) -> None:
    done = sublet(tmp_path, *argv)

    assert (done.returncode, done.stdout) == (4, "")
    assert "[DAEMON_UNAVAILABLE]" in done.stderr
    assert "sublet up" in done.stderr


def test_without_a_daemon_json_says_so(tmp_path: Path) -> None:
    done = sublet(tmp_path, "ls", "--json")

    assert (done.returncode, done.stderr) == (4, "")
    assert json.loads(done.stdout)["error"]["code"] == "DAEMON_UNAVAILABLE"


def test_asking_leaves_nothing_on_disk(tmp_path: Path) -> None:
    sublet(tmp_path, "ls")
    sublet(tmp_path, "doctor")

    assert list(tmp_path.iterdir()) == []


def test_version(tmp_path: Path) -> None:
    assert sublet(tmp_path, "--version").stdout.startswith("sublet 0.")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shell_completion_is_offered(tmp_path: Path, shell: str) -> None:
    script = sublet(tmp_path, "--show-completion", shell, _TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION="1")

    assert script.returncode == 0
    assert "_SUBLET_COMPLETE" in script.stdout


def test_completion_completes_commands_and_is_quiet_without_a_daemon(tmp_path: Path) -> None:
    def complete(words: str, position: int) -> subprocess.CompletedProcess[str]:
        return sublet(tmp_path, _SUBLET_COMPLETE="complete_bash", COMP_WORDS=words, COMP_CWORD=str(position))

    assert complete("sublet dele", 1).stdout.split() == ["delegate", "delete"]
    ids = complete("sublet output dlg", 2)
    assert (ids.stdout.strip(), ids.stderr) == ("", "")


def test_a_reader_that_goes_away_is_no_error(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = subprocess.run(
            [sys.executable, "-P", "-m", "sublet", "doctor"],
            env={**os.environ, "SUBLET_HOME": str(tmp_path)},
            stdout=writer,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    finally:
        os.close(writer)

    assert done.returncode == 141
    assert "Traceback" not in done.stderr
    assert "BrokenPipe" not in done.stderr


def test_a_terminal_without_unicode_gets_plain_signs(tmp_path: Path) -> None:
    done = sublet(tmp_path, "doctor", PYTHONIOENCODING="ascii")

    assert done.stdout.isascii()
    assert done.stdout.startswith(("+ ", "x "))


def test_no_color_and_pipes_have_no_escapes(tmp_path: Path) -> None:
    done = sublet(tmp_path, "doctor")

    assert "\x1b" not in done.stdout + done.stderr


def test_help_loads_neither_models_nor_network(tmp_path: Path) -> None:
    probe = "import sys; from sublet.cli.app import run; run(['ls', '--help']); print([m for m in sys.modules])"
    done = subprocess.run([sys.executable, "-P", "-c", probe], capture_output=True, text=True, check=True)

    loaded = set(done.stdout.splitlines()[-1].strip("[]").replace("'", "").split(", "))
    assert not loaded & {"httpx", "rich", "asyncssh", "sublet.daemon.api.delegation_views", "sublet.app.running"}


def test_the_client_of_the_daemon_loads_no_server_and_no_large_library(tmp_path: Path) -> None:
    """What a command imports is what its user waits for."""
    probe = (
        "import sys; from sublet.cli.app import run; run(['ls', '--json']); import sublet.daemon.control.client\n"
        "print([m for m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-P", "-c", probe],
        env={**os.environ, "SUBLET_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    loaded = set(done.stdout.splitlines()[-1].strip("[]").replace("'", "").split(", "))
    assert "sublet.daemon.api.delegation_views" in loaded
    assert not loaded & {"a2a", "anyio", "asyncssh", "cryptography", "httpx", "mcp", "rich", "starlette", "uvicorn"}
    assert not loaded & {"sublet.protocol.messages", "sublet.app.running", "sublet.workspace.sandbox.bubblewrap"}


def test_mcp_install_shows_then_does(tmp_path: Path) -> None:
    def install(*argv: str) -> dict[str, object]:
        done = sublet(tmp_path / "sublet", "mcp", "install", "--client", "cursor", "--json", *argv, HOME=str(tmp_path))
        assert (done.returncode, done.stderr) == (0, "")
        body: dict[str, object] = json.loads(done.stdout)
        return body

    file = tmp_path / ".cursor" / "mcp.json"
    shown = install("--dry-run")
    assert (shown["path"], shown["changed"], shown["applied"]) == (str(file), True, False)
    assert not file.exists()
    assert install()["applied"] is True
    entry = json.loads(file.read_text())["mcpServers"]["sublet"]
    assert [entry["command"], *entry["args"]] == shown["command"]
    assert install()["changed"] is False


@pytest.mark.parametrize(
    "arguments",
    [["config", "show"], ["--help"], ["--version"], ["status", "--json"], ["ls", "--json", "--no-such-option"]],
    ids=" ".join,
)
def test_output_that_a_full_disk_does_not_take_is_told_as_that(tmp_path: Path, arguments: list[str]) -> None:
    with open("/dev/full", "wb") as full:
        done = ended(tmp_path, arguments, stdout=full, stderr=subprocess.PIPE)
        silent = ended(tmp_path, arguments, stdout=full, stderr=full)

    words = done.stderr.decode()
    assert done.returncode == 1
    assert silent.returncode != 0
    assert "the output could not be written: No space left on device" in words
    assert "Traceback" not in words
    assert "INTERNAL" not in words


@pytest.mark.parametrize(
    "arguments", [["doctor"], ["--help"], ["--version"], ["status"], ["config", "show"]], ids=" ".join
)
def test_standard_streams_that_are_closed_are_no_error(tmp_path: Path, arguments: list[str]) -> None:
    usual = ended(tmp_path, arguments, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    for closed in ("<&-", ">&-", "<&- >&-"):
        done = ended(tmp_path, arguments, closed, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        assert (done.returncode, done.stderr) == (usual.returncode, usual.stderr)
    assert ended(tmp_path, arguments, "<&- >&- 2>&-", stdout=None, stderr=None).returncode == usual.returncode


def test_a_stream_that_is_closed_gives_its_number_to_nothing_else() -> None:
    code = (
        "import os; from sublet.cli.standard_streams import open_closed; open_closed(); "
        "told = open(os.environ['TOLD'], 'w'); "
        "told.write(' '.join(os.readlink(f'/proc/self/fd/{n}') for n in range(3)))"
    )
    reading, writing = os.pipe()
    os.set_inheritable(writing, True)
    subprocess.run(
        ["sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh", sys.executable, "-P", "-c", code],
        env={**os.environ, "TOLD": f"/dev/fd/{writing}"},
        pass_fds=[writing],
        check=True,
    )
    os.close(writing)
    with open(reading) as told:
        assert told.read().split() == [os.devnull] * 3


def ended(
    home: Path,
    arguments: list[str],
    closed: str = "",
    *,
    stdout: int | IO[bytes] | None,
    stderr: int | IO[bytes] | None,
) -> subprocess.CompletedProcess[bytes]:
    """Run a command whose standard streams a shell has ``closed``."""
    return subprocess.run(
        ["sh", "-c", f'exec "$@" {closed}', "sh", sys.executable, "-P", "-m", "sublet", *arguments],
        env={**os.environ, "SUBLET_HOME": str(home)},
        stdout=stdout,
        stderr=stderr,
        check=False,
    )
