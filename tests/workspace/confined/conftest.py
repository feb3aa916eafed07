"""What tests of the confined file system lend."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sublet.workspace.export import ViewRules
from workspace.confined.leases import Lease, Lend


@pytest.fixture
def root(tmp_path: Path) -> Path:
    found = tmp_path / "lent"
    for name in ("a/b", "c"):
        (found / name).mkdir(parents=True)
    (found / "a/b/file").write_bytes(b"content")
    (found / "c/other").write_bytes(b"of another length")
    return found


@pytest.fixture
def repository(root: Path) -> Path:
    for name in ("objects/aa", "refs/heads", "refs/tags"):
        (root / ".git" / name).mkdir(parents=True)
    (root / ".git/HEAD").write_bytes(b"ref: refs/heads/main\n")
    return root


@pytest.fixture
def lend(root: Path) -> Iterator[Lend]:
    made: list[Lease] = []

    def lease(rules: ViewRules | None = None, **more: Any) -> Lease:
        made.append(Lease(root, rules, **more))
        return made[-1]

    yield lease
    for one in made:
        one.fs.close()
