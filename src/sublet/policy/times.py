"""Times of day and days of the week at which a rule holds."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Annotated, ClassVar, Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import ConfigDict, PlainValidator

READ_STRICTLY: Final = ConfigDict(extra="forbid")
"""How what is kept of rules is read: a condition that this version does not know would otherwise be left out."""
DAYS: Final = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
DAY_MINUTES: Final = 24 * 60


def zone_named(name: str) -> tzinfo:
    """Return the time zone ``UTC`` or ``Area/City``.

    Raises:
        ValueError: there is none of that name.
    """
    if name == "UTC":
        return UTC
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise ValueError(f"{name!r} is no time zone; write UTC, or one such as Europe/Berlin") from None


def zone_name(zone: tzinfo) -> str:
    """Return the name by which ``zone_named`` finds a time zone."""
    return zone.key if isinstance(zone, ZoneInfo) else "UTC"


Zone = Annotated[tzinfo, PlainValidator(lambda name: zone_named(str(name)))]
"""A time zone, which is kept by its name."""


@dataclass(frozen=True, slots=True)
class Times:
    """A span of each of ``days``.

    Args:
        start: first minute of the day, from 0.
        end: minute that is no more part of it; at or before ``start`` it is one of the next day, and the span counts to
            the day on which it begins.
        days: 0 is Monday.
        zone: in which day and minute are told.
    """

    __pydantic_config__: ClassVar = READ_STRICTLY

    start: int = 0
    end: int = DAY_MINUTES
    days: frozenset[int] = frozenset(range(7))
    zone: Zone = UTC

    def hold(self, now: float) -> bool:
        """Tell whether ``now``, in Unix seconds, is in one of the spans."""
        local = datetime.fromtimestamp(now, UTC).astimezone(self.zone)
        minute = local.hour * 60 + local.minute
        if self.start < self.end:
            return local.weekday() in self.days and self.start <= minute < self.end
        if minute >= self.start:
            return local.weekday() in self.days
        return minute < self.end and (local - timedelta(days=1)).weekday() in self.days


def minute_of_day(text: str) -> int:
    """Return the minute that ``HH:MM`` tells, up to 24:00.

    Raises:
        ValueError: it is none.
    """
    hours, colon, minutes = text.partition(":")
    digits = hours + minutes
    if not (colon and len(hours) == len(minutes) == 2 and digits.isascii() and digits.isdigit() and int(minutes) < 60):
        raise ValueError(f"{text!r} is no time of day; write it as 08:30")
    minute = int(hours) * 60 + int(minutes)
    if minute > DAY_MINUTES:
        raise ValueError(f"{text!r} is later than 24:00")
    return minute
