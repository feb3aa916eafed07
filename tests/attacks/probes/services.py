"""Failures thrown into every service of the daemon, and into every task that one of them starts for somebody."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Awaitable, Callable, Iterable, Sequence
from concurrent.futures import Future
from functools import partial
from pathlib import Path

import anyio
import pytest

from attacks.kit.busy_pair import SECONDS, BusyPair, busy_pair
from attacks.kit.faults import Faults
from attacks.probe import FailureProbe, Probe
from sublet.daemon.api.daemon import SHOW_STATUS
from sublet.daemon.api.operation import Nothing
from sublet.daemon.process.stop_limit import StopLimit
from sublet.daemon.storage.store import Store
from sublet.daemon.tasks.background import in_background
from sublet.messaging.running.owner import Owner
from sublet.protocol.errors import SubletError
from sublet.tasks import ServiceHealth
from support.services import Saboteur

Work = Callable[[BusyPair], Awaitable[object]]

BY_DELEGATING = (
    "a2a_server.delegated:DelegatedWork._relay",
    "daemon.net.acceptor:Acceptor._begin",
    "daemon.lending.delegation_run:DelegationRun._end",
    "daemon.lending.delegator:Delegator.create",
    "daemon.lending.going_along:GoingAlong.until_done",
    "daemon.rooms.lent_rooms:LentRooms._attend",
    "daemon.rooms.work_talk:WorkTalk.serve",
    "daemon.working.assignment_run:AssignmentRun._while_mounted",
    "daemon.working.executor:Executor._accept",
    "daemon.working.performing:Performing._begin",
    "messaging.running.hand_over:HandOver.dispatch",
    "messaging.syncing.sync:Sync.run",
    "supervisor.program_run:ProgramRunner._run",
    "workspace.serving.listener:DataPlane._begin_with",
)
"""Places that start a task when a directory is delegated."""
BY_OTHER_WORK: dict[str, Work] = {
    "daemon.lending.delegator:Delegator._stop": BusyPair.cancelled,
    "daemon.results.staged_results:StagedResults._alone": BusyPair.staged,
    "daemon.peering.peer_directory:PeerDirectory.views": BusyPair.look,
    "daemon.net.waits:Waits.unless_stopping": BusyPair.look,
    "daemon.supervising.runs:Runs.run": BusyPair.ask,
    "supervisor.tool_server.line_server:serve_lines": BusyPair.mcp,
    "mcp_server.era:serve": BusyPair.mcp,
    "mcp_server.host:McpFace.serve": BusyPair.mcp,
}
"""Places that start a task when something else is done."""
OF_FACES = (
    "a2a_server.face:A2AFace.serve",
    "daemon.net.http_server:QuietServer.serve_until_cancelled",
    "daemon.process.kept_face:KeptFace._serve",
)
"""Places that start a task of a face when a daemon starts."""
AT_THE_START = (
    "daemon.peering.whereabouts:Whereabouts._tell_all",
    "daemon.reloading.watching:Watcher.serve",
    "daemon.rooms.lent_rooms:LentRooms.serve",
    "daemon.rooms.peer_buses:PeerBuses.addresses",
    "messaging.delivery.acknowledging:Acknowledging.run",
    "messaging.service:MessagingService.running",
)
"""Places that start a task when a daemon starts, or is paired for the first time."""
SERVED = (
    "app.daemon:Daemon._serve",
    "daemon.audit_log.log:AuditLog.serve",
    "daemon.control.server:ControlServer.serve",
    "daemon.lending.delegator:Delegator.serve",
    "daemon.lending.end_hook:EndHook.serve",
    "daemon.modules.gateways:Gateways.serve",
    "daemon.process.own_files:OwnFiles.serve",
    "daemon.tasks.own_tasks:OwnTasks.run",
    "daemon.tasks.own_tasks:OwnTasks.start",
    "daemon.peering.whereabouts:Whereabouts.serve",
    "daemon.results.staged_results:StagedResults.serve",
    "daemon.rooms.messaging:Messaging.serve",
    "daemon.rooms.prune_store:LeaseRooms.serve",
    "app.rooms:Rooms.services",
    "daemon.process.kept_face:started",
    "daemon.health.heap:Heap.serve",
    "daemon.health.stalls:Stalls.serve",
    "daemon.storage.pruning:Pruning.serve",
    "app.supervising:Supervising.serve",
    "daemon.working.executor:Executor.serve",
    "messaging.service:MessagingService._start",
    "tasks:Services.keep",
    "tasks:Services.running",
    "tasks:Services.start",
    "tasks:alone",
    "tasks:start_alone",
    "web.face:WebFace.serve",
    "workspace.serving.listener:DataPlane.serve",
)


async def _while_working(places: Sequence[str], work: Work) -> None:
    """Fail a task of each place in turn while ``work`` is done, and assert that nothing else is the worse for it."""
    faults = Faults()
    with faults.installed():
        async with busy_pair() as pair:
            for place in places:
                with faults.throwing(place):
                    await _ended(place, work, pair)
                await pair.serves()
            await pair.check()
    _all_thrown(faults, places)


def _all_thrown(faults: Faults, places: Iterable[str]) -> None:
    missed = {*places} - faults.thrown
    assert not missed, f"these started no task: {sorted(missed)}"


async def _by_other_work() -> None:
    """Fail a task of each place in turn while what starts it is done."""
    faults = Faults()
    with faults.installed():
        async with busy_pair() as pair:
            for place, work in BY_OTHER_WORK.items():
                with faults.throwing(place):
                    await _ended(place, work, pair)
            await pair.check()
    _all_thrown(faults, BY_OTHER_WORK)


async def _ended(place: str, work: Work, pair: BusyPair) -> None:
    """Do work in which something fails; it may fail, but it has to end."""
    try:
        await work(pair)
    except TimeoutError as hung:
        raise RuntimeError(f"{place}: what was done never ended") from hung
    except (SubletError, OSError, EOFError, AssertionError):
        return


async def _at_the_start(places: Sequence[str]) -> None:
    """Fail the first task of each place, and assert that the daemons come up and work."""
    faults = Faults()
    with faults.installed(), faults.throwing(*places):
        async with busy_pair() as pair:
            await pair.check()
    _all_thrown(faults, places)


async def _services() -> None:
    """Fail every service there is, twice."""
    with pytest.MonkeyPatch.context() as patch:
        saboteur = Saboteur(patch)
        async with busy_pair() as pair:
            await pair.check()
            for name in sorted(saboteur.names()):
                with anyio.fail_after(SECONDS):
                    await saboteur.fail(name, times=2)
            await pair.check()


async def _stores_thread() -> None:
    """Break the thread that writes: who waits is told, and the daemon is told to end."""
    with tempfile.TemporaryDirectory() as directory:
        broken = anyio.Event()
        store = await Store.open(Path(directory) / "it.db", broken.set)
        store._writes.put(object())  # type: ignore[arg-type]  # nothing that is ever put there
        with anyio.fail_after(SECONDS):
            with pytest.raises(SubletError):
                await store.write(lambda connection: connection.execute("select 1").fetchone())
            await broken.wait()
            await store.close()


async def _panic() -> None:
    """Raise in a thread what a library in Rust raises where it panics."""

    class Panic(BaseException):
        pass

    def panics() -> None:
        raise Panic("unwrap on None")

    with anyio.fail_after(SECONDS), pytest.raises(RuntimeError, match="Panic: unwrap on None"):
        await in_background(panics)


async def _engines_thread() -> None:
    """Break the thread of the engine: it says so, and nobody waits for it any more."""
    import concurrent.futures

    told = concurrent.futures.Future[bool]()

    class Store:
        def close(self) -> None:
            raise OSError("disk")

    class Engine:
        store = Store()

        def commit(self) -> None:
            raise OSError("disk")

    class NoNetwork:
        def publish(self, *_: object) -> None:
            raise OSError("network")

    owner = Owner(
        lambda: Engine(),  # type: ignore[arg-type,return-value]
        NoNetwork(),  # type: ignore[arg-type]
        lambda engine, query: None,
        lambda outcome: None,
    )
    await anyio.to_thread.run_sync(owner.start, partial(told.set_result, True))
    await anyio.to_thread.run_sync(owner.stop)
    assert told.result(SECONDS)
    promise = concurrent.futures.Future[int]()
    owner.call(lambda engine: 1, promise)
    with pytest.raises(SubletError):
        promise.result(SECONDS)


async def _names_in_a_watched_directory() -> None:
    """Make what a watch can't name beside the files of a running daemon."""
    async with busy_pair() as pair:
        place = os.fsencode(pair.lender.home.config_dir) + b"/caf\xe9"
        os.mkdir(place)
        with anyio.fail_after(SECONDS):
            while not any(
                "caf" in remark for remark in (await pair.lender.control.call(SHOW_STATUS, Nothing())).remarks
            ):
                os.rmdir(place)
                os.mkdir(place)
                await anyio.sleep(0.1)
        await pair.check()


async def _words_of_the_cut() -> None:
    """Fail where it is told what hangs: the process ends all the same."""
    ended: Future[int] = Future()

    def failing() -> list[ServiceHealth]:
        raise OSError("nobody can tell")

    StopLimit(ended.set_result, failing, 0.0).begin(3)
    assert await anyio.to_thread.run_sync(ended.result, SECONDS) == 3


PROBES: Sequence[Probe] = (
    FailureProbe(name="services: each service, in the middle of its work", covers=SERVED, throw=_services),
    FailureProbe(
        name="services: each task that a delegation starts",
        covers=BY_DELEGATING,
        throw=partial(_while_working, BY_DELEGATING, BusyPair.delegate),
    ),
    FailureProbe(
        name="services: each task that something else starts",
        covers=(*BY_OTHER_WORK, "daemon.governing.policy_service:PolicyService.read_audit_log"),
        throw=_by_other_work,
    ),
    FailureProbe(
        name="services: the first tasks of a start, all at once",
        covers=AT_THE_START,
        throw=partial(_at_the_start, AT_THE_START),
    ),
    *(
        FailureProbe(
            name=f"services: the first task of {place}", covers=(place,), throw=partial(_at_the_start, (place,))
        )
        for place in OF_FACES
    ),
    FailureProbe(
        name="services: the thread of the store",
        covers=("daemon.storage.store:Store.__init__", "daemon.storage.store:Store._run"),
        throw=_stores_thread,
    ),
    FailureProbe(
        name="services: the thread of the messaging engine",
        covers=(
            "messaging.running.owner:Owner.__init__",
            "messaging.running.owner:Owner._run",
            "messaging.running.sender:Sender.__init__",
        ),
        throw=_engines_thread,
    ),
    FailureProbe(
        name="services: the words of a stop that is cut off",
        covers=("daemon.process.stop_limit:StopLimit.begin", "daemon.process.stop_limit:StopLimit._wait"),
        throw=_words_of_the_cut,
    ),
    FailureProbe(name="services: a panic in a thread", covers=("daemon.tasks.background:in_background",), throw=_panic),
    FailureProbe(
        name="services: a name that is not UTF-8 in a watched directory",
        covers=(
            "daemon.reloading.watching:Watcher._serve",
            "daemon.reloading.watching:Watcher._watch",
            "daemon.reloading.watching:_unreadable",
        ),
        throw=_names_in_a_watched_directory,
    ),
)
