"""What a probe is: an attack that runs by itself, so that a test can count its cost and a benchmark can time it.

Tests count what a probe does (lines of Python, bytes that stay); ``benchmarks/hostile.py`` times the same probes. Each
names in ``covers`` the places of ``src`` that it exercises, as ``package.module:function`` without the leading
``sublet.``; ``attacks.sites`` holds that no place is left without one.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CostProbe:
    """An input that costs at most linear work.

    Args:
        name: the area and what is probed, such as ``a2a: extension header``.
        covers: the places that it exercises.
        make: returns a hostile input of about n bytes; it is not part of the cost.
        run: hands the input to the product and swallows the refusal that the product documents.
        size: the n at which it is counted, in bytes; it is counted at twice that too.
        most: the bytes up to which the product reads it; what it refuses by its size tells nothing about growth.
    """

    name: str
    covers: Sequence[str]
    make: Callable[[int], Any]
    run: Callable[[Any], object]
    size: int = 8192
    most: int = 8 << 20


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class KeptProbe:
    """A peer that makes the product keep bytes: within a bound while it is there, and none of it afterwards.

    Args:
        name: the area and what is probed.
        covers: the places that it exercises.
        attack: a context manager that builds the part of the product, lets the peer do its worst as it is entered, and
            ends the peer's connection or lease as it is left. What it yields is held until the bytes after it were
            counted, so it must be the part that lives on (the server, the listener, the store), not the peer's.
        bound: bytes that may be kept while the peer is there.
        left: bytes that may be kept when it has gone.
    """

    name: str
    covers: Sequence[str]
    attack: Callable[[], AbstractContextManager[object]]
    bound: int = 64 << 20
    left: int = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FailureProbe:
    """A failure that is thrown at a part of the product, which has to survive it.

    Args:
        name: the area and what is thrown.
        covers: the places that it exercises.
        throw: provokes the failure and asserts that whatever is around it goes on.
    """

    name: str
    covers: Sequence[str]
    throw: Callable[[], Awaitable[object]]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Reason:
    """Why a place needs no probe; at most a tenth of all places may have one of these.

    Args:
        name: the area and what the place does.
        covers: the places.
        why: which fact keeps a peer's bytes away from it.
    """

    name: str
    covers: Sequence[str]
    why: str


Probe = CostProbe | KeptProbe | FailureProbe | Reason
