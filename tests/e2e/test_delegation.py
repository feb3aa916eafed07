"""The main job, on real parts: two daemons, a real mount, a real sandbox."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.daemons import Daemon, two_daemons


@pytest.fixture(scope="module")
def daemons(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Daemon, Daemon]]:
    with two_daemons(tmp_path_factory.mktemp("main")) as pair:
        yield pair


def test_work_done_in_the_mount_reaches_the_lender(daemons: tuple[Daemon, Daemon], tmp_path: Path) -> None:
    delegator, _ = daemons
    (tmp_path / "greeting").write_text("hello\n")
    (tmp_path / "old").write_text("x\n")

    ended = delegator.json(
        "delegate", str(tmp_path), "--to", "bob", "cat greeting; echo bye >> greeting; echo n > new; rm old"
    )

    assert ended["state"] == "completed"
    assert ended["result"]["final_summary"] == "hello"
    assert ended["error"] is None
    assert (ended["audit"]["added"], ended["audit"]["changed"], ended["audit"]["deleted"]) == (
        ["new"],
        ["greeting"],
        ["old"],
    )
    assert (tmp_path / "greeting").read_text() == "hello\nbye\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["greeting", "new"]
