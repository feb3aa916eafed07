"""Bounds of policy: a request narrows them, and none is widened."""

from __future__ import annotations

import pytest

from sublet.policy.limits import AdmissionLimits, Limits
from sublet.protocol.errors import LocalCode, SubletError

LIMITS = AdmissionLimits(max_total_bytes=100, max_files=10, max_file_bytes=50, max_seconds=3.0, on_sensitive="refuse")
NAMES = ("max_total_bytes", "max_files", "max_file_bytes")


def asked(**wanted: int) -> AdmissionLimits:
    return LIMITS.quota(*(wanted.get(name) for name in NAMES))


def test_what_is_not_asked_for_is_the_limit() -> None:
    assert asked() == LIMITS


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("less", [0, 1])
def test_a_request_narrows_one_bound_and_leaves_the_others(name: str, less: int) -> None:
    limit: int = getattr(LIMITS, name)
    for wanted in (0, limit - less):
        narrowed = asked(**{name: wanted})
        assert getattr(narrowed, name) == wanted
        assert [getattr(narrowed, other) for other in NAMES if other != name] == [
            getattr(LIMITS, other) for other in NAMES if other != name
        ]
        assert (narrowed.max_seconds, narrowed.on_sensitive) == (3.0, "refuse")


@pytest.mark.parametrize("name", NAMES)
def test_a_request_widens_nothing(name: str) -> None:
    with pytest.raises(SubletError) as refused:
        asked(**{name: getattr(LIMITS, name) + 1})
    assert refused.value.code == LocalCode.POLICY_DENIED
    assert name in refused.value.message
    assert f"limits.admission.{name}" in refused.value.hint


def test_what_holds_where_nothing_is_said() -> None:
    limits = Limits()
    assert (limits.max_ttl_seconds, limits.slots, limits.access_modes) == (604_800, 5, ("ro", "rw"))
    assert limits.require_enforced == ()
    assert limits.admission == AdmissionLimits(2 << 30, 100_000, 512 << 20, 10.0, "hide")
