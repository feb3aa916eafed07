"""How answers are guarded, and the failure that ends it; apart from what does it, which loads a schema library."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from sublet.policy.guardrail.failure import Failed
from sublet.policy.guardrail.mask import Mask
from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.text import clean

MAX_RETRIES: Final = 2
MAX_QUOTED_CHARS: Final = 4_000
"""Of a reply that a retry prompt, or whoever is asked in the end, is shown."""

OnFailure = Literal["ask_human", "reject"]


@dataclass(frozen=True, slots=True)
class GuardOptions:
    """How answers are guarded.

    ``retries``: how often is asked again, 0 to ``MAX_RETRIES``. ``on_failure``: what becomes of a request whose answer
    still does not pass. ``mask``: fields that are kept; None keeps all.
    """

    retries: int = MAX_RETRIES
    on_failure: OnFailure = "reject"
    mask: Mask | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.retries <= MAX_RETRIES:
            raise SubletError(LocalCode.INVALID_ARGUMENT, f"between 0 and {MAX_RETRIES} retries are possible")


class GuardrailFailed(SubletError):
    """No answer has passed: what was wrong with the last one, and whether a person is to be asked."""

    def __init__(self, failed: Failed, reply: str, on_failure: OnFailure, attempts: int) -> None:
        issues = "; ".join(issue.line() for issue in failed.issues[:3])
        super().__init__(
            LocalCode.GUARDRAIL_FAILED,
            f"no answer satisfied the schema in {attempts} attempts ({failed.kind}): {issues}",
            "Ask again with a simpler schema, or let a person decide."
            if on_failure == "reject"
            else "A person has to decide what becomes of it.",
        )
        self.failed = failed
        self.reply = clean(reply, MAX_QUOTED_CHARS)
        self.on_failure = on_failure
