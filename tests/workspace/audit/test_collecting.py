"""While an audit holds much, no full collection looks through it, and afterwards all is as it was."""

from __future__ import annotations

import gc
import threading

from sublet.workspace.audit.collecting import no_full_collections


def full_collections() -> int:
    return int(gc.get_stats()[2]["collections"])


def test_no_full_collection_comes_by_itself_while_much_is_held() -> None:
    before, held = full_collections(), []
    with no_full_collections():
        # Each is an object that the collector looks at, in numbers that call for full collections.
        held = [[number] for number in range(400_000)]
        assert full_collections() == before
    assert len(held) == 400_000


def test_it_holds_until_the_last_of_several_threads_is_done() -> None:
    as_ever = gc.get_threshold()
    inside, leave = threading.Event(), threading.Event()

    def other() -> None:
        with no_full_collections():
            inside.set()
            assert leave.wait(10)

    thread = threading.Thread(target=other)
    with no_full_collections():
        held = gc.get_threshold()
        thread.start()
        assert inside.wait(10)
    assert gc.get_threshold() == held != as_ever
    leave.set()
    thread.join(10)
    assert gc.get_threshold() == as_ever
