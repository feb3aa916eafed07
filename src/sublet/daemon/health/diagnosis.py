"""What ``sublet doctor`` checks, with and without a running daemon (DESIGN 10)."""

from __future__ import annotations

import asyncio
import os
import shutil
import sqlite3
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from itertools import starmap
from pathlib import Path
from types import MappingProxyType

from sublet.daemon.api.daemon import Check
from sublet.daemon.config.paths import Home
from sublet.daemon.health.private_parts import fallen_back
from sublet.daemon.health.repair import REPAIR, look
from sublet.daemon.process.own_home import problem
from sublet.daemon.rooms.clocks import ClockDiffers
from sublet.daemon.rooms.versions import Apart
from sublet.daemon.storage.state import ROOM_STORE, versions
from sublet.messaging.mending.losses import LOST_FILE, Losses
from sublet.migrations.schema import Schema
from sublet.protocol.errors import SubletError
from sublet.supervisor.agent_config import DEFAULT_AGENT_FILE, AgentConfig, load_agents
from sublet.supervisor.readiness import lacks
from sublet.workspace.mount.table import mounted_below
from sublet.workspace.requirements import check_requirements
from sublet.workspace.staging.private_views import describe_kinds

FOR_OTHERS = "working for others"
MIN_FREE_BYTES = 256 << 20


async def diagnose(
    home: Home,
    stores: Mapping[str, Schema],
    *,
    running: bool,
    mount_root: Path | None = None,
    limits: str = "",
    apart: Mapping[str, Apart] = MappingProxyType({}),
    clocks: Mapping[str, ClockDiffers] = MappingProxyType({}),
    bus: str | None = None,
    agents: Sequence[AgentConfig] | None = None,
) -> list[Check]:
    """Check what this machine has and lacks.

    Args:
        home: whose directories are looked at.
        stores: databases of faces in its state directory, by file name.
        running: whether the daemon of ``home`` runs; without it, mounts below its root are stale.
        mount_root: where the executor mounts, if not where it does by default.
        limits: by what the running daemon holds agents to their limits.
        apart: the peers of the running daemon with which no rooms are shared, by name.
        clocks: the peers of the running daemon whose clocks differ from this machine's, by name.
        bus: why the running daemon has no bus for rooms; None where it has.
        agents: those that the running daemon offers; without a daemon, those that it would.
    """
    checks = await asyncio.to_thread(_diagnose, home, stores, running, mount_root or Path(home.default_mount_root))
    ready = await asyncio.to_thread(_agents, home, agents)
    return [
        *checks,
        *ready,
        *([_limits(limits)] if limits else []),
        *([_bus(bus)] if bus is not None else []),
        *starmap(_rooms, apart.items()),
        *starmap(_clock, clocks.items()),
    ]


def _diagnose(home: Home, stores: Mapping[str, Schema], running: bool, mount_root: Path) -> list[Check]:
    checks = [
        Check(name=r.name, ok=r.ok, detail=r.detail, fix=r.fix, required_for=r.required_for)
        for r in check_requirements()
    ]
    return [
        *checks,
        _transports(checks),
        _libraries(),
        _disk(Path(home.state_dir)),
        _state(Path(home.state_dir), stores),
        *look(Path(home.state_dir), stores, running=running),
        _lost_of_rooms(Path(home.state_dir)),
        _home(Path(home.state_dir), running),
        _staging(Path(home.state_dir)),
        _mounts(mount_root, running),
    ]


def _agents(home: Home, agents: Sequence[AgentConfig] | None) -> list[Check]:
    """Tell of each agent that is offered what it lacks."""
    if agents is None:
        file = Path(home.config_dir) / "agent.json"
        try:
            agents = load_agents(file) if file.exists() else load_agents(DEFAULT_AGENT_FILE)
        except SubletError as error:
            return [Check(name="agents", ok=False, detail=error.message, fix=error.hint, required_for=FOR_OTHERS)]
    return [_agent(agent) for agent in agents]


def _agent(agent: AgentConfig) -> Check:
    missing = lacks(agent)
    return Check(
        name=f"agent {agent.id}",
        ok=not missing,
        detail="; ".join(lack.what for lack in missing) or "its program is here",
        fix=" ".join(lack.remedy for lack in missing),
        required_for=FOR_OTHERS,
    )


def _rooms(name: str, apart: Apart) -> Check:
    """Tell of a peer of another version. Nothing is wrong with this machine, and delegations go on."""
    return Check(name=f"rooms with {name}", ok=True, detail=f"{apart.what}; {apart.remedy}", required_for="rooms")


def _clock(name: str, clock: ClockDiffers) -> Check:
    """Tell of a peer whose clock differs; which of both is wrong nobody can tell from here."""
    return Check(name=f"clock of {name}", ok=False, detail=clock.what, fix=clock.remedy, required_for="times in rooms")


def _bus(why: str) -> Check:
    fix = "Mend what it names, or let the daemon use another place: TMPDIR, XDG_RUNTIME_DIR or SUBLET_HOME."
    return Check(name="bus of rooms", ok=False, detail=why, fix=fix, required_for="rooms with peers")


def _state(state_dir: Path, stores: Mapping[str, Schema]) -> Check:
    """Tell which version everything in the state directory has, and which copies of older ones there are."""
    found = versions(state_dir, version("sublet"), stores)
    problem = found.problem
    return Check(
        name="state version",
        ok=problem is None,
        detail=found.detail if problem is None else problem.message,
        fix="" if problem is None else problem.hint,
        required_for="everything",
    )


def _lost_of_rooms(state_dir: Path) -> Check:
    """Tell what of rooms was lost here and is not had again yet."""
    try:
        lost = Losses(state_dir / f"{Path(ROOM_STORE).stem}{LOST_FILE}").lost()
    except (OSError, sqlite3.Error) as error:
        return Check(name="lost messages", ok=False, detail=f"not known: {error}", fix=REPAIR, required_for="rooms")
    rooms = sorted({one.room_id for one in lost if one.room_id is not None})
    return Check(
        name="lost messages",
        ok=not lost,
        detail=f"something is missing in rooms {', '.join(rooms)}" if lost else "none",
        fix="Keep the daemon running: members of these rooms are asked whenever they are there.",
        required_for="rooms",
    )


def _home(state_dir: Path, running: bool) -> Check:
    """Tell whether this home is a copy of one that is still there."""
    found = problem(state_dir) if not running and state_dir.is_dir() else None
    return Check(
        name="home",
        ok=found is None,
        detail="no copy of another one" if found is None else found.message,
        fix="" if found is None else found.hint,
        required_for="everything",
    )


def _limits(means: str) -> Check:
    weaker = "" if "cgroup" in means else ": no control group can be made here, so a limit may be met for a moment"
    return Check(name="limits", ok=True, detail=f"held by {means}{weaker}", required_for="limits of agents")


def _transports(checks: list[Check]) -> Check:
    missing = [check.name for check in checks if check.required_for == "mount" and not check.ok]
    takes = "archive and git" if missing else "sshfs, archive and git"
    return Check(
        name="transports",
        ok=True,
        detail=f"lends by sshfs, archive and git; takes {takes}"
        + (f" (not sshfs: {', '.join(missing)})" if missing else ""),
        required_for="delegations",
    )


def _libraries() -> Check:
    """Tell where a library lacks a private part, so that what relies on it does without."""
    fallen = fallen_back()
    return Check(
        name="libraries",
        ok=all(part.harmless for part, _ in fallen),
        detail="; ".join(sentence for _, sentence in fallen) or "as they were tested",
        fix="Install the versions that requirements.lock names.",
        required_for="the bounds that it names",
    )


def _disk(state_dir: Path) -> Check:
    place = next(path for path in (state_dir, *state_dir.parents) if path.exists())
    free = shutil.disk_usage(place).free
    writable = os.access(place, os.W_OK)
    return Check(
        name="state directory",
        ok=writable and free >= MIN_FREE_BYTES,
        detail=f"{state_dir}: {free / (1 << 30):,.1f} GiB free" + ("" if writable else ", not writable"),
        fix="Free some space, or choose another place with SUBLET_HOME.",
        required_for="everything",
    )


def _staging(state_dir: Path) -> Check:
    """Tell how staged results are kept apart; a plain copy works everywhere, so that is never wrong by itself."""
    try:
        detail, ok = describe_kinds(state_dir), True
    except FileNotFoundError:
        detail, ok = "not known before the daemon has started once", True
    except OSError as error:
        detail, ok = f"{state_dir} can't be written: {error.strerror}", False
    return Check(
        name="staging",
        ok=ok,
        detail=detail,
        fix="" if ok else "Let this user write there, or choose another place with SUBLET_HOME.",
        required_for="staged results",
    )


def _mounts(root: Path, running: bool) -> Check:
    mounts = mounted_below(root)
    return Check(
        name="mounts",
        ok=running or not mounts,
        detail=f"{len(mounts)} below {root}" + ("" if running or not mounts else ", left by a daemon that is gone"),
        fix="Start the daemon: it removes them. Or: fusermount3 -u -z DIRECTORY",
        required_for="working in lent directories",
    )
