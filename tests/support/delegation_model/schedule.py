"""One schedule of the model, from its beginning to where nothing happens any more, with all that is checked there."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from sublet.protocol.lifecycle import (
    ASSIGNMENT_TABLE,
    DELEGATION_TABLE,
    AssignmentState,
    DelegationState,
    is_terminal,
)
from sublet.protocol.messages import Done
from support.delegation_model.delegator import Delegator
from support.delegation_model.executor import Executor
from support.delegation_model.world import CALM_AT, Killed, Weather, World, check


def play(seed: int, weather: Weather) -> World:
    """Play one schedule.

    Raises:
        Violation: an invariant does not hold.
    """
    world = World(seed, weather)
    delegator, executor = Delegator(world), Executor(world)
    delegator.executor, executor.delegator = executor, delegator
    random = world.random
    if random.random() < 0.4:
        _at(delegator, random.uniform(0, 100) if random.random() < 0.5 else random.uniform(0, 5), delegator.cancel)
    wishes: list[Callable[[], None]] = [delegator.extend] * random.choice([0, 0, 1, 3])
    wishes += [
        partial(delegator.say, f"more_{number % 3}", f"prompt {number % 3 if number != 3 else 9}")
        for number in range(random.choice([0, 0, 1, 2, 4]))
    ]
    for wish in wishes:
        if random.random() < 0.2:
            _at(delegator, random.uniform(0, 30), wish)
        else:
            delegator.once_running.append((random.choice([0.0, 0.1, random.uniform(0, 40)]), wish))
    for _ in range(8):
        _at(delegator, random.uniform(0, 150), delegator.look)
    if random.random() < 0.1:
        executor.during_life(random.uniform(1, 20), executor.wind_down)
    delegator.during_life(0, delegator.begin)
    world.later(CALM_AT + 1, lambda: _begin_anew(delegator, executor))
    try:
        world.run()
    except Killed:
        raise AssertionError("a death that nobody noticed") from None
    _check_the_end(delegator, executor)
    return world


def _begin_anew(delegator: Delegator, executor: Executor) -> None:
    """Restart what has met a journal that failed: the next process settles what this one could not."""
    if delegator.up and delegator.state.left:
        delegator.die(1.0)
    kept = executor.disk
    if executor.up and kept is not None and not is_terminal(ASSIGNMENT_TABLE, kept.state) and not executor.works():
        executor.die(1.0)


def _at(delegator: Delegator, seconds: float, call: Callable[[], None]) -> None:
    """Have people do something at any time, whichever process of the delegator's is there then."""

    def guarded() -> None:
        if delegator.up:
            delegator.during_life(0, call)

    delegator.world.later(seconds, guarded)


def _check_the_end(delegator: Delegator, executor: Executor) -> None:
    disk = delegator.disk
    if disk is None:  # its first record never became durable, so it never was
        check(delegator.writes == 0 and executor.begun == 0, "what is not journalled has no effect")
        return
    check(disk.settled, "every delegation is settled")
    check(is_terminal(DELEGATION_TABLE, disk.state), "every delegation ends")
    check(delegator.serving is None, "nothing is served in the end")
    check(not delegator.locked, "directories are given back")
    check(not delegator.owes, "the executor hears of every end")
    check((disk.state is DelegationState.COMPLETED) == disk.done, "completed is what was DONE, and nothing else")
    check(delegator.told in (None, disk.state), "an end that was told stays")
    check(executor.slots == 0, "every slot is given back")
    kept = executor.disk
    check(kept is None or is_terminal(ASSIGNMENT_TABLE, kept.state), "every assignment ends")
    if disk.done:
        check(isinstance(executor.task, Done), "completed is what the executor has said DONE of")
        check(kept is not None and kept.state is AssignmentState.COMPLETED, "DONE is durable at the executor")
