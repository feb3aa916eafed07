"""What an assignment tells the delegator while it runs: bounded, and never waited for (AWCP 4.4)."""

from __future__ import annotations

from typing import Literal

import anyio

from sublet.daemon.working.data_link import LinkState
from sublet.protocol.messages import MAX_WAITING_CHARS, Progress
from sublet.protocol.prompt_state import PromptState
from sublet.protocol.text import clean_line
from sublet.supervisor.job import Output, Stream

MAX_PENDING_UPDATES = 256
"""Updates that may wait for the peer's stream; what comes meanwhile is dropped and counted."""

Phase = Literal["mounting", "need_reverse", "running", "unmounting"]


class Updates:
    """Makes the progress of one assignment; ``stream`` yields it until ``close``."""

    def __init__(self, delegation_id: str) -> None:
        self.link: LinkState | None = None
        """Whether the link to the files is up; None as long as it was never lost."""
        self.prompts: tuple[PromptState, ...] = ()
        """How far each prompt is, where there is more than one."""
        self._id = delegation_id
        self._waiting: list[str] = []
        self._question: str | None = None
        self._dropped = 0
        self._send, self.stream = anyio.create_memory_object_stream[Progress](MAX_PENDING_UPDATES)

    def phase(self, phase: Phase) -> None:
        """Tell what is being done."""
        self._tell(phase, "note", "", 0)

    def note(self, text: str) -> None:
        """Tell something of our own while the agent works."""
        self._tell("running", "note", text, 0)

    def waiting(self, what: str | None) -> None:
        """Tell that a person is waited for, and for what; None once one question fewer is open."""
        if what is not None:
            self._waiting.append(what)
        elif self._waiting:
            self._waiting.pop(0)
        self._tell("running", "note", f"{what}\n" if what is not None else "", 0)

    def asking(self, question: str | None, text: str) -> None:
        """Tell that the agent waits for an answer of the delegator's side, and to what; None once it does not."""
        self._question = clean_line(question, MAX_WAITING_CHARS) if question is not None else None
        self._tell("running", "note", text, 0)

    def output(self, output: Output) -> None:
        """Tell what the agent printed."""
        self._tell("running", output.stream, output.text, output.dropped_chars)

    def close(self) -> None:
        """Let the reader see the end."""
        self._send.close()

    def _tell(self, phase: Phase, stream: Stream, text: str, dropped_chars: int) -> None:
        self._dropped += dropped_chars
        update = Progress(
            delegation_id=self._id,
            phase=phase,
            stream=stream,
            # With everything, since whoever reads this may have missed any other update.
            link=self.link,
            prompts=list(self.prompts),
            waiting=self._waiting[0] if self._waiting else None,
            question=self._question,
            text=text,
            dropped_chars=self._dropped,
        )
        try:
            self._send.send_nowait(update)
            self._dropped = 0
        except (anyio.WouldBlock, anyio.BrokenResourceError):
            self._dropped += len(text)
