"""Services and tasks whose failures stay where they are."""

from __future__ import annotations

import asyncio

import anyio
import pytest

from sublet.tasks import (
    MAX_SERVICES,
    Pauses,
    Service,
    ServiceHealth,
    Services,
    alone,
    described,
    is_failure,
    start_alone,
)

pytestmark = pytest.mark.anyio
QUICK = Pauses(first=0.001, longest=0.002)


class Panic(BaseException):
    """What a library in Rust raises."""


class Failing:
    """Fails in turn with each of ``errors``, then serves."""

    def __init__(self, *errors: BaseException | None) -> None:
        self._errors = list(errors)
        self.serving = anyio.Event()

    async def serve(self) -> None:
        await anyio.lowlevel.checkpoint()
        if self._errors:
            if (error := self._errors.pop(0)) is not None:
                raise error
            return
        self.serving.set()
        await anyio.sleep_forever()


async def kept(*errors: BaseException | None) -> ServiceHealth:
    failing, services = Failing(*errors), Services(QUICK, clock=lambda: 7.0)
    with anyio.fail_after(10):
        async with services.running(Service("one", failing.serve)):
            await failing.serving.wait()
            [health] = services.health
            assert health.state == "running"
    assert services.health[0].state == "stopped"
    return health


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (ValueError("no\x1b[31m way"), "ValueError: no way"),
        (ExceptionGroup("g", [OSError(5, "broken")]), "OSError: [Errno 5] broken"),
        (BaseExceptionGroup("g", [Panic("unwrap on None")]), "Panic: unwrap on None"),
        (Panic(), "Panic"),
        (None, "Ended: it ended by itself"),
        (asyncio.CancelledError(), "Ended: something that it waited for was cancelled"),
    ],
)
async def test_a_service_that_fails_is_started_again_and_says_so(error: BaseException | None, told: str) -> None:
    health = await kept(error, error)
    assert (health.restarts, health.last_error, health.failed_at) == (2, told, 7.0)


async def test_a_service_that_is_cancelled_ends() -> None:
    services, failing = Services(QUICK), Failing()
    async with anyio.create_task_group() as group:
        services.start(group, Service("one", failing.serve))
        await failing.serving.wait()
        group.cancel_scope.cancel()
    assert services.health[0].restarts == 0


async def test_the_pause_grows_within_its_bound_and_ends_for_who_is_in_a_hurry() -> None:
    services, failing = Services(Pauses(first=1e6, longest=1e6)), Failing(ValueError(), ValueError())
    hurry = anyio.Event()
    async with services.running(Service("one", failing.serve, hurry.wait)):
        hurry.set()
        with anyio.fail_after(10):
            await failing.serving.wait()


async def test_names_are_bounded() -> None:
    services = Services(QUICK)
    made = [Service(f"{number}", Failing().serve) for number in range(MAX_SERVICES + 5)]
    async with services.running(*made):
        await anyio.lowlevel.checkpoint()
        assert len(services.health) <= MAX_SERVICES


@pytest.mark.parametrize("error", [ValueError(), Panic(), ExceptionGroup("g", [ValueError()])])
async def test_a_task_that_fails_ends_alone(error: BaseException) -> None:
    other = anyio.Event()
    async with anyio.create_task_group() as group:
        start_alone(group, "it", Failing(error).serve)
        start_alone(group, "another", other.wait)
        await anyio.sleep(0)
        other.set()
    async with asyncio.TaskGroup() as tasks:
        start_alone(tasks, "it", Failing(error).serve)


@pytest.mark.parametrize("error", [asyncio.CancelledError(), KeyboardInterrupt(), SystemExit(1)])
async def test_who_wants_an_end_gets_it(error: BaseException) -> None:
    assert not is_failure(error)
    assert not is_failure(BaseExceptionGroup("g", [error, ValueError()]))
    if not isinstance(error, asyncio.CancelledError):
        with pytest.raises(type(error)):
            await alone("it", Failing(error).serve)


async def test_what_a_task_waits_for_cancels_neither_the_task_nor_its_group() -> None:
    others: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    rest = anyio.Event()

    async def waits() -> None:
        await others

    async with anyio.create_task_group() as group:
        start_alone(group, "it", waits)
        start_alone(group, "another", rest.wait)
        await anyio.sleep(0)
        others.cancel()
        await anyio.sleep(0)
        assert not group.cancel_scope.cancel_called
        rest.set()
    await alone("it", Failing(asyncio.CancelledError()).serve)


async def test_a_task_whose_group_is_cancelled_ends() -> None:
    went_on = False

    async def work() -> None:
        nonlocal went_on
        await alone("it", anyio.sleep_forever)
        went_on = True

    async with anyio.create_task_group() as group:
        group.start_soon(work)
        await anyio.sleep(0)
        group.cancel_scope.cancel()
    assert not went_on


def test_an_error_is_told_on_one_bounded_line() -> None:
    assert described(ValueError("a\n\u202eb" * 999)).startswith("ValueError: a b")
    assert len(described(ValueError("x" * 9_999))) <= 200
