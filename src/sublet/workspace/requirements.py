"""What this machine must have before it can mount, confine or audit, and what to do where it has not (case C15).

Everything here runs small programs and may take a few hundred milliseconds: call it in a thread, never on the loop.
"""

from __future__ import annotations

import errno
import functools
import os
import shutil
import stat
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from sublet.disk.openat2 import open_beneath
from sublet.protocol.errors import ErrorCode, SubletError
from sublet.protocol.patterns import Pattern
from sublet.protocol.text import clean_line
from sublet.workspace.sandbox.bubblewrap import BubblewrapSandbox, PlainLaunch

Purpose = Literal["mount", "sandbox", "audit", "serve"]

DEV_FUSE = Path("/dev/fuse")
PROBE_SECONDS = 10.0
GIT_MINIMUM = (2, 30)

_CAP_SYS_ADMIN = 21


@dataclass(frozen=True, slots=True)
class Requirement:
    """One thing that was looked for.

    ``fix`` says what to do, and is empty where ``ok``. ``required_for`` is what does not work without it.
    """

    name: str
    ok: bool
    detail: str
    fix: str
    required_for: Purpose


def check_requirements(dev_fuse: Path = DEV_FUSE) -> list[Requirement]:
    """Return every check of this machine, the failed ones included.

    Args:
        dev_fuse: the FUSE device; another path is for tests.
    """
    return [*check_mount(dev_fuse), check_sandbox(), check_git(), check_openat2()]


def check_mount(dev_fuse: Path = DEV_FUSE) -> list[Requirement]:
    """Return the checks that a mount needs: sshfs, its fix for CVE-2026-47187, fusermount3 and the device."""
    return [*_sshfs(), _fusermount(), _device(dev_fuse)]


def require_mount(dev_fuse: Path = DEV_FUSE) -> None:
    """Return if this machine can mount a workspace.

    Raises:
        SubletError: ``DEP_MISSING``, naming exactly what is missing and what to do (AWCP 4.5).
    """
    _require([check for check in check_mount(dev_fuse) if not check.ok], "mount a workspace")


def require_transport(transport: str) -> None:
    """Return if this machine can take a delegator's view by ``transport``; an archive needs nothing.

    Raises:
        SubletError: ``DEP_MISSING``, as ``require_mount``.
    """
    if transport == "sshfs":
        require_mount()
    elif transport == "git":
        check = check_git()
        _require([] if check.ok else [check], "take a workspace by git")


def require_sandbox() -> None:
    """Return if this machine can confine a provider; what has worked once is not tried again.

    Raises:
        SubletError: ``DEP_MISSING``, with the reason bubblewrap gave.
    """
    program = BubblewrapSandbox().program
    seen = Path(program).stat()
    _prove_sandbox(program, seen.st_ino, seen.st_mtime_ns, seen.st_size)


@functools.lru_cache(maxsize=1)
def _prove_sandbox(_program: str, *_identity: int) -> None:
    """Try bubblewrap. A failure raises and so is not remembered: it may be mended without a new program."""
    check = check_sandbox()
    _require([] if check.ok else [check], "confine an agent")


def _require(missing: list[Requirement], purpose: str) -> None:
    if missing:
        details = "; ".join(check.detail for check in missing)
        raise SubletError(
            ErrorCode.DEP_MISSING,
            f"this machine can't {purpose}: {details}",
            " ".join(check.fix for check in missing),
        )


def _sshfs() -> list[Requirement]:
    program = shutil.which("sshfs")
    if program is None:
        install = "Install sshfs 3.7.6 or later (Debian and Ubuntu: apt install sshfs)."
        return [Requirement("sshfs", False, "sshfs is not on PATH", install, "mount")]
    seen = Path(program).stat()
    version, contains = _ask_sshfs(program, seen.st_ino, seen.st_mtime_ns, seen.st_size)
    checks = [Requirement("sshfs", True, f"{program}, version {version}", "", "mount")]
    if contains:
        checks.append(Requirement("sshfs-symlinks", True, "has contain_symlinks (CVE-2026-47187)", "", "mount"))
    else:
        checks.append(
            Requirement(
                "sshfs-symlinks",
                False,
                f"{program} lacks the fix for CVE-2026-47187 (contain_symlinks): a lender could read files here",
                "Update sshfs to 3.7.6 or later (Debian 12: 3.7.3-1.2 or later).",
                "mount",
            )
        )
    return checks


@functools.lru_cache(maxsize=8)
def _ask_sshfs(program: str, *_identity: int) -> tuple[str, bool]:
    """Return the version of ``program`` and whether it refuses links that lead out of the mount.

    Its own help is asked for the latter, since distributions carry the fix under older version numbers. ``_identity``
    makes an update of the program a new question.
    """
    version = Pattern(r"SSHFS version (\S+)", static=False).search(_output([program, "-V"])[1])
    contains = Pattern(r"^\s+-o contain_symlinks\b", lines=True, static=False).search(_output([program, "-h"])[1])
    return version[1] if version else "unknown", contains is not None


def _fusermount() -> Requirement:
    name: Literal["fusermount3"] = "fusermount3"
    program = shutil.which(name)
    if program is None:
        install = "Install fuse3 (Debian and Ubuntu: apt install fuse3)."
        return Requirement(name, False, "fusermount3 is not on PATH", install, "mount")
    reason = _why_not_mount(program, Path("/proc/self/status").read_text())
    if reason:
        fix = "Start the container with the SYS_ADMIN capability, or make fusermount3 setuid root."
        return Requirement(name, False, reason, fix, "mount")
    return Requirement(name, True, program, "", "mount")


def _why_not_mount(program: str, status: str) -> str:
    """Return why this process can't mount by ``program``, given its ``/proc/self/status``; empty where it can."""
    fields = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
    if int(fields.get("CapEff", "0"), 16) >> _CAP_SYS_ADMIN & 1:
        return ""
    if not int(fields.get("CapBnd", "0"), 16) >> _CAP_SYS_ADMIN & 1:
        return "no process here may mount: CAP_SYS_ADMIN is taken from all of them"
    if fields.get("NoNewPrivs", "0").strip() == "1":
        return "this process may not gain privileges (no_new_privs), so fusermount3 can't mount"
    seen = Path(program).stat()
    if seen.st_uid == 0 and seen.st_mode & stat.S_ISUID:
        return ""
    return f"{program} is not setuid root, so this user can't mount"


def _device(dev_fuse: Path) -> Requirement:
    name = "fuse-device"
    try:
        os.close(os.open(dev_fuse, os.O_RDWR | os.O_CLOEXEC))
    except OSError as error:
        if error.errno == errno.ENOENT:
            fix = f"Load the kernel module (modprobe fuse), or start the container with --device {dev_fuse}."
            return Requirement(name, False, f"{dev_fuse} does not exist", fix, "mount")
        detail = f"{dev_fuse} can't be opened: {error.strerror}"
        fix = f"Let this user open {dev_fuse} (mode 0666 is usual), or start the container with --device {dev_fuse}."
        return Requirement(name, False, detail, fix, "mount")
    return Requirement(name, True, str(dev_fuse), "", "mount")


def check_sandbox() -> Requirement:
    """Return whether bubblewrap can build the sandbox that providers get, tried for real as this user."""
    sandbox = BubblewrapSandbox()
    try:
        program = sandbox.program
    except SubletError as error:
        return Requirement("bubblewrap", False, error.message, error.hint, "sandbox")
    with tempfile.TemporaryDirectory(prefix="sublet-probe-") as scratch:
        launch = PlainLaunch(argv=("true",), cwd=Path(scratch), writable=(Path(scratch),))
        status, output = _output(list(sandbox.wrap(launch)))
    if status == 0:
        return Requirement("bubblewrap", True, f"{program} works for this user", "", "sandbox")
    fix = (
        "Allow unprivileged user namespaces (kernel.unprivileged_userns_clone=1; Ubuntu 24.04: "
        "kernel.apparmor_restrict_unprivileged_userns=0), or start with --unsandboxed knowingly."
    )
    reason = clean_line(output, 300) or f"exit status {status}"
    return Requirement("bubblewrap", False, f"bubblewrap can't confine a process here: {reason}", fix, "sandbox")


def check_git() -> Requirement:
    """Return whether git is there and new enough for the audit."""
    fix = f"Install git {'.'.join(map(str, GIT_MINIMUM))} or later."
    if shutil.which("git") is None:
        return Requirement("git", False, "git is not on PATH", fix, "audit")
    found = Pattern(r"git version (\d+)\.(\d+)\S*", static=False).search(_output(["git", "--version"])[1])
    if found is None:
        return Requirement("git", False, "git does not tell its version", fix, "audit")
    enough = (int(found[1]), int(found[2])) >= GIT_MINIMUM
    return Requirement("git", enough, found[0], "" if enough else fix, "audit")


def check_openat2() -> Requirement:
    """Return whether the kernel resolves paths beneath a directory by itself; without it a slower walk does."""
    root = os.open("/", os.O_PATH | os.O_CLOEXEC)
    try:
        os.close(open_beneath(root, b".", os.O_PATH))
    except OSError as error:
        fix = "Use Linux 5.6 or later; until then paths are walked one component at a time."
        return Requirement("openat2", False, f"openat2 does not work: {error.strerror}", fix, "serve")
    finally:
        os.close(root)
    return Requirement("openat2", True, "openat2 works", "", "serve")


def _output(argv: list[str]) -> tuple[int, str]:
    """Run ``argv`` with a bound and return its exit status with what it printed on both streams."""
    try:
        done = subprocess.run(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd="/",
            timeout=PROBE_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return -1, str(error)
    return done.returncode, done.stdout.decode(errors="replace")
