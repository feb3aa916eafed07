"""``sublet mcp install`` and ``uninstall``: one entry in an MCP host's own configuration file, and nothing else.

First a ``Plan`` is made, which can be shown; then it is carried out. What can't be edited without risk (a file that is
no valid JSON or TOML, or has comments) is refused with the lines to add by hand.
"""

from __future__ import annotations

import difflib
import json
import os
import shutil
import sys
import tempfile
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

from sublet.mcp_server.toml_entry import drop_table, dump_table, put_table
from sublet.protocol.errors import LocalCode, SubletError

Client: TypeAlias = Literal["claude", "cursor", "vscode", "codex"]
Scope: TypeAlias = Literal["user", "project"]

NAME = "sublet"
BACKUP_SUFFIX = ".before-sublet"
MAX_CONFIG_BYTES = 16 * 1024 * 1024
NEW_FILE_MODE = 0o600
DEFAULT_INDENT = 2


@dataclass(frozen=True, slots=True)
class Plan:
    """One edit of one file.

    Args:
        client: whose configuration it is.
        path: the file, links resolved.
        before: its text, None where there is no such file.
        after: its text with the entry.
        command: what the host will run.
    """

    client: Client
    path: Path
    before: str | None
    after: str
    command: tuple[str, ...]

    @property
    def changed(self) -> bool:
        """Whether there is anything to do."""
        return self.before != self.after

    def diff(self) -> str:
        """Return what will change, without context: these files hold credentials, and one may be a line away."""
        lines = difflib.unified_diff(
            (self.before or "").splitlines(keepends=True),
            self.after.splitlines(keepends=True),
            f"{self.path} (now)",
            f"{self.path} (then)",
            n=0,
        )
        return "".join(line if line.endswith("\n") else f"{line}\n" for line in lines)


def plan_install(
    client: Client,
    scope: Scope | None = None,
    *,
    project: Path,
    env: Mapping[str, str] | None = None,
    command: Sequence[str] | None = None,
) -> Plan:
    """Work out how ``client`` gets its entry, without touching anything.

    Args:
        client: which host.
        scope: ``user`` for all projects, ``project`` for this one; by default what is usual for the host.
        project: directory of the project.
        env: environment that says where configuration lies; the process's own by default.
        command: what to run; by default this installation's ``sublet mcp``.

    Raises:
        SubletError: ``CONFLICT`` where the file can't be edited safely, ``UNAVAILABLE`` where it can't be read.
    """
    env = os.environ if env is None else env
    path = config_path(client, scope or ("project" if client == "vscode" else "user"), project, env)
    entry: dict[str, Any] = {"type": "stdio"} if client in ("claude", "vscode") else {}
    chosen = tuple(command or own_command())
    entry |= {"command": chosen[0], "args": list(chosen[1:])}
    if env.get("SUBLET_HOME"):
        entry["env"] = {"SUBLET_HOME": os.path.abspath(os.path.expanduser(env["SUBLET_HOME"]))}
    before = _read(path)
    after = (
        _with_table(path, before, entry) if client == "codex" else _with_object(path, before, _section(client), entry)
    )
    return Plan(client=client, path=path, before=before, after=after, command=chosen)


def plan_uninstall(
    client: Client, scope: Scope | None = None, *, project: Path, env: Mapping[str, str] | None = None
) -> Plan:
    """Work out how ``client`` loses its entry, without touching anything. Arguments and errors as ``plan_install``."""
    env = os.environ if env is None else env
    path = config_path(client, scope or ("project" if client == "vscode" else "user"), project, env)
    before = _read(path) or ""
    after = before
    if before.strip():
        after = _without_entry(path, before) if client == "codex" else _without_member(path, before, _section(client))
    return Plan(client=client, path=path, before=before, after=after, command=())


def apply(plan: Plan) -> Path | None:
    """Carry ``plan`` out, and return the copy that was kept of the old file; None where there was none.

    The new file replaces the old one in one step, with the same mode.

    Raises:
        SubletError: ``CONFLICT`` where the file was changed since the plan was made, ``UNAVAILABLE`` where it can't be
            written.
    """
    if not plan.changed:
        return None
    if _read(plan.path) != plan.before:
        raise SubletError(LocalCode.CONFLICT, f"{plan.path} was changed just now", "Run the command again.")
    try:
        plan.path.parent.mkdir(parents=True, exist_ok=True)
        backup = None
        if plan.before is not None:
            backup = plan.path.with_name(plan.path.name + BACKUP_SUFFIX)
            shutil.copy2(plan.path, backup)
        _replace(plan.path, plan.after)
    except OSError as error:
        raise _unavailable(plan.path, error) from error
    return backup


def config_path(client: Client, scope: Scope, project: Path, env: Mapping[str, str]) -> Path:
    """Return the file in which ``client`` looks for its MCP servers, links resolved."""
    home = Path(env.get("HOME") or os.path.expanduser("~"))
    in_project = {
        "claude": project / ".mcp.json",
        "cursor": project / ".cursor" / "mcp.json",
        "vscode": project / ".vscode" / "mcp.json",
        "codex": project / ".codex" / "config.toml",
    }
    settings = home / "Library/Application Support" if sys.platform == "darwin" else home / ".config"
    if sys.platform != "darwin" and env.get("XDG_CONFIG_HOME"):
        settings = Path(env["XDG_CONFIG_HOME"])
    for_user = {
        "claude": Path(env.get("CLAUDE_CONFIG_DIR") or home) / ".claude.json",
        "cursor": home / ".cursor" / "mcp.json",
        "vscode": settings / "Code" / "User" / "mcp.json",
        "codex": Path(env.get("CODEX_HOME") or home / ".codex") / "config.toml",
    }
    # Many keep these files elsewhere and link to them; replacing the link would part the two.
    return (for_user if scope == "user" else in_project)[client].resolve()


def own_command() -> list[str]:
    """Return the command that runs this installation's ``sublet mcp``, from anywhere and in a month."""
    if any(part.startswith(("archive-v", "builds-v")) for part in Path(sys.prefix).parts):
        return ["uvx", NAME, "mcp"]  # uv's cache is no lasting place
    script = Path(sys.executable).with_name(NAME)
    if script.exists():
        return [str(script), "mcp"]
    return [sys.executable, "-P", "-m", NAME, "mcp"]


def _section(client: Client) -> str:
    return "servers" if client == "vscode" else "mcpServers"


def _merged(old: object, entry: dict[str, Any]) -> dict[str, Any]:
    """Return ``entry`` with what the user added to the old one, such as a time limit or a variable."""
    if not isinstance(old, dict):
        return entry
    found = {**old, **entry}
    if isinstance(old.get("env"), dict) and "env" in entry:
        found["env"] = {**old["env"], **entry["env"]}
    return found


def _with_object(path: Path, before: str | None, section: str, entry: dict[str, Any]) -> str:
    snippet = json.dumps({section: {NAME: entry}}, indent=DEFAULT_INDENT)
    text = before if before is not None and before.strip() else "{}"
    try:
        config = json.loads(text, object_pairs_hook=_unique)
    except (ValueError, RecursionError) as error:
        raise _by_hand(path, f"is no plain JSON ({error})", snippet) from None
    if not isinstance(config, dict) or not isinstance(config.get(section, {}), dict):
        raise _by_hand(path, f"has no object {section!r} where one belongs", snippet)
    servers = config.setdefault(section, {})
    merged = _merged(servers.get(NAME), entry)
    if before is not None and servers.get(NAME) == merged:
        return before
    servers[NAME] = merged
    after = json.dumps(config, indent=_indent(text), ensure_ascii=False)
    after += "\n" if before is None or before.endswith("\n") else ""
    return after.replace("\n", "\r\n") if "\r\n" in text else after


def _with_table(path: Path, before: str | None, entry: dict[str, Any]) -> str:
    text = before or ""
    snippet = dump_table(("mcp_servers", NAME), entry)
    try:
        config = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise _by_hand(path, f"is no valid TOML ({error})", snippet) from None
    servers = config.get("mcp_servers", {})
    merged = _merged(servers.get(NAME) if isinstance(servers, dict) else None, entry)
    after = put_table(text, ("mcp_servers", NAME), merged)
    if after is None:
        raise _by_hand(path, f"can't be edited without touching more than [mcp_servers.{NAME}]", snippet)
    return after


def _without_member(path: Path, before: str, section: str) -> str:
    try:
        config = json.loads(before, object_pairs_hook=_unique)
    except (ValueError, RecursionError) as error:
        raise _by_hand(path, f"is no plain JSON ({error})", f"{section}.{NAME}", "Remove") from None
    servers = config.get(section) if isinstance(config, dict) else None
    if not isinstance(servers, dict) or NAME not in servers:
        return before
    del servers[NAME]
    after = json.dumps(config, indent=_indent(before), ensure_ascii=False) + ("\n" if before.endswith("\n") else "")
    return after.replace("\n", "\r\n") if "\r\n" in before else after


def _without_entry(path: Path, before: str) -> str:
    try:
        after = drop_table(before, ("mcp_servers", NAME))
    except tomllib.TOMLDecodeError as error:
        raise _by_hand(path, f"is no valid TOML ({error})", f"[mcp_servers.{NAME}]", "Remove") from None
    if after is None:
        why = f"can't be edited without touching more than [mcp_servers.{NAME}]"
        raise _by_hand(path, why, f"[mcp_servers.{NAME}]", "Remove")
    return after


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a name stands twice in one object, and editing would drop one of them")
    return found


def _indent(text: str) -> int | str:
    for line in text.splitlines():
        blank = line[: len(line) - len(line.lstrip(" \t"))]
        if blank and line.strip():
            return blank if "\t" in blank else len(blank)
    return DEFAULT_INDENT


def _read(path: Path) -> str | None:
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_CONFIG_BYTES + 1)
        if len(raw) > MAX_CONFIG_BYTES:
            raise SubletError(LocalCode.CONFLICT, f"{path} is larger than {MAX_CONFIG_BYTES} bytes", "Is it the file?")
        return raw.decode()
    except FileNotFoundError:
        return None
    except UnicodeDecodeError:
        raise SubletError(LocalCode.CONFLICT, f"{path} is not UTF-8", "Save it as UTF-8 and try again.") from None
    except OSError as error:
        raise _unavailable(path, error) from error


def _replace(path: Path, text: str) -> None:
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(text.encode())
            file.flush()
            os.fsync(file.fileno())
        mode = path.stat().st_mode & 0o777 if path.exists() else NEW_FILE_MODE
        os.chmod(name, mode)
        os.replace(name, path)
    except OSError:
        os.unlink(name)
        raise


def _by_hand(path: Path, why: str, snippet: str, verb: str = "Add") -> SubletError:
    hint = f"{verb} this by hand:\n{snippet}"
    return SubletError(LocalCode.CONFLICT, f"{path} {why}, so it was left as it is", hint)


def _unavailable(path: Path, error: OSError) -> SubletError:
    return SubletError(LocalCode.UNAVAILABLE, f"{path} can't be used: {error.strerror or error}", "Check its mode.")
