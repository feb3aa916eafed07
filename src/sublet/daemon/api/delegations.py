"""Operations on delegations: lending, following, steering (AWCP 6.6, DESIGN 2).

A new option of a delegation begins here: a field of ``LeaseOptions`` is taken by the control API, by MCP hosts and by
agents at once, and stands in the record. CONTRIBUTING says what else it needs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from pydantic import Field, field_validator

from sublet.daemon.api.audit_models import AuditReport
from sublet.daemon.api.base import MAX_WAIT_SECONDS, Request
from sublet.daemon.api.delegation_fields import (
    DELEGATION,
    Bound,
    BranchName,
    ListNewest,
    OneDelegation,
    OneWithPatch,
    Pattern,
)
from sublet.daemon.api.delegation_views import DelegationView
from sublet.daemon.api.operation import Asks, AsksInside, Hides, Operation
from sublet.policy.decision import Action
from sublet.policy.request_rules import narrowing
from sublet.protocol.bounds import (
    DEMAND,
    MAX_DESCRIPTION_CHARS,
    MAX_PATTERNS,
    MAX_PROMPT_CHARS,
    MAX_RESOURCES,
    MAX_TTL_SECONDS,
    AccessMode,
    GitMode,
    ResultMode,
    TransportWish,
)
from sublet.protocol.errors import SubletError
from sublet.protocol.lease_terms import LeaseTerms

DEFAULT_TTL_SECONDS = 3600
Patterns = Annotated[list[Pattern], Field(max_length=MAX_PATTERNS)]
Demand = Annotated[str, Field(pattern=DEMAND)]
_READS = Asks(Action.DELEGATION_READ, "{delegation_id}")


class ResourceSpec(Request):
    """One more directory to lend beside the first, under its own name in the view."""

    name: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9._-]{0,62}$")]
    path: str = Field(description="Absolute path, on this machine")
    access_mode: AccessMode = "ro"


class LeaseOptions(Request, LeaseTerms):
    """What may be said of a delegation beside what it is about and its terms, by whichever face it is asked for.

    The descriptions are read by people and by models: ``the peer`` is whoever does the work.
    """

    description: Annotated[str, Field(max_length=MAX_DESCRIPTION_CHARS)] | None = Field(
        default=None, description="One line for lists; default: first line of the prompt"
    )
    access_mode: AccessMode = Field(default="rw", description="ro: may only read")
    result_mode: ResultMode = Field(default="live", description="staged: review before anything is changed")
    resources: Sequence[ResourceSpec] = Field(
        default_factory=list,
        max_length=MAX_RESOURCES - 1,
        description="More directories, each seen by the peer as ../name",
    )
    include: Patterns = Field(default_factory=list, description="Only what matches goes along: *.py, docs, src/**")
    exclude: Patterns = Field(default_factory=list, description="What matches stays here")
    git: GitMode = Field(default="hidden", description="How much of .git the peer sees; policy may deny it; not by git")
    reveal: list[str] = Field(default_factory=list, description="Hidden names to show; policy may deny it")
    unlock: Patterns = Field(
        default_factory=list, description="Names that tools execute, to be writable; policy may deny it"
    )
    ttl_seconds: Annotated[int, Field(ge=1, le=MAX_TTL_SECONDS)] = Field(
        default=DEFAULT_TTL_SECONDS, description="Access ends after this many seconds, done or not"
    )
    max_total_bytes: Bound | None = Field(default=None, description="Bytes the peer may add; policy's limit if absent")
    max_files: Bound | None = Field(default=None, description="Files, links and directories the peer may add")
    max_file_bytes: Bound | None = Field(default=None, description="How large a file may grow")
    require_enforced: Annotated[list[Demand], Field(max_length=16)] = Field(
        default_factory=list,
        description="What the peer must enforce, else nothing is lent: cwd_only, allow_network (none), memory, "
        "processes, cpu_time, output, scratch; NAME=true: what it must declare",
    )
    transport: TransportWish = Field(
        default="sshfs", description="archive, git: the peer needs no FUSE; auto: sshfs or archive"
    )
    wait_for_peer: bool = Field(default=False, description="If the peer is offline, keep trying")
    idempotency_key: Annotated[str, Field(max_length=200)] | None = Field(
        default=None, description="A retry with the same key starts nothing new"
    )

    @field_validator("deny", "only")
    @classmethod
    def _names_tools(cls, names: list[str]) -> list[str]:
        try:
            narrowing(names, ())
        except SubletError as error:
            raise ValueError(error.message) from None
        return names


class CreateDelegation(LeaseOptions):
    """Ask for a delegation (AWCP 6.6 ``create_delegation``)."""

    workspace_dir: str = Field(description="Absolute path of the directory to lend, on this machine")
    peer: str = Field(description="Paired peer, `name` or `name/agent`")
    prompt: Annotated[str, Field(min_length=1, max_length=MAX_PROMPT_CHARS)]
    result_branch: BranchName | None = Field(
        default=None, description="Put a staged result on a new git branch of this name when the work is done"
    )
    watch: bool = Field(default=False, description="Tell what others change in it meanwhile, to the peer as well")


class WaitForEnd(OneDelegation):
    """A delegation, and how many seconds to wait for its end."""

    timeout: Annotated[float, Field(ge=0, le=MAX_WAIT_SECONDS)] = 0


class ExtendDelegation(OneDelegation):
    """Lengthen a lease that runs."""

    seconds: Annotated[int, Field(ge=1, le=MAX_TTL_SECONDS)]


class SayMore(OneDelegation):
    """Give the agent a further prompt in the same lease. The same ``follow_up_id`` twice is one follow-up."""

    prompt: Annotated[str, Field(min_length=1, max_length=MAX_PROMPT_CHARS)]
    follow_up_id: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$")] | None = None


CREATE_DELEGATION = Operation(
    "delegations.create",
    "POST",
    "/v1/delegations",
    CreateDelegation,
    DelegationView,
    asks=AsksInside(
        "each directory is asked for by its real path, and each hidden name by itself",
        (Action.DELEGATION_CREATE, Action.WORKSPACE_LEND, Action.WORKSPACE_REVEAL, Action.WORKSPACE_UNLOCK),
    ),
    summary="Record a delegation and return its handle at once; it goes on in the background.",
    status=201,
)
LIST_DELEGATIONS = Operation(
    "delegations.list",
    "GET",
    "/v1/delegations",
    ListNewest,
    list[DelegationView],
    asks=Asks(Action.DELEGATION_READ),
    summary="Return the newest delegations first; an audit in the list names the first few files and counts all.",
    hides=Hides(Action.DELEGATION_READ, "delegation_id"),
)
GET_DELEGATION = Operation(
    "delegations.get",
    "GET",
    DELEGATION,
    OneDelegation,
    DelegationView,
    asks=_READS,
    summary="Return the delegation as it is now; expiry is computed on every read.",
)
WAIT_FOR_END = Operation(
    "delegations.wait",
    "GET",
    f"{DELEGATION}/wait",
    WaitForEnd,
    DelegationView,
    asks=_READS,
    summary="Wait for the end as long as the request says, then return the delegation as it is.",
)
AUDIT_DELEGATION = Operation(
    "delegations.audit",
    "GET",
    f"{DELEGATION}/audit",
    OneWithPatch,
    AuditReport,
    asks=_READS,
    summary="Return what the delegation changed, with the patch where asked for.",
)
CANCEL_DELEGATION = Operation(
    "delegations.cancel",
    "POST",
    f"{DELEGATION}/cancel",
    OneDelegation,
    DelegationView,
    asks=Asks(Action.DELEGATION_CANCEL, "{delegation_id}"),
    summary="Stop the delegation: cut access at once and tell the peer. Cancelling twice is no error.",
)
EXTEND_DELEGATION = Operation(
    "delegations.extend",
    "POST",
    f"{DELEGATION}/extend",
    ExtendDelegation,
    DelegationView,
    asks=AsksInside(
        "rules bound the whole time of the lease, which only its record tells",
        (Action.DELEGATION_READ, Action.DELEGATION_EXTEND),
    ),
    summary="Lengthen the lease, as far as the limits of both sides go; both deadlines move.",
)
SAY_MORE = Operation(
    "delegations.say",
    "POST",
    f"{DELEGATION}/say",
    SayMore,
    DelegationView,
    asks=AsksInside("the answer shows the delegation as well", (Action.DELEGATION_READ, Action.DELEGATION_SAY)),
    summary="Give the agent a further prompt, in the same lease and mount, once it has done what it does.",
)
