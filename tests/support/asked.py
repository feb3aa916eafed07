"""Asks on a network as tests do: with a thread that waits for all that is answered."""

from __future__ import annotations

import queue

from sublet.messaging.ports.network import ANYBODY, Network


def answers(network: Network, key: str, payload: bytes, seconds: float, peer: str = ANYBODY) -> list[bytes]:
    """Return what a peer, or all those of whom nobody knows who they are, answer; blocks until no more come."""
    heard: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
    network.ask(peer, key, payload, seconds, lambda answer, replier="": heard.put(answer))
    found: list[bytes] = []
    while (answer := heard.get(timeout=seconds + 10)) is not None:
        found.append(answer)
    return found
