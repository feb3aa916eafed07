"""Threads for what takes long: one after another for a peer, and again after they were stopped."""

from __future__ import annotations

import threading

import pytest

from sublet.workspace.serving.slow_work import SlowWork


def test_what_was_stopped_takes_work_again() -> None:
    slow = SlowWork()
    peer = slow.one_by_one()
    assert peer.submit(lambda: 1).result(9) == 1
    slow.shutdown()
    for _ in range(2):
        with pytest.raises(RuntimeError):
            peer.submit(lambda: 2)
    slow.restart()
    assert peer.submit(lambda: 3).result(9) == 3
    slow.shutdown()


def test_what_has_begun_comes_to_its_end_in_order() -> None:
    slow = SlowWork()
    peer = slow.one_by_one()
    go = threading.Event()
    done: list[int] = []
    first = peer.submit(go.wait)
    others = [peer.submit(done.append, number) for number in range(20)]
    slow.shutdown()
    go.set()
    assert first.result(9)
    for one in others:
        one.result(9)
    assert done == list(range(20))
