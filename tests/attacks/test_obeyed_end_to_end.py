"""Between two daemons: what hidden and locked links of the lender's lead to stays unseen and unchanged."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from sublet.daemon.api.results import APPLY_RESULT, ApplyResult
from support.daemons import Daemon, two_daemons
from support.leases import ask, delegate

WORK = (
    "cat conf/production 2>/dev/null && echo conf/production >> seen; "
    "rm -f conf/production; echo EVIL > env/rc; echo EVIL > tools/hook; "
    "echo EVIL > second; echo done > free; true"
)


@pytest.fixture(scope="module")
def daemons(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Daemon, Daemon]]:
    with two_daemons(tmp_path_factory.mktemp("second")) as pair:
        yield pair


@pytest.mark.parametrize("transport", ["sshfs", "archive", "git"])
@pytest.mark.parametrize("staged", [False, True])
def test_what_hidden_and_locked_links_lead_to_stays(
    daemons: tuple[Daemon, Daemon], tmp_path: Path, transport: str, staged: bool
) -> None:
    root = tmp_path / "project"
    for name in ("conf/production", "env/rc", "tools/hook", ".exrc", "free"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("the lender's\n")
    for link, target in {".env": "conf/production", ".envrc": "env/rc", ".husky": "tools"}.items():
        (root / link).symlink_to(target)
    os.link(root / ".exrc", root / "second")
    ended = delegate(daemons[0], root, WORK, "--transport", transport, *(["--staged"] if staged else []))
    assert ended["error"] is None, ended
    if staged:
        ask(
            daemons[0],
            lambda client: client.call(APPLY_RESULT, ApplyResult(delegation_id=ended["delegation_id"], partial=True)),
        )
    for name in ("conf/production", "env/rc", "tools/hook", ".exrc"):
        assert (root / name).read_text() == "the lender's\n", name
    assert (root / "free").read_text() == "done\n"
    assert not (root / "seen").exists()
