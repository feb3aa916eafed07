"""Error codes and the exceptions that carry them."""

from __future__ import annotations

from enum import StrEnum


class ErrorCode(StrEnum):
    """Codes that travel in an AWCP ERROR message (AWCP 4.5 and DESIGN 4.4)."""

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
    ALREADY_RUNNING = "ALREADY_RUNNING"
    DAEMON_UNAVAILABLE = "DAEMON_UNAVAILABLE"
    UNAVAILABLE = "UNAVAILABLE"
    INTERNAL = "INTERNAL"


class SubletError(Exception):
    """A failure that a user or a peer is told about: what happened, why, and what to do next.

    Args:
        code: machine-readable code; only an ``ErrorCode`` may travel to a peer.
        message: what happened and why, in one sentence.
        hint: what to do next.
    """

    def __init__(self, code: ErrorCode | LocalCode, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.code}: {self.message}" + (f" ({self.hint})" if self.hint else "")


class RemoteProtocolError(SubletError):
    """The peer sent something the protocol forbids: the peer's fault, answered with ``code``."""
