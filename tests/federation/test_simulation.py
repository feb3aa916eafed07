"""Many nodes on a network that loses and parts, by a virtual clock: what all of them know of each other in the end."""

from __future__ import annotations

import math

import pytest

from support.federation_simulation import SimulatedNet, Story, story
from support.virtual_time import run_virtual

NODES = 8
TIMEOUT, INTERVAL = 120.0, 30.0
"""Of the default settings: after which an agent is gone, and between heartbeats."""


@pytest.fixture(scope="module")
def told() -> dict[float, Story]:
    """Return what came of the same story on a network that loses nothing, and on one that loses a tenth."""

    def run(loss: float) -> Story:
        async def main() -> Story:
            return await story(SimulatedNet(NODES, seed=7, loss=loss, routers=3))

        return run_virtual(main)

    return {loss: run(loss) for loss in (0.0, 0.1)}


@pytest.mark.parametrize("loss", [0.0, 0.1])
def test_all_views_are_right_after_joins_leaves_deaths_and_a_partition(told: dict[float, Story], loss: float) -> None:
    found = told[loss]
    times = (found.joined, found.left, found.died, found.parted, found.healed, found.came_back)
    assert all(math.isfinite(one) for one in times), found


def test_where_nothing_is_lost_views_are_right_as_soon_as_the_clocks_of_nodes_allow(told: dict[float, Story]) -> None:
    found = told[0.0]
    assert found.joined <= 2
    assert found.left <= 1, "who leaves tells"
    for silent in (found.died, found.parted):
        assert TIMEOUT - INTERVAL <= silent <= TIMEOUT + 5, "whoever falls silent is gone after that time"
    assert found.healed <= INTERVAL + 5
    assert found.came_back <= 2


def test_whoever_comes_back_is_known_soon_though_its_answers_are_lost(told: dict[float, Story]) -> None:
    assert told[0.1].came_back <= 60


def test_a_node_says_one_thing_to_each_other_one_in_a_period_and_nothing_more(told: dict[float, Story]) -> None:
    # A heartbeat to each, which comes up to a tenth early, and a receipt for each of theirs.
    assert 2 * (NODES - 1) / INTERVAL <= told[0.0].messages <= 2 * (NODES - 1) / (0.9 * INTERVAL) + 1
