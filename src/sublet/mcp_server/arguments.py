"""What the tools take. Unknown names are errors, since a misspelt argument that is ignored does something else."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping, Sequence
from typing import Annotated, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError, field_validator, model_validator
from pydantic.config import JsonDict

from sublet.daemon.api.base import MAX_WAIT_SECONDS
from sublet.daemon.api.delegations import LeaseOptions, Patterns, ResourceSpec
from sublet.mcp_server.answers import ReviewAction, Section
from sublet.protocol.bounds import (
    MAX_PROMPT_CHARS,
    MAX_RESOURCES,
    MAX_TTL_SECONDS,
)
from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.idle_fields import refuse_idle
from sublet.protocol.ids import is_panel
from sublet.protocol.near import did_you_mean
from sublet.protocol.panels import MAX_CHECK_CHARS, MAX_MEMBERS, MIN_MEMBERS
from sublet.protocol.text import clean_line
from sublet.protocol.wire import DelegationId

MAX_PATH_CHARS = 4096
MAX_PEER_CHARS = 200
MAX_KEY_CHARS = 200
MAX_FAULTS = 5
MAX_FAULT_CHARS = 400

Cursor = Annotated[str, StringConstraints(pattern=r"^[0-9]{1,18}(:[0-9]{1,12})?$")]


def _text_of(value: object) -> object:
    """Return a cursor that came as a number as the text that it is."""
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


def _no_default(schema: JsonDict) -> None:
    """Leave the default out of ``schema`` where it stands for nothing that may be given."""
    schema.pop("default", None)


def absolute(value: str) -> str:
    """Return ``value`` where it is an absolute path.

    Raises:
        ValueError: it would be taken relative to the daemon, which is somewhere else (C01).
    """
    if not posixpath.isabs(value) or "\0" in value:
        raise ValueError("must be an absolute path on the machine that this MCP server runs on")
    return value


class Arguments(BaseModel):
    """Base of all arguments."""

    model_config = ConfigDict(defer_build=True, extra="forbid", frozen=True)

    @classmethod
    def listed(cls) -> str:
        """Return the names of all arguments, and which need not be given."""
        fields = cls.model_fields.items()
        return ", ".join(name if field.is_required() else f"{name} (optional)" for name, field in fields)


class Resource(ResourceSpec):
    """One more directory to lend, beside the first."""

    path: Annotated[str, Field(max_length=MAX_PATH_CHARS)] = Field(description="Absolute path, on this machine")

    @field_validator("path")
    @classmethod
    def _is_absolute(cls, value: str) -> str:
        return absolute(value)


BEGINS = ("workspace_dir", "peer", "prompt")
"""What a new delegation can't do without."""
SAYS = frozenset({"delegation_id", "prompt", "idempotency_key", "background"})
EXTENDS = frozenset({"delegation_id", "ttl_seconds", "background"})


class Subjects(Arguments):
    """What ``delegate`` is about: a new delegation, or with ``delegation_id`` one that runs."""

    workspace_dir: Annotated[str, Field(max_length=MAX_PATH_CHARS)] = Field(
        default="",
        json_schema_extra=_no_default,
        description="Absolute path of the directory to lend, on this machine",
    )
    peer: Annotated[str, Field(min_length=1, max_length=MAX_PEER_CHARS)] = Field(
        default="",
        json_schema_extra=_no_default,
        description="`peer`, `peer/agent`, `agent@node`, `capability:x`; see directory",
    )
    prompt: Annotated[str, Field(min_length=1, max_length=MAX_PROMPT_CHARS)] = Field(
        default="",
        json_schema_extra=_no_default,
        description="Complete brief: the peer sees the directory and this text, nothing else",
    )
    delegation_id: DelegationId = Field(
        default="",
        json_schema_extra=_no_default,
        description="Instead of workspace_dir and peer: one that runs, to send it a prompt or add ttl_seconds",
    )


class OfPanel(Arguments):
    """What ``delegate`` takes for a panel, which has several agents at once."""

    panel: Annotated[int, Field(ge=MIN_MEMBERS, le=MAX_MEMBERS)] | None = Field(
        default=None, description="So many agents at once, each a staged copy; peer: capability:x, or several by commas"
    )
    check: Annotated[str, Field(min_length=1, max_length=MAX_CHECK_CHARS)] | None = Field(
        default=None, description="panel: command run on each result, sandboxed"
    )
    first_pass: bool = Field(default=False, description="panel: stop the others once one passes check")
    agent_seconds: Annotated[int, Field(ge=1, le=MAX_TTL_SECONDS)] | None = Field(
        default=None, description="panel: stop all after so long, times added"
    )


class Delegate(OfPanel, LeaseOptions, Subjects):
    """Arguments of ``delegate``: of a new delegation, or with ``delegation_id`` of what steers one that runs.

    Its options are those of the control API; here stand those alone that hosts are given narrower bounds for.
    """

    resources: Sequence[Resource] = Field(
        default_factory=list,
        max_length=MAX_RESOURCES - 1,
        description="More directories, each seen by the peer as ../name",
    )
    reveal: Patterns = Field(default_factory=list, description="Hidden names to show; policy may deny it")
    deny: list[str] = Field(default_factory=list, description="Tools its agent is denied")
    only: list[str] = Field(default_factory=list, description="Its only tools: file.*")
    idempotency_key: Annotated[str, Field(min_length=1, max_length=MAX_KEY_CHARS)] | None = Field(
        default=None, description="A retry with the same key starts nothing new"
    )
    background: bool = Field(default=True, description="false: wait up to 45 s for the end")

    @classmethod
    def listed(cls) -> str:
        """``Arguments.listed``."""
        more = ", ".join(name for name in cls.model_fields if name not in (*BEGINS, "delegation_id"))
        return (
            f"{', '.join(BEGINS)} and, optional, {more}; "
            "or delegation_id with either prompt (and idempotency_key) or ttl_seconds, and background"
        )

    @field_validator("workspace_dir")
    @classmethod
    def _absolute(cls, value: str) -> str:
        return absolute(value)

    @model_validator(mode="after")
    def _begins_or_steers(self) -> Self:
        given = self.model_fields_set
        if "delegation_id" not in given:
            if missing := [name for name in BEGINS if name not in given]:
                raise ValueError(
                    "; ".join(f"argument {name!r} is missing" for name in missing)
                    + "; or give the delegation_id of one that runs, and a prompt or ttl_seconds"
                )
            if self.panel is None:
                refuse_idle(self, "can't go without panel", "check", "first_pass", "agent_seconds")
            elif "result_mode" in given and self.result_mode != "staged":
                raise ValueError("result_mode can't go with panel, whose results are staged")
            elif self.check is None:
                refuse_idle(self, "can't go without check", "first_pass")
            return self
        if ("prompt" in given) == ("ttl_seconds" in given):
            raise ValueError(
                "with delegation_id give either prompt, to say what to do next, or ttl_seconds, to give more time; "
                "for both call twice"
            )
        allowed = SAYS if "prompt" in given else EXTENDS
        if mixed := sorted(given - allowed):
            raise ValueError(
                f"{', '.join(mixed)} can't go with delegation_id, whose lease is as it was made; "
                "leave that out, or leave out delegation_id for a new delegation"
            )
        return self


class DelegateOutput(Arguments):
    """Arguments of ``delegate_output``."""

    delegation_id: DelegationId
    section: Section = Field(default="log", description="What to page through: log, summary, files or patch")
    cursor: Cursor = Field(default="0", description="next_cursor of the last answer for the same section")
    wait_seconds: Annotated[float, Field(ge=0, le=MAX_WAIT_SECONDS)] = Field(
        default=0, description="Wait this long for news (log) or for the end (other sections)"
    )

    @field_validator("cursor", mode="before")
    @classmethod
    def _as_text(cls, value: object) -> object:
        return _text_of(value)

    @model_validator(mode="after")
    def _all_say_something(self) -> Self:
        if is_panel(self.delegation_id):
            refuse_idle(self, "can't go with a panel; give the delegation_id of a member", "section", "cursor")
        return self


class DelegateCancel(Arguments):
    """Arguments of ``delegate_cancel``."""

    delegation_id: DelegationId


class DelegateReview(Arguments):
    """Arguments of ``delegate_review``."""

    delegation_id: DelegationId
    action: ReviewAction = Field(
        default="diff", description="diff, apply, discard, or undo what was applied or a live lease wrote"
    )
    member: Annotated[int, Field(ge=1, le=MAX_MEMBERS)] | None = Field(
        default=None, description="Of a panel: whose to apply; drops the others"
    )
    partial: bool = Field(default=False, description="apply: with conflicts, apply what has none")
    cursor: Cursor = Field(default="0", description="diff: next_cursor of the last answer")

    @field_validator("cursor", mode="before")
    @classmethod
    def _as_text(cls, value: object) -> object:
        return _text_of(value)

    @model_validator(mode="after")
    def _all_say_something(self) -> Self:
        if self.action != "apply":
            refuse_idle(self, f"can't go with action {self.action}", "partial", "member")
        if self.action != "diff":
            refuse_idle(self, f"can't go with action {self.action}", "cursor")
        if is_panel(self.delegation_id):
            refuse_idle(self, "can't go with a panel; give the delegation_id of a member", "cursor")
        else:
            refuse_idle(self, "can't go without a panel", "member")
        return self


class DirectoryQuery(Arguments):
    """Arguments of ``directory``."""

    cursor: Cursor | DelegationId = Field(default="0", description="next_cursor of the last answer")
    find: Annotated[str, Field(min_length=1, max_length=MAX_PEER_CHARS)] | None = Field(
        default=None, description="`agent@node` or `capability:x`: who that is, and why"
    )

    @field_validator("cursor", mode="before")
    @classmethod
    def _as_text(cls, value: object) -> object:
        return _text_of(value)


ArgumentsT = TypeVar("ArgumentsT", bound=Arguments)


def read_arguments(tool: str, model: type[ArgumentsT], given: Mapping[str, object]) -> ArgumentsT:
    """Return ``given`` as ``model``.

    Raises:
        SubletError: ``INVALID_ARGUMENT``, naming every argument that is wrong and, in the hint, those that exist.
    """
    try:
        return model.model_validate(given)
    except ValidationError as error:
        faults = error.errors(include_url=False, include_context=False)
        said = [_fault(model, item["type"], item["loc"], item["msg"]) for item in faults[:MAX_FAULTS]]
        if len(faults) > MAX_FAULTS:
            said.append(f"and {len(faults) - MAX_FAULTS} more faults")
        message = f"{tool} was not called: {'; '.join(said)}."
        raise SubletError(
            LocalCode.INVALID_ARGUMENT, message, f"The arguments of {tool} are {model.listed()}."
        ) from None


def _fault(model: type[Arguments], kind: str, where: tuple[int | str, ...], message: str) -> str:
    if not where:
        return clean_line(message.removeprefix("Value error, "), MAX_FAULT_CHARS)
    name = clean_line(str(where[0]), 64)
    if kind == "extra_forbidden":
        return f"there is no argument {name!r}" + did_you_mean(name, model.model_fields)
    if kind == "missing":
        return f"argument {name!r} is missing"
    said = clean_line(message.removeprefix("Value error, "), 200)
    return f"{name}: {said[:1].lower()}{said[1:]}"
