"""Failures of what stands against callers: a log that can't be put aside, and work of somebody who lost access."""

from __future__ import annotations

import logging
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from unittest import mock

from attacks.kit.as_probe import throwing
from attacks.probe import FailureProbe, Probe
from daemon.peering import test_key_reports
from sublet.daemon.logs import log_file
from support.a2a_world import TOKEN, text, world


async def _log_on_a_full_disk() -> None:
    """Have no room for a new log; entries go on into the old one."""
    with tempfile.TemporaryDirectory(prefix="log") as base:
        path = Path(base) / "daemon.log"
        with (
            path.open("a", encoding="utf-8") as stream,
            mock.patch.object(log_file, "MAX_LOG_BYTES", 100),
            mock.patch.object(log_file, "LOOK_EVERY", 1),
            mock.patch.object(os, "replace", side_effect=OSError(28, "No space left on device")),
        ):
            handler = log_file.LogFile(stream, str(path))
            for number in range(20):
                handler.emit(logging.LogRecord("x", logging.INFO, "", 0, "line %d of many", (number,), None))
        assert "line 19" in path.read_text()


async def _agent_that_breaks() -> None:
    """Let the agent of a plain message raise; the next message is answered."""
    with tempfile.TemporaryDirectory(prefix="net") as base:
        async with world(Path(base)) as bob, bob.rpc(TOKEN) as rpc:
            bob.messages.failure = RuntimeError("broken")
            await rpc.send_message(text("hello"))
            bob.messages.failure = None
            assert "you said" in str(await rpc.send_message(text("hello")))


PROBES: Sequence[Probe] = (
    FailureProbe(
        name="log: a full disk as it is put aside",
        covers=("daemon.logs.log_file:put_aside", "daemon.logs.log_file:LogFile.emit"),
        throw=_log_on_a_full_disk,
    ),
    FailureProbe(
        name="net: an agent that breaks over a plain message",
        covers=("a2a_server.plain:PlainAnswers.answer", "a2a_server.plain:_until_unknown"),
        throw=_agent_that_breaks,
    ),
    FailureProbe(
        name="peers: a stranger that poses as one without end",
        covers=("daemon.peering.key_reports:key_reporter.key_changed",),
        throw=throwing(test_key_reports.test_a_stranger_that_poses_without_end_writes_one_event_a_minute),
    ),
)
