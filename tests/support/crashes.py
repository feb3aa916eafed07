"""Kills daemons, mounts and agents at any journal write of a delegation, and checks what is left (DESIGN 4.10)."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from sublet.daemon.api.daemon import SHOW_STATUS
from sublet.daemon.api.delegation_fields import OneDelegation
from sublet.daemon.api.delegation_views import DelegationView
from sublet.daemon.api.delegations import CREATE_DELEGATION, GET_DELEGATION, CreateDelegation
from sublet.daemon.api.operation import Nothing
from sublet.protocol.errors import SubletError
from sublet.protocol.lifecycle import DELEGATION_TABLE, is_terminal
from support.daemons import SHELL_AGENT, Daemon, two_daemons, wait_for
from support.leases import ask, delegate, marker, processes_with, restart
from support.leftovers import held

Side = Literal["lender", "executor"]
Victim = Literal["lender", "executor", "sshfs", "agent", "lender again", "executor again"]
"""``again``: the daemon is killed once more at one of the first journal writes of its next start."""
When = Literal["before", "after"]
Way = Literal["live", "staged", "archive", "git"]
"""How the files are lent: in a mount, in a mount of a copy whose result waits, as an archive, or by git."""

SITE = Path(__file__).with_name("crash_site")
REACH_SECONDS = 20.0
END_SECONDS = 45.0
CLEAN_SECONDS = 30.0
RECOVERY_SECONDS = 6.0
"""How long the next write of a daemon that recovers is waited for; it may have none, and is killed all the same."""
RECOVERY_WRITES = 4
TTL_SECONDS = 60

# A program that gets over a link that is away for a while, as long as its directory comes back.
WORK = """
mark={mark}
try() {{ until "$@" 2>/dev/null; do sleep 0.1; done; }}
put() {{ echo "$1" > "$2"; }}
try put one begun
sleep 0.4 $mark
try cp begun copied
try put done finished
"""


@dataclass(frozen=True)
class Case:
    """Kill ``victims`` when ``side`` is about to finish, or has just finished, its journal write number ``stop_at``."""

    side: Side
    stop_at: int
    when: When
    victims: tuple[Victim, ...]

    def __str__(self) -> str:
        return f"{'+'.join(self.victims)} {self.when} write {self.stop_at} of the {self.side}"


@dataclass
class Outcome:
    """What came of a case: how the delegation ended, and everything that was wrong about it."""

    case: Case
    label: str = ""
    acknowledged: bool = False
    resumed: bool = False
    state: str = "unknown"
    code: str = ""
    seconds: float = 0.0
    wrong: list[str] = field(default_factory=list)


class Scene:
    """A lender and a worker whose journal writes can be held.

    Args:
        base: a directory of this scene's own.
        lender: runs already, as does ``worker``.
        worker: is paired with it.
        way: how everything is lent.
    """

    def __init__(self, base: Path, lender: Daemon, worker: Daemon, way: Way = "live") -> None:
        self.base = base
        self.way = way
        self.daemons: dict[Side, Daemon] = {"lender": lender, "executor": worker}
        self._number = 0
        self._plans = 0
        self._labels: dict[Side, list[str]] = {}

    def labels(self, side: Side) -> list[str]:
        """Return the labels of all journal writes of ``side`` in a delegation that nothing disturbs, in order."""
        if side not in self._labels:
            self._labels[side] = self._undisturbed(side)
        return self._labels[side]

    def _undisturbed(self, side: Side) -> list[str]:
        self._plan(side, 0, "after")
        directory = self._directory()
        options = {
            "live": (),
            "staged": ("--staged",),
            "archive": ("--transport", "archive"),
            "git": ("--transport", "git"),
        }[self.way]
        ended = delegate(self.daemons["lender"], directory, WORK.format(mark=""), "--ttl", str(TTL_SECONDS), *options)
        assert ended["state"] == "completed", ended
        time.sleep(0.3)
        found = _plan_of(self.daemons[side]).with_suffix(".labels").read_text().split()
        self._clear(side)
        return found

    def run(self, case: Case) -> Outcome:
        """Run one case to its end and return what came of it."""
        outcome = Outcome(case)
        began = time.monotonic()
        directory, mark = self._directory(), marker()
        (directory / "kept").write_text("kept\n")
        self._plan(case.side, case.stop_at, case.when)
        request = CreateDelegation(
            workspace_dir=str(directory),
            peer="bob",
            prompt=WORK.format(mark=mark.replace("3600", "0")),
            ttl_seconds=TTL_SECONDS,
            result_mode="staged" if self.way == "staged" else "live",
            transport=self.way if self.way in ("archive", "git") else "sshfs",
            idempotency_key=mark,
        )
        asking = threading.Thread(target=self._create, args=(request, outcome))
        asking.start()
        plan = _plan_of(self.daemons[case.side])
        give_up = time.monotonic() + REACH_SECONDS
        while not plan.with_suffix(".reached").exists() and time.monotonic() < give_up:
            if not asking.is_alive() and outcome.acknowledged and self._settled(mark):
                break
            time.sleep(0.01)
        reached = plan.with_suffix(".reached").exists()
        if reached:
            with suppress(FileNotFoundError):
                outcome.label = (plan.with_suffix(".labels").read_text().split() or [""])[-1]
            self._kill(case.victims, mark.replace("3600", "0"))
        else:
            outcome.label = "not reached"
        begun = (self._record(mark) or {}).get("state") in ("started", "running")
        self._clear(case.side)
        asking.join(END_SECONDS)
        if reached:
            self._restart("executor", case)
            self._restart("lender", case)
        self._check(outcome, mark, directory)
        goes_on = begun and set(case.victims) <= {"lender", "lender again"}
        if reached and goes_on and outcome.state != "completed":
            outcome.wrong.append(f"the work was not gone on with: {outcome.state} {outcome.code}")
        outcome.seconds = time.monotonic() - began
        return outcome

    # One case

    def _create(self, request: CreateDelegation, outcome: Outcome) -> None:
        with suppress(SubletError, OSError):
            ask(self.daemons["lender"], lambda client: client.call(CREATE_DELEGATION, request))
            outcome.acknowledged = True

    def _settled(self, key: str) -> bool:
        found = self._record(key)
        return bool(found and found.get("settled"))

    def _record(self, key: str) -> dict[str, object] | None:
        """Return what the lender's database holds of the delegation that was made with ``key``."""
        with closing(_database(self.daemons["lender"])) as database:
            row = database.execute("SELECT record FROM delegations WHERE idempotency_key = ?", (key,)).fetchone()
        return json.loads(row[0]) if row else None

    def _kill(self, victims: Sequence[Victim], mark: str) -> None:
        for victim in victims:
            if victim in ("lender again", "executor again"):
                continue
            if victim in ("lender", "executor"):
                self.daemons[victim].kill()
                continue
            sign = str(self.daemons["executor"].home / "state" / "mounts") if victim == "sshfs" else mark
            for pid in processes_with(sign):
                name = _command(pid)
                if (victim == "sshfs") == (name == "sshfs"):
                    with suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)

    def _restart(self, side: Side, case: Case) -> None:
        """Start a daemon again that was killed; kill it again while it recovers, where the case says so."""
        if side not in case.victims:
            return
        daemon, agent = self.daemons[side], SHELL_AGENT if side == "executor" else None
        if f"{side} again" in case.victims:
            self._plan(side, 1 + case.stop_at % RECOVERY_WRITES, case.when)
            starting = threading.Thread(target=_start_in_vain, args=(daemon, agent))
            starting.start()
            reached = _plan_of(daemon).with_suffix(".reached")
            give_up = float("inf")
            while not reached.exists() and time.monotonic() < give_up:
                if not starting.is_alive():
                    # It is ready, and may have no such write.
                    give_up = min(give_up, time.monotonic() + RECOVERY_SECONDS)
                time.sleep(0.01)
            if reached.exists():
                # Perhaps it is not even ready yet.
                os.kill(int(reached.read_text()), signal.SIGKILL)
            elif daemon.alive():
                daemon.kill()
            starting.join(END_SECONDS)
            self._clear(side)
        restart(daemon, agent)

    def _check(self, outcome: Outcome, key: str, directory: Path) -> None:
        lender, worker = self.daemons["lender"], self.daemons["executor"]
        wrong = outcome.wrong
        found = self._record(key)
        if found is None:
            if outcome.acknowledged:
                wrong.append("acknowledged, and unknown afterwards")
        else:
            id_ = str(found["id"])
            try:
                ended = _end(lender, id_)
            except AssertionError as error:
                wrong.append(str(error))
            else:
                outcome.state = str(ended.state)
                outcome.code = ended.error.code if ended.error else ""
                outcome.resumed = ended.state == "completed" and "lender" in outcome.case.victims
                wrong += _untruths(ended, directory) if self.way != "staged" else _staged_untruths(ended, directory)
        for daemon in (lender, worker):
            wrong += _left(daemon, str(directory))
        wrong += [f"process {pid} ({_command(pid)}) is left" for pid in _gone(key.replace("3600", "0"))]
        again = delegate(lender, directory, "echo again > again", "--ttl", "30")
        if again["state"] != "completed":
            wrong.append(f"the next delegation of the directory ends as {again['state']}: {again.get('error')}")

    def _directory(self) -> Path:
        self._number += 1
        directory = self.base / f"lent-{self._number}"
        directory.mkdir()
        return directory

    def _plan(self, side: Side, stop_at: int, when: When) -> None:
        self._clear(side)
        self._plans += 1
        plan = _plan_of(self.daemons[side])
        draft = plan.with_suffix(".new")
        draft.write_text(json.dumps({"number": self._plans, "stop_at": stop_at, "when": when}))
        plan.with_suffix(".go").unlink(missing_ok=True)
        draft.rename(plan)

    def _clear(self, side: Side) -> None:
        """Let the daemon go on, and count no more."""
        plan = _plan_of(self.daemons[side])
        plan.unlink(missing_ok=True)
        plan.with_suffix(".go").touch()
        for suffix in (".reached", ".labels"):
            plan.with_suffix(suffix).unlink(missing_ok=True)


@contextmanager
def crash_scene(base: Path, way: Way = "live") -> Iterator[Scene]:
    """Run a lender and a worker, paired, whose journal writes can be held."""
    plans = {name: base / f"{name}.plan" for name in "ab"}
    environ = {"PYTHONPATH": str(SITE), "SUBLET_STOP_AT": str(base / "unused.plan")}
    with two_daemons(base, environ=environ) as (lender, worker):
        for daemon, name in ((lender, "a"), (worker, "b")):
            daemon.environ = {**environ, "SUBLET_STOP_AT": str(plans[name])}
            daemon.down()
            restart(daemon, SHELL_AGENT if daemon is worker else None)
        yield Scene(base, lender, worker, way)


def cases(scene: Scene) -> list[Case]:
    """Return the full matrix: every journal write of both sides, before and after it, and every set of victims.

    These are one, two, or one daemon twice: killed once more while it recovers.
    """
    alone: list[tuple[Victim, ...]] = [("lender",), ("executor",), ("sshfs",), ("agent",)]
    pairs: list[tuple[Victim, ...]] = [
        ("lender", "executor"), ("lender", "sshfs"), ("lender", "agent"),
        ("executor", "sshfs"), ("executor", "agent"), ("sshfs", "agent"),
    ]  # fmt: skip
    twice: list[tuple[Victim, ...]] = [("lender", "lender again"), ("executor", "executor again")]
    sides: tuple[Side, Side] = ("lender", "executor")
    moments: tuple[When, When] = ("before", "after")
    return [
        Case(side, number, when, victims)
        for side in sides
        for number in range(1, len(scene.labels(side)) + 1)
        for when in moments
        for victims in (*alone, *pairs, *twice)
    ]


def under_way(scene: Scene) -> list[Case]:
    """Return the kills of the lender's daemon alone between START and the end of the work, seen from the lender."""
    labels = scene.labels("lender")
    first, last = labels.index("delegations:started") + 1, labels.index("delegations:completed") + 1
    found = (case for case in cases(scene) if case.victims == ("lender",) and case.side == "lender")
    return [case for case in found if first < case.stop_at < last or (case.stop_at, case.when) == (first, "after")]


def table(outcomes: Sequence[Outcome]) -> list[tuple[str, ...]]:
    """Return a row per set of victims: cases, how they ended, resumed, wrong, the longest time in seconds."""
    rows = []
    for victims in dict.fromkeys(outcome.case.victims for outcome in outcomes):
        mine = [o for o in outcomes if o.case.victims == victims and o.label != "not reached"]
        if not mine:
            continue
        ends = {state: sum(o.state == state for o in mine) for state in ("completed", "error", "unknown")}
        rows.append(
            (
                " + ".join(victims),
                str(len(mine)),
                *(str(count) for count in ends.values()),
                str(sum(o.resumed for o in mine)),
                str(sum(bool(o.wrong) for o in mine)),
                f"{max(o.seconds for o in mine):.1f}",
            )
        )
    return rows


def _end(lender: Daemon, id_: str) -> DelegationView:
    """Wait until the delegation has ended and is settled, and return it."""

    def look() -> DelegationView | None:
        view = ask(lender, lambda client: client.call(GET_DELEGATION, OneDelegation(delegation_id=id_)))
        over = is_terminal(DELEGATION_TABLE, view.state) and view.condition is None
        return view if over else None

    found: DelegationView = wait_for(look, END_SECONDS, f"the end of {id_}")
    return found


def _untruths(view: DelegationView, directory: Path) -> list[str]:
    """Return what the record says that the directory does not show."""
    wrong = []
    there = {path.name for path in directory.iterdir()}
    if view.state == "completed" and not {"begun", "copied", "finished"} <= there:
        wrong.append(f"completed, but only {sorted(there)} is there")
    if view.state == "completed" and view.error is not None:
        wrong.append("completed with an error")
    if view.state != "completed" and view.error is None:
        wrong.append(f"{view.state} without a reason")
    if (directory / "kept").read_text() != "kept\n":
        wrong.append("a file of the lender's was changed")
    written = there & {"begun", "copied", "finished"}
    if view.audit is not None and written - set(view.audit.added):
        wrong.append(f"the audit does not name {sorted(written - set(view.audit.added))}")
    if view.audit is not None and written & set(view.audit.by_others):
        wrong.append(f"the audit gives {sorted(written & set(view.audit.by_others))} to others")
    if view.audit is None and written:
        wrong.append(f"no audit although there are {sorted(written)}")
    return wrong


def _staged_untruths(view: DelegationView, directory: Path) -> list[str]:
    """Return what is wrong about a result that waits: nothing of it may be in the directory, and all in the result."""
    wrong = []
    if (there := {path.name for path in directory.iterdir()}) != {"kept"}:
        wrong.append(f"{sorted(there - {'kept'})} came into the directory without being applied")
    changes = view.result.change_set if view.result is not None else None
    if view.state == "completed" and (changes is None or (changes.status, changes.added) != ("pending", 3)):
        wrong.append(f"completed, but what waits is {changes}")
    if view.state != "completed" and view.error is None:
        wrong.append(f"{view.state} without a reason")
    return wrong


def _left(daemon: Daemon, sign: str) -> list[str]:
    """Return what a running daemon without work still holds, once it has had time to give it back."""

    def rest() -> list[str]:
        found = [*held(daemon), *daemon.mounts]
        for name in ("mounts", "scratch", "work"):
            with suppress(FileNotFoundError):
                found += [str(path) for path in (daemon.home / "state" / name).iterdir()]
        active = ask(daemon, lambda client: client.call(SHOW_STATUS, Nothing())).assignments_active
        return [*found, *([f"{active} slots"] if active else [])]

    try:
        wait_for(lambda: not rest(), CLEAN_SECONDS, "a clean daemon")
    except AssertionError:
        return [f"{daemon.home.name} holds {rest()}"]
    with closing(_database(daemon)) as database:
        checked = str(database.execute("PRAGMA integrity_check(1)").fetchone()[0])
    return [] if checked == "ok" else [f"database of {daemon.home.name}: {checked}"]


def _gone(mark: str) -> list[int]:
    with suppress(AssertionError):
        wait_for(lambda: not processes_with(mark), CLEAN_SECONDS, "the end of the agent")
    return processes_with(mark)


def _start_in_vain(daemon: Daemon, agent: Mapping[str, Any] | None) -> None:
    """Start a daemon that may be killed before it is ready."""
    with suppress(AssertionError):
        restart(daemon, agent)


def _database(daemon: Daemon) -> sqlite3.Connection:
    return sqlite3.connect(f"file:{daemon.home}/state/sublet.db?mode=ro", uri=True)


def _plan_of(daemon: Daemon) -> Path:
    return Path(daemon.environ["SUBLET_STOP_AT"])


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""
