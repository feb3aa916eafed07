"""Times as they are written down, and the moment that somebody else's text names.

Nothing here reads a clock: whoever needs to know the time is told it.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import MAXYEAR, MINYEAR, UTC, datetime
from functools import lru_cache
from typing import Final

NO_TIME: Final = datetime.fromtimestamp(0, UTC)
"""Stands for what names no moment."""


def told_moment(text: str) -> datetime:
    """Return the moment that an RFC 3339 text names, in UTC; that of 1970 where it names none that could be told."""
    try:
        moment = datetime.fromisoformat(text)
        moment = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError):
        return NO_TIME
    # A year on, in any time zone, there is still a year.
    return moment if MINYEAR < moment.year < MAXYEAR else NO_TIME


def told_time(text: object) -> str:
    """Return that moment as RFC 3339 in UTC with milliseconds: a time, and nothing that a member put around it."""
    return _written(told_moment(text) if isinstance(text, str) else NO_TIME)


@dataclass(frozen=True, slots=True)
class Now:
    """The time, as a core that reads no clock is told it.

    Args:
        wall: Unix seconds, by the clock that people set; what is written down is compared with it.
        steady: seconds of a clock that nobody sets; what this process counts is compared with it.
    """

    wall: float
    steady: float


def rfc3339_of(at: float) -> str:
    """Return ``at`` (Unix seconds) as RFC 3339 in UTC with milliseconds."""
    return _written(datetime.fromtimestamp(at, UTC))


@lru_cache(maxsize=16)
def rfc3339_of_ms(at_ms: int) -> str:
    """Return a time, Unix milliseconds, as RFC 3339 in UTC with milliseconds."""
    return rfc3339_of(at_ms / 1000)


def unix_ms(text: str) -> int | None:
    """Return the Unix milliseconds that an RFC 3339 text names; None where it names no time.

    Args:
        text: of a member; without a time zone it is of ours.
    """
    try:
        return int(datetime.fromisoformat(text).timestamp() * 1_000)
    except (ValueError, OverflowError):
        return None


def unix_seconds(text: str) -> float:
    """Return the Unix time of an RFC 3339 timestamp.

    Raises:
        ValueError: it is none, or has no time zone.
    """
    when = datetime.fromisoformat(text)
    if when.tzinfo is None:
        raise ValueError("a timestamp needs a time zone")
    return when.timestamp()


def _written(moment: datetime) -> str:
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
