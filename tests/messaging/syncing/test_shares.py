"""How peers have answered: who is asked last, for how long, and how that is forgotten."""

from __future__ import annotations

from sublet.messaging.syncing import shares
from sublet.messaging.syncing.shares import Failure, Shares


class Told:
    """Shares with a clock that goes when it is told to."""

    def __init__(self) -> None:
        self.now = 1_000.0
        self.shares = Shares(lambda: self.now)

    def fails(self) -> float:
        """Let bob fail, once he may be asked; return how long he is not asked then."""
        while self.shares.is_last("bob") and not self.shares.take_turn("bob"):
            self.now += 0.25
        self.shares.failed("bob", Failure.SILENT)
        return self.pause()

    def pause(self) -> float:
        """Return how long bob is not asked from now on."""
        share = self.shares._peers["bob"]
        return share.due - self.now


def test_a_peer_of_whom_nothing_is_known_is_asked_with_the_others() -> None:
    told = Told()
    assert not told.shares.is_last("bob")
    assert told.shares.asked_last() == {}
    assert told.shares.latency("bob") == 0.0


def test_who_fails_is_asked_last_and_after_a_pause_that_doubles_up_to_a_bound() -> None:
    told = Told()
    pauses = [told.fails() for _ in range(10)]
    assert told.shares.is_last("bob")
    assert told.shares.asked_last() == {"bob": Failure.SILENT}
    assert pauses[:4] == [1.0, 2.0, 4.0, 8.0]
    assert max(pauses) == shares.MAX_PAUSE_SECONDS


def test_several_questions_that_fail_together_are_one_failure() -> None:
    told = Told()
    for _ in range(4):
        told.shares.failed("bob", Failure.SILENT)
    assert told.pause() == shares.FIRST_PAUSE_SECONDS
    assert not told.shares.take_turn("bob")
    told.now += shares.FIRST_PAUSE_SECONDS
    assert told.shares.take_turn("bob")
    assert not told.shares.take_turn("bob"), "one question at a time"
    told.now += shares.TRIAL_SECONDS
    assert told.shares.take_turn("bob"), "where it came to no end"


def test_who_answers_is_asked_with_the_others_again_and_fails_are_forgotten_one_by_one() -> None:
    told = Told()
    for _ in range(3):
        told.fails()
    assert not told.shares.answered("bob", 0.1)
    assert told.shares.is_last("bob"), "that was a question from before"
    told.now += shares.MAX_PAUSE_SECONDS
    assert told.shares.take_turn("bob")
    assert told.shares.answered("bob", 0.1)
    assert not told.shares.is_last("bob")
    assert not told.shares.answered("bob", 0.1), "it was not asked last any more"
    assert told.fails() == 8.0, "what was before is not forgotten at once"
    told.now += shares.MAX_PAUSE_SECONDS
    assert told.shares.take_turn("bob")
    for _ in range(10 * shares.GOOD_ANSWERS):
        told.shares.answered("bob", 0.1)
    assert told.fails() == 1.0


def test_who_wastes_much_in_a_minute_waits_the_longest() -> None:
    told = Told()
    told.shares.failed("bob", Failure.FORGED, shares.MAX_WASTE_BYTES + 1)
    assert told.pause() == shares.MAX_PAUSE_SECONDS
    assert told.shares.asked_last() == {"bob": Failure.FORGED}


def test_only_so_many_peers_are_remembered_those_that_failed_before_all() -> None:
    told = Told()
    told.shares.failed("bob", Failure.JUNK)
    for number in range(shares.MAX_PEERS + 100):
        told.shares.answered(f"peer {number}", 0.1)
    assert len(told.shares._peers) <= shares.MAX_PEERS
    assert told.shares.is_last("bob")
