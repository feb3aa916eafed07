"""What a route is decided from, and what is decided. All of it can be kept, and decided again from what was kept."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints
from pydantic.alias_generators import to_camel

from sublet.policy.decision import Kind
from sublet.supervisor.sessions.session_parts import LastRoute, RouteDecision

MAX_TEXT_JOURNALLED: Final = 20_000
"""Characters of a request's text that ``route_decided`` keeps."""
MAX_CANDIDATES: Final = 64
MAX_MODULES: Final = 256
MAX_REPLY_CHARS: Final = 4_000
MAX_OPTIONS: Final = 8

Confidence = Annotated[float, Field(ge=0, le=1)]
Name = Annotated[str, StringConstraints(min_length=1, max_length=200)]
Words = Annotated[str, StringConstraints(max_length=500)]


class RouterPart(BaseModel):
    """Base: immutable, camelCase where it is kept, and nothing unknown."""

    model_config = ConfigDict(
        defer_build=True, frozen=True, extra="forbid", alias_generator=to_camel, populate_by_name=True
    )


class SkillFacts(RouterPart):
    """One skill of an agent, as its card tells of it."""

    id: Name
    name: Words = ""
    description: Words = ""
    tags: Annotated[tuple[Words, ...], Field(max_length=32)] = ()


class Candidate(RouterPart):
    """An agent that the request could go to.

    Args:
        agent_id: its id.
        role: its role.
        provider: what kind of provider does its work.
        skills: what it can do.
        cost: what it costs, relative to the others; the least is taken where nothing else tells two apart.
        trust: how far its owner trusts it, from 0 to 1; the most trusted is taken where cost is alike.
        load: how much of what it may do at once is under way, from 0 to 1; 1 takes no more.
        denied: why policy lets the caller not have it; empty where it does.
    """

    agent_id: Name
    role: Words = ""
    provider: Words = ""
    skills: Annotated[tuple[SkillFacts, ...], Field(max_length=64)] = ()
    cost: Annotated[float, Field(ge=0, le=1_000_000)] = 1
    trust: Confidence = 1
    load: Annotated[float, Field(ge=0)] = 0
    denied: Words = ""


class RouterConfig(RouterPart):
    """How the router decides where the request itself does not say.

    Args:
        default_route: an agent's id, ``ask_human`` or ``reject``; by default the first agent.
        default_provider: the provider whose agents come first where nothing else tells two apart.
        min_confidence: a person is asked where the router is less sure.
        remember: whether a session goes on with the agent that it had before.
        hub: whether ``/hub MODULE`` is understood.
    """

    default_route: Words = ""
    default_provider: Words = ""
    min_confidence: Confidence = 0.4
    remember: bool = True
    hub: bool = True


class RouteRequest(RouterPart):
    """Everything that a route is decided from.

    Args:
        text: what is asked.
        agent: who is to do it, where the caller named somebody outside of the text.
        candidates: the agents of this daemon, the default one first.
        modules: ids of modules that ``/hub`` reaches.
        last_route: where the session's request before this one went.
        snapshot_changed: whether agents or modules are others than then.
        config: how the router decides.
    """

    text: str
    agent: Words = ""
    candidates: Annotated[tuple[Candidate, ...], Field(max_length=MAX_CANDIDATES)] = ()
    modules: Annotated[tuple[Name, ...], Field(max_length=MAX_MODULES)] = ()
    last_route: LastRoute | None = None
    snapshot_changed: bool = False
    config: RouterConfig = RouterConfig()


class Asker(RouterPart):
    """Who asked, what policy is asked for when such a caller wants an agent, and when, in Unix seconds."""

    kind: Kind
    name: str = ""
    role: str = ""
    action: Words
    at: float


class GivenAnswer(RouterPart):
    """An answer from which a route came: its text, and the options that there were."""

    text: str
    options: Annotated[tuple[Name, ...], Field(max_length=MAX_OPTIONS)] = ()


class Route(RouterPart):
    """What is decided.

    Args:
        decision: one of five.
        target: the agent's or module's id; empty for the others.
        confidence: how sure it is, from 0 to 1.
        reason: why, in one sentence.
        rule: the rule that decided.
        message: what the target is given, without what addressed it; or the reply, or the question.
        options: between whom a person chooses.
    """

    decision: RouteDecision
    target: Words = ""
    confidence: Confidence
    reason: Words
    rule: Literal[
        "hub",
        "command",
        "named",
        "mention",
        "only",
        "remembered",
        "skills",
        "classifier",
        "default",
        "answer",
        "guardrail",
        "agent",
        "none",
    ]
    message: str = ""
    options: Annotated[tuple[Name, ...], Field(max_length=MAX_OPTIONS)] = ()


class Classification(RouterPart):
    """What a classifier proposes. It grants nothing: a target that is not among the candidates does not count."""

    decision: RouteDecision
    target: Words = ""
    confidence: Confidence
    reason: Annotated[str, StringConstraints(max_length=300)] = ""
    reply: Annotated[str, StringConstraints(max_length=MAX_REPLY_CHARS)] = ""
