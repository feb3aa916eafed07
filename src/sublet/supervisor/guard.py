"""Runs one command and ends whatever came of it. A program of its own: ``python -I -S guard.py`` (DESIGN 4.9).

Usage: ``guard.py CONTROL STATUS CWD LIMITS PROGRAM [ARGUMENT…]``; ``CONTROL`` and ``STATUS`` are inherited descriptors.
With ``CONTROL`` alone, a socket, it waits there for the rest, so that Python has started by the time it is needed: one
message with a file of the texts that ``_told`` reads, ``STATUS``, the three standard streams, and control groups.
``LIMITS`` is a list such as ``join=7,join=8,memory=1000000,processes=50,cpu_time=60``: descriptors of the control
groups that the command goes into, and what is to be watched here because no control group does.

Every process that the command leaves behind, however often it forked and whichever session it moved to, becomes a child
of this one (``PR_SET_CHILD_SUBREAPER``), and is killed when the command has ended or the other end of ``CONTROL`` is
closed, be it on purpose or by the daemon's death. Only then does this process end. On ``STATUS`` it writes one line:
``exit N``, ``signal N``, ``limit NAME`` where a watched limit was met, or ``start REASON`` where the command could not
be started.

The daemon does not start the command itself, since entering a directory on a dead mount blocks without end.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import select
import signal
import sys

try:  # ``socket`` makes a start take a third longer
    from _socket import CMSG_LEN, MSG_CMSG_CLOEXEC, socket
except ImportError:
    from socket import CMSG_LEN, MSG_CMSG_CLOEXEC, socket  # type: ignore[assignment]

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_STAT_PARENT = 1
_STAT_THREADS = 17
_STAT_FIELDS = 50
_STAT_TIMES = slice(11, 15)
_KILL_PAUSE_MILLISECONDS = 2
_WATCH_SECONDS = 0.1
_SLACK = 8
"""One part in so many that a single process may get beyond the limit of all, so that it is seen to have met it."""
_ALONE = 2
"""Words of a command line with nothing but ``CONTROL``."""
_MAX_DESCRIPTORS, _DESCRIPTOR_BYTES = 32, 4
_FORK_SLACK, _FORKS = 2, 64
"""How far processes may get beyond theirs, for the same reason; a process that can't fork only says so and ends."""
_Task = tuple[int, bytes, list[int], dict[str, int], list[bytes], dict[bytes, bytes] | None]
"""``STATUS``, ``CWD``, control groups, what is to be watched, the command, and its environment where it isn't ours."""


def main() -> None:
    """Do what the module says."""
    control = int(sys.argv[1])
    task = _told(control) if len(sys.argv) == _ALONE else _given(sys.argv[2:])
    if task is None:
        return
    status, cwd, groups, watched, command, env = task
    for group in groups:
        os.set_inheritable(group, False)
    os.set_inheritable(control, False)
    os.set_inheritable(status, False)
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    if prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        os.write(status, f"start no subreaper: {os.strerror(ctypes.get_errno())}\n".encode())
        return
    # A signal meant for the daemon's terminal is the daemon's business; it closes CONTROL when it wants us to stop.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    wake, wake_writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(wake_writer, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    child = os.fork()
    if child == 0:
        _become(command, env, cwd, status, prctl, groups, watched)
    for group in groups:
        os.close(group)
    ended = _watch(child, control, wake, watched)
    _end_all(wake)
    if isinstance(ended, int) and _peak_memory() > watched.get("memory", sys.maxsize):
        ended = "memory"
    if isinstance(ended, str):
        os.write(status, f"limit {ended}\n".encode())
    elif ended is not None:
        code = os.waitstatus_to_exitcode(ended)
        os.write(status, (f"signal {-code}\n" if code < 0 else f"exit {code}\n").encode())


def _given(arguments: list[str]) -> _Task:
    """Return what is to be done, as the command line says it."""
    groups, watched = _bounds(arguments[2])
    return int(arguments[0]), os.fsencode(arguments[1]), groups, watched, list(map(os.fsencode, arguments[3:])), None


def _told(control: int) -> _Task | None:
    """Return what is to be done, as the one message on ``control`` says it; None where there is nothing to be done."""
    channel = socket(fileno=control)
    room = CMSG_LEN(_MAX_DESCRIPTORS * _DESCRIPTOR_BYTES)
    data, ancillary, _, _ = channel.recvmsg(1, room, MSG_CMSG_CLOEXEC)
    channel.detach()
    if not data:
        return None
    (_, _, rights), *_ = ancillary
    starts = range(0, len(rights), _DESCRIPTOR_BYTES)
    received = [int.from_bytes(rights[at : at + _DESCRIPTOR_BYTES], sys.byteorder) for at in starts]
    texts, status, *streams = received[:5]
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    with open(texts, "rb") as file:
        file.seek(0)
        cwd, limits, count, *rest = file.read().split(b"\0")
    command, settings = rest[: int(count)], rest[int(count) :]
    env = {name: value for name, _, value in (one.partition(b"=") for one in settings)}
    return status, cwd, received[5:], _bounds(limits.decode())[1], command, env


def _bounds(limits: str) -> tuple[list[int], dict[str, int]]:
    """Return the control groups that ``LIMITS`` names, and what is to be watched."""
    pairs = [pair.split("=") for pair in limits.split(",") if pair]
    groups = [int(value) for name, value in pairs if name == "join"]
    return groups, {name: int(value) for name, value in pairs if name != "join"}


def _become(
    command: list[bytes],
    env: dict[bytes, bytes] | None,
    cwd: bytes,
    status: int,
    prctl: ctypes._NamedFuncPointer,
    groups: list[int],
    watched: dict[str, int],
) -> None:
    """Turn this fork into the command, or say why not."""
    try:
        for group in groups:
            os.write(group, b"0")
        _limit_each(watched)
        os.setsid()
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD, signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(number, signal.SIG_DFL)
        os.umask(0o022)
        os.chdir(cwd)
        # The argv of agent.json, without a shell.
        if env is None:
            os.execvp(command[0], command)  # noqa: S606
        os.execvpe(command[0], command, env or {})  # noqa: S606
    except OSError as error:
        os.write(status, f"start {error.strerror}\n".encode())
    finally:
        os._exit(127)


def _limit_each(watched: dict[str, int]) -> None:
    """Bound every single process by what the kernel offers, a little above what is watched for all together."""
    if "memory" in watched:
        _set(resource.RLIMIT_DATA, watched["memory"] + watched["memory"] // _SLACK)
    if "cpu_time" in watched:
        _set(resource.RLIMIT_CPU, watched["cpu_time"] + watched["cpu_time"] // _SLACK + 1)
    if "processes" in watched and os.getuid() != 0:
        # Counts all of the user's threads, in here and elsewhere; the kernel exempts root.
        limit = _FORK_SLACK * watched["processes"] + _FORKS
        _set(resource.RLIMIT_NPROC, _threads_of(os.getuid()) + limit)


def _set(which: int, limit: int) -> None:
    soft, hard = resource.getrlimit(which)
    limits = [value for value in (limit, soft, hard) if value != resource.RLIM_INFINITY]
    resource.setrlimit(which, (min(limits), min(limits)))


def _watch(child: int, control: int, wake: int, watched: dict[str, int]) -> int | str | None:
    """Wait for the command and return its wait status.

    Returns the name of a limit where that was met, and None where the daemon wants an end first.
    """
    pause = _WATCH_SECONDS * 1000 if watched else None
    poll = select.poll()
    poll.register(control, select.POLLIN)
    poll.register(wake, select.POLLIN)
    while True:
        for descriptor, _ in poll.poll(pause):
            if descriptor == control:
                return None
            with contextlib.suppress(BlockingIOError):
                os.read(wake, 4096)
        while True:
            pid, ended = os.waitpid(-1, os.WNOHANG)
            if pid == child:
                # What it has left running may be what it should not have: look before that is killed.
                return (_met(watched) if watched else None) or ended
            if pid == 0:
                break
        if watched and (met := _met(watched)):
            return met


def _end_all(wake: int) -> None:
    """Kill all descendants until there is none: those of a killed process come to us, and are killed in turn."""
    poll = select.poll()
    poll.register(wake, select.POLLIN)
    while True:
        with contextlib.suppress(BlockingIOError):
            os.read(wake, 4096)
        try:
            while os.waitpid(-1, os.WNOHANG)[0] != 0:
                pass
        except ChildProcessError:
            return
        for pid in _tree() or _descendants():
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        poll.poll(_KILL_PAUSE_MILLISECONDS)


def _tree() -> list[int]:
    """Return the descendants as the kernel lists the children of each: at once, however many processes there are.

    One that ends meanwhile may hide others, and some kernels have no such list, so nothing follows from its lack.
    """
    found: list[int] = []
    rest = [os.getpid()]
    while rest:
        pid = rest.pop()
        with contextlib.suppress(OSError):
            for thread in os.listdir(f"/proc/{pid}/task"):
                with open(f"/proc/{pid}/task/{thread}/children", "rb") as file:
                    offspring = list(map(int, file.read().split()))
                found += offspring
                rest += offspring
    return found


def _met(watched: dict[str, int]) -> str | None:
    """Return which limit all processes of the command together have met."""
    found = _descendants()
    if len(found) > watched.get("processes", sys.maxsize):
        return "processes"
    if "cpu_time" in watched:
        own = resource.getrusage(resource.RUSAGE_CHILDREN)
        ticks = sum(sum(map(int, _stat(pid)[_STAT_TIMES])) for pid in found)
        if own.ru_utime + own.ru_stime + ticks / os.sysconf("SC_CLK_TCK") > watched["cpu_time"]:
            return "cpu_time"
    # What forked processes share counts for each at first; where that is too much, it is counted once.
    limit = watched.get("memory", sys.maxsize)
    if sum(map(_resident, found)) > limit and sum(map(_proportional, found)) > limit:
        return "memory"
    return None


def _resident(pid: int) -> int:
    with contextlib.suppress(OSError), open(f"/proc/{pid}/statm", "rb") as file:
        return int(file.read().split()[1]) * resource.getpagesize()
    return 0


def _proportional(pid: int) -> int:
    with contextlib.suppress(OSError), open(f"/proc/{pid}/smaps_rollup", "rb") as file:
        for line in file:
            if line.startswith(b"Pss:"):
                return int(line.split()[1]) * 1024
    return _resident(pid)


def _peak_memory() -> int:
    """Return the most memory that one of the processes had that have ended."""
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024


def _threads_of(uid: int) -> int:
    total = 0
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError):
                if os.stat(f"/proc/{name}").st_uid == uid:
                    total += int(_stat(int(name))[_STAT_THREADS])
    return total


def _stat(pid: int) -> list[bytes]:
    """Return the fields of a process after its name; zeros for one that is gone."""
    with contextlib.suppress(OSError), open(f"/proc/{pid}/stat", "rb") as file:
        # The name in parentheses may hold anything, parentheses too; the state and parent follow the last one.
        return file.read().rpartition(b")")[2].split()
    return [b"0"] * _STAT_FIELDS


def _descendants() -> list[int]:
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            children.setdefault(int(_stat(int(name))[_STAT_PARENT]), []).append(int(name))
    found: list[int] = []
    rest = [os.getpid()]
    while rest:
        offspring = children.get(rest.pop(), [])
        found += offspring
        rest += offspring
    return found


if __name__ == "__main__":
    main()
