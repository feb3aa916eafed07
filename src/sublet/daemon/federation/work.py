"""Has agents of ours do the tasks of other nodes: through the supervisor, like any request."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from typing import Protocol

from sublet.daemon.api.sessions import AskAnswer, AskBegun, AskOutput
from sublet.federation.ports import AdmittedTask, Said
from sublet.policy.decision import Subject
from sublet.protocol.chain import Chain
from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.federation.events import MAX_OUTPUT_CHARS, TaskResult

MAX_SESSIONS_OF_NODE = 50
"""Sessions that tasks of one node have begun; the one that was used last is the last to go."""


class AsksAgent(Protocol):
    """Brings a text to one agent of ours."""

    def __call__(
        self, agent_id: str, text: str, caller: Subject, owner: str, chain: Chain
    ) -> AsyncGenerator[AskBegun | AskOutput | AskAnswer, None]:
        """Have the supervisor see to it, as whoever has admitted it needs it.

        Raises:
            SubletError: what the work fails with.
        """


class NodeWork:
    """Implements ``Work``.

    Args:
        ask: brings a text to an agent.
        make_room: forgets old sessions of an owner, so that one more makes at most as many.
    """

    def __init__(self, ask: AsksAgent, make_room: Callable[[str, int], Awaitable[None]]) -> None:
        self._ask = ask
        self._make_room = make_room

    async def run(self, task: AdmittedTask) -> AsyncGenerator[Said | TaskResult, None]:
        """``Work.run``."""
        owner = f"node:{task.node.id}"
        await self._make_room(owner, MAX_SESSIONS_OF_NODE)
        caller = Subject("node", task.name)
        async with aclosing(self._ask(task.agent_id, prompt_of(task), caller, owner, task.chain)) as updates:
            async for update in updates:
                if isinstance(update, AskOutput) and update.stream == "stdout":
                    yield Said(update.text)
                elif isinstance(update, AskAnswer):
                    yield result_of(update)
                    return


def prompt_of(task: AdmittedTask) -> str:
    """Return what the agent is asked: what the other node says beside the prompt is named as that."""
    payload = task.request.task
    parts = [payload.prompt]
    if payload.context:
        parts.append(f"Context, as {task.request.from_agent} gives it:\n{payload.context}")
    if payload.system_prompt:
        parts.insert(0, f"{task.request.from_agent} asks you to work as follows:\n{payload.system_prompt}")
    return "\n\n".join(parts)


def result_of(answer: AskAnswer) -> TaskResult:
    """Return what came of a request in the words of federation.

    Raises:
        SubletError: ``NO_ROUTE`` where the request was rejected.
    """
    if answer.route_decision == "reject":
        raise SubletError(LocalCode.NO_ROUTE, answer.reason)
    if answer.question is not None:
        said = f"the agent asks, and nobody is there to answer: {answer.question}"
        return TaskResult(success=False, output=said[:MAX_OUTPUT_CHARS], exit_code=-1, metadata={"reason": "question"})
    output = answer.result or ""
    metadata = {"truncated": True} if len(output) > MAX_OUTPUT_CHARS else {}
    return TaskResult(success=True, output=output[:MAX_OUTPUT_CHARS], exit_code=0, metadata=dict(metadata))
