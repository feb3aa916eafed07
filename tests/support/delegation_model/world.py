"""Time, chance, the channel and the death of processes in a model of a delegation; all of it from one seed."""

from __future__ import annotations

import contextlib
import heapq
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.times import Now

CALM_AT = 150.0
"""From then on nothing is lost and nobody dies, so that everything has to come to its end."""
HORIZON = 5_000.0
WALL = 1_000_000.0
MAX_STEPS = 50_000


class Violation(AssertionError):
    """A schedule in which an invariant does not hold."""


def check(holds: bool, what: str) -> None:
    """Fail the schedule where an invariant does not hold."""
    if not holds:
        raise Violation(what)


@dataclass(frozen=True)
class Weather:
    """How likely each trouble is; ``kill_at`` kills at one output alone, by number, whatever chance says."""

    lose: float = 0.0
    double: float = 0.0
    slow: float = 0.0
    kill: float = 0.0
    fail: float = 0.0
    deny: float = 0.0
    lie: float = 0.0
    kill_at: int | None = None


class World:
    """One schedule.

    Args:
        seed: decides everything that chance decides.
        weather: how bad it is.
    """

    def __init__(self, seed: int, weather: Weather) -> None:
        self.random = random.Random(seed)
        self.weather = weather
        self.time = 0.0
        self.outputs = 0
        self.steps: Counter[str] = Counter()
        self._calls: list[tuple[float, int, Callable[[], None]]] = []
        self._number = 0

    @property
    def calm(self) -> bool:
        return self.time >= CALM_AT

    def chance(self, likelihood: float) -> bool:
        return not self.calm and self.random.random() < likelihood

    def later(self, seconds: float, call: Callable[[], None]) -> None:
        self._number += 1
        heapq.heappush(self._calls, (self.time + max(0.0, seconds), self._number, call))

    def send(self, deliver: Callable[[], None]) -> None:
        """Carry a message: perhaps never, perhaps twice, perhaps long after the next one."""
        if self.chance(self.weather.lose):
            return
        for _ in range(2 if self.chance(self.weather.double) else 1):
            seconds = self.random.uniform(0.0, 0.05)
            if self.chance(self.weather.slow):
                seconds = self.random.choice([1.0, 5.0, 20.0, 70.0])
            self.later(seconds, deliver)

    def run(self) -> None:
        while self._calls:
            at, _, call = heapq.heappop(self._calls)
            if at > HORIZON:
                return
            self.time = at
            check(self.steps.total() < MAX_STEPS, "a schedule comes to its end")
            call()

    def failure(self) -> SubletError:
        return SubletError(LocalCode.UNAVAILABLE, "the store failed")


class Killed(Exception):
    """The process has died at this output."""


class Process:
    """What both sides have in common: a life, a clock, and outputs at each of which the life may end."""

    def __init__(self, world: World, name: str, skew: float) -> None:
        self.world = world
        self.name = name
        self.up = True
        self.life = 1
        self._skew = skew
        self._born = world.time

    @property
    def now(self) -> Now:
        return Now(WALL + self.world.time + self._skew, self.world.time - self._born)

    def during_life(self, seconds: float, call: Callable[[], None]) -> None:
        """Call in a while, unless this life is over by then."""
        life = self.life

        def guarded() -> None:
            if self.up and self.life == life:
                with contextlib.suppress(Killed):
                    call()

        self.world.later(seconds, guarded)

    def may_die(self) -> None:
        """Die here, if chance or the schedule wants it.

        Raises:
            Killed: it has.
        """
        world = self.world
        world.outputs += 1
        if world.outputs == world.weather.kill_at or world.chance(world.weather.kill):
            self.die(world.random.choice([0.1, 2.0, 10.0, 90.0]))
            raise Killed

    def die(self, seconds: float) -> None:
        """Die, and come back after ``seconds``."""
        self.up = False
        self.died()
        self.world.later(seconds, self._restart)

    def _restart(self) -> None:
        self.up = True
        self.life += 1
        self._born = self.world.time - self.world.random.uniform(0, 9)
        with contextlib.suppress(Killed):
            self.restarted()

    def died(self) -> None:
        raise NotImplementedError

    def restarted(self) -> None:
        raise NotImplementedError
