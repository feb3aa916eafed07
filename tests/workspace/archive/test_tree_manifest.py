"""Comparing a private tree is given up when the lease is over, however large its files are."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sublet.workspace.archive.tree_manifest import Interrupted, survey
from sublet.workspace.view.walk import Budget


def test_reading_a_huge_file_is_given_up(tmp_path: Path) -> None:
    with open(tmp_path / "sparse", "wb") as file:
        file.truncate(1 << 40)
    asked = 0

    def is_halted() -> bool:
        nonlocal asked
        asked += 1
        return asked > 3

    root = os.open(tmp_path, os.O_RDONLY)
    try:
        with pytest.raises(Interrupted):
            survey(b"workspace", root, Budget(100, 10.0), {}, {}, is_halted)
    finally:
        os.close(root)
