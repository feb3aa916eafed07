"""Work goes on under the same lease when the lender's daemon is killed, and nothing acknowledged is ever unknown."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from sublet.daemon.api.daemon import SHOW_STATUS
from sublet.daemon.api.operation import Nothing
from sublet.protocol.events import EventKind
from support.daemons import SHELL_AGENT, Daemon, two_daemons, wait_for
from support.leases import ask, assignment, begin, events, finish, marker, processes_with, view, wait_state
from support.leftovers import held

HELD = """
echo one > one.txt
until [ -e go ]; do sleep 0.1; done 2>/dev/null
until echo two > two.txt; do sleep 0.2; done 2>/dev/null
echo finished
"""
Pair = tuple[Daemon, Daemon]


@pytest.fixture(scope="module")
def daemons(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """A lender and a worker, paired; every test leaves them running."""
    with two_daemons(tmp_path_factory.mktemp("resume")) as both:
        yield both


def begun(lender: Daemon, project: Path, script: str = HELD, *options: str) -> str:
    """Delegate, and return the id once the agent has begun to write and both sides know it."""
    delegation = begin(lender, project, script, *options)
    wait_for(lambda: (project / "one.txt").exists(), 30, "the agent's first file")
    wait_state(lender, delegation, "running")
    return delegation


def settle(daemons: Pair) -> None:
    """Check that neither side holds anything any more."""
    for daemon in daemons:
        wait_for(lambda daemon=daemon: held(daemon) == [], 20, "the release of all that was held")
    assert daemons[1].mounts == []
    wait_for(
        lambda: ask(daemons[1], lambda client: client.call(SHOW_STATUS, Nothing())).assignments_active == 0,
        20,
        "a free slot",
    )


def test_work_goes_on_when_the_lenders_daemon_is_killed(daemons: Pair, tmp_path: Path) -> None:
    lender, _ = daemons
    delegation = begun(lender, tmp_path)
    for crash in range(2):
        lender.kill()
        (tmp_path / f"mine{crash}.txt").write_text("a person's own\n")
        lender.up()
    wait_state(lender, delegation, "running")
    (tmp_path / "go").write_text("")
    ended = finish(lender, delegation)
    assert str(ended.state) == "completed", ended
    assert (tmp_path / "two.txt").read_text() == "two\n"
    assert ended.audit is not None
    assert {file.path: file.by for file in ended.audit.files} == {
        "one.txt": "executor",
        "two.txt": "executor",
        "go": "other",
        "mine0.txt": "other",
        "mine1.txt": "other",
    }
    assert ended.usage.files_touched == 2
    settle(daemons)


def test_a_lease_is_extended_and_followed_up(daemons: Pair, tmp_path: Path) -> None:
    lender, _ = daemons
    script = "echo one > one.txt; until [ -e go ]; do sleep 0.1; done"
    delegation = begun(lender, tmp_path, script, "--ttl", "30s")
    extended = lender.json("extend", delegation, "--ttl", "10m")
    assert extended["ttl_seconds"] == 630
    assert extended["remaining_seconds"] > 600
    more = ("say", delegation, "cat one.txt > two.txt; echo $SUBLET_REMAINING_SECONDS > left; exit 3", "--id", "once")
    said = lender.json(*more)
    assert [one["state"] for one in said["follow_ups"]] == ["delivered"]
    lender.kill()
    lender.up()
    # Said again after a crash, it is still one follow-up.
    assert len(lender.json(*more)["follow_ups"]) == 1
    assert "another prompt" in lender.run("say", delegation, "touch x", "--id", "once", check=(1,)).stderr
    lender.json("say", delegation, "touch mended", "--id", "then")
    (tmp_path / "go").write_text("")
    ended = finish(lender, delegation)
    # The last prompt is what counts, and what became of each is told.
    assert str(ended.state) == "completed", ended
    assert [(one.id, one.state) for one in ended.follow_ups] == [("once", "failed"), ("then", "done")]
    assert ended.result is not None
    assert ended.result.prompt_notes() == [
        "first prompt: done",
        "follow-up 1: failed with exit code 3",
        "follow-up 2: done",
    ]
    told = [one.data for one in events(lender, delegation) if one.kind is EventKind.DELEGATION_FOLLOW_UP]
    # That it runs is told for as long as it does, which may be too short to be seen.
    seen = [one["state"] for one in told if one["id"] == "then"]
    assert [state for state in seen if state != "running"] == ["pending", "delivered", "done"]
    assert "follow-up 1: failed with exit code 3" in lender.run("output", delegation).stdout
    assert (tmp_path / "two.txt").read_text() == "one\n"
    assert int((tmp_path / "left").read_text()) > 500
    assert "Follow-up 1 begins: cat one.txt" in lender.run("output", delegation).stdout
    late = lender.run("say", delegation, "more", check=(1,))
    assert "is over" in late.stderr
    settle(daemons)


def test_what_became_of_prompts_meanwhile_is_told_as_soon_as_the_lender_is_back(daemons: Pair, tmp_path: Path) -> None:
    lender, worker = daemons
    mark = marker()
    # The work goes on in a copy, whether or not the lender is there.
    delegation = begin(lender, tmp_path, "until [ -e go ]; do sleep 0.1; done", "--transport", "archive")
    wait_state(lender, delegation, "running")
    for name, prompt in {"good": "true", "bad": "exit 3", "last": f"sleep {mark}"}.items():
        lender.json("say", delegation, prompt, "--id", name)
    lender.kill()
    (worker.home / "state" / "work" / delegation / "workspace" / "go").touch()
    wait_for(lambda: processes_with(mark), 30, "the last prompt")
    lender.up()

    def told() -> dict[str, str]:
        return {one.id: str(one.state) for one in view(lender, delegation).follow_ups}

    wait_for(lambda: told() == {"good": "done", "bad": "failed", "last": "running"}, 30, "what became of the prompts")
    for pid in processes_with(mark):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    assert str(finish(lender, delegation).state) == "error"
    assert told() == {"good": "done", "bad": "failed", "last": "failed"}
    settle(daemons)


def test_a_worker_that_was_killed_is_found_where_it_was_and_says_so(daemons: Pair, tmp_path: Path) -> None:
    lender, worker = daemons
    delegation = begun(lender, tmp_path)
    before = worker.info["a2a_url"], worker.info["sftp"]
    worker.kill()
    worker.up(agent=SHELL_AGENT)
    assert (worker.info["a2a_url"], worker.info["sftp"]) == before
    ended = finish(lender, delegation)
    assert ended.error is not None
    assert (str(ended.state), ended.error.code) == ("error", "TASK_FAILED")
    assert "restarted" in ended.error.message
    assert ended.audit is not None
    assert ended.audit.added == ["one.txt"]
    settle(daemons)


def connections_to(ports: set[int]) -> set[int]:
    """Return the local ports of all connections on this machine that are up and lead to one of ``ports``."""
    found = set()
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        local, remote, state = line.split()[1:4]
        if state == "01" and int(remote.partition(":")[2], 16) in ports:
            found.add(int(local.partition(":")[2], 16))
    return found


def test_the_old_connection_to_the_files_is_dead_under_the_next_generation(daemons: Pair, tmp_path: Path) -> None:
    lender, worker = daemons
    delegation = begun(lender, tmp_path)
    port = int(str(lender.info["sftp"]).rpartition(":")[2])
    # Whoever is first dials: the worker's listener is where the lender would.
    ways = {port, int(str(worker.info["sftp"]).rpartition(":")[2])}
    before = connections_to(ways)
    assert before
    lender.kill()
    lender.up()
    assert int(str(lender.info["sftp"]).rpartition(":")[2]) == port
    wait_for(lambda: assignment(worker, delegation).get("generation") == 2, 30, "the next generation")
    wait_for(lambda: connections_to(ways), 30, "another connection")
    assert not connections_to(ways) & before
    (tmp_path / "go").write_text("")
    assert str(finish(lender, delegation).state) == "completed"
    settle(daemons)
