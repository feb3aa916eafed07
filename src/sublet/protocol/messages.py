"""AWCP v1 messages of profile S (AWCP 4) and the ``sublet`` object that carries what the spec has no field for.

Fields and their names are those of the spec. Unknown fields are ignored, so a plain AWCP v1 peer works; known ones
are bounded, so that nothing from the wire is larger or stranger than the rest of the product expects.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal, TypeAlias

from pydantic import Field, StringConstraints, TypeAdapter, model_validator

from sublet.protocol.bounds import MAX_FOLLOW_UPS, MAX_RESOURCES, MAX_TTL_SECONDS, AccessMode, ResultMode
from sublet.protocol.chain import MAX_ADDRESS_CHARS, MAX_CHAIN, Chain
from sublet.protocol.errors import ErrorCode
from sublet.protocol.lease_terms import LeaseTerms
from sublet.protocol.patterns import Pattern
from sublet.protocol.prompt_state import PromptState
from sublet.protocol.wire import (
    DelegationId,
    EntityName,
    Long,
    Name,
    Path,
    Port,
    RoomName,
    Short,
    SubletExtension,
    Timestamp,
    Token,
    Ttl,
    Wire,
)

AWCP_URI = "https://awcp-protocol.org/v1"
AWCP_VERSION = "1"
AWCP_MEDIA_TYPE = "application/vnd.awcp+json"
PART_KEY = "awcp"

MAX_HIGHLIGHTS = 200
MAX_ERROR_CHARS = 8_000
MAX_WAITING_CHARS = 1_000

DataPath: TypeAlias = Literal["direct", "reverse"]


class Task(Wire):
    """What is to be done (AWCP 4.1)."""

    description: Short
    prompt: Long


class ProposedLease(Wire):
    """Duration and access that the delegator proposes (AWCP 4.1)."""

    ttl_seconds: Ttl
    access_mode: AccessMode


class Workspace(Wire):
    """Logical name of what is lent, never a real path (AWCP 4.1)."""

    export_name: Short


class Requirements(Wire):
    """What the executor must be able to do (AWCP 4.1)."""

    transport: Short = "sshfs"


class LentResource(Wire):
    """One of several directories of a delegation: its name in the view and the access it is lent with."""

    name: Name
    access_mode: AccessMode


class ChainExtension(Wire):
    """Who called whom until this delegation was asked for, and how long the last caller's own lease lasts."""

    execution_chain: list[Annotated[str, StringConstraints(min_length=3, max_length=MAX_ADDRESS_CHARS)]] = Field(
        min_length=1, max_length=MAX_CHAIN, description="Addresses agent@node, the first caller first"
    )
    lease_id: Short
    ttl: Annotated[int, Field(ge=0, le=MAX_TTL_SECONDS)] | None = Field(
        default=None, description="Seconds from the sending of the first INVITE"
    )

    @classmethod
    def of(cls, chain: Chain) -> ChainExtension | None:
        """Return ``chain`` as it travels; None where a person asks."""
        if not chain.execution_chain:
            return None
        ttl = None if chain.ttl is None else int(chain.ttl)
        return cls(execution_chain=list(chain.execution_chain), lease_id=chain.lease_id, ttl=ttl)

    def chain(self) -> Chain:
        """Return what was sent, as it was sent: nothing of it is checked yet."""
        return Chain(tuple(self.execution_chain), self.lease_id, self.ttl)


class InviteExtension(SubletExtension):
    """INVITE beyond the spec.

    ``resources`` is empty where one directory is lent, which the view shows as ``/workspace``.
    """

    agent: Name | None = Field(default=None, description="Which of the executor's named agents is asked for")
    transports: list[Short] = Field(
        default_factory=lambda: ["sshfs"], max_length=8, description="What the delegator serves, the best first"
    )
    result_mode: ResultMode = "live"
    resources: list[LentResource] = Field(default_factory=list, max_length=MAX_RESOURCES)
    chain: ChainExtension | None = Field(default=None, description="Where an agent asks; absent for a person")
    require_enforced: list[Short] = Field(
        default_factory=list,
        max_length=16,
        description="What the executor has to enforce, not only declare: items of sandbox_profile and resource limits",
    )
    terms: LeaseTerms = Field(
        default=LeaseTerms(), description="What may be done less than access_mode says; the delegator enforces it"
    )


class Invite(Wire):
    """Delegator asks for help; carries no credential (AWCP 4.1)."""

    version: Literal["1"] = "1"
    type: Literal["INVITE"] = "INVITE"
    delegation_id: DelegationId
    task: Task
    lease: ProposedLease
    workspace: Workspace
    requirements: Requirements = Requirements()
    sublet: InviteExtension = InviteExtension()


class RemoteMount(Wire):
    """Where the executor will mount the view (AWCP 4.2)."""

    mount_point: Path


class SandboxProfile(Wire):
    """What the executor's agent may do there (AWCP 4.2, 7.2)."""

    cwd_only: bool
    allow_network: bool
    allow_exec: bool


class RemoteConstraints(Wire):
    """How far the executor narrows the lease (AWCP 4.2)."""

    accepted_access_mode: AccessMode | None = None
    max_ttl_seconds: Ttl | None = None
    sandbox_profile: SandboxProfile | None = None
    public_key: Token | None = Field(
        default=None, description="OpenSSH public key line whose private half the executor keeps in memory"
    )


class ReverseEndpoint(Wire):
    """Where the executor accepts a connection over which the delegator serves SFTP."""

    port: Port


class AcceptExtension(SubletExtension):
    """ACCEPT beyond the spec."""

    reverse: ReverseEndpoint | None = None
    sandbox_enforced: list[Short] = Field(
        default_factory=list,
        max_length=16,
        description="Items of sandbox_profile and resource limits enforced here, not only declared",
    )
    transport: Short = Field(default="sshfs", description="Which of the offered transports the executor will use")
    renewable: bool = Field(
        default=False, description="Whether START may be sent again while the work runs, to renew or extend the lease"
    )
    entity: EntityName | None = Field(
        default=None, description="As whom its agent speaks in rooms (ezagent); absent where it does not"
    )


class Accept(Wire):
    """Executor agrees and names its mount point (AWCP 4.2)."""

    type: Literal["ACCEPT"] = "ACCEPT"
    delegation_id: DelegationId
    remote_mount: RemoteMount
    remote_constraints: RemoteConstraints = RemoteConstraints()
    sublet: AcceptExtension = AcceptExtension()


class ActiveLease(Wire):
    """The lease as it is in force (AWCP 4.3)."""

    expires_at: Timestamp
    access_mode: AccessMode


class Endpoint(Wire):
    """Where the delegator's SFTP server listens (AWCP 4.3)."""

    host: Short
    port: Port
    user: Short


class Mount(Wire):
    """How to reach the view (AWCP 4.3). ``mount_options`` is read by nobody: options never come from the wire."""

    transport: Short = "sshfs"
    endpoint: Endpoint
    export_locator: Path
    credential: Annotated[str, StringConstraints(max_length=16_384)] = Field(repr=False)


class FollowUp(Wire):
    """A further prompt for the agent, in the same assignment and mount."""

    id: DelegationId = Field(description="Makes sending it twice harmless")
    prompt: Long


class StartExtension(SubletExtension):
    """START beyond the spec.

    A START for work that runs already renews it, where ACCEPT said ``renewable``: the executor goes on with the
    endpoint and the time that it names. ``generation`` grows with every process of the delegator's that has taken the
    delegation over; an older one is refused.
    """

    host_key: Token | None = Field(default=None, description="OpenSSH public host key line to pin")
    remaining_seconds: Annotated[int, Field(ge=0, le=MAX_TTL_SECONDS)] | None = None
    data_path: DataPath = "direct"
    generation: Annotated[int, Field(ge=1, le=1_000_000)] = 1
    follow_up: FollowUp | None = None
    room_id: RoomName | None = Field(
        default=None, description="The room (ezagent) of both sides, which the delegator's daemon has opened"
    )


class Start(Wire):
    """Delegator authorises and hands over the credential (AWCP 4.3)."""

    type: Literal["START"] = "START"
    delegation_id: DelegationId
    lease: ActiveLease
    mount: Mount
    sublet: StartExtension = StartExtension()


Prompts = Annotated[list[PromptState], Field(max_length=MAX_FOLLOW_UPS + 1)]


class DoneExtension(SubletExtension):
    """DONE beyond the spec."""

    exit_code: int | None = None
    link_losses: Annotated[int, Field(ge=0)] = Field(
        default=0, description="How often the mount lost its link and got it back while the work ran"
    )
    interrupted_operations: Annotated[int, Field(ge=0)] = Field(
        default=0, description="Calls in the mount that ended with an I/O error for that"
    )
    prompts: Prompts = Field(
        default_factory=list, description="How each prompt ended, in order, where there was more than one"
    )


class Done(Wire):
    """Executor has finished (AWCP 4.4)."""

    type: Literal["DONE"] = "DONE"
    delegation_id: DelegationId
    final_summary: Long
    highlights: list[Path] = Field(default_factory=list, max_length=MAX_HIGHLIGHTS)
    notes: Long = ""
    sublet: DoneExtension = DoneExtension()


class ErrorExtension(SubletExtension):
    """ERROR beyond the spec."""

    exit_code: int | None = None
    reason: Short | None = Field(default=None, description="failed, timeout, limit, cancelled or crashed")
    retry_after_seconds: Annotated[int, Field(ge=0)] | None = None
    output_tail: Annotated[str, StringConstraints(max_length=MAX_ERROR_CHARS)] | None = Field(
        default=None, description="End of what the agent printed, with its line breaks"
    )
    prompts: Prompts = Field(
        default_factory=list, description="How each prompt ended, in order, where there was more than one"
    )
    grace_seconds: Annotated[int, Field(ge=0, le=60)] = Field(
        default=0,
        description="To an executor whose work runs: how long the agent may still go on, to end by itself",
    )


_CODE = Pattern(r"[A-Z][A-Z0-9_]{0,63}\Z")


class Error(Wire):
    """Either side refuses, fails or aborts (AWCP 4.5).

    The spec only suggests its codes. One that is not ours is read as ``TASK_FAILED`` and stays visible in the message.
    """

    type: Literal["ERROR"] = "ERROR"
    delegation_id: DelegationId
    code: ErrorCode = Field(strict=False)
    message: Annotated[str, StringConstraints(max_length=MAX_ERROR_CHARS)]
    hint: Annotated[str, StringConstraints(max_length=MAX_ERROR_CHARS)] = ""
    sublet: ErrorExtension = ErrorExtension()

    @model_validator(mode="before")
    @classmethod
    def _foreign_code(cls, data: object) -> object:
        if not isinstance(data, Mapping):
            return data
        code, message = data.get("code"), data.get("message")
        if not isinstance(code, str) or not isinstance(message, str) or code in set(ErrorCode) or not _CODE.match(code):
            return data
        return {**data, "code": ErrorCode.TASK_FAILED, "message": f"{code}: {message}"[:MAX_ERROR_CHARS]}


class Progress(Wire):
    """What travels in a status update's metadata under the extension URI while the task works."""

    type: Literal["PROGRESS"] = "PROGRESS"
    delegation_id: DelegationId
    phase: Literal["mounting", "need_reverse", "running", "unmounting"]
    stream: Literal["stdout", "stderr", "note"] = "note"
    link: Literal["up", "down"] | None = Field(
        default=None, description="Told when the mount loses its link and when it has it back; text says why"
    )
    prompts: Prompts = Field(
        default_factory=list,
        description="How far the agent is with each prompt, where there is more than one; with every update, since any "
        "other may have been missed",
    )
    waiting: Annotated[str, StringConstraints(max_length=MAX_WAITING_CHARS)] | None = Field(
        default=None, description="While the agent waits for a person over there to approve a call: for what"
    )
    question: Annotated[str, StringConstraints(max_length=MAX_WAITING_CHARS)] | None = Field(
        default=None, description="While the agent waits for an answer of the delegator's side: what it asks"
    )
    text: Annotated[str, StringConstraints(max_length=65_536)] = ""
    dropped_chars: Annotated[int, Field(ge=0)] = 0


Message: TypeAlias = Annotated[Invite | Accept | Start | Done | Error, Field(discriminator="type")]
MESSAGE_ADAPTER: TypeAdapter[Invite | Accept | Start | Done | Error] = TypeAdapter(Message)
