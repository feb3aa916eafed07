"""This version takes up what older ones have on disk: each frozen state directory is opened, and says the same."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from golden.freeze import HERE, NAMES, look
from support.daemons import Daemon

VERSIONS = sorted(folder.name for folder in HERE.iterdir() if (folder / "views.json").exists())
KEEP_ALL = {"retention": {"max_age_days": None, "pending_days": 36_500}}
MOVING = {"remaining_seconds", "entries", "last", "signed", "cursor", "last_seen", "reachable", "unread", "events"}
"""What differs from one look to the next, whatever the version."""


def pinned(there: Any, now: Any) -> Any:
    """Return ``now`` cut down to the fields that ``there`` has: a later version may tell more."""
    if isinstance(there, Mapping) and isinstance(now, Mapping):
        return {name: pinned(value, now.get(name)) for name, value in there.items() if name not in MOVING}
    if isinstance(there, list) and isinstance(now, list) and len(there) == len(now):
        return [pinned(one, other) for one, other in zip(there, now, strict=True)]
    return now


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("role", NAMES)
def test_a_later_daemon_takes_up_the_state(tmp_path: Path, version: str, role: str) -> None:
    views = json.loads((HERE / version / "views.json").read_text(encoding="utf-8"))[role]
    # The first releases of Python 3.11 can't be told which filter is meant, and the later ones want to be.
    subprocess.run(["tar", "-xzf", HERE / version / f"{role}.tar.gz", "-C", tmp_path], check=True)
    daemon = Daemon(tmp_path / role)
    (daemon.home / "config" / "config.json").write_text(json.dumps(KEEP_ALL))
    daemon.up()
    try:
        now = look(daemon)
    finally:
        daemon.down()
    for view, there in views.items():
        if view in ("peers", "approvals"):  # the other daemon does not run; questions run out
            continue
        if view == "grants":  # a grant runs out, too
            there, now[view] = ([one["id"] for one in found["grants"]] for found in (there, now[view]))
        assert pinned(there, now[view]) == pinned(there, there), view
