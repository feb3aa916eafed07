"""Starts daemons as forks of one process that has loaded what a daemon needs, since loading takes most of a start.

A fork has the session, directory, environment, arguments and standard streams that ``sublet up --detach`` gives to the
process that it starts, is in the same network namespace, and ends as that one does. Whatever brings modules of its
own, such as an older version, is started as the installed command is (``support.sites``); so is everything in
``tests/e2e/test_daemon_process.py``, which looks at the start itself, and in benchmarks, which measure memory.

Run as a program it serves one socket, whose descriptor is its argument, or all who connect (``shared_servers.py``).
Each message is a JSON object with the ``arguments`` of ``up`` and its ``env``, and brings four descriptors: the pipe
for the report of the start, the log, the network namespace, and a pipe that is told the fork's process id and, at its
end, its status.
"""

from __future__ import annotations

import atexit
import ctypes
import gc
import importlib
import json
import os
import signal
import socket
import sys
import tempfile
import threading
import traceback
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final, NoReturn

if TYPE_CHECKING:
    from sublet.daemon.config.paths import Home
    from support.forked import Forked
    from support.sites import load_site
    from support.warm import build_models, import_below

MAX_MESSAGE_BYTES: Final = 4 << 20
OWN_NETWORK: Final = "/proc/self/ns/net"
_CLONE_NEWNET: Final = 0x40000000
_FACES_OF_PERSONS: Final = ("sublet.cli", "sublet.__main__")
"""What a daemon does not load, and the modules of which look at terminals."""
_IMPORTED_LATE: Final = (
    *("_strptime", "certifi", "httpcore", "uvicorn.lifespan.off"),
    *("encodings.ascii", "encodings.idna", "encodings.utf_16_be"),
)
"""What others import for a daemon once they need it."""


def fork_daemons_by(channel: socket.socket) -> None:
    """Let ``sublet up --detach`` in this process and its forks get its daemon from the process behind ``channel``."""
    from sublet.cli.reaching import detach
    from sublet.cli.reaching.start_report import log_path
    from support.forked import Forked

    def spawn(arguments: Sequence[str], home: Home, writer: int) -> Forked:
        log = detach._open_log(log_path(home))
        env = {name: value for name, value in os.environ.items() if name not in detach._CALLERS_ALONE}
        message = json.dumps({"arguments": list(arguments), "env": env})
        told, end = os.pipe()
        here = os.open(OWN_NETWORK, os.O_RDONLY)
        try:
            socket.send_fds(channel, [message.encode()], [writer, log, here, end])
        finally:
            for fd in (log, here, end):
                os.close(fd)
        return Forked(told)

    detach._spawn = spawn  # type: ignore[assignment]


def enter_network(namespace: int) -> None:
    """Put this process into the network namespace behind a descriptor, unless it is there."""
    if os.path.samestat(os.fstat(namespace), os.stat(OWN_NETWORK)):
        return
    if ctypes.CDLL(None, use_errno=True).setns(namespace, _CLONE_NEWNET) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def load() -> None:
    """Load what daemons need, and nothing else."""
    sys.modules["rich"] = None  # type: ignore[assignment]  # as in a daemon in the background
    _import_all()
    del sys.modules["rich"]
    assert threading.active_count() == 1
    gc.collect()
    gc.freeze()


def serve(channel: socket.socket) -> None:
    """Fork for each message until the other sides have gone."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for them
    while True:
        message, fds, _, _ = socket.recv_fds(channel, MAX_MESSAGE_BYTES, 4)
        if not message:
            return
        if os.fork() == 0:
            channel.close()
            _become(json.loads(message), fds)
        for fd in fds:
            os.close(fd)


def _import_all() -> None:
    import anyio._backends._asyncio  # noqa: F401

    import sublet

    import_below(sublet, _FACES_OF_PERSONS)
    build_models()
    for name in _IMPORTED_LATE:
        importlib.import_module(name)
    _keep_what_is_compiled()
    for name in ("reaching.background", "reaching.serving", "errors"):
        importlib.import_module(f"sublet.cli.{name}")


def _keep_what_is_compiled() -> None:
    """Compile what a daemon compiles once, for its start or its first delegation: Python and the product keep it."""
    from starlette.routing import compile_path

    from sublet.daemon.api.delegations import CreateDelegation
    from sublet.daemon.operations.document import declarations
    from sublet.daemon.storage.lent_directories import directory_rules
    from sublet.web.room_routes import OF_ROOMS
    from sublet.web.routes import OF_THE_PAGE

    stated = [one.path for _, operations in declarations() for one in operations.values()]
    for path in (*stated, *OF_THE_PAGE, *(path for path, _ in OF_ROOMS)):
        compile_path(path)
    directory_rules(CreateDelegation(workspace_dir="/", peer="bob", prompt="Go."), "workspace", "hidden")


def _become(wanted: Mapping[str, object], fds: Sequence[int]) -> NoReturn:
    """Be the process that ``sublet up --detach`` starts."""
    status = 70
    report, log, network, end = fds
    from sublet.cli.entry import main
    from sublet.cli.reaching.start_report import REPORT

    try:
        os.setsid()
        Path("/proc/self/comm").write_text("sublet up")  # for whoever looks at a list of processes
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.write(end, b"%d\n" % os.getpid())
        enter_network(network)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        for number in (1, 2):
            os.dup2(log, number)
        kept = sorted((0, 1, 2, report, end))
        for lower, upper in zip(kept, [*kept[1:], os.sysconf("SC_OPEN_MAX")], strict=True):
            os.closerange(lower + 1, upper)
        sys.stdin = os.fdopen(0, closefd=False)
        sys.stdout = os.fdopen(1, "w", closefd=False)
        sys.stderr = os.fdopen(2, "w", buffering=1, errors="backslashreplace", closefd=False)
        os.environ.clear()
        os.environ.update(wanted["env"])  # type: ignore[call-overload]
        os.chdir("/")
        load_site(os.environ)
        tempfile.tempdir = None  # its own environment says where
        sys.argv = ["sublet", "up", f"{REPORT}={report}", *wanted["arguments"]]  # type: ignore[misc]

        try:
            status = main()
        except SystemExit as ended:
            status = ended.code if isinstance(ended.code, int) else 1
        # What the interpreter does before it ends.
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
    except BaseException:
        traceback.print_exc()
    finally:
        with suppress(OSError):  # whoever started it has gone long ago, as a rule
            sys.stdout.flush()
            sys.stderr.flush()
            os.write(end, b"%d\n" % status)
        os._exit(status)


if __name__ == "__main__":
    sys.path.append(str(Path(__file__).parents[1]))
    from support.shared_servers import LISTENING, asker
    from support.sites import load_site
    from support.warm import build_models, import_below

    del sys.path[-1]  # a daemon finds none of the modules of tests
    load()
    with (
        asker(socket.socket(fileno=int(sys.argv[2])))
        if sys.argv[1] == LISTENING
        else socket.socket(fileno=int(sys.argv[1])) as server
    ):
        serve(server)
