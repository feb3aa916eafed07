"""Files of the daemon's own that hold anything: it says which one and what to do, and never starts with half of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.daemons import Daemon

GARBAGE = b'\xff\x00{"version": [\x1b[31m'


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The home of a daemon that has run once."""
    daemon = Daemon(tmp_path_factory.mktemp("files") / "home")
    try:
        daemon.up()
    finally:
        daemon.down()
    return daemon.home


JSON_FILES = ["config/config.json", "config/policy.json", "config/agent.json"]
OTHERS = [
    "state/keys/identity.key",
    "state/keys/ssh_host_ed25519_key",
    "state/sublet.db",
    "state/a2a.sqlite3",
]


@pytest.mark.parametrize(
    ("name", "content"),
    [*((name, GARBAGE) for name in (*JSON_FILES, *OTHERS)), *((name, b"[" * 100_000) for name in JSON_FILES)],
)
def test_a_file_that_holds_anything_is_named(home: Path, name: str, content: bytes) -> None:
    file, daemon = home / name, Daemon(home)
    before = file.read_bytes() if file.exists() else None
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(content)
    file.chmod(0o600)
    try:
        done = daemon.run("up", "--detach", "--a2a", "127.0.0.1:0", "--sftp", "127.0.0.1:0", check=None)
        if done.returncode == 0:
            daemon.run("down")
            raise AssertionError(f"it started with {name}")
        told = done.stdout + done.stderr
        assert file.name in told
        assert "Traceback" not in told
        assert "\x1b[31m" not in told
        assert any(f"[{code}]" in told for code in ("INVALID_ARGUMENT", "UNAVAILABLE")), told
        assert file.read_bytes() == content, "what may be mended by hand is left as it is"
    finally:
        file.unlink()
        if before is not None:
            file.write_bytes(before)
            file.chmod(0o600)
