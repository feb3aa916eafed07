from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from sublet.daemon.config.paths import Home, resolve_home
from sublet.daemon.process.lock import InstanceLock, read_owner
from sublet.protocol.errors import LocalCode, SubletError

HOLD = (
    "import sys\n"
    "from sublet.daemon.process.lock import InstanceLock\n"
    "from sublet.daemon.config.paths import resolve_home\n"
    "from sublet.protocol.errors import SubletError\n"
    "try:\n"
    "    lock = InstanceLock.acquire(resolve_home())\n"
    "except SubletError as error:\n"
    "    print(error.code, flush=True); sys.exit(3)\n"
    "print('held', flush=True)\n"
    "sys.stdin.read()\n"
)


@pytest.fixture
def home(tmp_path: Path) -> Home:
    home = resolve_home({"SUBLET_HOME": str(tmp_path)})
    home.make()
    return home


def start(home: Home) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", HOLD],
        env={**os.environ, "SUBLET_HOME": home.root},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def test_second_start_names_the_owner(home: Home) -> None:
    with InstanceLock.acquire(home) as lock:
        with pytest.raises(SubletError) as refused:
            InstanceLock.acquire(home)
        assert refused.value.code is LocalCode.ALREADY_RUNNING
        assert f"pid {os.getpid()}, since {lock.owner.started_at}" in refused.value.message
        assert read_owner(home) == lock.owner
    assert read_owner(home) is None
    assert not Path(home.lock_file).exists()
    InstanceLock.acquire(home).release()


def test_of_two_concurrent_starts_one_wins(home: Home) -> None:
    children = [start(home) for _ in range(2)]
    said = sorted(child.stdout.readline().strip() for child in children if child.stdout is not None)
    for child in children:
        child.communicate()
    assert said == ["ALREADY_RUNNING", "held"]
    assert sorted(child.returncode for child in children) == [0, 3]


def test_a_killed_owner_leaves_no_lock(home: Home) -> None:
    child = start(home)
    assert child.stdout is not None
    assert child.stdout.readline().strip() == "held"
    owner = read_owner(home)
    assert owner is not None
    assert owner.pid == child.pid
    child.kill()
    child.communicate()
    assert Path(home.lock_file).exists()
    assert read_owner(home) is None
    InstanceLock.acquire(home).release()


def test_a_torn_owner_line_does_not_matter(home: Home) -> None:
    with InstanceLock.acquire(home):
        Path(home.lock_file).write_text('{"pid":')
        with pytest.raises(SubletError, match="it is starting"):
            InstanceLock.acquire(home)
