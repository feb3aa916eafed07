"""Whatever lies in scratch, staging and stores when the daemon starts, it starts, and says what it set aside."""

from __future__ import annotations

import os
import sqlite3
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from attacks.kit.state import DEEP, STORES, litter
from support.daemons import SHELL_AGENT, Daemon, two_daemons, wait_for
from support.deep_tree import nest
from support.leases import begin, delegate, view

Pair = tuple[Daemon, Daemon]


@pytest.fixture
def daemons(tmp_path: Path) -> Iterator[Pair]:
    with two_daemons(tmp_path / "pair") as both:
        yield both
    for daemon in both:  # pytest itself can't remove what is too deep
        subprocess.run(["rm", "-rf", str(daemon.home)], check=True)


def started_again(daemon: Daemon, agent: dict[str, object] | None = None) -> list[str]:
    """Start a daemon that was killed, and return what its owner should know."""
    daemon.up(agent=agent)
    return [str(line) for line in daemon.json("status")["remarks"]]


def test_litter_in_every_store_keeps_nobody_from_starting(daemons: Pair, tmp_path: Path) -> None:
    delegator, executor = daemons
    lent = tmp_path / "lent"
    lent.mkdir()
    staged = delegate(delegator, lent, "echo new > file", "--staged")
    assert staged["state"] == "completed"
    for daemon, agent in ((delegator, None), (executor, dict[str, object](SHELL_AGENT))):
        daemon.kill()
        for store in STORES:
            litter(daemon.home / "state" / store)
        remarks = started_again(daemon, agent)
        assert any("changes/" in line for line in remarks), remarks
        # What is set aside is gone from its place.
        assert not (daemon.home / "state" / "changes" / "no key").exists()
    assert delegate(delegator, lent, "echo more > more")["state"] == "completed"
    delegator.run("apply", str(staged["delegation_id"]))
    assert (lent / "file").read_text() == "new\n"


@pytest.mark.parametrize("kind", ["file", "fifo", "dangling link", "deep directory"])
def test_something_else_in_place_of_a_store(daemons: Pair, kind: str, tmp_path: Path) -> None:
    delegator, executor = daemons
    executor.kill()
    delegator.kill()
    for daemon in daemons:
        for store in (*STORES, "mounts"):
            place = daemon.home / "state" / store
            subprocess.run(["rm", "-rf", str(place)], check=True)
            match kind:
                case "file":
                    place.write_bytes(b"not a directory")
                case "fifo":
                    os.mkfifo(place)
                case "dangling link":
                    place.symlink_to(tmp_path / "nowhere")
                case _:
                    nest(place, DEEP)
    started_again(delegator)
    started_again(executor, dict[str, object](SHELL_AGENT))
    lent = tmp_path / "lent"
    lent.mkdir()
    assert delegate(delegator, lent, "echo more > more", "--staged")["state"] == "completed"
    assert not (tmp_path / "nowhere").exists()


def test_rows_that_are_no_records(daemons: Pair, tmp_path: Path) -> None:
    delegator, executor = daemons
    lent = tmp_path / "lent"
    lent.mkdir()
    ids = [begin(delegator, lent, "sleep 60", "--ro") for _ in range(3)]
    wait_for(lambda: all(view(delegator, id_).state == "running" for id_ in ids), 40, "three leases")
    rows = ["no json", '{"id": 1}', b"\xff\xfe"]
    for daemon in daemons:
        daemon.kill()
        table = "delegations" if daemon is delegator else "assignments"
        with sqlite3.connect(daemon.home / "state" / "sublet.db") as database:
            for id_, row in zip(ids, rows, strict=True):
                database.execute(f"UPDATE {table} SET record = CAST(? AS TEXT) WHERE id = ?", (row, id_))
            database.execute("UPDATE resources SET detail = 'no json'")
    remarks = started_again(delegator)
    assert sum("delegations/dlg_" in line for line in remarks) == 3, remarks
    remarks = started_again(executor, dict[str, object](SHELL_AGENT))
    assert sum("assignments/dlg_" in line for line in remarks) == 3, remarks
    assert delegate(delegator, lent, "echo more > more")["state"] == "completed"


_APPROVAL = (
    "INSERT INTO approvals (id, state, agent, tool, digest, scope, arguments, context, created_at, expires_at, "
    "ends_at, event) VALUES (?, ?, 'a', 't', ?1, 's', ?, CAST(? AS TEXT), ?, 4e9, 4e9, 1)"
)
_GRANT = (
    "INSERT INTO grants (id, agent, tool, digest, conditions, scope, issued_by, issued_at, boot, issued_up, "
    "expires_at, max_uses, remaining) VALUES (?, 'a', 't', NULL, CAST(? AS TEXT), '', 'h', 1, '', 1, ?, 1, 1)"
)
_DELEGATION = "UPDATE delegations SET {} WHERE id = (SELECT id FROM delegations ORDER BY id LIMIT 1 OFFSET {})"
_AT = "2026-01-01T00:00:00.000Z"
TORN_ROWS: dict[str, list[tuple[str, tuple[object, ...]]]] = {
    "peers": [
        ("INSERT INTO peers VALUES ('t0', 'node-x', x'00', NULL, NULL, ?)", (_AT,)),
        ("INSERT INTO peers VALUES ('t1', 'node-y', ?, NULL, NULL, ?)", (bytes(32), _AT)),
        ("INSERT INTO peers VALUES ('../t2', 'node-tngd36rvtomvitij', ?, NULL, NULL, ?)", (bytes(32), _AT)),
    ],
    "tokens": [
        ("INSERT INTO tokens VALUES ('t0', x'00', 'never', NULL)", ()),
        ("INSERT INTO tokens VALUES ('t1', x'01', ?, 1e300)", (_AT,)),
    ],
    "lend_roots": [
        ("INSERT INTO lend_roots VALUES ('torn', 'x')", ()),
        ("INSERT INTO lend_roots VALUES (CAST(? AS TEXT), 'x')", (b"torn/\xff",)),
    ],
    "approvals": [
        (_APPROVAL, ("t0", "pending", "{}", "no json", 1.0)),
        (_APPROVAL, ("t1", "pending", "{}", "[]", 1.0)),
        (_APPROVAL, ("t2", "pending", "{}", b"\xff\xfe", 1.0)),
        (_APPROVAL, ("t3", "pending", "no json", "{}", 1.0)),
        (_APPROVAL, ("t4", "odd", "{}", "{}", 1.0)),
        (_APPROVAL, ("t5", "denied", "{}", "{}", 1e300)),
    ],
    "grants": [
        (_GRANT, ("t0", "no json", 4e9)),
        (_GRANT, ("t1", "[]", 4e9)),
        (_GRANT, ("t2", '{"path": 1}', 4e9)),
        (_GRANT, ("t3", b"\xff", 4e9)),
        (_GRANT, ("t4", "[" * 200_000, 4e9)),
        (_GRANT, ("t5", "{}", 1e300)),
    ],
    "approver": [("INSERT OR REPLACE INTO approver VALUES (1, x'00', NULL, NULL, NULL)", ())],
    "delegations": [
        (_DELEGATION.format("state = 'odd'", 0), ()),
        (_DELEGATION.format("updated_at = 'never'", 1), ()),
        (_DELEGATION.format("record = json_set(record, '$.created_at', 'never')", 2), ()),
    ],
}
LISTINGS = {
    "peers": ("peers", "list"),
    "tokens": ("token", "list"),
    "lend_roots": ("allow", "--list"),
    "approvals": ("approvals", "list", "--all"),
    "grants": ("grants", "list", "--all"),
    "approver": ("approver", "show"),
    "delegations": ("ls", "--all"),
}
"""What lists the rows of each table."""


@pytest.fixture(scope="module")
def settled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """A daemon that was killed when three delegations were over."""
    base = tmp_path_factory.mktemp("rows")
    (base / "lent").mkdir()
    with two_daemons(base / "pair") as (delegator, _):
        for number in range(3):
            delegate(delegator, base / "lent", f"echo more > more{number}")
        delegator.kill()
        yield delegator


@pytest.mark.parametrize("table", TORN_ROWS)
def test_torn_rows_of_a_table_are_set_aside_and_told(settled: Daemon, table: str) -> None:
    file = settled.home / "state" / "sublet.db"
    with sqlite3.connect(file) as database:
        for statement, values in TORN_ROWS[table]:
            assert database.execute(statement, values).rowcount == 1
    database.close()
    try:
        started_again(settled)
        settled.run(*LISTINGS[table])
        remarks = [str(line) for line in settled.json("status")["remarks"]]
    finally:
        settled.kill()
    told = [line for line in remarks if f"{table}/" in line]
    assert len(told) == len(TORN_ROWS[table]), remarks
    for line in told:
        assert Path(line.rpartition("(")[2].rstrip(")")).is_file()
    with sqlite3.connect(file) as database:
        [(left,)] = database.execute(f"SELECT count(*) FROM {table}")
    database.close()
    assert left == (1 if table == "peers" else 0)
