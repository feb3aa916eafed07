"""Control groups: bounds of memory, processes and processor time that hold for a whole tree of processes (DESIGN 4.9).

What this machine lets us do is tried once. Everything lies below the control group that the daemon itself is in, in a
directory of this daemon's own. Version 2 does all where its controllers are free; where a machine still has memory or
pids in hierarchies of version 1, those are used for that one bound, and version 2 goes on to kill and to count time.

Everything here writes small files of the kernel's and may wait for it a little: call it in a thread.
"""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from sublet.protocol.names import ForeignName

Item = Literal["memory", "processes", "cpu_time"]

REMOVE_SECONDS: Final = 2.0
"""How long a group is waited for whose processes have been killed; the next start removes what stays."""
MAX_HELD: Final = 48
"""Nested groups that are open at once while they are removed."""
_PAUSE_SECONDS: Final = 0.005
_CONTROLLERS: Final[Mapping[Item, str]] = {"memory": "memory", "processes": "pids"}


@dataclass(frozen=True, slots=True)
class _Hierarchy:
    """One mounted hierarchy: where its file system is, and where the daemon's own group is in it."""

    own: Path
    unified: bool


class Cgroups:
    """Makes groups for single tasks.

    Args:
        name: of this daemon's directory, the same after a restart.
        proc: where the kernel tells of this process; another path is for tests.
    """

    def __init__(self, name: str, proc: Path = Path("/proc/self")) -> None:
        self._name = name
        self._places: dict[Item, _Hierarchy] = {}
        self._killing: _Hierarchy | None = None
        found = _hierarchies(proc)
        unified = found.get("")
        if unified is not None and _made(unified.own / name):
            self._killing = unified
            if (unified.own / name / "cpu.stat").exists():
                self._places["cpu_time"] = unified
            for item in _enabled(unified.own, name):
                self._places[item] = unified
        for item, controller in _CONTROLLERS.items():
            legacy = found.get(controller)
            if item not in self._places and legacy is not None and _made(legacy.own / name):
                self._places[item] = legacy
        self._changing = threading.Lock()
        # It is there while a task runs only: a daemon that is killed while idle leaves nothing behind.
        self.close()

    @property
    def items(self) -> frozenset[Item]:
        """What groups can bound here."""
        return frozenset(self._places)

    @property
    def version(self) -> str:
        """What is used, for people."""
        kinds = {place.unified for place in self._places.values()}
        return "cgroup v2" if kinds == {True} else "cgroups v1 and v2" if len(kinds) == 2 else "cgroup v1"

    def open(
        self, task: ForeignName, *, memory_bytes: int | None, processes: int | None, cpu_seconds: int | None
    ) -> Group:
        """Make the group of one task; ``close`` it always.

        Args:
            task: its name.
            memory_bytes: of all its processes together, page cache included where it can't be given back.
            processes: threads count as well.
            cpu_seconds: of all its processes together.

        Raises:
            OSError: the kernel refuses, so that nothing is bounded.
        """
        wanted: dict[Item, int | None] = {
            "memory": memory_bytes, "processes": processes, "cpu_time": cpu_seconds,
        }  # fmt: skip
        bounds = {item: bound for item, bound in wanted.items() if bound is not None and item in self._places}
        places = {item: self._places[item] for item in bounds}
        hierarchies = {*places.values(), *([self._killing] if self._killing else [])}
        group = Group({place: place.own / self._name / task for place in hierarchies}, places, bounds, self.close)
        try:
            with self._changing:
                self._make_own()
                group.make()
        except OSError:
            group.close()
            raise
        return group

    def reap(self) -> int:
        """Kill and remove what an earlier process of this daemon left behind, and return how many groups there were."""
        left: set[str] = set()
        for place in self._all():
            with contextlib.suppress(OSError), os.scandir(place.own / self._name) as entries:
                for entry in [found for found in entries if found.is_dir(follow_symlinks=False)]:
                    left.add(entry.name)
                    _remove(Path(entry.path))
        return len(left)

    def close(self) -> None:
        """Remove this daemon's own directories, unless something is left in them."""
        with self._changing:
            for place in self._all():
                with contextlib.suppress(OSError):
                    os.rmdir(place.own / self._name)

    def _make_own(self) -> None:
        for place in self._all():
            with contextlib.suppress(FileExistsError):
                (place.own / self._name).mkdir()
        for item, place in self._places.items():
            if place.unified and item in _CONTROLLERS:
                _write(place.own / self._name / "cgroup.subtree_control", f"+{_CONTROLLERS[item]}")

    def _all(self) -> set[_Hierarchy]:
        return {*self._places.values(), *([self._killing] if self._killing else [])}


class Group:
    """The group of one task, in every hierarchy that has a bound for it. Made by ``Cgroups.open``."""

    def __init__(
        self,
        directories: Mapping[_Hierarchy, Path],
        places: Mapping[Item, _Hierarchy],
        bounds: Mapping[Item, int],
        closed: Callable[[], None],
    ) -> None:
        self._directories = dict(directories)
        self._places = places
        self._bounds = bounds
        self._closed = closed
        self.descriptors: list[int] = []
        """A process that writes ``0`` into all of these is in the group, and so is whatever it starts."""

    @property
    def items(self) -> frozenset[Item]:
        """What is bounded."""
        return frozenset(self._bounds)

    def make(self) -> None:
        """Make the directories and set the bounds.

        Raises:
            OSError: the kernel refuses.
        """
        for directory in self._directories.values():
            with contextlib.suppress(FileExistsError):
                directory.mkdir()
            self.descriptors.append(os.open(directory / "cgroup.procs", os.O_WRONLY | os.O_CLOEXEC))
        for item, bound in self._bounds.items():
            directory = self._directories[self._places[item]]
            if item == "processes":
                _write(directory / "pids.max", bound)
            elif item == "memory" and self._places[item].unified:
                _write(directory / "memory.max", bound)
                _write_where_present(directory / "memory.swap.max", 0)
            elif item == "memory":
                _write(directory / "memory.limit_in_bytes", bound)
                _write_where_present(directory / "memory.memsw.limit_in_bytes", bound)

    def exceeded(self) -> Item | None:
        """Return which bound the kernel had to enforce, or that the time is used up."""
        for item, place in self._places.items():
            directory = self._directories[place]
            if item == "memory":
                over = _number(directory / ("memory.events" if place.unified else "memory.oom_control"), "oom_kill") > 0
            elif item == "processes":
                over = _number(directory / "pids.events", "max") > 0
            else:
                over = _number(directory / "cpu.stat", "usage_usec") > self._bounds[item] * 1_000_000
            if over:
                return item
        return None

    def kill(self) -> None:
        """Kill every process in it, those that fork meanwhile too."""
        for directory in self._directories.values():
            _kill(directory)

    def close(self) -> None:
        """Kill what is left and remove the group; twice is no error."""
        for descriptor in self.descriptors:
            os.close(descriptor)
        self.descriptors.clear()
        for directory in self._directories.values():
            _remove(directory)
        self._closed()


def _hierarchies(proc: Path) -> dict[str, _Hierarchy]:
    """Return where this process is: by the name of a controller of version 1, and as ``""`` for version 2."""
    try:
        groups = (proc / "cgroup").read_text().splitlines()
        mounts = (proc / "mountinfo").read_text().splitlines()
    except OSError:
        return {}
    own: dict[str, str] = {}
    for line in groups:
        _, names, path = line.split(":", 2)
        own |= dict.fromkeys(names.split(","), path)
    found: dict[str, _Hierarchy] = {}
    for line in mounts:
        before, _, after = line.partition(" - ")
        root, point = before.split()[3:5]
        kind, _, options = (*after.split(), "", "")[:3]
        controllers = [""] if kind == "cgroup2" else options.split(",") if kind == "cgroup" else []
        for name in controllers:
            path = own.get(name, "")
            if path and (path == root or path.startswith(root.rstrip("/") + "/")):
                below = path[len(root.rstrip("/")) :].lstrip("/")
                found[name] = _Hierarchy(Path(point) / below, kind == "cgroup2")
    return found


def _made(directory: Path) -> bool:
    with contextlib.suppress(FileExistsError):
        try:
            directory.mkdir()
        except OSError as error:
            if error.errno != errno.EEXIST:
                return False
    return os.access(directory / "cgroup.procs", os.W_OK)


def _enabled(own: Path, name: str) -> Iterator[Item]:
    """Turn the controllers on for our directory and for the groups in it, and yield what works."""
    for item, controller in _CONTROLLERS.items():
        with contextlib.suppress(OSError):
            if controller not in _words(own / "cgroup.subtree_control"):
                _enable_for_children(own, name, controller)
            _write(own / name / "cgroup.subtree_control", f"+{controller}")
            yield item


def _enable_for_children(own: Path, name: str, controller: str) -> None:
    """Turn a controller on in our own group, out of which we have to go for that where we are alone in it.

    Raises:
        OSError: others are in it as well, or it is not ours to change.
    """
    try:
        _write(own / "cgroup.subtree_control", f"+{controller}")
    except OSError as error:
        if error.errno != errno.EBUSY or _pids(own) != [os.getpid()] or not _delegated(own):
            raise
        leaf = own / f"{name}-daemon"
        with contextlib.suppress(FileExistsError):
            leaf.mkdir()
        _write(leaf / "cgroup.procs", os.getpid())
        try:
            _write(own / "cgroup.subtree_control", f"+{controller}")
        except OSError:
            _write(own / "cgroup.procs", os.getpid())
            raise


def _delegated(own: Path) -> bool:
    """Tell whether the group is given to us to arrange: an ordinary user could not write there otherwise."""
    if os.geteuid() != 0:
        return True
    for attribute in ("user.delegate", "trusted.delegate"):
        with contextlib.suppress(OSError):
            return os.getxattr(own, attribute) == b"1"
    return False


def _kill(directory: Path) -> None:
    try:
        _write(directory / "cgroup.kill", 1)
    except OSError:
        # Version 1, or a kernel before 5.14.
        for pid in _pids(directory):
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)


def _remove(directory: Path) -> bool:
    """Kill what is in the group and in groups below it, and remove them all; tell whether that was done in time."""
    give_up = time.monotonic() + REMOVE_SECONDS
    while True:
        try:
            os.rmdir(directory)
        except FileNotFoundError:
            return True
        except OSError:
            _kill(directory)
            with contextlib.suppress(OSError):
                _remove_below(directory, give_up)
        else:
            return True
        if time.monotonic() > give_up:
            return False
        time.sleep(_PAUSE_SECONDS)


def _remove_below(directory: Path, give_up: float) -> None:
    """Remove the groups that an agent has made in its own, the deepest first, at any depth and width.

    At most ``MAX_HELD`` descriptors are open: of a deeper chain the end goes first, and whoever calls comes again.

    Raises:
        OSError: the group is gone, or a process in one of them does not end just now.
    """
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    held: deque[tuple[int, str]] = deque([(os.open(directory, flags), "")])
    try:
        while held and time.monotonic() < give_up:
            fd, name = held[-1]
            below = _first_group(fd)
            if below is not None:
                held.append((os.open(below, flags, dir_fd=fd), below))
                if len(held) > MAX_HELD:
                    os.close(held.popleft()[0])
                continue
            _kill(Path(f"/proc/self/fd/{fd}"))
            os.close(held.pop()[0])
            if held:
                os.rmdir(name, dir_fd=held[-1][0])
    finally:
        for fd, _ in held:
            os.close(fd)


def _first_group(fd: int) -> str | None:
    with os.scandir(fd) as entries:
        return next((entry.name for entry in entries if entry.is_dir(follow_symlinks=False)), None)


def _pids(directory: Path) -> list[int]:
    try:
        return [int(word) for word in _words(directory / "cgroup.procs")]
    except OSError:
        return []


def _words(path: Path) -> Sequence[str]:
    return path.read_text().split()


def _number(path: Path, key: str) -> int:
    """Return the number that a flat keyed file has for ``key``; 0 where it has none."""
    with contextlib.suppress(OSError):
        words = _words(path)
        for word, number in zip(words[::2], words[1::2], strict=False):
            if word == key:
                return int(number)
    return 0


def _write(path: Path, value: int | str) -> None:
    # Never creates a file: in a directory that is no control group there must be none.
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(descriptor, str(value).encode())
    finally:
        os.close(descriptor)


def _write_where_present(path: Path, value: int) -> None:
    with contextlib.suppress(OSError):
        _write(path, value)
