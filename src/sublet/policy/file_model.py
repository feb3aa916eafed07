"""The shape of ``policy.json``; what it does not know is an error (DESIGN 7)."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    JsonValue,
    StrictBool,
    StrictInt,
    model_validator,
)

from sublet.policy.decision import Kind
from sublet.policy.limits import MAX_FILES, Limits
from sublet.policy.rules import Effect
from sublet.policy.sizes import size_written
from sublet.policy.times import DAYS, Times, minute_of_day, zone_named
from sublet.protocol.bounds import DEMAND, MAX_TTL_SECONDS, AccessMode

MAX_TESTS: Final = 1_000
_DEFAULTS: Final = Limits()


def _bytes(value: object) -> object:
    """Return the number that a size such as ``10 MiB`` means; anything else as it is."""
    if not isinstance(value, str):
        return value
    size = size_written(value)
    if size is None:
        raise ValueError("write a whole number, or a size such as '10 MiB'")
    return size


def _minute(text: str) -> str:
    minute_of_day(text)
    return text


def _zone(name: str) -> str:
    zone_named(name)
    return name


Pattern = Annotated[str, Field(min_length=1, max_length=1_000)]
Item = Annotated[str, Field(pattern=DEMAND)]
Role = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9._-]{0,62}$")]
Number = Annotated[StrictInt, BeforeValidator(_bytes)]
Minute = Annotated[str, AfterValidator(_minute)]
Zone = Annotated[str, Field(max_length=64), AfterValidator(_zone)]


class _Model(BaseModel):
    model_config = ConfigDict(defer_build=True, extra="forbid", frozen=True, populate_by_name=True)


class ConditionModel(_Model):
    """What an attribute must be."""

    any_of: Annotated[list[StrictBool | StrictInt | str], Field(min_length=1, max_length=1_000)] | None = None
    like: Pattern | None = None
    min: Number | None = None
    max: Number | None = None
    within: Annotated[list[Pattern], Field(min_length=1, max_length=100)] | Pattern | None = None


class SubjectModel(_Model):
    """Of whom a rule speaks."""

    kind: Kind | None = None
    name: Pattern | None = None
    role: Pattern | None = None


class TimesModel(_Model):
    """When a rule holds."""

    days: Annotated[list[Literal["mon", "tue", "wed", "thu", "fri", "sat", "sun"]], Field(min_length=1)] = [*DAYS]
    start: Minute = Field("00:00", alias="from")
    end: Minute = Field("24:00", alias="to")
    zone: Zone = "UTC"

    @model_validator(mode="after")
    def _some_time(self) -> TimesModel:
        if minute_of_day(self.start) == minute_of_day(self.end):
            raise ValueError("'from' and 'to' are the same minute, so it is never that time")
        if self.start == "24:00":
            raise ValueError("no day has a minute from 24:00 on")
        return self

    def times(self) -> Times:
        """Return it as rules use it."""
        days = frozenset(DAYS.index(day) for day in self.days)
        return Times(minute_of_day(self.start), minute_of_day(self.end), days, zone_named(self.zone))


class RuleModel(_Model):
    """A rule as a policy file writes it: it decides ``action`` on ``resource`` for ``subject`` where ``when`` holds."""

    id: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9._-]{0,99}$")]
    effect: Effect
    action: Annotated[list[Pattern], Field(min_length=1, max_length=100)] | Pattern
    subject: SubjectModel = SubjectModel()
    resource: Pattern = "*"
    when: dict[str, ConditionModel | StrictBool | StrictInt | str] = {}
    times: TimesModel | None = None
    hide: StrictBool = False
    record: StrictBool = False
    reason: Annotated[str, Field(max_length=500)] = ""
    hint: Annotated[str, Field(max_length=500)] = ""


class TestModel(_Model):
    """A question, and the answer that the rules have to give (``sublet policy test``)."""

    __test__ = False

    subject: SubjectModel | Pattern
    action: Pattern
    resource: Annotated[str, Field(max_length=5_000)]
    attributes: dict[str, StrictBool | StrictInt | str | list[str]] = {}
    args: dict[str, JsonValue] = {}
    at: AwareDatetime | None = None
    expect: Literal["allow", "deny", "needs_grant"]
    rule: Pattern | None = None


class AdmissionModel(_Model):
    """How much may be lent."""

    max_total_bytes: Annotated[StrictInt, Field(ge=0)] = _DEFAULTS.admission.max_total_bytes
    max_files: Annotated[StrictInt, Field(ge=0, le=MAX_FILES)] = _DEFAULTS.admission.max_files
    max_file_bytes: Annotated[StrictInt, Field(ge=0)] = _DEFAULTS.admission.max_file_bytes
    max_seconds: Annotated[float, Field(gt=0, le=120)] = _DEFAULTS.admission.max_seconds
    on_sensitive: Literal["hide", "refuse"] = "hide"


class LimitsModel(_Model):
    """What no rule exceeds."""

    max_ttl_seconds: Annotated[StrictInt, Field(ge=1, le=MAX_TTL_SECONDS)] = _DEFAULTS.max_ttl_seconds
    slots: Annotated[StrictInt, Field(ge=0, le=1_000)] = _DEFAULTS.slots
    access_modes: Annotated[list[AccessMode], Field(min_length=1)] = ["ro", "rw"]
    admission: AdmissionModel = AdmissionModel()
    require_enforced: Annotated[list[Item], Field(max_length=16)] = []


class FileModel(_Model):
    """The whole file. Keys of ``role`` are kinds of callers, or roles of agents."""

    version: Annotated[StrictInt, Field(ge=1, le=1)]
    limits: LimitsModel = LimitsModel()
    rules_global: Annotated[list[RuleModel], Field(alias="global")] = []
    role: dict[Role, list[RuleModel]] = {}
    agent: dict[Pattern, list[RuleModel]] = {}
    tests: Annotated[list[TestModel], Field(max_length=MAX_TESTS)] = []
