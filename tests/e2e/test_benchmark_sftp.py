"""The benchmark of the data plane runs and prints what the documentation quotes; how fast it is, no test says."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from sublet.workspace.mount.table import mounted_below

ROOT = Path(__file__).resolve().parents[2]
FIGURES = ("write", "read", "create", "stat", "list 10,000")
TRANSPORTS = ("archive", "git", "sshfs and copy")
ROWS = [f"{figure}, {path}" for figure in FIGURES for path in ("server", "product")]


@pytest.mark.timeout(180)  # seconds on a machine of its own, and a minute on a busy one
@pytest.mark.skipif(
    shutil.which("sshd", path=f"{os.environ['PATH']}:/usr/sbin") is None, reason="there is no sshd to compare with"
)
def test_the_data_plane_benchmark_prints_every_row_and_leaves_nothing(tmp_path: Path) -> None:
    argv = [sys.executable, str(ROOT / "benchmarks" / "sftp.py"), "--quick", "--json", "--base", str(tmp_path)]
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    done = subprocess.run(argv, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)["rows"]
    assert [row["what"] for row in rows] == ROWS
    for row in rows:
        assert row["value"] > 0
        assert row["ratio"] > 0
        assert row["peer"]
        assert bool(row["goal"]) == (row["met"] is not None) == row["what"].endswith(", server")
    assert mounted_below(tmp_path) == []
    assert list(tmp_path.iterdir()) == []


@pytest.mark.timeout(180)  # seconds on a machine of its own, and a minute on a busy one
@pytest.mark.skipif(
    shutil.which("sshd", path=f"{os.environ['PATH']}:/usr/sbin") is None, reason="there is no sshd to compare with"
)
def test_c14_the_benchmark_of_git_prints_every_row_and_leaves_nothing(tmp_path: Path) -> None:
    argv = [sys.executable, str(ROOT / "benchmarks" / "git_status.py"), "--quick", "--json"]
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    done = subprocess.run(argv, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)["rows"]
    assert [row["what"] for row in rows] == [
        f"git status, 200 files, {far} ms, {kind}" for far in (0, 10) for kind in ("cold", "warm")
    ]
    assert all(row["value"] > 0 and row["ratio"] > 0 and row["peer"] for row in rows)
    assert mounted_below(tmp_path) == []
    assert list(tmp_path.iterdir()) == []


@pytest.mark.timeout(180)  # seconds on a machine of its own, and a minute on a busy one
@pytest.mark.skipif(
    shutil.which("sshd", path=f"{os.environ['PATH']}:/usr/sbin") is None, reason="there is no sshd to compare with"
)
def test_the_benchmark_of_transports_prints_every_row_and_leaves_nothing(tmp_path: Path) -> None:
    argv = [sys.executable, str(ROOT / "benchmarks" / "transports.py"), "--quick", "--json"]
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    done = subprocess.run(argv, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)["rows"]
    assert [row["what"] for row in rows] == [f"{way}, 100 files, 1 MB" for way in TRANSPORTS]
    assert all(row["value"] > 0 and row["ratio"] > 0 and row["peer"] for row in rows)
    assert mounted_below(tmp_path) == []
    assert list(tmp_path.iterdir()) == []


def test_the_page_quotes_every_transport() -> None:
    page = (ROOT / "docs" / "benchmarks.md").read_text(encoding="utf-8")
    table = page.partition("<!-- benchmark:transports -->")[2].partition("<!-- /benchmark -->")[0]
    for way in TRANSPORTS:
        assert f"| {way}, 2,000 files, 50 MB |" in table


def test_c14_the_page_has_a_budget_for_git_in_a_mount() -> None:
    page = (ROOT / "docs" / "benchmarks.md").read_text(encoding="utf-8")
    table = page.partition("<!-- benchmark:git_status -->")[2].partition("<!-- /benchmark -->")[0]
    for far in (0, 20):
        assert f"| git status, 10,000 files, {far} ms, cold |" in table
        assert f"| git status, 10,000 files, {far} ms, warm |" in table


def test_the_page_quotes_every_row() -> None:
    page = (ROOT / "docs" / "benchmarks.md").read_text(encoding="utf-8")
    table = page.partition("<!-- benchmark:sftp -->")[2].partition("<!-- /benchmark -->")[0]
    for row in ROWS:
        assert f"| {row} |" in table
