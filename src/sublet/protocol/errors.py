"""Error codes and the exceptions that carry them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from sublet.protocol.canonical import JsonValue

if TYPE_CHECKING:
    from sublet.protocol.prompt_state import PromptState


class ErrorCode(StrEnum):
    """Codes that travel in an AWCP ERROR message (AWCP 4.5)."""

    DECLINED = "DECLINED"
    DEP_MISSING = "DEP_MISSING"
    WORKSPACE_TOO_LARGE = "WORKSPACE_TOO_LARGE"
    WORKSPACE_NOT_FOUND = "WORKSPACE_NOT_FOUND"
    WORKSPACE_INVALID = "WORKSPACE_INVALID"
    SENSITIVE_FILES = "SENSITIVE_FILES"
    MOUNTPOINT_DENIED = "MOUNTPOINT_DENIED"
    START_EXPIRED = "START_EXPIRED"
    EXPIRED = "EXPIRED"
    AUTH_FAILED = "AUTH_FAILED"
    MOUNT_FAILED = "MOUNT_FAILED"
    TASK_FAILED = "TASK_FAILED"
    CANCELLED = "CANCELLED"


class LocalCode(StrEnum):
    """Codes that only our own faces show; they never leave this machine in an AWCP message."""

    INVALID_ARGUMENT = "INVALID_ARGUMENT"
    NOT_FOUND = "NOT_FOUND"
    CONFLICT = "CONFLICT"
    POLICY_DENIED = "POLICY_DENIED"
    PEER_UNKNOWN = "PEER_UNKNOWN"
    PEER_UNREACHABLE = "PEER_UNREACHABLE"
    KEY_CHANGED = "KEY_CHANGED"
    TOKEN_INVALID = "TOKEN_INVALID"  # noqa: S105 - the name of a code, not a secret
    APPROVAL_INVALID = "APPROVAL_INVALID"
    APPROVAL_REQUIRED = "APPROVAL_REQUIRED"
    APPROVER_MISSING = "APPROVER_MISSING"
    PASSPHRASE_WRONG = "PASSPHRASE_WRONG"  # noqa: S105 - the name of a code, not a secret
    ALREADY_RUNNING = "ALREADY_RUNNING"
    DAEMON_UNAVAILABLE = "DAEMON_UNAVAILABLE"
    LOOP_REFUSED = "LOOP_REFUSED"
    DEPTH_REFUSED = "DEPTH_REFUSED"
    LEASE_OVER = "LEASE_OVER"
    SESSION_CLOSED = "SESSION_CLOSED"
    NO_ROUTE = "NO_ROUTE"
    GUARDRAIL_FAILED = "GUARDRAIL_FAILED"
    STATE_VERSION = "STATE_VERSION"
    HOME_COPIED = "HOME_COPIED"
    UNAVAILABLE = "UNAVAILABLE"
    INTERNAL = "INTERNAL"


def error_code(text: str) -> ErrorCode | LocalCode | None:
    """Return the code that ``text`` names, or None where it names none."""
    if text in ErrorCode.__members__:
        return ErrorCode(text)
    return LocalCode(text) if text in LocalCode.__members__ else None


@dataclass(frozen=True, slots=True)
class AgentEnd:
    """How an agent ended that did not do its task: why, with which status, and the end of what it printed.

    ``prompts`` tells how each of them ended, where it had more than one.
    """

    reason: str
    exit_code: int | None = None
    output_tail: str = ""
    prompts: tuple[PromptState, ...] = ()


class SubletError(Exception):
    """A failure that a user or a peer is told about: what happened, why, and what to do next.

    Args:
        code: machine-readable code; only an ``ErrorCode`` may travel to a peer.
        message: what happened and why, in one sentence.
        hint: what to do next.
        from_peer: whether a peer has worded it, so that it is shown as the peer's and never believed (DESIGN 9.8).
        retry_after_seconds: when trying again may succeed; None where nobody knows.
        agent_end: how the agent ended; None where the failure is not an agent's.
    """

    def __init__(
        self,
        code: ErrorCode | LocalCode,
        message: str,
        hint: str = "",
        *,
        from_peer: bool = False,
        retry_after_seconds: int | None = None,
        agent_end: AgentEnd | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.hint = hint
        self.from_peer = from_peer
        self.retry_after_seconds = retry_after_seconds
        self.agent_end = agent_end

    def __str__(self) -> str:
        return f"{self.code}: {self.message}" + (f" ({self.hint})" if self.hint else "")

    def as_json(self) -> dict[str, JsonValue]:
        """Return the failure as the JSON object that our own programs pass on and print."""
        return {
            "code": str(self.code),
            "message": self.message,
            "hint": self.hint,
            "from_peer": self.from_peer,
            "retry_after_seconds": self.retry_after_seconds,
        }

    @classmethod
    def from_json(cls, body: Mapping[str, JsonValue]) -> SubletError:
        """Return the failure that ``as_json`` has written; a code that is not known here becomes ``INTERNAL``.

        Raises:
            KeyError: it has no code or no message.
        """
        retry = body.get("retry_after_seconds")
        return SubletError(
            error_code(str(body["code"])) or LocalCode.INTERNAL,
            str(body["message"]),
            str(body.get("hint", "")),
            from_peer=body.get("from_peer") is True,
            retry_after_seconds=retry if isinstance(retry, int) else None,
        )


class RemoteProtocolError(SubletError):
    """The peer sent something the protocol forbids: the peer's fault, answered with ``code``."""
