"""This version takes up what older ones have on disk: each frozen state directory is opened, and says the same."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sqlite3
import subprocess
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from golden.freeze import HERE, NAMES, look
from sublet.app.stores import FACE_STORES
from sublet.daemon.config.paths import resolve_home
from sublet.daemon.process.lock import read_owner
from sublet.daemon.storage.state import LAYOUT, databases
from sublet.migrations.layout import LayoutFiles
from support.daemons import Daemon, wait_for
from support.trees import contents

VERSIONS = sorted(folder.name for folder in HERE.iterdir() if (folder / "views.json").exists())
KEEP_ALL = {"retention": {"max_age_days": None, "pending_days": 36_500}}
MOVING = {"remaining_seconds", "entries", "last", "signed", "cursor", "last_seen", "reachable", "unread", "events"}
"""What differs from one look to the next, whatever the version."""
COPY_SECONDS = 60.0


def pinned(there: Any, now: Any) -> Any:
    """Return ``now`` cut down to the fields that ``there`` has: a later version may tell more."""
    if isinstance(there, Mapping) and isinstance(now, Mapping):
        return {name: pinned(value, now.get(name)) for name, value in there.items() if name not in MOVING}
    if isinstance(there, list) and isinstance(now, list) and len(there) == len(now):
        return [pinned(one, other) for one, other in zip(there, now, strict=True)]
    return now


def unpacked(version: str, role: str, place: Path) -> Daemon:
    """Return the daemon whose frozen state is unpacked below ``place``, not started."""
    # The first releases of Python 3.11 can't be told which filter is meant, and the later ones want to be.
    subprocess.run(["tar", "-xzf", HERE / version / f"{role}.tar.gz", "-C", place], check=True)
    daemon = Daemon(place / role)
    (daemon.home / "config" / "config.json").write_text(json.dumps(KEEP_ALL))
    return daemon


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("role", NAMES)
def test_a_later_daemon_takes_up_the_state(tmp_path: Path, version: str, role: str) -> None:
    views = json.loads((HERE / version / "views.json").read_text(encoding="utf-8"))[role]
    daemon = unpacked(version, role, tmp_path)
    chain = audit_log(daemon)
    before = contents(daemon.home / "state")
    if copied := COPIES[version]:
        killed_once_there(daemon, copied)
    daemon.up()
    try:
        now = look(daemon)
    finally:
        daemon.down()
    # What was there is told in the same words: delegations and their reports, grants, rooms and each message of them.
    for view, there in views.items():
        if view in ("peers", "approvals"):  # the other daemon does not run; questions run out
            continue
        if view == "grants":  # a grant runs out, too
            there, now[view] = ([one["id"] for one in found["grants"]] for found in (there, now[view]))
        if view == "rooms":  # a list in another order since then
            there, now[view] = (sorted(found, key=lambda one: one["room_id"]) for found in (there, now[view]))
        assert pinned(there, now[view]) == pinned(there, there), view
    if role == "lender":
        assert len(views["delegations"]["delegations"]) == 7
        assert len(views["grants"]["grants"]) == 1
    assert [len(said) for room, said in views["messages"].items() if room in named(views, "Workshop")] == [3]
    # The chain goes on from what was there, which is there still.
    assert now["audit"]["ok"]
    assert audit_log(daemon).startswith(chain)
    assert now["audit"]["entries"] > chain.count(b"\n")
    for copy, original in copied.items():
        assert told(contents(daemon.home / "state")[copy]) == told(before[original]), copy


def test_a_state_of_this_version_is_frozen(tmp_path: Path) -> None:
    """Where this fails, the form of the state has changed: freeze it, as docs/releasing.md says."""
    for version in reversed(VERSIONS):
        daemon = unpacked(version, "lender", tmp_path)
        state = daemon.home / "state"
        found = [store.version() for store in databases(state, FACE_STORES)]
        if found == [store.schema.version for store in databases(state, FACE_STORES)]:
            written = LayoutFiles(state, LAYOUT, "").read()
            assert written is not None
            assert written.layout == LAYOUT.version
            return
        shutil.rmtree(daemon.home)
    pytest.fail("no frozen state has the versions of today")


def test_a_later_state_is_refused_in_words_and_left_as_it_is(tmp_path: Path) -> None:
    daemon = unpacked(VERSIONS[0], "worker", tmp_path)
    (daemon.home / "state" / "state-version").write_text('{"layout": 99, "sublet": "9.9.9"}\n')
    before = contents(daemon.home / "state")
    for options in (["--detach"], []):
        done = daemon.run("up", *options, "--a2a", "127.0.0.1:0", check=(1,))
        assert "has version 99, written by Sublet 9.9.9; this program knows up to version 2" in done.stderr
        assert "Start Sublet 9.9.9 again." in done.stderr
        assert "Traceback" not in done.stdout + done.stderr + daemon.log()
    failed = daemon.json("up", "--detach", check=(1,))
    assert failed["error"]["code"] == "STATE_VERSION"
    [check] = [one for one in daemon.json("doctor", check=(1,))["checks"] if one["name"] == "state version"]
    assert not check["ok"]
    assert "written by Sublet 9.9.9" in check["detail"]
    after = {name: content for name, content in contents(daemon.home / "state").items() if not name.endswith(".log")}
    assert after == before


COPIES: Mapping[str, Mapping[str, str]] = {
    "schema-9": {
        "sublet.db.v9": "sublet.db",
        "a2a.sqlite3.v0": "a2a.sqlite3",
        "files.v1/keys/bus.key": "keys/bus.key",
        "files.v1/keys/bus_authorities.pem": "keys/bus_authorities.pem",
        "messaging.db.v9": "messaging.db",
    },
    "layout-2": {"sublet.db.v10": "sublet.db", "messaging.db.v9": "messaging.db"},
    "messages-10": {"sublet.db.v10": "sublet.db", "messaging.db.v10": "messaging.db"},
    "messages-13": {"sublet.db.v10": "sublet.db", "messaging.db.v13": "messaging.db"},
    "messages-14": {"sublet.db.v10": "sublet.db"},
    "offices-11": {},
    "nodes-11": {},
}
"""What each frozen state leaves beside it when this version has taken it up, and which file of it that is."""


def told(content: bytes) -> object:
    """Return what is in a file: of a database all rows and its version, since SQLite counts changes in its header."""
    if not content.startswith(b"SQLite format 3"):
        return content
    with closing(sqlite3.connect(":memory:")) as database:
        database.deserialize(content[:18] + b"\1\1" + content[20:])  # which has no file for a log beside it
        return database.execute("PRAGMA user_version").fetchone(), list(database.iterdump())


def killed_once_there(daemon: Daemon, copies: Mapping[str, str]) -> None:
    """Start the daemon, and kill it as soon as it has made one of its copies, wherever it is then."""
    state, home = daemon.home / "state", resolve_home({"SUBLET_HOME": str(daemon.home)})
    addresses = ("--a2a", "127.0.0.1:0", "--sftp", "127.0.0.1:0", "--web", "0")
    with ThreadPoolExecutor(1) as thread:
        starting = thread.submit(daemon.run, "up", "--detach", *addresses, check=None)
        give_up = time.monotonic() + COPY_SECONDS
        while not any((state / copy).exists() for copy in copies):
            assert time.monotonic() < give_up, "no copy was made"
            time.sleep(0.001)
        owner = read_owner(home)
        assert owner is not None
        os.kill(owner.pid, signal.SIGKILL)
        starting.result()
    wait_for(lambda: read_owner(home) is None, COPY_SECONDS, "the end of who was killed")


def audit_log(daemon: Daemon) -> bytes:
    """Return all entries of the audit log as they stand in its files."""
    files = sorted((daemon.home / "state" / "audit-log").glob("audit-*.jsonl"))
    return b"".join(path.read_bytes() for path in files)


def named(views: Mapping[str, Any], name: str) -> set[str]:
    """Return the ids of the rooms of that name."""
    return {one["room_id"] for one in views["rooms"] if one["name"] == name}
