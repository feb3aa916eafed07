"""Each step of an assignment takes from what the step before it gave."""

from __future__ import annotations

from typing import Any

import pytest

from sublet.protocol.assignment import granting
from sublet.protocol.assignment.granting import GrantedTime
from sublet.protocol.delegation import agreement
from sublet.protocol.errors import ErrorCode, SubletError
from sublet.protocol.messages import Accept, Invite, Start
from sublet.protocol.times import Now, rfc3339_of

NOW = Now(1_000.0, 50.0)


def invite(mode: str = "rw", ttl: int = 60, **sublet: Any) -> Invite:
    return Invite.model_validate(
        {
            "delegation_id": "dlg_1",
            "task": {"description": "d", "prompt": "p"},
            "lease": {"ttl_seconds": ttl, "access_mode": mode},
            "workspace": {"export_name": "awcp/dlg_1"},
            "sublet": sublet,
        }
    )


def accept(mode: str | None = None, ttl: int | None = None, mount: str = "/m", **more: Any) -> Accept:
    constraints = {"accepted_access_mode": mode, "max_ttl_seconds": ttl, "public_key": "k", **more.pop("more", {})}
    return Accept.model_validate(
        {
            "delegation_id": "dlg_1",
            "remote_mount": {"mount_point": mount},
            "remote_constraints": {name: value for name, value in constraints.items() if value is not None},
            "sublet": more,
        }
    )


def start(mode: str = "rw", *, seconds: float = 60.0, transport: str = "sshfs", **sublet: Any) -> Start:
    return Start.model_validate(
        {
            "delegation_id": "dlg_1",
            "lease": {"expires_at": rfc3339_of(NOW.wall + seconds), "access_mode": mode},
            "mount": {
                "endpoint": {"host": "h", "port": 1, "user": "dlg_1"},
                "export_locator": "/",
                "credential": "publickey:none",
                "transport": transport,
            },
            "sublet": {"host_key": "ssh-ed25519 AAAA", **sublet},
        }
    )


@pytest.mark.parametrize(
    ("ttl", "reserved", "seconds"),
    [(60, 60.0, 60.0), (10, 60.0, 15.0), (55, 60.0, 60.0), (54, 60.0, 59.0), (60, 7.0, 7.0)],
)
def test_an_invite_waits_no_longer_than_its_work_could_take(ttl: int, reserved: float, seconds: float) -> None:
    assert granting.start_seconds(ttl, reserved) == seconds
    assert granting.start_seconds(ttl) == min(60.0, ttl + 5.0)


@pytest.mark.parametrize(
    ("asked", "said", "mode", "ttl"),
    [
        (invite("rw", 60), accept("rw", 600), "rw", 60),
        (invite("rw", 60), accept("ro", 30), "ro", 30),
        (invite("ro", 60), accept("rw", 60), "ro", 60),
        (invite("rw", 60), accept(None, None), "rw", 60),
        (invite("rw", 604_800), accept("rw", None), "rw", 604_800),
    ],
)
def test_accept_adds_nothing_to_invite(asked: Invite, said: Accept, mode: str, ttl: int) -> None:
    found = granting.narrowed(asked, said).remote_constraints
    assert (found.accepted_access_mode, found.max_ttl_seconds, found.public_key) == (mode, ttl, "k")


@pytest.mark.parametrize(
    ("proposed", "ttl", "said", "found"),
    [
        ("rw", 60, accept("rw", 600), ("rw", 60)),
        ("rw", 60, accept("ro", 30), ("ro", 30)),
        ("ro", 60, accept("rw", 30), ("ro", 30)),
        ("rw", 60, accept(None, None), ("rw", 60)),
    ],
)
def test_a_delegator_takes_no_more_than_it_proposed(proposed: Any, ttl: int, said: Accept, found: Any) -> None:
    assert agreement.narrowed(proposed, ttl, said) == found


@pytest.mark.parametrize(
    ("mount", "absolute"), [("/m", True), ("C:\\m", True), ("m", False), ("", False), ("./m", False), ("C:m", False)]
)
def test_a_mount_point_is_absolute_on_some_machine(mount: str, absolute: bool) -> None:
    said = accept().model_copy(update={"remote_mount": accept().remote_mount.model_copy(update={"mount_point": mount})})
    if absolute:
        agreement.check_mount_point(said)
        return
    with pytest.raises(SubletError) as refused:
        agreement.check_mount_point(said)
    assert refused.value.code is ErrorCode.MOUNTPOINT_DENIED


def test_an_executor_enforces_what_is_required_and_uses_what_was_offered() -> None:
    said = accept(sandbox_enforced=["memory", "cwd_only", "memory"])
    assert agreement.enforced_by(said) == ["cwd_only", "memory"]
    agreement.check_enforced(["memory"], said, "bob")
    with pytest.raises(SubletError, match=r"bob.*processes") as refused:
        agreement.check_enforced(["memory", "processes"], said, "bob")
    assert refused.value.code is ErrorCode.DECLINED
    agreement.check_transport(["x", "sshfs"], said)
    with pytest.raises(SubletError) as other:
        agreement.check_transport(["x"], said)
    assert other.value.code is ErrorCode.DEP_MISSING


def test_work_goes_on_under_a_new_process_where_no_secret_is_needed() -> None:
    assert agreement.resumable(accept(renewable=True))
    assert not agreement.resumable(accept(renewable=False))
    assert not agreement.resumable(None)
    bare = accept(renewable=True)
    bare = bare.model_copy(
        update={"remote_constraints": bare.remote_constraints.model_copy(update={"public_key": None})}
    )
    assert not agreement.resumable(bare)


@pytest.mark.parametrize(
    ("said", "begun", "seconds"),
    [
        (accept("rw", 600), start(), 60.0),
        (accept("rw", 30), start(), 30.0),
        (accept("rw", None), start(), 60.0),
        (accept("ro", 600), start("ro"), 60.0),
        (accept("rw", 600), start("ro"), 60.0),
        (accept("rw", 600), start(remaining_seconds=7), 7.0),
        (accept("rw", 600), start(seconds=0.5), 0.5),
        (accept("ro", 600), start("rw"), ErrorCode.DECLINED),
        (accept("rw", 600), start(transport="other"), ErrorCode.DECLINED),
        (accept("rw", 600), start(seconds=0), ErrorCode.START_EXPIRED),
        (accept("rw", 600), start(seconds=-1), ErrorCode.START_EXPIRED),
        (accept("rw", 600), start(host_key=None), ErrorCode.AUTH_FAILED),
    ],
)
def test_start_gives_no_more_than_was_accepted(said: Accept, begun: Start, seconds: float | ErrorCode) -> None:
    if isinstance(seconds, float):
        assert granting.seconds_left(said, begun, NOW) == pytest.approx(seconds)
        return
    with pytest.raises(SubletError) as refused:
        granting.seconds_left(said, begun, NOW)
    assert refused.value.code is seconds


def test_a_grant_ends_no_later_than_another() -> None:
    grant, other = GrantedTime(60.0, 90.0, 50.0), GrantedTime(30.0, 30.0, 60.0)
    assert (grant.until, other.until) == (110.0, 90.0)
    assert grant.within(other) == GrantedTime(40.0, 90.0, 50.0)
    assert other.within(grant) == other
    assert grant.expires_at(start(seconds=90)) == rfc3339_of(NOW.wall + 60)


def test_two_invites_are_the_same_whatever_their_signatures() -> None:
    signature = {"key": "k", "recipient": "SHA256:" + "A" * 43, "nonce": "0" * 32, "at": 5, "value": "v"}
    assert granting.same_invite(invite(), invite(signature=signature))
    assert not granting.same_invite(invite(), invite(ttl=61))
