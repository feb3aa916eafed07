"""What a peer's task says, once its signatures are checked: ACCEPT, progress, and one DONE or ERROR."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import cast

from a2a.types import Message, Part, Task, TaskState
from google.protobuf.json_format import MessageToDict
from google.protobuf.struct_pb2 import Struct
from pydantic import ValidationError

from sublet.a2a_wire.names import DONE_ARTIFACT, TERMINAL
from sublet.a2a_wire.parts import find_body
from sublet.protocol.canonical import JsonValue, narrow
from sublet.protocol.codec import AnyMessage, decode
from sublet.protocol.errors import ErrorCode, RemoteProtocolError
from sublet.protocol.messages import AWCP_URI, Accept, Done, Error, Progress
from sublet.protocol.signing import verify_message

_WORDLESS = {
    TaskState.TASK_STATE_CANCELED: (ErrorCode.CANCELLED, "the peer cancelled the task"),
    TaskState.TASK_STATE_REJECTED: (ErrorCode.DECLINED, "the peer rejected the task and gave no signed reason"),
    TaskState.TASK_STATE_FAILED: (ErrorCode.TASK_FAILED, "the task failed and the peer gave no signed reason"),
}


class AnswerReader:
    """Reads the answers about one delegation.

    Args:
        delegation_id: what they must be about.
        signer: the peer's pinned raw public key.
        recipient: our own fingerprint.
    """

    def __init__(self, delegation_id: str, signer: bytes, recipient: str) -> None:
        self._delegation_id = delegation_id
        self._signer = signer
        self._recipient = recipient

    def accept(self, task: Task) -> Accept | None:
        """Return the ACCEPT of a task that waits for START, or None where it says something else.

        Raises:
            RemoteProtocolError: its signature is not right.
        """
        answer = self._answer(task.status.message.parts)
        return answer if isinstance(answer, Accept) else None

    def reply(self, message: Message) -> Accept | Error:
        """Return what answers a renewal, made just now.

        Raises:
            RemoteProtocolError: its signature is not right or old, or it is neither ACCEPT nor ERROR.
        """
        answer = self._answer(message.parts, int(time.time()))
        if not isinstance(answer, Accept | Error):
            raise RemoteProtocolError(
                ErrorCode.DECLINED, "the peer answered a renewal with neither ACCEPT nor ERROR", "Update the peer."
            )
        return answer

    def end(self, task: Task) -> Done | Error | None:
        """Return how ``task`` ended, or None while it has not.

        A failure without a signed reason is believed to be one, since that can only cost us a result; a result
        without a signature is not.

        Raises:
            RemoteProtocolError: the DONE is unsigned, or not signed by the pinned key.
        """
        state = task.status.state
        if state not in TERMINAL:
            return None
        if state == TaskState.TASK_STATE_COMPLETED:
            return self._done(task)
        code, message = _WORDLESS[state]
        try:
            answer = self._answer(task.status.message.parts)
        except RemoteProtocolError:
            answer = None
        if isinstance(answer, Error):
            return answer
        return Error(delegation_id=self._delegation_id, code=code, message=message)

    def progress(self, metadata: Struct) -> Progress | None:
        """Return the progress in the metadata of a status update; what is malformed is no progress."""
        if AWCP_URI not in metadata.fields:
            return None
        raw = narrow(cast("JsonValue", MessageToDict(metadata.fields[AWCP_URI])))
        try:
            progress = Progress.model_validate(raw)
        except ValidationError:
            return None
        return progress if progress.delegation_id == self._delegation_id else None

    def _done(self, task: Task) -> Done | Error:
        for artifact in task.artifacts:
            if artifact.artifact_id == DONE_ARTIFACT:
                answer = self._answer(artifact.parts)
                if isinstance(answer, Done):
                    return answer
        return Error(
            delegation_id=self._delegation_id,
            code=ErrorCode.TASK_FAILED,
            message="the peer calls the task completed but gave no DONE",
        )

    def _answer(self, parts: Iterable[Part], now: int | None = None) -> AnyMessage | None:
        body = find_body(parts)
        if body is None:
            return None
        message = decode(body)
        # An answer may be read long after it was made, and it is bound to its delegation, whose id never returns:
        # its age proves nothing and its replay harms nobody.
        at = _signed_at(body) if now is None else now
        verify_message(body, signer=self._signer, recipient=self._recipient, now=at, nonces=None)
        if message.delegation_id != self._delegation_id:
            raise RemoteProtocolError(
                ErrorCode.AUTH_FAILED, "the answer is about another delegation", "Update the peer."
            )
        return message


def _signed_at(body: dict[str, JsonValue]) -> int:
    extension = body.get("sublet")
    signature = extension.get("signature") if isinstance(extension, dict) else None
    at = signature.get("at") if isinstance(signature, dict) else None
    return at if isinstance(at, int) else int(time.time())
