"""That git gets nothing of the user's settings, and neither says nor takes more than it may."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest

from sublet.protocol.errors import ErrorCode, SubletError
from sublet.workspace.git_runner import (
    MAX_ERROR_BYTES,
    GitEnded,
    end_git,
    finish_git,
    git_environment,
    git_program,
    start_git,
)
from support.daemons import wait_for
from support.processes import is_alive


def ran(code: str, *, limit: int = 1_000, seconds: float = 20) -> GitEnded:
    """Return how a program ended that stands in for git."""
    process = start_git([sys.executable, "-I", "-S", "-c", code], git_environment(), "/")
    return finish_git(process, limit=limit, seconds=seconds)


def test_what_it_says_and_complains_of_is_kept() -> None:
    ended = ran("import sys; print('said'); sys.stderr.write('no\\x1b good\\n'); sys.exit(3)")
    assert (ended.status, ended.output, ended.cut, ended.late) == (3, b"said\n", False, False)
    assert ended.said() == "no good"


def test_it_is_ended_once_it_has_said_too_much() -> None:
    ended = ran("import sys\nwhile True: sys.stdout.write('x' * 1000)", limit=5_000)
    assert ended.output == b"x" * 5_000
    assert (ended.cut, ended.late, ended.status) == (True, False, -signal.SIGKILL)


def test_output_of_just_the_limit_is_not_cut() -> None:
    ended = ran("print('x' * 999)")
    assert (ended.status, ended.cut, len(ended.output)) == (0, False, 1_000)


def test_it_may_complain_at_length_without_stopping_or_being_kept() -> None:
    ended = ran("import sys; sys.stderr.write('x' * 1_000_000); print('done')")
    assert (ended.status, ended.output) == (0, b"done\n")
    assert MAX_ERROR_BYTES <= len(ended.errors) <= 2 * MAX_ERROR_BYTES


@pytest.mark.parametrize("closed", ["", "import os; os.close(1); os.close(2)"])
def test_it_is_ended_with_what_it_has_started_when_its_time_is_over(closed: str) -> None:
    code = f"""
import os, time
if (child := os.fork()):
    print(child, flush=True)
{closed}
time.sleep(600)
"""
    ended = ran(code, seconds=0.5)
    assert (ended.cut, ended.late, ended.status) == (True, True, -signal.SIGKILL)
    wait_for(lambda: not is_alive(int(ended.output)), what="the end of what it had started")


def test_ending_what_has_ended_is_no_error() -> None:
    process = start_git([sys.executable, "-I", "-S", "-c", ""], git_environment(), "/")
    finish_git(process, limit=0, seconds=20)
    end_git(process)


def test_nothing_of_our_environment_gets_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_DIR", "/somewhere")
    monkeypatch.setenv("GIT_CONFIG_COUNT", "1")
    found = git_environment(GIT_INDEX_FILE="/index")
    assert "GIT_DIR" not in found
    assert "GIT_CONFIG_COUNT" not in found
    assert found["GIT_CONFIG_GLOBAL"] == "/dev/null"
    assert found["GIT_INDEX_FILE"] == "/index"
    assert found["PATH"] == os.environ["PATH"]


def test_without_git_it_is_said_what_for(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SubletError, match="not on PATH; it is needed") as no:
        git_program("; it is needed", "Install it.")
    assert no.value.code is ErrorCode.DEP_MISSING
