"""One idiom for each purpose: where threads, executors, blocking pauses and the standard library's log are used.

Each is right in few places, which are named here with the reason. What has another idiom altogether is refused by
``ruff`` (``banned-api`` in ``pyproject.toml``), and ``CONTRIBUTING.md`` says what to write instead.
"""

from __future__ import annotations

import ast
import functools
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

import sublet

SOURCE = Path(sublet.__file__).parent
ROOT = Path(__file__).parents[1]

ALLOWED: dict[str, dict[str, str]] = {
    "threading.Thread": {
        "daemon.audit_log.writer": "writes and flushes the audit log, which takes as long as the disk",
        "daemon.tasks.background": "is the idiom for what may take for ever",
        "daemon.health.stalls": "watches the loop, so it can't run on it",
        "daemon.process.stop_limit": "ends a process whose loop may hang",
        "daemon.storage.store": "owns the database's connections",
        "messaging.backends.zenoh_network": "starts the network, which may hang",
        "messaging.links.links": "the engine's network calls it from other threads",
        "messaging.relay.forwarder": "forwards in a relay's process, which a link may block",
        "messaging.running.owner": "owns the engine, which one thread alone may touch",
        "messaging.running.sender": "publishes, which a link may block",
    },
    "threading.Timer": {"workspace.audit.shadow_git": "ends a git that hangs, from a thread that waits for it"},
    "ThreadPoolExecutor": {
        "a2a_server.task_store": "one thread owns the database of tasks",
        "daemon.federation.ledger": "one thread owns the journal of federation",
        "workspace.archive.carrier": "a transfer waits for none of the others",
        "workspace.lease_files": "a mount that hangs holds up its own lease alone",
        "workspace.serving.listener": "files of leases are read beside the loop, by a bounded number of threads",
        "workspace.serving.slow_work": "what takes long has its own bounded number of threads",
    },
    "run_in_executor": {
        "a2a_server.task_store": "into its own thread",
        "daemon.federation.ledger": "into its own thread",
        "workspace.archive.unpacked": "into the carrier's threads",
        "workspace.lease_files": "into the lease's own thread",
        "workspace.serving.archive_session": "into the transfers' threads",
        "workspace.ssh.channel_session": "into the listener's threads",
    },
    "time.sleep": {
        "daemon.process.lock": "before the loop runs",
        "daemon.process.stop_limit": "in its own thread",
        "messaging.links.links": "in its own thread",
        "messaging.mending.healing": "in the thread that looks at the database",
        "workspace.confined.shared": "in the thread that reads a file",
        "workspace.mount.stuck_reads_helper": "a process of its own, without a loop",
        "workspace.sandbox.cgroups": "in the thread that ends a control group",
    },
    "sock_accept": {"accepting": "takes one connection in a turn, for every listener"},
    "logging.getLogger": {
        "a2a_server.face": "quiets a library",
        "daemon.logs.logging": "sets the log up",
        "daemon.net.http_server": "quiets a library",
        "office_server.socketio_server": "quiets a library",
    },
    "asyncio.run": {
        "cli.reaching.background": "a command is a process of its own",
        "cli.reaching.connection": "a command is a process of its own",
        "cli.options.completion": "a command is a process of its own",
    },
}


LAST = frozenset(wanted.rpartition(".")[2] for wanted in ALLOWED)
NAMED = re.compile(rf"\b(?:{'|'.join(sorted(LAST))})\b")


def calls(tree: ast.AST) -> Iterator[str]:
    """Yield what is called of the names that matter, as it is written; of a method the name alone, too."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            if getattr(node.func, "attr", getattr(node.func, "id", "")) not in LAST:
                continue
            written = ast.unparse(node.func)
            yield written
            yield from {written.rpartition(".")[2]} - {written}
        elif isinstance(node, ast.ImportFrom):
            # A bare name of one of these would not be seen.
            yield from (f"from {node.module} import {name.name}" for name in node.names)


@functools.cache
def modules() -> dict[str, set[str]]:
    """Return what each of our modules calls of the names that matter."""
    return {
        ".".join(file.relative_to(SOURCE).with_suffix("").parts): set(calls(ast.parse(text)))
        for file in SOURCE.rglob("*.py")
        if NAMED.search(text := file.read_text("utf-8"))  # to parse all of them takes seconds
    }


def users(wanted: str) -> set[str]:
    bare = wanted if "." not in wanted else "from {} import {}".format(*wanted.rsplit(".", 1))
    return {module for module, called in modules().items() if called & {wanted, bare}}


@pytest.mark.parametrize("wanted", ALLOWED)
def test_only_the_modules_that_are_named_use_it(wanted: str) -> None:
    found, named = users(wanted), set(ALLOWED[wanted])
    assert found - named == set(), "see CONTRIBUTING.md for what to write instead, or name it with its reason"
    assert named - found == set(), "named and gone"


def test_everything_logs_by_structlog() -> None:
    """In one spelling, so that each entry says where it comes from."""
    found = [
        f"{file.relative_to(SOURCE)}: {line}"
        for file in SOURCE.rglob("*.py")
        for line in file.read_text("utf-8").splitlines()
        if "=" in line.partition("get_logger(")[0] and "get_logger(" in line
        if line.strip() != "log = structlog.get_logger(__name__)"
    ]
    assert found == []


def test_what_has_another_idiom_is_refused_by_the_linter() -> None:
    config = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["ruff"]["lint"]
    assert {"TID251", "T20"} <= set(config["select"])
    banned = set(config["flake8-tidy-imports"]["banned-api"])
    assert {"asyncio.create_task", "asyncio.ensure_future", "asyncio.gather", "asyncio.wait_for"} <= banned


def test_each_idiom_has_an_example_in_the_code() -> None:
    page = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    table = page.partition("### Tasks, time limits")[2].partition("\n## ")[0]
    rows = [line.strip("|").split("|") for line in table.splitlines() if line.startswith("| ")][1:]
    for _, written, place in rows:
        module = place.strip().strip("`").removeprefix("sublet.").replace(".", "/")
        text = (SOURCE / f"{module}.py").read_text(encoding="utf-8")
        words = [word for word in EXAMPLES if word in written]
        assert words == [] or any(word in text for word in words), (written, place)


EXAMPLES = (
    "Services",
    "start_alone",
    "OwnTasks",
    "TaskGroup",
    "deadlines.timeout(",
    "move_on_after",
    "shield=True",
    "asyncio.to_thread",
    "to_thread.run_sync",
    "in_background",
    "call_soon_threadsafe",
    "structlog.get_logger",
    "class Screen",
)
