"""What can lie in a directory of the state that the daemon did not put there, or put there and a crash has torn."""

from __future__ import annotations

import os
from pathlib import Path

from support.deep_tree import nest

STORES = ("scratch", "staged", "changes", "work", "leases", "conversations", "sessions", "set-aside")
OURS = "dlg_" + "0" * 32
"""A name that the daemon could have given."""
DEEP = 1_050
"""Levels that are too many for whoever calls itself for each."""


def litter(store: Path) -> None:
    """Leave a bit of everything in a store."""
    store.mkdir(mode=0o700, parents=True, exist_ok=True)
    (store / "no key").mkdir()
    (store / os.fsdecode(b"caf\xe9")).write_bytes(b"no name in UTF-8")
    (store / "dangling").symlink_to("nowhere")
    (store / "linked").symlink_to("/etc")
    os.mkfifo(store / "fifo")
    (store / OURS).write_bytes(b"a file where a directory should be")
    torn = store / ("dlg_" + "1" * 32)
    torn.mkdir()
    for name in ("record.json", "begun.json", "change-set.json", "session.json", "decided.json"):
        (torn / name).write_bytes(b'{"half": ')
    blocked = store / ("dlg_" + "2" * 32)
    blocked.mkdir()
    for name in ("record.json", "begun.json", "change-set.json", "session.json", "decided.json"):
        os.mkfifo(blocked / name)
    plans = store / ("dlg_" + "3" * 32)
    for name in ("apply", "undo"):
        (plans / name).mkdir(parents=True)
        (plans / name / "plan.json").write_bytes(b"[" * 100_000)
        (plans / name / "done.json").mkdir()
    nest(store / ("dlg_" + "4" * 32), DEEP)
    (store / "deep.token").mkdir()
    nest(store / "deep.token", DEEP)
