"""An agent changes every name of its private directory, and the daemon writes and removes there afterwards."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from attacks.kit.scratch import OBSTACLES, Obstacle, put
from sublet.disk.removal import remove_tree
from support.daemons import SHELL_AGENT, Daemon, two_daemons, wait_for
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
    waiting = "\nset +e; touch ready; until [ -e go ]; do sleep 0.3; done"
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


FIFO = 'rm -f "$SUBLET_PROMPT_FILE"; mkfifo "$SUBLET_PROMPT_FILE"'


def test_six_fifos_in_the_place_of_prompts_hold_no_thread_and_no_stop(tmp_path: Path) -> None:
    """As many as there are slots and one more: each follow-up is written, another lease runs, and ``down`` returns."""
    with two_daemons(tmp_path / "d") as (delegator, executor):
        begun: list[tuple[str, Path]] = []
        for number in range(6):
            lent = tmp_path / f"lent-{number}"
            lent.mkdir()
            if number == 5:  # all slots are taken: the first gives its own up
                delegator.run("cancel", begun[0][0])
            waits = f"{FIFO}; touch ready; until [ -e go ]; do sleep 0.3; done; {FIFO}; touch again; sleep 600"
            begun.append((begin(delegator, lent, waits, "--ttl", "10m"), lent))
            wait_for((lent / "ready").exists, 40, "the fifo")
            delegator.run("say", begun[-1][0], "touch followed; sleep 600")
        for _, lent in begun[1:]:
            (lent / "go").touch()
        for _, lent in begun[1:]:
            wait_for((lent / "again").exists, 40, "the second fifo")
        for id_, _ in begun[1:4]:
            delegator.run("cancel", id_)
        quick = tmp_path / "quick"
        quick.mkdir()
        assert delegate(delegator, quick, "touch ran")["state"] == "completed"
        executor.run("down")
        assert not executor.alive()


def nested(place: str, depth: int) -> str:
    """Return what makes directories in each other, by one program: to start one for each takes seconds."""
    return f"cd {place} && mkdir -p {'d/' * depth}; cd /; true"


def test_nested_directories_end_no_daemon_and_its_next_start_succeeds(daemons: Pair, lent: Path) -> None:
    delegator, executor = daemons
    count = '; find "$HOME" -name d | wc -l > "$SUBLET_WORKSPACE/found"'
    assert delegate(delegator, lent, nested('"$HOME"', 1_500) + count)["state"] == "completed"
    assert int((lent / "found").read_text()) == 1_500
    wait_for(lambda: not os.listdir(executor.home / "state" / "scratch"), 20, "the removal of its directory")
    assert executor.alive()
    # A kill leaves what the next start has to remove.
    begin(delegator, lent, nested('"$TMPDIR"', 1_500) + '; touch "$SUBLET_WORKSPACE/ready"; sleep 60')
    wait_for((lent / "ready").exists, 40, "the nested directories")
    executor.kill()
    executor.up(agent=SHELL_AGENT)
    state = executor.home / "state"
    wait_for(lambda: not os.listdir(state / "scratch") and not os.listdir(state / "going"), 60, "the removal")


@pytest.mark.parametrize("options", [("--staged",), ("--transport", "archive"), ("--transport", "archive", "--staged")])
def test_nested_directories_in_a_copy_end_nobody(daemons: Pair, lent: Path, options: Sequence[str]) -> None:
    delegator, executor = daemons
    ended = delegate(delegator, lent, nested('"$SUBLET_WORKSPACE"', 1_200), *options)
    assert ended["state"] in ("completed", "error"), ended
    # Whatever became of it, there is nothing left of the copies, and both go on.
    id_ = str(ended["delegation_id"])
    wait_for(lambda: not list((executor.home / "state" / "work").glob("*")), 40, "the removal of the agent's copy")

    def is_discarded() -> bool:
        delegator.run("discard", id_, check=None)
        return not list((delegator.home / "state" / "staged").glob("*"))

    wait_for(is_discarded, 60, "the removal of the lender's copy")
    assert delegate(delegator, lent, "echo on > on")["state"] == "completed"
    remove_tree(lent)  # pytest itself can't, where the nested directories have come back
