"""Every test is given to one worker once, and those of a worker that is lost to another one."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from support.scheduling import BySharing

TOGETHER = [f"tests/policy/test_rules.py::test_{number}" for number in range(5)]
SINGLE = [f"tests/attacks/test_probes_failures.py::test_{number}" for number in range(20)]
TESTS = [*TOGETHER, *SINGLE]


class Worker:
    """Keeps what it is given."""

    def __init__(self) -> None:
        self.gateway = SimpleNamespace(id="a worker")
        self.given: list[int] = []
        self.left: list[int] = []
        self.shutting_down = False

    def send_runtest_some(self, numbers: list[int]) -> None:
        """Take tests."""
        self.given += numbers
        self.left += numbers

    def shutdown(self) -> None:
        """Be told that there is no more."""
        self.shutting_down = True


def scheduled(*workers: Worker) -> BySharing:
    """Return what gives out ``TESTS`` to ``workers``."""
    options = SimpleNamespace(loadscopereorder=False)
    config = SimpleNamespace(option=options, getvalue=lambda _: [f"{len(workers)}*popen"])
    scheduling = BySharing(cast(Any, config))
    for worker in workers:
        scheduling.add_node(worker)
    for worker in workers:
        scheduling.add_node_collection(worker, TESTS)
    scheduling.schedule()
    return scheduling


def work(scheduling: BySharing, worker: Worker) -> None:
    """Do all that a worker is given."""
    while worker.left:
        scheduling.mark_test_complete(worker, worker.left.pop(0))


def test_each_test_is_given_out_once_and_a_worker_has_more_before_it_is_done() -> None:
    workers = [Worker(), Worker()]
    scheduling = scheduled(*workers)
    while any(worker.left for worker in workers):
        for worker in workers:
            if worker.left:
                scheduling.mark_test_complete(worker, worker.left.pop(0))
                assert worker.left or worker.shutting_down
    assert sorted(number for worker in workers for number in worker.given) == list(range(len(TESTS)))
    assert any(set(range(len(TOGETHER))) <= set(worker.given) for worker in workers), "a module stays together"
    assert scheduling.tests_finished
    assert not scheduling.has_pending
    assert [scheduling.remove_node(worker) for worker in workers] == [None, None]


def test_what_a_lost_worker_had_left_is_given_to_another() -> None:
    lost, other = Worker(), Worker()
    scheduling = scheduled(lost, other)
    scheduling.mark_test_complete(lost, lost.left.pop(0))
    crashed = TESTS[lost.left[0]]
    assert scheduling.remove_node(lost) == crashed
    work(scheduling, other)
    assert {*other.given, lost.given[0]} == set(range(len(TESTS)))
