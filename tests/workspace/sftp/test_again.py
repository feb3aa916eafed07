"""A request that waits for something to be found out, a number of times at most."""

from __future__ import annotations

import pytest

from sublet.workspace.confined.later import NotKnownYet
from sublet.workspace.sftp.again import MAX_LOOKS, Again


class Unknown(NotKnownYet):
    """Notes what is done with it."""

    def __init__(self, error: Exception | None = None) -> None:
        self.done: list[str] = []
        self.error = error
        super().__init__(self._learn, lambda: self.done.append("dropped"))

    def _learn(self) -> None:
        self.done.append("learned")
        if self.error is not None:
            raise self.error


@pytest.mark.parametrize("error", [None, FileNotFoundError()])
def test_what_is_unknown_is_learned_once_whatever_comes_of_it(error: Exception | None) -> None:
    again, unknown = Again(b"request", 3, 7), Unknown(error)
    assert (again.data, again.start, again.end, again.looks) == (b"request", 3, 7, 0)
    assert again.reply() is None
    assert again.wait_for(unknown)
    reply = again.reply()
    assert reply is not None
    assert (reply.run(), reply.finish) == (b"", None)
    assert again.reply() is None
    again.drop()
    del reply
    assert unknown.done == ["learned"]


def test_what_nobody_learns_is_dropped() -> None:
    again, waiting, taken = Again(b"", 0, 0), Unknown(), Unknown()
    again.drop()
    again.wait_for(taken)
    reply = again.reply()
    del reply
    assert taken.done == ["dropped"]
    again.wait_for(waiting)
    again.drop()
    assert waiting.done == ["dropped"]


def test_a_request_waits_a_number_of_times() -> None:
    again = Again(b"", 0, 0)
    assert MAX_LOOKS == 8
    for number in range(1, 9):
        assert again.wait_for(Unknown())
        assert again.looks == number
        assert again.reply() is not None
    last = Unknown()
    assert not again.wait_for(last)
    assert last.done == ["dropped"]
    assert again.reply() is None
