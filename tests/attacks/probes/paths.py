"""Paths of the daemon's own in which an agent, an executor or a crash has left whatever it liked."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sqlite3
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from unittest.mock import patch

from attacks.kit.scratch import in_place
from attacks.kit.state import OURS, STORES, litter
from attacks.probe import CostProbe, FailureProbe
from sublet.daemon.lending.delegator import _sweep
from sublet.daemon.process.leftovers import clear
from sublet.daemon.storage.journal import Journal
from sublet.daemon.storage.store import Store
from sublet.disk import removal
from sublet.disk.disk_usage import disk_usage
from sublet.disk.openat2 import open_beneath, walk_beneath
from sublet.disk.private_dir import PrivateDir, make_fresh
from sublet.disk.removal import is_removed, remove_tree
from sublet.disk.set_aside import SetAside
from sublet.protocol.errors import SubletError
from sublet.protocol.names import parse_name
from sublet.supervisor.job_env import copy_login, make_home, write_prompt
from sublet.supervisor.super_agent import _own_directory
from sublet.supervisor.tool_server.opened import _listen
from sublet.workspace.audit.auditor import Auditor
from sublet.workspace.changes import transaction_plan
from sublet.workspace.changes.apply import Applier
from sublet.workspace.changes.change_set import ChangeSets
from sublet.workspace.sandbox.cgroups import Cgroups
from sublet.workspace.serving.lease_memory import recall
from sublet.workspace.staging.overlay import why_no_overlay
from sublet.workspace.staging.private_views import Staging
from sublet.workspace.work_dirs import WorkDirs
from support.deep_tree import nest
from support.jobs import job

LINE_BYTES = 8
"""Bytes of a request that nest one directory: ``mkdir d;``."""


@contextlib.contextmanager
def place() -> Iterator[Path]:
    """Yield a directory that is gone afterwards, whatever was made in it."""
    made = Path(tempfile.mkdtemp(prefix="sublet-probe-"))
    try:
        yield made
    finally:
        remove_tree(made)


def nested(size: int) -> Path:
    """Return directories nested as deep as ``size`` bytes of commands can."""
    made = Path(tempfile.mkdtemp(prefix="sublet-probe-"))
    nest(made, size // LINE_BYTES)
    return made


def counted(tree: Path) -> None:
    disk_usage(tree)
    remove_tree(tree)


def filled(size: int) -> Path:
    """Return a directory of as many names as ``size`` bytes of commands can make."""
    made = Path(tempfile.mkdtemp(prefix="sublet-probe-"))
    for number in range(size // LINE_BYTES):
        (made / f"{number}").mkdir() if number % 2 else (made / f"{number}").touch()
    return made


def in_thread(action: Callable[[Path], object]) -> Callable[[], Awaitable[object]]:
    """Return a coroutine function that does ``action`` in a directory of its own, in a thread as the daemon does."""

    def work() -> None:
        with place() as where:
            action(where)

    return lambda: asyncio.to_thread(work)


def remove_everything(where: Path) -> None:
    for opener in (open_beneath, walk_beneath):
        litter(where / "top")
        nest(where / "top" / "closed", 200, mode=0)
        os.chmod(where / "top", 0)
        with patch.object(removal, "choose_opener", lambda opener=opener: opener):
            assert is_removed(where / "top")
        assert not os.path.lexists(where / "top")


def write_around(where: Path) -> None:
    victim = where / "victim"
    victim.mkdir()
    work = job(where, "do it")
    login = where / "login.json"
    login.write_bytes(b"{}")
    for put in in_place():
        for name in ("home", "tmp", "prompt.txt", "sublet-tools", "0-worker"):
            remove_tree(work.scratch / name)
            put(work.scratch / name, victim)
        make_home(work)
        copy_login(work, login, ".tool/login.json")
        os.close(write_prompt(work))
        _listen(work.scratch).close()
        _own_directory(work.scratch, "0-worker")
        assert os.listdir(victim) == []
    (where / "gone").symlink_to(victim)
    make_fresh(where / "gone", "workspace")
    with PrivateDir.open(where / "gone") as private:
        assert private.directory("workspace").fileno() >= 0
    assert os.listdir(victim) == []


def start_among_litter(where: Path) -> None:
    aside = SetAside(where)
    for store in STORES:
        litter(where / store)
    (where / "overlay-probe-x" / "work" / "work").mkdir(parents=True)
    clear(where / "scratch", aside)
    assert os.listdir(where / "scratch") == []
    assert not (where / "overlay-probe-x").exists()
    _sweep(where / "leases", {OURS}, aside)
    assert os.listdir(where / "leases") == [OURS]
    litter(where / "work")
    dirs = WorkDirs(where / "work")
    dirs.reap()
    dirs.open(dirs.reserve(OURS))
    auditor = Auditor(where)
    staging = Staging(where, aside=aside)
    changes = ChangeSets(where, auditor, staging)
    Applier(changes).recover_all()
    staging.reap(())
    for key in changes.all_keys():
        changes.clear(key)
    assert staging.keys() == changes.all_keys() == []
    assert aside.count > 0
    aside.sweep()
    assert os.listdir(where / "going") == []
    dirs.reap()


def wait_for_nobody(where: Path) -> None:
    """Put FIFOs in place of every file that is read: a thread that waited for a writer would never come back."""
    os.mkfifo(where / "memory")
    assert recall(where / "memory").touched_overflow
    for name in ("plan.json", "change-set.json", "decided.json", "begun.json"):
        os.mkfifo(where / name)
    with contextlib.suppress(SubletError):
        transaction_plan.load(where / "plan.json")
    staging = Staging(where)
    litter(where / "staged")
    for key in list(staging.keys()):
        assert staging.find(key) is None


def nested_groups(where: Path) -> None:
    groups = Cgroups(f"sublet-probe-{os.getpid()}")
    if not groups.items:
        return
    group = groups.open(parse_name("job"), memory_bytes=1 << 30, processes=10, cpu_seconds=10)
    for directory in group._directories.values():
        directory.joinpath(*["deeper"] * 60).mkdir(parents=True)
    group.close()
    assert groups.reap() == 0
    groups.close()


def probe_overlay(where: Path) -> None:
    why_no_overlay(where)
    assert os.listdir(where) == []


async def torn_rows() -> None:
    with place() as where:
        store = await Store.open(where / "sublet.db")
        aside = SetAside(where)
        journal = Journal(store, aside)
        rows = [(name, raw) for name, raw in enumerate(("no json", "{}", '{"id": 1}', "[" * 10_000))]

        def work(connection: sqlite3.Connection) -> None:
            for table, column in (("delegations", "caller"), ("assignments", "peer")):
                connection.executemany(
                    f"INSERT INTO {table} (id, state, record, created_at, updated_at, {column}) "
                    "VALUES (?, 'running', ?, '', '', '')",
                    rows,
                )
            connection.execute("INSERT INTO resources (owner, kind, detail, acquired_at) VALUES ('a', 'b', '[', '')")

        try:
            await store.write(work)
            await journal.set_torn_aside()
            assert await journal.list_delegations(active=True) == []
            assert await journal.list_assignments(active=True) == []
            assert [held.detail for held in await journal.resources.open_resources()] == [{}]
            assert aside.count == 2 * len(rows)
        finally:
            await store.close()


_REMOVAL = (
    "disk.removal:remove_tree", "disk.removal:remove_beneath", "disk.removal:_Removal.run",
    "disk.removal:_Removal._run", "disk.removal:_Removal._next", "disk.removal:_Removal._listed",
    "disk.removal:_Removal._leave", "disk.removal:_Removal._without_directory", "disk.removal:_Removal._unlink",
    "disk.removal:_Removal._enter", "disk.removal:_Removal._opened", "disk.removal:_Removal._moved_up",
    "disk.removal:_names", "disk.removal:_exists", "disk.openat2:open_beneath", "disk.openat2:rename_noreplace",
)  # fmt: skip
_ALL_OF_REMOVAL = (*_REMOVAL, "disk.removal:is_removed", "disk.removal:_mount_of", "disk.openat2:walk_beneath")
_PRIVATE = (
    "disk.private_dir:PrivateDir.open", "disk.private_dir:PrivateDir.directory", "disk.private_dir:PrivateDir.write",
    "disk.private_dir:PrivateDir.open_file", "disk.private_dir:PrivateDir._created", "disk.private_dir:_entered",
    "disk.private_dir:_clear", "disk.private_dir:make_fresh", "disk.plain_file:open_plain",
    "disk.plain_file:read_plain",
    "supervisor.job_env:make_home", "supervisor.job_env:write_prompt", "supervisor.job_env:copy_login",
    "supervisor.tool_server.opened:_listen", "supervisor.super_agent:_own_directory",
)  # fmt: skip
_START = (
    "daemon.process.leftovers:clear", "daemon.lending.delegator:_sweep", "disk.set_aside:SetAside.take",
    "disk.set_aside:SetAside.names", "disk.set_aside:SetAside.remove_later", "disk.set_aside:SetAside.sweep",
    "disk.set_aside:SetAside._prune",
    "disk.set_aside:SetAside._make", "disk.set_aside:_moved", "workspace.work_dirs:WorkDirs.reserve",
    "workspace.work_dirs:WorkDirs.open", "workspace.work_dirs:WorkDirs.release", "workspace.work_dirs:WorkDirs.reap",
    "workspace.staging.private_views:Staging.reap",
    "workspace.staging.private_views:Staging.keys", "workspace.changes.change_set:ChangeSets.clear",
    "workspace.changes.change_set:ChangeSets.all_keys",
    "workspace.changes.apply:Applier.recover_all", "workspace.changes.apply:Applier.recover",
)  # fmt: skip
_READ = (
    "workspace.serving.lease_memory:recall", "workspace.changes.record:read_kept",
    "workspace.changes.transaction_plan:load", "workspace.staging.private_views:_record",
)  # fmt: skip

PROBES = (
    CostProbe(
        name="paths: nested directories, measured and removed", covers=("disk.disk_usage:disk_usage", *_REMOVAL),
        make=nested, run=counted,
    ),
    CostProbe(
        name="paths: many names in one directory, measured and removed", covers=("disk.disk_usage:_Count._level",),
        make=filled, run=counted,
    ),
    FailureProbe(name="paths: removal of everything", covers=_ALL_OF_REMOVAL, throw=in_thread(remove_everything)),
    FailureProbe(name="paths: obstacles in a private directory", covers=_PRIVATE, throw=in_thread(write_around)),
    FailureProbe(name="paths: litter at the start", covers=_START, throw=in_thread(start_among_litter)),
    FailureProbe(name="paths: FIFOs in place of state", covers=_READ, throw=in_thread(wait_for_nobody)),
    FailureProbe(
        name="paths: nested control groups",
        covers=(
            "workspace.sandbox.cgroups:_remove", "workspace.sandbox.cgroups:_remove_below",
            "workspace.sandbox.cgroups:_first_group", "workspace.sandbox.cgroups:_kill",
            "workspace.sandbox.cgroups:Group.close", "workspace.sandbox.cgroups:Cgroups.reap",
            "workspace.sandbox.cgroups:Cgroups.close",
        ),
        throw=in_thread(nested_groups),
    ),
    FailureProbe(
        name="paths: probe of overlays", covers=("workspace.staging.overlay:_tried",), throw=in_thread(probe_overlay)
    ),
    FailureProbe(
        name="paths: rows that are no records",
        covers=(
            "daemon.storage.journal:Journal._load", "daemon.storage.journal:Journal.set_torn_aside",
            "daemon.storage.torn_rows:TornRows._set_aside", "daemon.storage.event_log:load_object",
            "disk.set_aside:SetAside.keep",
        ),
        throw=torn_rows,
    ),
)  # fmt: skip
