"""Where the daemon keeps its things: configuration, state and runtime directories (DESIGN 3).

The stdio relay imports this module before anything else, so it needs ``os`` and ``stat`` alone: ``dataclasses``,
``typing`` and ``pathlib`` would each cost it 15 ms.
"""

from __future__ import annotations

import os
import stat

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

MAX_SOCKET_PATH = 107
"""Bytes of ``sun_path`` on Linux, without the closing zero byte."""
FALLBACK_PARENT = "/tmp"  # noqa: S108 - not TMPDIR, on which two shells may differ; what lies there is checked
_ELSEWHERE = "Choose another place with SUBLET_HOME."
PRIVATE = 0o700
_CONTROL = "control.sock"
MCP_SOCKET = "mcp.sock"
_LOCK = "daemon.lock"
MAX_OWNER_BYTES = 4096
"""Of what a daemon writes into its lock file."""


class Home:
    """The directories and sockets of one daemon.

    Args:
        root: ``SUBLET_HOME``, or the configuration directory where that is not set; what ``status`` shows.
        config_dir: what the person edits.
        state_dir: keys, database, audit, the lock file; private.
        runtime_dir: sockets; private.
        temporary: whether ``runtime_dir`` is a substitute below ``FALLBACK_PARENT`` that goes away with the daemon.
    """

    __slots__ = ("config_dir", "root", "runtime_dir", "state_dir", "temporary")

    def __init__(self, *, root: str, config_dir: str, state_dir: str, runtime_dir: str, temporary: bool) -> None:
        self.root = root
        self.config_dir = config_dir
        self.state_dir = state_dir
        self.runtime_dir = runtime_dir
        self.temporary = temporary

    def __repr__(self) -> str:
        return f"Home(config_dir={self.config_dir!r}, state_dir={self.state_dir!r}, runtime_dir={self.runtime_dir!r})"

    @property
    def control_socket(self) -> str:
        """Path of the Unix socket of the control API."""
        return f"{self.runtime_dir}/{_CONTROL}"

    @property
    def mcp_socket(self) -> str:
        """Path of the Unix socket of MCP sessions."""
        return f"{self.runtime_dir}/{MCP_SOCKET}"

    @property
    def lock_file(self) -> str:
        """Path of the file whose lock makes the daemon the only one.

        It lies with the state, which is the same for every shell, and tells where the sockets are: another shell may
        have another ``XDG_RUNTIME_DIR``, or none.
        """
        return f"{self.state_dir}/{_LOCK}"

    @property
    def default_mount_root(self) -> str:
        """Where the executor mounts lent directories, unless configured elsewhere."""
        return f"{self.state_dir}/mounts"

    def at(self, runtime_dir: str) -> Home:
        """Return the same home with its sockets in another directory."""
        return Home(
            root=self.root,
            config_dir=self.config_dir,
            state_dir=self.state_dir,
            runtime_dir=runtime_dir,
            temporary=runtime_dir.startswith(f"{FALLBACK_PARENT}/"),
        )

    def spare(self) -> Home:
        """Return the home with its sockets below the state, for where the runtime directory can't be made again."""
        return self.at(_short(f"{self.state_dir}/run")[0])

    def found(self) -> Home:
        """Return the home with its sockets where the running daemon says that it has them, in its lock file."""
        try:
            with open(self.lock_file, "rb") as file:
                told = file.read(MAX_OWNER_BYTES)
        except OSError:
            return self
        if os.fsencode(f'"{self.control_socket}"') in told:
            return self
        import json

        try:
            directory, name = os.path.split(str(json.loads(os.fsdecode(told))["socket"]))
        except (ValueError, KeyError, TypeError, RecursionError):
            return self
        return self.at(directory) if name == _CONTROL and os.path.isabs(directory) else self

    def make(self) -> None:
        """Create the directories with mode 0700, and verify those that exist.

        Raises:
            SubletError: ``UNAVAILABLE`` where a directory can't be made, is a link, belongs to someone else or, for
                state and runtime, lets others in.
        """
        _make_private(self.config_dir, strict=False)
        _make_private(self.state_dir, strict=True)
        _make_private(self.runtime_dir, strict=True)

    def verify_runtime(self) -> bool:
        """Tell whether the runtime directory exists, after making sure that it is ours alone.

        A client calls this before it connects, so that it never talks to a socket that someone else put there.

        Raises:
            SubletError: ``UNAVAILABLE`` where it is not ours alone, or can't be looked at.
        """
        try:
            _verify(self.runtime_dir, strict=True)
        except FileNotFoundError:
            return False
        except OSError as error:
            raise _refused(self.runtime_dir, error.strerror or str(error), _ELSEWHERE) from None
        return True

    def clean_up(self) -> None:
        """Remove the runtime directory where it is a substitute; the daemon calls this last of all."""
        if not self.temporary:
            return
        for name in (_CONTROL, MCP_SOCKET):
            try:
                os.unlink(f"{self.runtime_dir}/{name}")
            except FileNotFoundError:
                continue
        try:
            os.rmdir(self.runtime_dir)
        except OSError:
            # Something of the user's lies there, or it is gone already: nothing of ours is left either way.
            return


def resolve_home(env: Mapping[str, str] | None = None) -> Home:
    """Return the directories that ``env`` asks for, without touching the disk.

    ``SUBLET_HOME`` puts all below one directory; else the XDG base directories count, of which relative ones are
    ignored as their specification demands.

    Args:
        env: environment; the process's own by default.
    """
    env = os.environ if env is None else env
    chosen = env.get("SUBLET_HOME")
    if chosen:
        root = os.path.abspath(os.path.expanduser(chosen))
        config, state, runtime = f"{root}/config", f"{root}/state", f"{root}/run"
    else:
        user = env.get("HOME") or os.path.expanduser("~")
        config = os.path.join(_absolute(env, "XDG_CONFIG_HOME") or f"{user}/.config", "sublet")
        state = os.path.join(_absolute(env, "XDG_STATE_HOME") or f"{user}/.local/state", "sublet")
        base = _absolute(env, "XDG_RUNTIME_DIR")
        runtime = f"{base}/sublet" if base else f"{state}/run"
        root = config
    runtime, temporary = _short(runtime)
    return Home(root=root, config_dir=config, state_dir=state, runtime_dir=runtime, temporary=temporary)


def _short(runtime: str) -> tuple[str, bool]:
    """Return a directory for sockets, and whether it is a substitute since their paths would be too long."""
    if len(os.fsencode(f"{runtime}/{_CONTROL}")) <= MAX_SOCKET_PATH:
        return runtime, False
    return f"{FALLBACK_PARENT}/sublet-{os.getuid()}-{_short_hash(runtime)}", True


def _absolute(env: Mapping[str, str], name: str) -> str | None:
    value = env.get(name, "")
    return value.rstrip("/") or "/" if os.path.isabs(value) else None


def _short_hash(path: str) -> str:
    import hashlib

    return hashlib.sha256(os.fsencode(path)).hexdigest()[:12]


def _make_private(path: str, *, strict: bool) -> None:
    try:
        os.makedirs(os.path.dirname(path), mode=PRIVATE, exist_ok=True)
        os.makedirs(path, mode=PRIVATE, exist_ok=True)
        _verify(path, strict=strict)
    except OSError as error:
        raise _refused(path, error.strerror or str(error), _ELSEWHERE) from None


def _verify(path: str, *, strict: bool) -> None:
    # lstat, since a link could be pointed elsewhere after the check.
    found = os.lstat(path) if strict else os.stat(path)
    if not stat.S_ISDIR(found.st_mode):
        raise _refused(path, "it is not a directory", "Move it aside, or choose another place with SUBLET_HOME.")
    if found.st_uid != os.getuid():
        raise _refused(path, f"it belongs to user {found.st_uid}", _ELSEWHERE)
    others = found.st_mode & (0o077 if strict else 0o022)
    if others:
        raise _refused(path, f"others may enter it (mode {found.st_mode & 0o777:o})", f"Run: chmod 700 {path}")


def _refused(path: str, why: str, hint: str) -> Exception:
    from sublet.protocol.errors import LocalCode, SubletError

    return SubletError(LocalCode.UNAVAILABLE, f"{path} can't be used: {why}", hint)
