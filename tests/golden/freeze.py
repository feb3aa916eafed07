"""Freezes what two paired daemons have on disk after a little of everything, for the migrations of later versions.

Usage: python -m golden.freeze NAME, with ``tests`` on the path and the version to freeze checked out. It writes
``tests/golden/NAME/{lender,worker}.tar.gz``, and ``views.json``: what the commands of that version said of it.

Everything in it is made up: the people, the directories, the keys and the passphrase (``PASSPHRASE``).
"""

from __future__ import annotations

import json
import sys
import tarfile
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from support.daemon_rooms import shared_room, until_known
from support.daemons import Daemon, two_daemons, wait_for
from support.terminal import typed

PASSPHRASE = "correct horse battery"
HERE = Path(__file__).parent
NAMES = ("lender", "worker")
POLICY: Mapping[str, object] = {
    "version": 1,
    "global": [
        {
            "id": "ask-first",
            "effect": "approval",
            "action": "tool.call",
            "subject": {"kind": "agent"},
            "resource": "shell.exec",
        }
    ],
}
VIEWS: Mapping[str, tuple[str, ...]] = {
    "delegations": ("ls", "--all"),
    "work": ("work", "--all"),
    "peers": ("peers", "list"),
    "grants": ("grants", "list", "--all"),
    "approvals": ("approvals",),
    "rooms": ("room", "list"),
    "whoami": ("whoami",),
    "audit": ("audit", "verify"),
    "tokens": ("token", "list"),
}


def main(name: str) -> int:
    with tempfile.TemporaryDirectory(prefix="slt-") as scratch:
        base = Path(scratch)
        with two_daemons(base, policy=POLICY) as (lender, worker):
            play(lender, worker, base)
            views = {role: look(daemon) for role, daemon in zip(NAMES, (lender, worker), strict=True)}
            for daemon in (lender, worker):
                daemon.run("down")
            freeze(name, {"lender": lender.home, "worker": worker.home}, views)
    return 0


def play(lender: Daemon, worker: Daemon, base: Path) -> None:
    """Do a little of everything."""
    work = base / "project"
    work.mkdir()
    (work / "notes.txt").write_text("one\n")
    (work / ".env").write_text("KEY=made-up\n")
    (work / "bin").mkdir()
    lend(lender, work, "echo two >> notes.txt; mkdir made; echo new > made/file", 0)
    lend(lender, work, "exit 3", 1)
    lend(lender, work, "echo staged > staged.txt", 0, "--staged")
    lender.run("apply", "last")
    lender.run("undo", "last")
    lend(lender, work, "echo waits > waits.txt", 0, "--staged")
    lend(lender, work, "echo by-archive > archived.txt", 0, "--transport", "archive")
    lend(lender, work, "cat notes.txt", 0, "--ro")
    lender.run("delegate", str(work), "--to", "bob", "sleep 60", "--background")
    wait_for(lambda: running(lender), 30, "the work")
    lender.run("cancel", "last")
    govern(lender)
    talk(lender, worker, base)


def lend(lender: Daemon, work: Path, prompt: str, status: int, *options: str) -> None:
    lender.run("delegate", str(work), "--to", "bob", prompt, *options, check=(status,) if not status else None)


def running(lender: Daemon) -> bool:
    return [one["state"] for one in lender.json("ls")["delegations"]] == ["running"]


def govern(lender: Daemon) -> None:
    """Leave an approver, a grant and a denial."""
    asked = [("New passphrase: ", PASSPHRASE), ("Once more: ", PASSPHRASE)]
    status, shown = typed(lender, "approver", "init", answers=asked)
    assert status == 0, shown
    grant = ("grants", "create", "--agent", "shell", "--tool", "shell.exec", "--args", '{"command":"make"}')
    status, shown = typed(lender, *grant, "--ttl", "600", answers=[("Passphrase: ", PASSPHRASE)])
    assert status == 0, shown
    lender.run("token", "create", "reader")


def talk(lender: Daemon, worker: Daemon, base: Path) -> None:
    """Leave a room with messages, an edit, a reaction, a thread, a file and a shared text, and a purge."""
    room = shared_room(lender, worker)
    first = said(lender, room, "the first message")
    wait_for(lambda: any(one["ref_id"] == first for one in worker.json("read", room)), 60, "the message")
    worker.run("react", room, first, "👍")
    second = said(worker, room, "an answer", "--reply-to", first)
    worker.run("edit", room, second, "an answer, edited")
    (base / "plan.txt").write_text("step one\n")
    said(lender, room, "with a file", "--attach", str(base / "plan.txt"))
    lender.run("room", "config", room, "--name", "Workshop")
    lender.run("text", "share", room, first, "--all")
    until_known(worker, room)
    lender.run("text", "edit", room, first, "the first message, and more")

    def edited() -> bool:
        return any(one["body"] == "an answer, edited" for one in lender.json("read", room))

    wait_for(edited, 60, "the edit")
    cellar = lender.json("room", "create", "Cellar")["room_id"]
    gone = said(lender, cellar, "what is gone")
    lender.run("edit", cellar, gone, "what is gone, edited")
    lender.run("room", "purge", cellar, gone)


def said(who: Daemon, room: str, text: str, *options: str) -> str:
    answer: dict[str, Any] = who.json("send", room, text, *options)
    return str(answer["ref_id"])


def look(daemon: Daemon) -> dict[str, Any]:
    """Return what the commands say of all that is there."""
    found: dict[str, Any] = {view: daemon.json(*command, check=None) for view, command in VIEWS.items()}
    found["reports"] = {
        one["delegation_id"]: daemon.json("audit", one["delegation_id"], check=None)
        for one in found["delegations"]["delegations"]
    }
    found["messages"] = {one["room_id"]: daemon.json("read", one["room_id"]) for one in found["rooms"]}
    return found


def freeze(name: str, homes: Mapping[str, Path], views: Mapping[str, Any]) -> None:
    folder = HERE / name
    folder.mkdir()
    for role, home in homes.items():
        with tarfile.open(folder / f"{role}.tar.gz", "w:gz") as archive:
            archive.add(home, arcname=role, filter=state_alone)
    text = json.dumps(views, indent=1, ensure_ascii=False, sort_keys=True)
    (folder / "views.json").write_text(text + "\n", encoding="utf-8")


def state_alone(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    """Leave out what is no state: logs, sockets and locks of the runtime directory."""
    parts = Path(member.name).parts
    return None if parts[1:2] == ("run",) or parts[-1].endswith(".log") else member


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
