"""Confines what an agent starts, by bubblewrap: nothing of this machine is there unless it is named (DESIGN 4.9, 9).

The root is an empty file system. On it lie the system's programs and libraries (read-only), a handful of files of
``/etc``, a fresh ``/proc`` and ``/dev``, a private ``/tmp``, and what the launch names. Processes of the host, other
leases, keys and sockets are not hidden one by one: they are simply not there. Masks are for what a readable
directory would otherwise bring along.
"""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal, Protocol

from sublet.protocol.errors import ErrorCode, LocalCode, SubletError

PROBE_SECONDS = 10.0

# Programs and libraries. Where a distribution has merged them into /usr these are links, elsewhere directories.
SYSTEM: Final = ("/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")

# What programs need of /etc to run at all: linker, alternatives, certificates, time zone, names of users and services.
_ETC = (
    "alternatives",
    "ca-certificates",
    "crypto-policies",
    "group",
    "ld.so.cache",
    "ld.so.conf",
    "ld.so.conf.d",
    "localtime",
    "mime.types",
    "nsswitch.conf",
    "os-release",
    "passwd",
    "pki",
    "protocols",
    "services",
    "ssl/certs",
    "ssl/openssl.cnf",
    "timezone",
)
_ETC_NETWORK = ("hosts", "resolv.conf", "gai.conf", "host.conf")
_LOCALHOST = Path(__file__).with_name("sandbox_hosts")


class ClosedPath(Protocol):
    """A path that is there and that a program does not see, or can't change."""

    @property
    def path(self) -> Path:
        """Where it is: an absolute path."""

    @property
    def how(self) -> Literal["hidden directory", "hidden file", "read-only"]:
        """What a program meets there: nothing, or something that it can't change."""


class ConfinedLaunch(Protocol):
    """What a sandbox looks at; the supervisor's ``Launch`` has this shape."""

    @property
    def argv(self) -> Sequence[str]:
        """Program and arguments."""

    @property
    def cwd(self) -> Path:
        """Where it starts; inside one of the named directories."""

    @property
    def writable(self) -> Sequence[Path]:
        """What it may change."""

    @property
    def readable(self) -> Sequence[Path]:
        """What it may read beyond the system's own programs."""

    @property
    def allow_network(self) -> bool:
        """Whether it shares the host's network."""

    @property
    def closed(self) -> Sequence[ClosedPath]:
        """What is hidden from it, or read-only, inside what it sees otherwise."""

    @property
    def scratch_bytes(self) -> int | None:
        """What its private ``/tmp`` may hold; None for no bound but the memory's."""


@dataclass(frozen=True, slots=True)
class PlainLaunch:
    """A launch for this package's own use, with the strictest defaults."""

    argv: Sequence[str]
    cwd: Path
    writable: Sequence[Path] = field(default_factory=tuple)
    readable: Sequence[Path] = field(default_factory=tuple)
    allow_network: bool = False
    scratch_bytes: int | None = None
    closed: Sequence[ClosedPath] = ()


@dataclass(frozen=True, slots=True)
class _Layer:
    """One mount on the empty root. Deeper layers are mounted later, and so lie on top."""

    path: Path
    rank: int
    arguments: tuple[str, ...]


_READABLE, _MASK, _WRITABLE, _CLOSED = range(4)


class BubblewrapSandbox:
    """Runs a launch on an empty root of its own, with its own processes, users, names and (by default) network.

    Args:
        masked: directories and files that stay invisible even where a readable directory covers them:
            ``SUBLET_HOME``, the mount root, key directories. Only what a launch may write, and the directory it works
            in, shows through at its own absolute path.
        program: the bwrap executable; by default the one on PATH when something is started, so that a machine without
            bubblewrap can still lend.
    """

    def __init__(self, masked: Iterable[Path] = (), program: str | None = None) -> None:
        self._program = program
        self.enforced: frozenset[str] = frozenset({"cwd_only", "allow_network"})
        self._masked = tuple(Path(os.path.realpath(path)) for path in masked)

    @property
    def program(self) -> str:
        """Path of the bwrap executable.

        Raises:
            SubletError: ``DEP_MISSING`` where there is none.
        """
        found = self._program or shutil.which("bwrap")
        if found is None:
            raise SubletError(
                ErrorCode.DEP_MISSING,
                "bubblewrap (bwrap) is not on PATH, so an agent can't be confined",
                "Install bubblewrap (apt install bubblewrap), or start with --unsandboxed knowingly.",
            )
        return found

    def wrap(self, launch: ConfinedLaunch) -> Sequence[str]:
        """Return the argv that confines ``launch``.

        The environment is no part of it: argv is public, so start it with exactly the environment that the program
        is to have. Paths of the mount are never looked up here, since that could block on a dead link.

        Raises:
            SubletError: ``POLICY_DENIED`` for a readable path that a mask hides; ``INVALID_ARGUMENT`` for a relative
                path; ``DEP_MISSING`` without bubblewrap.
        """
        layers = sorted(self._layers(launch), key=lambda layer: (len(layer.path.parts), layer.rank))
        argv = [self.program, *_NAMESPACES, *([] if launch.allow_network else ["--unshare-net"])]
        argv += [*system(), *_etc(launch.allow_network), *_PRIVATE]
        argv += [*_bounded(argv[0], launch.scratch_bytes), "--tmpfs", "/tmp"]  # noqa: S108 - a private one
        for layer in layers:
            argv += layer.arguments
        for path in ("/", "/dev", *(str(layer.path) for layer in layers if layer.arguments[0] == "--tmpfs")):
            argv += ["--remount-ro", path]
        return [*argv, "--chdir", str(_absolute(launch.cwd)), "--", *launch.argv]

    def _layers(self, launch: ConfinedLaunch) -> Iterator[_Layer]:
        shown = [Path("/usr"), *map(Path, SYSTEM)]
        links = []
        for path in map(_absolute, launch.readable):
            if launch.cwd.is_relative_to(path):  # the lease's own, on a mount that may not be looked into
                real = path
            else:
                real = Path(os.path.realpath(path))
                self._refuse_masked(real)
                links += [(path, real)] if real != path else []
            shown.append(real)
            yield _Layer(real, _READABLE, ("--ro-bind", str(real), str(real)))
        for path in map(_absolute, launch.writable):
            shown.append(path)
            yield _Layer(path, _WRITABLE, ("--bind", str(path), str(path)))
        for one in launch.closed:
            where = str(_absolute(one.path))
            how: tuple[str, ...] = ("--ro-bind", where, where)
            if one.how != "read-only":
                how = ("--tmpfs", where) if one.how == "hidden directory" else ("--ro-bind", "/dev/null", where)
            yield _Layer(one.path, _CLOSED, how)
        for path, real in links:
            # Covered by a bound directory, the link is there already.
            if not any(path.is_relative_to(other) for other in shown):
                yield _Layer(path, _READABLE, ("--symlink", str(real), str(path)))
        for mask in self._masked:
            # The root is empty, so only what a bound directory would bring along has to be covered.
            if any(mask.is_relative_to(path) for path in shown) and os.path.lexists(mask):
                empty = ("--tmpfs", str(mask)) if mask.is_dir() else ("--ro-bind", "/dev/null", str(mask))
                yield _Layer(mask, _MASK, empty)

    def _refuse_masked(self, path: Path) -> None:
        for mask in self._masked:
            if path.is_relative_to(mask):
                raise SubletError(
                    LocalCode.POLICY_DENIED,
                    f"an agent may not read {path}: {mask} stays hidden from agents",
                    "Take it out of sandbox.readable in agent.json, or move what the agent needs elsewhere.",
                )


class Unsandboxed:
    """No confinement at all: what ``--unsandboxed`` chooses, and ACCEPT and status then say."""

    def __init__(self) -> None:
        self.enforced: frozenset[str] = frozenset()

    def wrap(self, launch: ConfinedLaunch) -> Sequence[str]:
        """Return the launch's own argv."""
        return list(launch.argv)


_NAMESPACES = (
    "--unshare-user-try",  # root in a container may lack user namespaces, and has the capabilities to do without
    "--unshare-ipc",
    "--unshare-pid",
    "--unshare-uts",
    "--unshare-cgroup-try",
    *("--hostname", "sublet"),
    *("--cap-drop", "ALL"),  # started by root, bwrap would leave its capabilities
    "--die-with-parent",
    "--new-session",  # no control of the terminal that the daemon was started from (CVE-2017-5226)
)
# What belongs to root here is written without any capability, /proc/sys/kernel/core_pattern for one, which the kernel
# runs on the host. bwrap covers these only where the directory itself looks writable.
_READ_ONLY_PROC = ("acpi", "bus", "driver", "fs", "irq", "mtrr", "pressure", "scsi", "sys", "sysrq-trigger")
_PRIVATE = (
    *("--proc", "/proc", "--dev", "/dev"),
    *(word for name in _READ_ONLY_PROC for word in ("--ro-bind-try", f"/proc/{name}", f"/proc/{name}")),
    *("--dir", "/run", "--dir", "/var", "--symlink", "../tmp", "/var/tmp"),  # noqa: S108 - a private one
)


def _bounded(program: str, tmp_bytes: int | None) -> Sequence[str]:
    """Return what bounds the tmpfs that follows; bubblewrap before 0.7 can't, and there the memory's bound must do."""
    if tmp_bytes is None:
        return ()
    seen = os.stat(program)
    return ("--size", str(tmp_bytes)) if _knows_size(program, seen.st_ino, seen.st_mtime_ns) else ()


@functools.lru_cache(maxsize=8)
def _knows_size(program: str, *_identity: int) -> bool:
    try:
        helped = subprocess.run([program, "--help"], capture_output=True, timeout=PROBE_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return b"--size BYTES" in helped.stdout + helped.stderr


def system() -> Iterator[str]:
    """Yield the arguments that show the system's programs and libraries, read-only."""
    yield from ("--ro-bind", "/usr", "/usr")
    for path in SYSTEM:
        if os.path.islink(path):
            yield from ("--symlink", os.readlink(path), path)
        elif os.path.isdir(path):
            yield from ("--ro-bind", path, path)


def _etc(allow_network: bool) -> Iterator[str]:
    for name in (*_ETC, *(_ETC_NETWORK if allow_network else ())):
        yield from ("--ro-bind-try", f"/etc/{name}", f"/etc/{name}")
    if not allow_network:
        # Test suites bind "localhost"; the real file would tell the names of the host's neighbours.
        yield from ("--ro-bind", str(_LOCALHOST), "/etc/hosts")


def _absolute(path: Path) -> Path:
    if not path.is_absolute() or ".." in path.parts:
        raise SubletError(
            LocalCode.INVALID_ARGUMENT, f"a sandbox path is absolute and without '..': {path}", "Name the full path."
        )
    return path
