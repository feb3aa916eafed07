"""Git in a sandbox: it sees one directory of ours and the system's programs, and has no network (DESIGN 9.13).

Whatever a peer made (a bundle, a pack, the objects of a repository) is read by no other git. The sandbox is leaner than
that of agents, since it is started for every few commands: no ``/proc``, no ``/etc`` but the linker's, no ``/tmp``.
Commands come as one short shell script, so that several of them cost one start; the script also sets the bounds of
memory, processor time and file sizes. A script is a constant of ours. What varies is handed to it as arguments.
"""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from sublet.protocol.errors import ErrorCode, SubletError
from sublet.protocol.text import clean_line
from sublet.workspace.git_runner import git_program
from sublet.workspace.sandbox.bubblewrap import SYSTEM, system

MAX_MEMORY_KIB: Final = 1 << 20
"""Address space of one git, in KiB. What it holds at once is bounded more tightly, by what is let in."""
MAX_PROCESSOR_SECONDS: Final = 600
MAX_FILE_BLOCKS: Final = 8 << 20
"""Blocks of 512 bytes of one file that git writes: 4 GiB."""
PROBE_SECONDS: Final = 10.0

_ETC: Final = ("alternatives", "ld.so.cache", "ld.so.conf", "ld.so.conf.d")
_STORES: Final = ("/nix/store", "/gnu/store")
"""Where some systems keep every program, each with a directory of its own."""
_LIMITS: Final = (
    f"for bound in '-v {MAX_MEMORY_KIB}' '-t {MAX_PROCESSOR_SECONDS}' '-f {MAX_FILE_BLOCKS}' '-c 0'\n"
    "do ulimit $bound 2>/dev/null || :; done; set -e\n"  # where the machine's own bound is tighter, that holds
)
_SHELL: Final = "/bin/sh"
_BARE: Final = (
    "--unshare-all",
    *("--cap-drop", "ALL"),  # started by root, bwrap would leave its capabilities
    "--die-with-parent",
    "--new-session",
)
# These hold for the processes that git starts as well. No hook, no attribute, no monitor, no helper, no protocol; few
# threads and small windows, to stay within the bound of memory.
SETTINGS: Final = (
    "core.hooksPath=/dev/null",
    "core.attributesFile=/dev/null",
    "core.excludesFile=/dev/null",
    "core.fsmonitor=false",
    "core.untrackedCache=false",
    "core.autocrlf=false",
    "core.quotePath=false",
    "core.splitIndex=false",
    "core.commitGraph=false",
    "core.multiPackIndex=false",
    "core.useReplaceRefs=false",
    "core.protectHFS=true",
    "core.protectNTFS=true",
    "core.bigFileThreshold=16m",
    "core.deltaBaseCacheLimit=16m",
    "core.packedGitWindowSize=16m",
    "core.packedGitLimit=128m",
    "core.logAllRefUpdates=false",
    "core.alternateRefsCommand=true",
    "commit.gpgSign=false",
    "credential.helper=",
    "gc.auto=0",
    "maintenance.auto=false",
    "pack.threads=2",
    "pack.useBitmaps=false",
    "pack.writeReverseIndex=false",
    "protocol.allow=never",
    "submodule.recurse=false",
    "transfer.fsckObjects=true",
    "safe.directory=*",
    "safe.bareRepository=all",
)
_GIT: Final = 'g() { "$GIT" ' + " ".join(f"-c {setting}" for setting in SETTINGS) + ' "$@"; }\n'


class GitSandbox:
    """Makes the command lines by which git runs on what a peer has made.

    Args:
        confined: False where the user has taken the risk by ``--unsandboxed``: then git runs with the daemon's rights,
            with the same settings and limits.
        program: the bwrap executable; by default the one on PATH when something is started.
    """

    def __init__(self, *, confined: bool = True, program: str | None = None) -> None:
        self.confined = confined
        self._program = program

    def check(self, what_for: str = "the transport git") -> None:
        """Return if git can be confined here, or need not be; what has worked once is not tried again.

        Args:
            what_for: what can't be done otherwise, as it begins the message.

        Raises:
            SubletError: ``DEP_MISSING``, naming the flag that takes the risk.
        """
        if not self.confined:
            return
        program = self._bwrap()
        try:
            seen = os.stat(program or "")
        except OSError:
            reason = "bubblewrap (bwrap) is not on PATH"
        else:
            reason = _why_not(program or "", seen.st_ino, seen.st_mtime_ns, seen.st_size)
            if reason:
                _why_not.cache_clear()  # it may be mended without a new program
        if reason:
            raise SubletError(
                ErrorCode.DEP_MISSING,
                f"{what_for} is not available: git would read what a peer has made, and can't be confined: {reason}",
                "Install bubblewrap (apt install bubblewrap) and allow user namespaces. Or do without: --transport "
                "archive brings files, `sublet apply` takes results. Or start the daemon with --unsandboxed and take "
                "the risk.",
            )

    def wrap(
        self,
        script: str,
        arguments: Sequence[str] = (),
        *,
        writable: Sequence[Path],
        readable: Sequence[Path] = (),
        instead: Mapping[Path, Path] | None = None,
    ) -> list[str]:
        """Return the argv that runs ``script``, in which ``g`` is git, with ``arguments`` as its ``$1`` and so on.

        The script ends at the first command that fails. It finds git's path in ``$GIT``, which ``variables`` sets.

        Args:
            script: a constant of ours.
            arguments: what varies.
            writable: absolute paths that git may change; the first is where it starts.
            readable: absolute paths that it may read besides.
            instead: files that it sees in place of others. Without a sandbox it sees those others.

        Raises:
            SubletError: as ``check``.
        """
        inner = [_SHELL, "-c", _LIMITS + _GIT + script, "git", *arguments]
        if not self.confined:
            return inner
        self.check()
        program = self._bwrap()
        assert program is not None
        argv = [program, *_BARE, *_shown(), "--dev", "/dev"]
        for path in readable:
            argv += ["--ro-bind", str(path), str(path)]
        for path in writable:
            argv += ["--bind", str(path), str(path)]
        for path, other in (instead or {}).items():
            argv += ["--ro-bind", str(other), str(path)]
        return [*argv, "--remount-ro", "/", "--chdir", str(writable[0]), "--", *inner]

    def _bwrap(self) -> str | None:
        return self._program or shutil.which("bwrap")


def git_variables() -> dict[str, str]:
    """Return what a script of ``GitSandbox`` needs in its environment.

    Raises:
        SubletError: ``DEP_MISSING`` without git.
    """
    return {"GIT": git_program("", "Install git, or use another transport."), "MALLOC_ARENA_MAX": "1"}


def _shown() -> Iterator[str]:
    yield from system()
    for name in _ETC:
        yield from ("--ro-bind-try", f"/etc/{name}", f"/etc/{name}")
    for path in _of_git(shutil.which("git") or ""):
        yield from ("--ro-bind", path, path)


@functools.lru_cache(maxsize=8)
def _of_git(program: str) -> tuple[str, ...]:
    """Return what has to be shown besides the system's own directories for a git that is installed elsewhere."""
    found = {os.path.dirname(os.path.dirname(path)) for path in (program, os.path.realpath(program)) if path}
    stores = [store for store in _STORES if any(path.startswith(f"{store}/") for path in found)]
    usual = ("/usr", *SYSTEM)
    other = [path for path in found if path != "/" and not any(f"{path}/".startswith(f"{top}/") for top in usual)]
    elsewhere = (path for path in sorted(other) if not any(path.startswith(store) for store in stores))
    return (*stores, *(shown for path in elsewhere for shown in _programs_of(path)))


def _programs_of(prefix: str) -> Iterator[str]:
    """Yield what to show of an installation: all of it, or, where a home lies in it, its programs alone."""
    home = os.path.realpath(os.path.expanduser("~"))
    if not f"{home}/".startswith(f"{os.path.realpath(prefix)}/"):
        yield prefix
        return
    yield from (path for part in ("bin", "lib", "libexec", "share") if os.path.isdir(path := f"{prefix}/{part}"))


@functools.lru_cache(maxsize=1)
def _why_not(program: str, *_identity: int) -> str:
    """Return why bubblewrap can't confine git here; empty where it can."""
    argv = [program, *_BARE, *_shown(), "--dev", "/dev", "--remount-ro", "/", "--", _SHELL, "-c", "exit 0"]
    try:
        done = subprocess.run(argv, cwd="/", env={}, capture_output=True, timeout=PROBE_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return clean_line(str(error), 300)
    if done.returncode == 0:
        return ""
    return clean_line(done.stderr.decode("utf-8", "replace"), 300) or f"bwrap ended with {done.returncode}"
