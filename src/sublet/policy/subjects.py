"""Subjects as people write them, in tests of a policy and on the command line."""

from __future__ import annotations

from sublet.policy.decision import Subject
from sublet.policy.rules import KINDS
from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.text import clean_line


def checked(subject: Subject) -> Subject:
    """Return a subject that somebody has written.

    Raises:
        SubletError: ``INVALID_ARGUMENT`` for a name or a role that one of its kind never has.
    """
    if subject.kind == "human" and subject.name:
        raise SubletError(LocalCode.INVALID_ARGUMENT, "a person has no name here", "Write human alone.")
    if subject.kind != "agent" and subject.role:
        raise SubletError(
            LocalCode.INVALID_ARGUMENT, f"only agents have roles, and {subject.kind} is none", "Leave it out."
        )
    return subject


def subject_named(text: str, role: str = "") -> Subject:
    """Return the subject that ``KIND``, ``KIND:NAME`` or, for an agent of this daemon, ``NAME`` alone means.

    Raises:
        SubletError: ``INVALID_ARGUMENT`` where the kind is none.
    """
    kind, colon, name = text.strip().partition(":")
    for known in KINDS:
        if kind == known:
            return Subject(known, name, role=role)
    if colon or not kind:
        raise SubletError(
            LocalCode.INVALID_ARGUMENT,
            f"{clean_line(kind, 40)!r} is no kind of caller",
            f"Write KIND or KIND:NAME, where KIND is one of {', '.join(KINDS)}; a name alone is an agent of yours.",
        )
    return Subject("agent", kind, role=role)
