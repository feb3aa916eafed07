"""Programs on both sides of a mount: a database with locks, and builds by times (cases D06 and D07)."""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.daemons import Daemon, two_daemons, wait_for
from support.leases import begin, delegate, finish, view

INSERT = (
    "python3 -c \"import sqlite3; db = sqlite3.connect('app.db', timeout=5); "
    "db.execute('insert into t values (1)'); db.commit(); db.close()\""
)


@pytest.fixture(scope="module")
def daemons(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Daemon, Daemon]]:
    with two_daemons(tmp_path_factory.mktemp("shared")) as pair:
        yield pair


@pytest.fixture
def project(tmp_path: Path) -> Path:
    root = tmp_path / "project"
    root.mkdir()
    return root


def rows(file: Path) -> int:
    with contextlib.closing(sqlite3.connect(file)) as database:
        return int(database.execute("select count(*) from t").fetchone()[0])


def test_case_d06_a_lease_that_changed_a_database_says_so_and_one_by_archive_need_not(
    daemons: tuple[Daemon, Daemon], project: Path
) -> None:
    with contextlib.closing(sqlite3.connect(project / "app.db")) as database:
        database.execute("create table t (x)")
        database.commit()
    ended = delegate(daemons[0], project, INSERT)
    assert ended["error"] is None, ended
    assert rows(project / "app.db") == 1
    [told] = ended["cautions"]
    assert told.startswith("app.db: file locks do not pass through a mount")
    shown = daemons[0].run("ls", "--all").stdout
    assert ended["delegation_id"][:10] in shown
    again = delegate(daemons[0], project, INSERT, "--transport", "archive")
    assert again["error"] is None, again
    assert again["cautions"] == []
    assert rows(project / "app.db") == 2


def test_case_d06_a_lock_of_the_lender_does_not_reach_the_worker_and_the_report_says_it(
    daemons: tuple[Daemon, Daemon], project: Path
) -> None:
    """The hole itself: what the docs and the report say of locks is true."""
    with contextlib.closing(sqlite3.connect(project / "app.db", isolation_level=None)) as database:
        database.execute("create table t (x)")
        database.execute("begin immediate")
        database.execute("insert into t values (0)")
        found = begin(daemons[0], project, f"{INSERT}; touch went")
        wait_for(lambda: (project / "went").exists())
        ended = finish(daemons[0], found)
        with contextlib.suppress(sqlite3.Error):
            database.execute("commit")
    assert [told.partition(":")[0] for told in ended.cautions] == ["app.db"]


BUILD = "printf 'out: in\\n\\tcat in > out\\n' > Makefile"


@pytest.mark.skipif(shutil.which("make") is None, reason="there is no make here")
@pytest.mark.parametrize("transport", ["sshfs", "archive"])
def test_case_d07_make_twice_within_a_second(daemons: tuple[Daemon, Daemon], project: Path, transport: str) -> None:
    """By archive the second build is never stale; in a mount the lease says before that it may be."""
    (project / "Makefile").write_text("out: in\n\tcat in > out\n")
    (project / "in").write_text("0\n")
    # A little later than a file system of this machine tells times apart, which is a tick of its clock.
    script = "for n in 1 2 3; do echo $n > in; make -s; cat out; sleep 0.05; done"
    found = begin(daemons[0], project, script, "--transport", transport)
    ended = finish(daemons[0], found)
    assert ended.error is None
    assert ended.result is not None
    told = view(daemons[0], found).cautions
    if transport == "archive":
        assert ended.result.final_summary == "1\n2\n3"
        assert told == []
    else:
        assert [one.partition(":")[0] for one in told] == ["Makefile"]
        assert "--transport archive" in told[0]
        # What came out is one of the versions, whole: stale at worst, never torn.
        assert set(ended.result.final_summary.split()) <= {"1", "2", "3"}
