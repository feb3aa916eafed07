"""A run that lost a worker, or in which much failed, is not made good by another one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from support.once_more import MOST, PLACE, OnceMore
from support.quick import TESTS

FAILS_ONCE = """
from pathlib import Path
def test_once(tmp_path_factory):
    mark = Path(__file__).with_name("mark")
    was = mark.exists()
    mark.touch()
    assert was
def test_well():
    pass
"""


def report(name: str, outcome: str) -> pytest.TestReport:
    return pytest.TestReport(name, (name, 0, name), {}, outcome, None, "call")  # type: ignore[arg-type]


def written(noted: OnceMore, place: Path, status: int = 1) -> list[str]:
    noted.write(status)
    return place.read_text().splitlines()


def test_what_failed_is_named_where_nothing_else_went_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PLACE, str(tmp_path / "file"))
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)
    noted = OnceMore()
    noted.note(report("a", "passed"))
    noted.note(report("b[x y]", "failed"))
    assert written(noted, tmp_path / "file") == ["b[x y]"]
    assert written(noted, tmp_path / "file", 2) == []
    noted.lost()
    assert written(noted, tmp_path / "file") == []
    many = OnceMore()
    for number in range(MOST + 1):
        many.note(report(str(number), "failed"))
    assert written(many, tmp_path / "file") == []
    uncollected = OnceMore()
    uncollected.note(pytest.CollectReport("c", "failed", None, None))
    assert written(uncollected, tmp_path / "file") == []


def test_a_run_names_what_failed_in_it(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(FAILS_ONCE)
    (tmp_path / "conftest.py").write_text(
        "from support.once_more import OnceMore\n"
        "noted = OnceMore()\n"
        "pytest_runtest_logreport = noted.note\n"
        "def pytest_sessionfinish(exitstatus):\n    noted.write(exitstatus)\n"
    )
    file = tmp_path / "file"
    run = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "-c",
        "/dev/null",
        "--rootdir",
        str(tmp_path),
    ]
    env = {"PATH": "/usr/bin:/bin", PLACE: str(file), "PYTHONPATH": str(TESTS)}
    assert subprocess.run([*run, str(tmp_path)], env=env, cwd=tmp_path, capture_output=True).returncode == 1
    assert file.read_text() == "test_it.py::test_once\n"
    assert subprocess.run([*run, f"@{file}"], env=env, cwd=tmp_path, capture_output=True).returncode == 0
