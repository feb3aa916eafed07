"""A hostile executor on hidden and locked names of the lender's that share a file, or lead to one, with another name."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from attacks.kit.view_lease import served
from attacks.test_view_names import CHANGES, READ, WRITE
from support.sftp_client import attributes
from support.views import default_rules

OK, DENIED = 0, 3


@pytest.mark.parametrize("name", CHANGES)
def test_a_locked_file_is_not_changed_by_another_name_of_it(tmp_path: Path, name: str) -> None:
    root = tmp_path / "lent"
    root.mkdir()
    (root / ".envrc").write_text("the lender's")
    os.link(root / ".envrc", root / "lib")
    before = (root / ".envrc").stat()
    with served(root, default_rules()) as lease:
        CHANGES[name](lease)
        assert lease.content(b".envrc") == b"the lender's"
    after = (root / ".envrc").stat()
    assert (root / ".envrc").read_text() == "the lender's"
    assert (after.st_mode, after.st_mtime_ns, after.st_ino) == (before.st_mode, before.st_mtime_ns, before.st_ino)
    assert (root / "lib").stat().st_ino != after.st_ino


def test_a_handle_that_was_open_before_the_file_got_a_locked_name_does_not_change_it(tmp_path: Path) -> None:
    root = tmp_path / "lent"
    root.mkdir()
    with served(root, default_rules()) as lease:
        lease.put(b"rc", b"the executor's")
        handle = lease.handle(b"rc", READ | WRITE)
        os.link(root / "rc", root / ".envrc")
        lease.write_at(handle, b"EVIL", 0)
        lease.by_handle(b"rc", READ, attributes(mode=0o777))
        assert (root / ".envrc").read_text() == "the executor's"
