"""What is kept of a checked reply, so that the same check can be made again (SuperAgent 10 and 12, DESIGN 7).

Under a mask, nothing beyond it is kept: the values that were found in the reply, masked, stand for the reply.
"""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError

from sublet.policy.guardrail.check import Examined, Passed, examine, judge
from sublet.policy.guardrail.extract import Candidate, ReplyPlace
from sublet.policy.guardrail.failure import Failed
from sublet.policy.guardrail.mask import Mask
from sublet.policy.guardrail.relaxed import Mend
from sublet.policy.guardrail.schema import CheckedSchema
from sublet.protocol.documents import Document, Documented, document

MAX_KEPT_CHARS: Final = 64 * 1024
"""Of a reply that is kept; of a longer one, what it was is not known later."""
TOO_LONG: Final = "the reply was too long to be kept"
NOTHING_WITHIN: Final = "under a mask only its fields are kept, and the reply held none"
SCHEMA: Final = "schema"
KEPT: Final = "kept"
NOT_KEPT: Final = "notKept"


def evidence(reply: str, schema: CheckedSchema, mask: Mask | None) -> Documented:
    """Return what is to be kept of a check of ``reply``, whatever came of it."""
    rules = document(schema.document)
    found, why = _kept(reply, mask)
    fields: JsonValue = None if mask is None else list(mask.fields)
    data: dict[str, JsonValue] = {
        SCHEMA: None if rules is None else rules.digest,
        "mask": fields,
        KEPT: None if found is None else found.digest,
    }
    if why:
        data[NOT_KEPT] = why
    return Documented(data, tuple(one for one in (rules, found) if one is not None))


def judge_again(schema: CheckedSchema, kept: JsonValue) -> Passed | Failed:
    """Make a check again from what was kept of it.

    Args:
        schema: the schema of then.
        kept: what stands for the reply.

    Raises:
        ValueError: what was kept can't be read.
    """
    try:
        found = _File.model_validate(kept)
    except ValidationError:
        raise ValueError("what was kept of the reply can't be read") from None
    if found.reply is not None:
        examined = examine(found.reply)
        return examined if isinstance(examined, Failed) else judge(examined, schema)
    candidates = tuple(Candidate(one.value, ReplyPlace(one.place), frozenset(one.mends)) for one in found.found)
    # They are masked already; a second time, an index would name another item.
    return judge(Examined(candidates, found.count), schema)


def _kept(reply: str, mask: Mask | None) -> tuple[Document | None, str]:
    if len(reply) > MAX_KEPT_CHARS:
        return None, TOO_LONG
    if mask is None or not reply.strip():
        return document({"reply": reply}), ""
    examined = examine(reply)
    if isinstance(examined, Failed):
        return None, NOTHING_WITHIN
    found: list[JsonValue] = []
    for one in examined.candidates:
        mends: list[JsonValue] = [*sorted(one.mends)]
        found.append({"value": mask.kept(one.value), "place": int(one.place), "mends": mends})
    return document({"found": found, "count": examined.count}), ""


class _Found(BaseModel):
    model_config = ConfigDict(defer_build=True, extra="forbid")

    value: JsonValue
    place: Annotated[int, Field(ge=0, le=max(ReplyPlace))]
    mends: list[Mend]


class _File(BaseModel):
    model_config = ConfigDict(defer_build=True, extra="forbid")

    reply: str | None = None
    found: list[_Found] = []
    count: int = 0
