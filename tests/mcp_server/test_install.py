"""``sublet mcp install``: the entry is there afterwards, everything else is as before, and what is risky is refused."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import tomllib
from pathlib import Path
from typing import Final, get_args

import pytest

from sublet.mcp_server.install import (
    Client,
    Scope,
    apply,
    config_path,
    own_command,
    plan_install,
    plan_uninstall,
)
from sublet.protocol.errors import LocalCode, SubletError

CLIENTS: Final[tuple[Client, ...]] = get_args(Client)
COMMAND = ["/opt/sublet/bin/sublet", "mcp"]


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    """An empty home."""
    return {"HOME": str(tmp_path / "home")}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """An empty project."""
    found = tmp_path / "project"
    found.mkdir()
    return found


def entry_in(text: str, client: Client) -> object:
    if client == "codex":
        return tomllib.loads(text)["mcp_servers"]["sublet"]
    return json.loads(text)["servers" if client == "vscode" else "mcpServers"]["sublet"]


@pytest.mark.parametrize("scope", ["user", "project"])
@pytest.mark.parametrize("client", CLIENTS)
def test_a_host_without_configuration_gets_a_file(
    client: Client, scope: Scope, env: dict[str, str], project: Path
) -> None:
    plan = plan_install(client, scope, project=project, env=env, command=COMMAND)
    assert plan.changed
    assert not plan.path.exists(), "a plan touches nothing"
    assert "/opt/sublet/bin/sublet" in plan.diff()
    assert apply(plan) is None
    entry = entry_in(plan.path.read_text(), client)
    assert isinstance(entry, dict)
    assert (entry["command"], entry["args"]) == ("/opt/sublet/bin/sublet", ["mcp"])
    assert entry.get("type") == ("stdio" if client in ("claude", "vscode") else None)
    again = plan_install(client, scope, project=project, env=env, command=COMMAND)
    assert not again.changed
    assert again.diff() == ""
    assert apply(again) is None


def test_files_are_where_the_hosts_look(env: dict[str, str], project: Path) -> None:
    home = Path(env["HOME"])
    found = {client: config_path(client, "user", project, env) for client in CLIENTS}
    assert found == {
        "claude": home / ".claude.json",
        "cursor": home / ".cursor/mcp.json",
        "vscode": home / ".config/Code/User/mcp.json",
        "codex": home / ".codex/config.toml",
    }
    moved = env | {"CLAUDE_CONFIG_DIR": "/c", "CODEX_HOME": "/x", "XDG_CONFIG_HOME": "/g"}
    assert config_path("claude", "user", project, moved) == Path("/c/.claude.json")
    assert config_path("codex", "user", project, moved) == Path("/x/config.toml")
    assert config_path("vscode", "user", project, moved) == Path("/g/Code/User/mcp.json")
    assert plan_install("vscode", project=project, env=env).path == project / ".vscode/mcp.json"
    assert plan_install("claude", "project", project=project, env=env).path == project / ".mcp.json"


def test_other_content_order_indent_and_mode_stay(env: dict[str, str], project: Path) -> None:
    path = Path(env["HOME"], ".claude.json")
    path.parent.mkdir()
    before = (
        '{\n    "zeta": 1,\n    "token": "s3cr\u00e9t",\n    "mcpServers": {\n        "other": {\n'
        '            "command": "x"\n        }\n    },\n    "alpha": [\n        1.5\n    ]\n}\n'
    )
    path.write_text(before)
    path.chmod(0o640)
    plan = plan_install("claude", project=project, env=env, command=COMMAND)
    assert "s3cr" not in plan.diff(), "what stands around an entry is nobody's business"
    backup = apply(plan)
    assert backup is not None
    assert backup.read_text() == before
    assert stat.S_IMODE(path.stat().st_mode) == stat.S_IMODE(backup.stat().st_mode) == 0o640
    config = json.loads(path.read_text())
    assert list(config) == ["zeta", "token", "mcpServers", "alpha"]
    del config["mcpServers"]["sublet"]
    assert config == json.loads(before)
    assert '\n    "alpha"' in path.read_text()
    assert sorted(os.listdir(path.parent)) == [".claude.json", backup.name]


def test_an_older_entry_is_renewed_and_keeps_what_the_user_added(env: dict[str, str], project: Path) -> None:
    path = project / ".mcp.json"
    old = {"command": "old", "args": ["x"], "timeout": 9, "env": {"A": "1", "SUBLET_HOME": "/old"}}
    path.write_text(json.dumps({"mcpServers": {"sublet": old}}))
    plan = plan_install("claude", "project", project=project, env=env | {"SUBLET_HOME": "/srv/s"}, command=COMMAND)
    assert entry_in(plan.after, "claude") == {
        "command": COMMAND[0],
        "args": ["mcp"],
        "timeout": 9,
        "env": {"A": "1", "SUBLET_HOME": "/srv/s"},
        "type": "stdio",
    }


@pytest.mark.parametrize(
    "text",
    [
        "{",
        '{"mcpServers": {} // mine\n}',
        '{"mcpServers": {},}',
        "[]",
        '{"mcpServers": []}',
        '{"a": 1, "a": 2}',
        "[" * 100_000,
    ],
)
def test_json_that_cannot_be_edited_safely_is_refused(env: dict[str, str], project: Path, text: str) -> None:
    path = project / ".cursor" / "mcp.json"
    path.parent.mkdir()
    path.write_text(text)
    with pytest.raises(SubletError) as caught:
        plan_install("cursor", "project", project=project, env=env, command=COMMAND)
    assert caught.value.code == LocalCode.CONFLICT
    assert '"command": "/opt/sublet/bin/sublet"' in caught.value.hint
    assert path.read_text() == text


CODEX = """\
model = "o5"  # mine

[mcp_servers.other]
command = "x"
args = [
  "[mcp_servers.sublet]",
]

[profiles."a b"]
text = \"\"\"
[mcp_servers.sublet]
\"\"\"
"""


def codex_file(env: dict[str, str], text: str) -> Path:
    path = Path(env["HOME"], ".codex", "config.toml")
    path.parent.mkdir(parents=True)
    path.write_text(text)
    return path


def test_codex_gets_a_table_and_every_other_byte_stays(env: dict[str, str], project: Path) -> None:
    path = codex_file(env, CODEX)
    apply(plan_install("codex", project=project, env=env | {"SUBLET_HOME": "/srv/\u00fc"}, command=COMMAND))
    after = path.read_text()
    assert after.startswith(CODEX)
    assert entry_in(after, "codex") == {"command": COMMAND[0], "args": ["mcp"], "env": {"SUBLET_HOME": "/srv/\u00fc"}}
    assert not plan_install("codex", project=project, env=env | {"SUBLET_HOME": "/srv/\u00fc"}, command=COMMAND).changed


def test_codex_table_is_renewed_where_it_is(env: dict[str, str], project: Path) -> None:
    head, tail = 'model = "o5"\n\n', '[zeta]\nlast = true # "mine"\n'
    old = '[mcp_servers.sublet]\ncommand = "old"\nstartup_timeout_sec = 30\n[mcp_servers.sublet.env]\nA = "1"\n\n'
    path = codex_file(env, head + old + tail)
    apply(plan_install("codex", project=project, env=env, command=COMMAND))
    assert path.read_text().startswith(head + "[mcp_servers.sublet]\n")
    assert path.read_text().endswith(
        'startup_timeout_sec = 30\nargs = ["mcp"]\n\n[mcp_servers.sublet.env]\nA = "1"\n\n' + tail
    )
    assert entry_in(path.read_text(), "codex") == {
        "command": COMMAND[0],
        "args": ["mcp"],
        "startup_timeout_sec": 30,
        "env": {"A": "1"},
    }


@pytest.mark.parametrize(
    "text",
    [
        "model = ",
        'mcp_servers = "none"\n',
        "[[mcp_servers]]\n",
        "mcp_servers = 1\n[z]\n",
    ],
)
def test_toml_that_cannot_be_edited_safely_is_refused(env: dict[str, str], project: Path, text: str) -> None:
    path = codex_file(env, text)
    with pytest.raises(SubletError) as caught:
        plan_install("codex", project=project, env=env, command=COMMAND)
    assert caught.value.code == LocalCode.CONFLICT
    assert "[mcp_servers.sublet]" in caught.value.hint
    assert path.read_text() == text


def test_a_linked_file_stays_a_link(env: dict[str, str], project: Path, tmp_path: Path) -> None:
    real = tmp_path / "dotfiles.json"
    real.write_text("{}")
    link = Path(env["HOME"], ".claude.json")
    link.parent.mkdir()
    link.symlink_to(real)
    apply(plan_install("claude", project=project, env=env, command=COMMAND))
    assert link.is_symlink()
    assert entry_in(real.read_text(), "claude")


def test_a_file_that_changed_meanwhile_is_not_overwritten(env: dict[str, str], project: Path) -> None:
    plan = plan_install("claude", "project", project=project, env=env, command=COMMAND)
    plan.path.write_text('{"theirs": true}')
    with pytest.raises(SubletError) as caught:
        apply(plan)
    assert caught.value.code == LocalCode.CONFLICT
    assert plan.path.read_text() == '{"theirs": true}'


def test_files_that_cannot_be_read_are_refused(env: dict[str, str], project: Path) -> None:
    (project / ".mcp.json").write_bytes(b"\xff\xfe{}")
    with pytest.raises(SubletError, match="UTF-8"):
        plan_install("claude", "project", project=project, env=env)
    (project / ".vscode").write_text("no directory")
    with pytest.raises(SubletError) as caught:
        apply(plan_install("vscode", project=project, env=env))
    assert caught.value.code == LocalCode.UNAVAILABLE


def test_windows_line_ends_stay(env: dict[str, str], project: Path) -> None:
    path = project / ".mcp.json"
    path.write_bytes(b'{\r\n\t"a": 1\r\n}\r\n')
    apply(plan_install("claude", "project", project=project, env=env, command=COMMAND))
    raw = path.read_bytes()
    assert raw.count(b"\n") == raw.count(b"\r\n")
    assert b'\r\n\t"a": 1' in raw


def test_the_command_runs_from_anywhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    command = own_command()
    assert os.path.isabs(command[0])
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, cwd=tmp_path, check=False)
    assert done.returncode == 0
    assert done.stdout == b""
    monkeypatch.setattr("sys.prefix", "/home/me/.cache/uv/archive-v0/abc")
    assert own_command() == ["uvx", "sublet", "mcp"]
    monkeypatch.undo()
    monkeypatch.setattr("sys.executable", str(tmp_path / "python3"))
    assert own_command() == [str(tmp_path / "python3"), "-P", "-m", "sublet", "mcp"]


@pytest.mark.parametrize("scope", ["user", "project"])
@pytest.mark.parametrize("client", CLIENTS)
def test_an_entry_is_taken_out_and_all_else_stays(
    client: Client, scope: Scope, env: dict[str, str], project: Path
) -> None:
    nothing = plan_uninstall(client, scope, project=project, env=env)
    assert not nothing.changed
    path = nothing.path
    path.parent.mkdir(parents=True, exist_ok=True)
    other = '[mcp_servers.other]\ncommand = "x"\n' if client == "codex" else '{"other": {"é": [1, 2]}, "k": 0}\n'
    path.write_text(other)
    apply(plan_install(client, scope, project=project, env=env, command=COMMAND))
    assert "sublet" in path.read_text()
    plan = plan_uninstall(client, scope, project=project, env=env)
    assert apply(plan) == path.with_name(path.name + ".before-sublet")
    text = path.read_text()
    if client == "codex":
        assert tomllib.loads(text) == tomllib.loads(other)
    else:
        left = json.loads(text)
        assert left.pop("servers" if client == "vscode" else "mcpServers") == {}
        assert left == json.loads(other)
    assert not plan_uninstall(client, scope, project=project, env=env).changed


def test_what_can_not_be_edited_is_left_to_the_person(env: dict[str, str], project: Path) -> None:
    path = config_path("cursor", "user", project, env)
    path.parent.mkdir(parents=True)
    path.write_text('{"mcpServers": {"sublet": {}} /* mine */}')
    with pytest.raises(SubletError, match="left as it is") as no:
        plan_uninstall("cursor", "user", project=project, env=env)
    assert no.value.hint.startswith("Remove this by hand")
