"""Another version of Sublet and this one, each as a real daemon, paired."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from nacl.signing import SigningKey

from sublet.protocol.ids import node_id
from support.daemons import SHELL_AGENT, Daemon
from support.old_version import environment, old_source


@dataclass(frozen=True)
class Versions:
    """Both daemons, paired; ``old`` calls the newer one ``new`` and is called ``old`` there."""

    old: Daemon
    new: Daemon
    work: Path


@contextmanager
def two_versions(base: Path, commit: str) -> Iterator[Versions]:
    """Run both. The older one has the smaller node id, so it is the one to call the other's bus.

    Args:
        base: an empty directory.
        commit: of the older version.
    """
    source = old_source(commit)
    old, new = Daemon(base / "a", environ=environment(source)), Daemon(base / "b")
    keys = sorted((bytes([number]) * 32 for number in range(2)), key=_node_of)
    for daemon, key in zip((old, new), keys, strict=True):
        directory = daemon.home / "state" / "keys"
        directory.mkdir(parents=True, mode=0o700)
        (daemon.home / "state").chmod(0o700)
        (directory / "identity.key").write_bytes(key)
        (directory / "identity.key").chmod(0o600)
    work = base / "project"
    work.mkdir()
    try:
        for daemon in (old, new):
            daemon.up(agent=SHELL_AGENT)
        assert old.info["node_id"] < new.info["node_id"]
        assert _loaded_from(old, source)
        assert not _loaded_from(new, source)
        link = old.json("pair")["link"]
        new.json("peers", "add", link, "--name", "old")
        link = new.json("pair")["link"]
        old.json("peers", "add", link, "--name", "new")
        yield Versions(old, new, work)
    finally:
        for daemon in (old, new):
            daemon.down()
        assert old.mounts == new.mounts == []


def whole_log(daemon: Daemon) -> str:
    """Return all that a daemon has logged."""
    return "\n".join(path.read_text() for path in sorted(daemon.home.rglob("*.log")))


def _node_of(key: bytes) -> str:
    return node_id(bytes(SigningKey(key).verify_key))


def _loaded_from(daemon: Daemon, source: Path) -> bool:
    """Tell whether a daemon runs the source of the older version."""
    environ = Path(f"/proc/{daemon.pid}/environ").read_bytes().split(b"\0")
    return f"PYTHONPATH={source}".encode() in environ
