"""Doing something as an ordinary user, whom modes keep out: in a child process that gives root up."""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable
from pathlib import Path

import pytest

NOBODY = 65534

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else, mount and set flags")


def as_ordinary_user(directory: Path, action: Callable[[], object]) -> None:
    """Run ``action`` as nobody in ``directory``, which is given to that user; its failure is this call's.

    Raises:
        AssertionError: ``action`` raised.
    """
    os.chown(directory, NOBODY, NOBODY)
    entered = os.open(directory, os.O_PATH | os.O_DIRECTORY)
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            os.fchdir(entered)
            os.setgroups([])
            os.setresgid(NOBODY, NOBODY, NOBODY)
            os.setresuid(NOBODY, NOBODY, NOBODY)
            action()
            status = 0
        except BaseException:
            os.write(writing, traceback.format_exc().encode()[-60_000:])
        finally:
            os._exit(status)
    os.close(entered)
    os.close(writing)
    with open(reading, "rb") as said:
        failure = said.read().decode(errors="replace")
    _, status = os.waitpid(child, 0)
    assert status == 0, failure
