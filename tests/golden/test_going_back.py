"""What docs/upgrading.md says of going back, done with the version that is gone back to."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

from golden.freeze import HERE
from golden.test_golden_state import KEEP_ALL
from support.daemons import Daemon
from support.old_version import FIRST, environment, old_source


def test_the_copies_put_back_are_what_the_older_version_left(tmp_path: Path) -> None:
    old = environment(old_source(FIRST))
    subprocess.run(["tar", "-xzf", HERE / "schema-9" / "lender.tar.gz", "-C", tmp_path], check=True)
    views = json.loads((HERE / "schema-9" / "views.json").read_text(encoding="utf-8"))["lender"]
    new = Daemon(tmp_path / "lender")
    (new.home / "config" / "config.json").write_text(json.dumps(KEEP_ALL))
    new.up()
    new.run("token", "create", "since")
    new.down()
    before = Daemon(new.home, environ=old)
    refused = before.run("up", "--detach", check=(1,))
    assert "schema version 11, this program knows version 9" in refused.stderr

    state = new.home / "state"
    for name, version in (("sublet.db", 9), ("messaging.db", 9), ("a2a.sqlite3", 0)):
        for end in ("", "-wal", "-shm"):
            (state / f"{name}{end}").unlink(missing_ok=True)
        (state / f"{name}.v{version}").rename(state / name)
    shutil.copytree(state / "files.v1", state, dirs_exist_ok=True)
    shutil.rmtree(state / "files.v1")
    (state / "state-version").unlink()

    before.up()
    try:
        ids = {one["delegation_id"]: one["state"] for one in before.json("ls", "--all")["delegations"]}
        tokens = [one["name"] for one in before.json("token", "list")["tokens"]]
        rooms = {one["room_id"]: len(before.json("read", one["room_id"])) for one in before.json("room", "list")}
    finally:
        before.down()
    assert ids == {one["delegation_id"]: one["state"] for one in views["delegations"]["delegations"]}
    assert tokens == ["reader"], "what was done since is gone"
    assert rooms == {room: len(said) for room, said in views["messages"].items()}
    # And up again, over the copies that the first upgrade has left.
    again = Daemon(new.home)
    again.up()
    try:
        assert len(again.json("ls", "--all")["delegations"]) == len(ids)
    finally:
        again.down()
