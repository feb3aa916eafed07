"""Runs one command and ends whatever came of it. A program of its own: ``python -I -S guard.py`` (DESIGN 4.9).

Usage: ``guard.py CONTROL STATUS CWD PROGRAM [ARGUMENT…]``; ``CONTROL`` and ``STATUS`` are inherited descriptors.

Every process that the command leaves behind, however often it forked and whichever session it moved to, becomes a child
of this one (``PR_SET_CHILD_SUBREAPER``), and is killed when the command has ended or the other end of ``CONTROL`` is
closed, be it on purpose or by the daemon's death. Only then does this process end. On ``STATUS`` it writes one line:
``exit N``, ``signal N``, or ``start REASON`` where the command could not be started.

The daemon does not start the command itself, since entering a directory on a dead mount blocks without end.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import sys
import time

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_STAT_PARENT = 1
_KILL_PAUSE_SECONDS = 0.002


def main() -> None:
    """Do what the module says."""
    control, status, cwd, command = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4:]
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
        _become(command, cwd, status, prctl)
    ended = _watch(child, control, wake)
    _end_all()
    if ended is not None:
        code = os.waitstatus_to_exitcode(ended)
        os.write(status, (f"signal {-code}\n" if code < 0 else f"exit {code}\n").encode())


def _become(command: list[str], cwd: str, status: int, prctl: ctypes._NamedFuncPointer) -> None:
    """Turn this fork into the command, or say why not."""
    try:
        os.setsid()
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD, signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(number, signal.SIG_DFL)
        os.umask(0o022)
        os.chdir(cwd)
        os.execvp(command[0], command)  # noqa: S606 - the argv of agent.json, without a shell
    except OSError as error:
        os.write(status, f"start {error.strerror}\n".encode())
    finally:
        os._exit(127)


def _watch(child: int, control: int, wake: int) -> int | None:
    """Wait for the command and return its wait status, or None where the daemon wants an end first."""
    poll = select.poll()
    poll.register(control, select.POLLIN)
    poll.register(wake, select.POLLIN)
    while True:
        for descriptor, _ in poll.poll():
            if descriptor == control:
                return None
            with contextlib.suppress(BlockingIOError):
                os.read(wake, 4096)
        while True:
            pid, ended = os.waitpid(-1, os.WNOHANG)
            if pid == child:
                return ended
            if pid == 0:
                break


def _end_all() -> None:
    """Kill all descendants until there is none: those of a killed process come to us, and are killed in turn."""
    while True:
        for pid in _descendants():
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        try:
            while os.waitpid(-1, os.WNOHANG)[0] != 0:
                pass
        except ChildProcessError:
            return
        time.sleep(_KILL_PAUSE_SECONDS)


def _descendants() -> list[int]:
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError), open(f"/proc/{name}/stat", "rb") as file:
                # The name in parentheses may hold anything, parentheses too; the state and parent follow the last one.
                parent = int(file.read().rpartition(b")")[2].split()[_STAT_PARENT])
                children.setdefault(parent, []).append(int(name))
    found: list[int] = []
    rest = [os.getpid()]
    while rest:
        offspring = children.get(rest.pop(), [])
        found += offspring
        rest += offspring
    return found


if __name__ == "__main__":
    main()
