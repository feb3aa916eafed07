"""What end-to-end tests of leases share: delegating by the command line, looking on, and looking around the machine."""

from __future__ import annotations

import asyncio
import contextlib
import json
import secrets
import sqlite3
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

from sublet.daemon.api.delegation_fields import OneDelegation
from sublet.daemon.api.delegation_views import DelegationView
from sublet.daemon.api.delegations import GET_DELEGATION, WAIT_FOR_END, WaitForEnd
from sublet.daemon.api.events import READ_EVENTS, ReadEvents
from sublet.daemon.config.paths import resolve_home
from sublet.daemon.control.client import ControlClient
from sublet.protocol.events import Event, EventKind
from sublet.protocol.lifecycle import DELEGATION_TABLE, is_terminal
from support.daemons import COMMAND_SECONDS, SHELL_AGENT, CommandFailed, Daemon, wait_for

PORT_SECONDS = 40.0

T = TypeVar("T")
ANY_STATUS = None


def control(daemon: Daemon) -> ControlClient:
    """Return the typed client of the daemon's control API."""
    return ControlClient(resolve_home({"SUBLET_HOME": str(daemon.home)}))


def ask(daemon: Daemon, question: Callable[[ControlClient], Awaitable[T]]) -> T:
    """Ask the daemon something over its control socket, which is quicker than a command."""

    async def main() -> T:
        async with control(daemon) as client:
            return await question(client)

    return asyncio.run(main())


def delegate(
    daemon: Daemon, directory: Path, script: str, *options: str, peer: str = "bob", timeout: float = COMMAND_SECONDS
) -> dict[str, Any]:
    """Lend ``directory``, have ``script`` run in it, and return the end that the command prints."""
    found = daemon.json("delegate", str(directory), "--to", peer, script, *options, check=ANY_STATUS, timeout=timeout)
    assert isinstance(found, dict)
    return found


def begin(daemon: Daemon, directory: Path, script: str, *options: str, peer: str = "bob") -> str:
    """Lend ``directory`` in the background and return the delegation's id."""
    handle = daemon.json("delegate", str(directory), "--to", peer, script, "--background", *options)
    return str(handle["delegation_id"])


def view(daemon: Daemon, delegation_id: str) -> DelegationView:
    """Return the delegation as it is now."""
    return ask(daemon, lambda client: client.call(GET_DELEGATION, OneDelegation(delegation_id=delegation_id)))


def finish(daemon: Daemon, delegation_id: str, seconds: float = 40) -> DelegationView:
    """Wait for the end of a delegation and return the view."""
    ended = ask(
        daemon, lambda client: client.call(WAIT_FOR_END, WaitForEnd(delegation_id=delegation_id, timeout=seconds))
    )
    assert is_terminal(DELEGATION_TABLE, ended.state), ended
    return ended


def events(daemon: Daemon, delegation_id: str) -> list[Event]:
    """Return all events of a delegation."""
    return ask(
        daemon, lambda client: client.call(READ_EVENTS, ReadEvents(cursor=0, delegation_id=delegation_id, limit=500))
    ).events


def states(daemon: Daemon, delegation_id: str) -> list[str]:
    """Return the states that a delegation went through, as journalled."""
    return [str(event.data["state"]) for event in events(daemon, delegation_id) if is_state(event)]


def conditions(daemon: Daemon, delegation_id: str) -> list[str]:
    """Return the kinds of condition that a delegation was in, in order; empty for none."""
    found = []
    for event in events(daemon, delegation_id):
        if event.kind is EventKind.DELEGATION_CONDITION:
            condition = event.data["condition"]
            found.append(str(condition["kind"]) if isinstance(condition, dict) else "")
    return found


def is_state(event: Event) -> bool:
    """Tell whether the event is a transition."""
    return event.kind is EventKind.DELEGATION_STATE


def wait_state(daemon: Daemon, delegation_id: str, state: str, seconds: float = 30) -> DelegationView:
    """Wait until the delegation is in ``state``."""
    found: DelegationView = wait_for(
        lambda: now if str((now := view(daemon, delegation_id)).state) == state else None, seconds, f"state {state}"
    )
    return found


def mount_of(executor: Daemon, delegation_id: str) -> Path:
    """Return where the executor mounts the view of a delegation."""
    return executor.home / "state" / "mounts" / delegation_id


def tree(root: Path) -> dict[str, bytes]:
    """Return every file below ``root`` with its content, links as what they say."""
    return {
        str(path.relative_to(root)): str(path.readlink()).encode() if path.is_symlink() else path.read_bytes()
        for path in sorted(root.rglob("*"))
        if path.is_symlink() or path.is_file()
    }


def appear(path: Path, text: str) -> None:
    """Make a file that an agent waits for, with all its text at once: a file written in place is empty at first."""
    draft = path.with_name(f"{path.name}.new")
    draft.write_text(text)
    draft.rename(path)


def marker() -> str:
    """Return an argument of ``sleep`` that no other process has."""
    return f"3600.{secrets.randbelow(10**12):012d}"


def processes_with(text: str) -> list[int]:
    """Return the processes, of whatever namespace, that have ``text`` in their command line."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                if text in (entry / "cmdline").read_bytes().decode(errors="replace"):
                    found.append(int(entry.name))
    return found


def process_state(pid: int) -> str:
    """Return the state letter of a process; empty where it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return ""


def restart(daemon: Daemon, agent: Mapping[str, Any] | None = SHELL_AGENT) -> None:
    """Start a daemon that is gone again, where its peers know it to be.

    The system may have lent one of its ports to somebody's outgoing connection meanwhile, which is waited for.
    """
    address, sftp = urlsplit(str(daemon.info["a2a_url"])).netloc, str(daemon.info["sftp"])
    deadline = time.monotonic() + PORT_SECONDS
    while True:
        try:
            daemon.up(agent=agent, a2a=address, sftp=sftp)
            return
        except CommandFailed as error:
            if "Address already in use" not in str(error) or time.monotonic() > deadline:
                raise
        time.sleep(0.5)


def assignment(executor: Daemon, delegation_id: str) -> dict[str, Any]:
    """Return what the executor's database says of an assignment; empty where it knows none."""
    uri = f"file:{executor.home / 'state' / 'sublet.db'}?mode=ro"
    with contextlib.closing(sqlite3.connect(uri, uri=True)) as database:
        row = database.execute("SELECT record FROM assignments WHERE id = ?", (delegation_id,)).fetchone()
    found = json.loads(row[0]) if row else {}
    assert isinstance(found, dict)
    return found
