"""What a governed request costs beside the bare command, and how fast a session is decided again.

One daemon, unsandboxed, with an agent whose work is one small command. In turns: that command run by itself, and
``ask`` for it through the daemon (route, policy, worker, reply), plainly and with a schema that its answer has to
satisfy. Then the session that came of it is replayed.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

from _report import Row, add_options, show
from delegation import Side, sublet
from sublet.daemon.api.replays import REPLAY, ReplayRequest
from sublet.daemon.api.sessions import ASK, AskAnswer, AskRequest
from sublet.daemon.control.client import ControlClient

ARGV = ["sh", "-c", """cat >/dev/null; echo '{"count": 3}'"""]
AGENT = {"id": "counter", "provider": {"type": "command", "argv": ARGV}}
SCHEMA = {"type": "object", "properties": {"count": {"type": "integer"}}, "required": ["count"]}
ROUNDS = 60
REPLAYS = 10


def bare() -> float:
    """Return how many milliseconds the command takes by itself."""
    start = time.perf_counter()
    subprocess.run(ARGV, input=b"How many?", capture_output=True, check=True)
    return (time.perf_counter() - start) * 1_000


async def asked(control: ControlClient, session: str | None, *, checked: bool) -> tuple[float, str]:
    """Return how many milliseconds a request takes until its answer is there, and its session."""
    document = {"text": "How many?", "session_id": session, "answer_schema": SCHEMA if checked else None}
    request = AskRequest.model_validate(document)
    start = time.perf_counter()
    async for update in control.stream(ASK, request):
        if isinstance(update, AskAnswer):
            if update.route_decision != "dispatch_agent":
                raise RuntimeError(f"not answered: {update.reason}")
            return (time.perf_counter() - start) * 1_000, update.finger_session_id
    raise RuntimeError("no answer came")


async def replayed(control: ControlClient, session: str) -> tuple[int, float]:
    """Return how many events a second a replay takes in, and how many there were."""
    start = time.perf_counter()
    found = await control.call(REPLAY, ReplayRequest(session_id=session))
    if not found.equal:
        raise RuntimeError("the session is not decided the same way again")
    return found.events, found.events / (time.perf_counter() - start)


async def measure(side: Side, rounds: int) -> list[Row]:
    """Return all rows; the first round only warms up."""
    control = side.client()
    taken: dict[str, list[float]] = {"bare": [], "asked": [], "checked": []}
    session: str | None = None
    for number in range(rounds + 1):
        alone = await asyncio.to_thread(bare)
        plain, session = await asked(control, session, checked=False)
        held, session = await asked(control, session, checked=True)
        if number:
            for name, value in (("bare", alone), ("asked", plain), ("checked", held)):
                taken[name].append(value)
    assert session is not None
    speeds = [await replayed(control, session) for _ in range(REPLAYS)]
    command = statistics.median(taken["bare"])
    rows = []
    for name, what in (("asked", "one governed request"), ("checked", "one with an answer held against a schema")):
        middle = statistics.median(taken[name])
        detail = f"p95 {statistics.quantiles(taken[name], n=20)[18]:.1f}, {middle - command:.1f} beyond the command"
        rows.append(Row(what, middle, "ms", detail, peer=f"the command alone {command:.1f} ms", ratio=middle / command))
    speed = statistics.median(speed for _, speed in speeds)
    return [*rows, Row("replay of that session", speed, "events/s", f"{speeds[0][0]} events")]


def main() -> None:
    """Start the daemon, measure, and stop it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a few rounds only")
    add_options(parser)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="sup-") as directory:
        home = Path(directory) / "h"
        (home / "config").mkdir(mode=0o700, parents=True)
        (home / "config" / "agent.json").write_text(json.dumps(AGENT))
        listen = ["--a2a", "127.0.0.1:0", "--sftp", "127.0.0.1:0", "--detach", "--unsandboxed"]
        side = Side(home, sublet(home, "up", *listen)["pid"])
        try:
            rows = asyncio.run(measure(side, 4 if options.quick else ROUNDS))
        finally:
            sublet(home, "down")
    show("supervisor", rows, options)


if __name__ == "__main__":
    main()
