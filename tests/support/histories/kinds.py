"""The kinds of faults of which histories are made, and what each is."""

from __future__ import annotations

from typing import Final

KINDS: Final = {
    "nothing": "no fault at all",
    "kills": "daemons are killed and started again",
    "partitions": "links between groups of daemons are cut",
    "rollbacks": "a home's database is replaced by an older copy of itself",
    "full disks": "a home has no room left",
    "clocks": "clocks differ by minutes, hours and 40 days, both ways",
    "copies": "a home is copied, and both run",
    "changes while away": "old messages change, and many new ones, while a member is away",
    "many while away": "hundreds of messages are sent and edited while a member is away",
    "malformed refs": "a member writes refs whose times are none, before it is removed",
    "refs ahead": "a member writes refs two months ahead, before it is removed",
    "junk answers": "a paired daemon that is no member answers each question with junk",
    "silent answers": "a paired daemon that is no member takes questions and answers none",
    "forced rooms": "a peer makes many rooms with everybody as a member",
    "declarations": "a paired daemon declares very many keys on the bus",
    "stopped reader": "a paired daemon hears everything and stops reading",
    "flipped bits": "bits of a database are flipped while its daemon is down",
    "cut database": "the end of a database is missing when its daemon starts again",
    "deleted rows": "rows of a database are missing when its daemon starts again",
    "everything": "all faults of honest daemons, mixed",
}
"""Each fault by its name, in the order in which they are shown."""

HOSTILE: Final = (
    "malformed refs",
    "refs ahead",
    "junk answers",
    "silent answers",
    "forced rooms",
    "declarations",
    "stopped reader",
)
DAMAGE: Final = ("flipped bits", "cut database", "deleted rows")
MEMBERS_ATTACK: Final = ("malformed refs", "refs ahead")
"""Attacks for which whoever attacks is a member of the room first, and is removed at the end."""
