"""Which directories may be lent at all, whatever the rules say (DESIGN 9.3).

Real paths are compared: a link to a forbidden directory is that directory.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sublet.policy.decision import Decision, Subject

KEY_DIRECTORIES: Final = (
    ".ssh", ".gnupg", ".aws", ".azure", ".kube", ".docker", ".config", ".password-store", ".pki", ".cargo", ".gem",
    ".local/share/keyrings", ".local/state", ".local/bin", ".mozilla", ".thunderbird",
    ".claude", ".codex", ".gemini", ".cursor", ".vscode",
)  # fmt: skip
"""Below a home: what holds keys or sessions, or is run by tools whenever they start."""

SYSTEM_TREES: Final = (
    "/bin", "/boot", "/dev", "/etc", "/lib", "/lib32", "/lib64", "/libx32", "/proc", "/run", "/sbin", "/sys", "/usr",
    "/var/lib", "/var/log", "/var/spool", "/var/cache", "/var/backups", "/System", "/Library",
)  # fmt: skip
"""Forbidden with all that lies in them."""

SHARED_DIRECTORIES: Final = ("/tmp", "/var/tmp", "/dev/shm", "/opt", "/srv", "/mnt", "/media", "/var/www")  # noqa: S108
"""Forbidden themselves, since they hold what belongs to others; directories in them may be lent."""

HOME_PARENTS: Final = frozenset({"/home", "/Users", "/var/home"})
"""Each directory directly in one of these is somebody's home."""

ALLOWED: Final = Decision(True, "lending", "lending.ok", "the directory may be lent")


@dataclass(frozen=True, slots=True)
class Protected:
    """The user's home, and the daemon's own directories: neither they nor what contains them is ever lent."""

    home: Path
    own: tuple[Path, ...] = ()


def decide_lending(subject: Subject, path: str, protected: Protected) -> Decision:
    """Decide whether ``subject`` may lend the directory ``path``.

    Args:
        subject: a person may lend whatever is not forbidden; an MCP caller, and an agent that
            runs here, only at or below its ``roots``, which are those of its host and those that a person allowed;
            anybody else nothing.
        path: absolute path.
        protected: what to keep in any case.
    """
    if not os.path.isabs(path) or "\0" in path:
        return _denied(
            "lending.absolute-path", f"{path!r} is not an absolute path", "Give the full path of a directory."
        )
    real = Path(os.path.realpath(path))
    forbidden = _forbidden(real, protected)
    if forbidden is not None:
        return forbidden
    if subject.kind == "human":
        return ALLOWED
    if subject.kind not in ("mcp", "agent"):
        return _denied("lending.who", "only this machine's own people and agents lend directories", "")
    if any(real.is_relative_to(root) for root in _real(subject.roots)):
        return ALLOWED
    return _denied(
        "lending.roots",
        f"{real} is neither in the host's workspace nor in a directory that a person allowed",
        "Lend a directory inside the host's workspace, or let a person run: sublet allow DIR",
    )


def _forbidden(real: Path, protected: Protected) -> Decision | None:
    homes = [Path(os.path.realpath(protected.home)), Path("/root")]
    if any(h.is_relative_to(real) for h in homes) or {str(real), str(real.parent)} & HOME_PARENTS:
        return _denied(
            "lending.home",
            f"{real} is or contains a home directory, with the keys, sessions and settings in it",
            "Lend the project's own directory inside it.",
        )
    own = list(_real(str(p) for p in protected.own))
    if any(real.is_relative_to(p) or p.is_relative_to(real) for p in own):
        return _denied(
            "lending.own-directories",
            f"{real} is, contains or lies in a directory of Sublet, with its keys and its state",
            "Lend a directory apart from it.",
        )
    if any(_overlaps(real, home / name) for home in homes for name in KEY_DIRECTORIES):
        return _denied(
            "lending.keys", f"{real} holds keys, sessions or settings of a user", "Lend a project directory."
        )
    if str(real) in SHARED_DIRECTORIES:
        return _denied("lending.shared", f"{real} holds what belongs to others", "Lend one directory inside it.")
    # A home may lie in a system tree, as those of services do: then what lies in it counts as the user's.
    in_home = any(real.is_relative_to(h) for h in homes)
    if any((real.is_relative_to(tree) and not in_home) or Path(tree).is_relative_to(real) for tree in SYSTEM_TREES):
        return _denied(
            "lending.system", f"{real} is, contains or lies in a part of the system", "Lend a project directory."
        )
    return None


def _overlaps(real: Path, directory: Path) -> bool:
    """Tell whether one is or contains the other, where ``directory`` may be a link."""
    there = Path(os.path.realpath(directory))
    return real.is_relative_to(there) or there.is_relative_to(real)


def _real(paths: Iterable[str]) -> Iterable[Path]:
    return [Path(os.path.realpath(p)) for p in paths if os.path.isabs(p)]


def _denied(rule: str, reason: str, hint: str) -> Decision:
    return Decision(False, "lending", rule, reason, hint)
