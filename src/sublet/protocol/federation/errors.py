"""The five codes of federation, what each advises, and the answer that tells a failure (federation "错误处理")."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from sublet.protocol.errors import ErrorCode, LocalCode, SubletError


class FederationCode(StrEnum):
    """Why a task of another node was not done. No other code travels."""

    AGENT_NOT_FOUND = "AGENT_NOT_FOUND"
    AGENT_BUSY = "AGENT_BUSY"
    TIMEOUT = "TIMEOUT"
    NODE_UNREACHABLE = "NODE_UNREACHABLE"
    INVALID_PAYLOAD = "INVALID_PAYLOAD"


ADVICE: Final[Mapping[FederationCode, str]] = MappingProxyType(
    {
        FederationCode.AGENT_NOT_FOUND: "Check the address with `sublet agents --everywhere`, or wait until it comes.",
        FederationCode.AGENT_BUSY: "Ask again later, or another agent: `sublet agents --everywhere` shows who is idle.",
        FederationCode.TIMEOUT: "Give it more time with --timeout, or ask for less at once.",
        FederationCode.NODE_UNREACHABLE: "See `sublet nodes`: is its daemon running, and the network there? "
        "--wait keeps the task until it is.",
        FederationCode.INVALID_PAYLOAD: "See what the message says of it; both sides may need the same version.",
    }
)

_OF_FAILURES: Final[Mapping[str, FederationCode]] = MappingProxyType(
    {
        LocalCode.NOT_FOUND: FederationCode.AGENT_NOT_FOUND,
        LocalCode.NO_ROUTE: FederationCode.AGENT_NOT_FOUND,
        LocalCode.POLICY_DENIED: FederationCode.AGENT_NOT_FOUND,
        LocalCode.UNAVAILABLE: FederationCode.AGENT_BUSY,
        ErrorCode.DECLINED: FederationCode.AGENT_BUSY,
        LocalCode.LEASE_OVER: FederationCode.TIMEOUT,
        ErrorCode.EXPIRED: FederationCode.TIMEOUT,
        LocalCode.INVALID_ARGUMENT: FederationCode.INVALID_PAYLOAD,
        LocalCode.LOOP_REFUSED: FederationCode.INVALID_PAYLOAD,
        LocalCode.DEPTH_REFUSED: FederationCode.INVALID_PAYLOAD,
    }
)


class TaskRefused(Exception):
    """A task is not done, for one of the five reasons.

    Args:
        code: which.
        message: what happened and why, for whoever has asked.
        reason: a word that programs read, beside the code.
    """

    def __init__(self, code: FederationCode, message: str, reason: str = "") -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.reason = reason


def code_of(failure: SubletError) -> FederationCode | None:
    """Return the code of federation for a failure here; None where the agent itself has failed at its task."""
    return _OF_FAILURES.get(failure.code)
