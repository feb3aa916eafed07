"""The moment that somebody else's text names. Whoever writes in a room says when that was, in any words."""

from __future__ import annotations

from datetime import MAXYEAR, MINYEAR, UTC, datetime
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
    moment = told_moment(text) if isinstance(text, str) else NO_TIME
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
