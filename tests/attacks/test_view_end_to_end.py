"""What a lender and an executor are told of names, between two daemons: by mount, by copy, live and staged."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from sublet.daemon.api.review_models import ApplyRequest
from sublet.protocol.events import EventKind
from support.daemons import Daemon, two_daemons
from support.leases import ask, delegate, events

WORK = (
    "cat sub/l; mv prod elsewhere 2>/dev/null; "
    "mkdir -p .venv/certs && echo CA > .venv/certs/cacert.pem && cat .venv/certs/cacert.pem; "
    "echo X >> lib; cat ../meta/log.txt | grep refused || true"
)


@pytest.fixture(scope="module")
def daemons(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Daemon, Daemon]]:
    with two_daemons(tmp_path_factory.mktemp("view")) as pair:
        yield pair


@pytest.fixture
def project(tmp_path: Path) -> Path:
    root = tmp_path / "project"
    for name, text in {"prod/.env": "SECRET=1\n", "a/x": "hi\n", "sub/f": "f"}.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    (root / "sub" / "l").symlink_to("../a/x")
    (tmp_path / "store").write_text("store\n")
    os.link(tmp_path / "store", root / "lib")
    os.link(root / "prod" / ".env", root / "shown")
    return root


def notes(lender: Daemon, delegation_id: str) -> str:
    found = events(lender, delegation_id)
    return "".join(
        str(event.data["text"])
        for event in found
        if event.kind is EventKind.DELEGATION_OUTPUT and event.data["stream"] == "note"
    )


@pytest.mark.parametrize("transport", ["sshfs", "archive"])
def test_cases_d02_and_d03_and_what_is_refused_is_told(
    daemons: tuple[Daemon, Daemon], project: Path, transport: str
) -> None:
    ended = delegate(daemons[0], project, WORK, "--transport", transport)
    assert ended["error"] is None
    assert {".venv/certs/cacert.pem", "lib"} <= {*ended["audit"]["added"], *ended["audit"]["changed"]}
    assert {"prod/.env", "shown"} <= set(ended["hidden"])
    assert (project / ".venv/certs/cacert.pem").read_text() == "CA\n"
    assert (project / "lib").read_text() == "store\nX\n"
    assert (project.parent / "store").read_text() == "store\n"
    assert (project / "prod/.env").read_text() == (project / "shown").read_text() == "SECRET=1\n"
    if transport == "sshfs":
        told = notes(daemons[0], ended["delegation_id"])
        assert "refused: prod: the directory holds names of the lender's" in told
        assert ended["left_out"] == 0


def test_a_staged_result_brings_what_was_made_and_replaces_nothing_hidden(
    daemons: tuple[Daemon, Daemon], project: Path
) -> None:
    (project / "taken.pem").write_text("of the lender\n")
    script = "echo CA > new.pem; echo mine > taken.pem 2>/dev/null; true"
    ended = delegate(daemons[0], project, script, "--staged")
    assert ended["error"] is None
    assert "new.pem" in ended["audit"]["added"]
    ask(daemons[0], lambda client: client.apply_delegation(ended["delegation_id"], ApplyRequest(partial=True)))
    assert (project / "new.pem").read_text() == "CA\n"
    assert (project / "taken.pem").read_text() == "of the lender\n"
    assert not list(project.glob("taken.pem.*"))
