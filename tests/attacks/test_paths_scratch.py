"""An agent changes every name of its private directory, and the daemon writes and removes there afterwards."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from attacks.kit.scratch import OBSTACLES, Obstacle, put
from support.daemons import Daemon, two_daemons, wait_for
from support.leases import begin, delegate, view

Pair = tuple[Daemon, Daemon]
FOLLOW_UP = (
    'cat > "$HOME/mine" < "$SUBLET_PROMPT_FILE" && cp "$HOME/mine" . && cp "$HOME/.gitconfig" set && ls "$TMPDIR"'
)


@pytest.fixture(scope="module")
def daemons(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    with two_daemons(tmp_path_factory.mktemp("pair")) as both:
        yield both


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    """A directory of the worker's owner, which no agent is shown."""
    made = tmp_path / "victim"
    made.mkdir()
    (made / "kept").write_bytes(b"kept")
    return made


@pytest.fixture
def lent(tmp_path: Path) -> Path:
    made = tmp_path / "lent"
    made.mkdir()
    return made


def after(delegator: Daemon, lent: Path, attack: str, follow_up: str) -> str:
    """Have ``attack`` run, then ``follow_up`` as the next prompt in the same private directory; return the id."""
    waiting = "\nset +e; touch ready; until [ -e go ]; do sleep 0.05; done"
    id_ = begin(delegator, lent, attack + waiting, "--ttl", "60")
    wait_for((lent / "ready").exists, 40, "the first prompt")
    delegator.run("say", id_, follow_up)
    (lent / "go").touch()
    wait_for(lambda: view(delegator, id_).state in ("completed", "error", "expired"), 50, "the end")
    return id_


@pytest.mark.parametrize("obstacle", OBSTACLES, ids=lambda one: one.name)
def test_a_follow_up_is_written_around_what_the_agent_put_there(
    daemons: Pair, lent: Path, victim: Path, obstacle: Obstacle
) -> None:
    delegator, executor = daemons
    id_ = after(delegator, lent, put(obstacle, victim), FOLLOW_UP)
    assert view(delegator, id_).state == "completed", executor.log()
    assert (lent / "mine").read_text() == FOLLOW_UP
    assert "[safe]" in (lent / "set").read_text()
    assert [(path.name, path.read_bytes()) for path in victim.iterdir()] == [("kept", b"kept")]
    wait_for(lambda: not (executor.home / "state" / "scratch" / id_).exists(), 20, "the removal of its directory")
    assert (victim / "kept").read_bytes() == b"kept"


def test_nested_directories_end_no_daemon_and_its_next_start_succeeds(
    daemons: Pair, lent: Path, tmp_path: Path
) -> None:
    delegator, executor = daemons
    nested = "cd {place}; i=0; while [ $i -lt 1500 ]; do mkdir d; cd -P d; i=$((i+1)); done; echo $i"
    assert delegate(delegator, lent, nested.format(place='"$HOME"'))["state"] == "completed"
    wait_for(lambda: not os.listdir(executor.home / "state" / "scratch"), 20, "the removal of its directory")
    assert executor.alive()
    # A kill leaves what the next start has to remove.
    begin(delegator, lent, nested.format(place='"$TMPDIR"') + '; touch "$SUBLET_WORKSPACE/ready"; sleep 60')
    wait_for((lent / "ready").exists, 40, "the nested directories")
    executor.kill()
    executor.up(agent={"id": "shell", "role": "executor", "provider": {"type": "command", "argv": ["sh", "-s"]}})
    wait_for(lambda: not os.listdir(executor.home / "state" / "scratch"), 20, "the removal at the start")
