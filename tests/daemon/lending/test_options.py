"""What options of a delegation forbid each other, and which transports are offered for what is left."""

from __future__ import annotations

import pytest

from sublet.daemon.api.delegations import CreateDelegation
from sublet.daemon.lending.options import check_options, offered_transports
from sublet.protocol.errors import LocalCode, SubletError

UNFIT: list[tuple[dict[str, object], str]] = [
    ({"writable": ["src"], "access_mode": "ro"}, "writable can't be had here"),
    ({"no_delete": True, "access_mode": "ro"}, "nothing is lent for writing"),
    ({"no_delete": True, "transport": "archive"}, "transport archive brings changed files back as new ones"),
    ({"no_delete": True, "transport": "git"}, "transport git brings changed files back as new ones"),
    ({"no_delete": True, "git": "rw"}, "git replaces files of the repository"),
    ({"result_mode": "staged", "git": "rw"}, "a staged lease can't have the repository for writing"),
    ({"result_mode": "staged", "watch": True}, "there is nothing to watch"),
    ({"result_branch": "work"}, "result_branch needs result_mode staged"),
    ({"transport": "git", "git": "ro"}, "transport git gives the agent a repository of its own"),
    ({"transport": "archive", "git": "rw"}, "transport archive can't bring back a repository"),
]
FIT: list[tuple[dict[str, object], tuple[str, ...] | None]] = [
    ({}, ("sshfs",)),
    ({"transport": "auto"}, ("sshfs", "archive")),
    ({"transport": "auto", "git": "ro"}, ("sshfs", "archive")),
    ({"transport": "auto", "git": "rw"}, ("sshfs",)),
    ({"transport": "auto", "no_delete": True}, ("sshfs",)),
    ({"transport": "archive", "git": "ro"}, ("archive",)),
    ({"transport": "git", "result_mode": "staged", "result_branch": "work"}, ("git",)),
    ({"no_delete": True, "access_mode": "ro", "resources": [{"name": "o", "path": "/o", "access_mode": "rw"}]}, None),
    ({"watch": True}, None),
]


def request(asked: dict[str, object]) -> CreateDelegation:
    return CreateDelegation.model_validate({"workspace_dir": "/w", "peer": "bob", "prompt": "p", **asked})


@pytest.mark.parametrize(("asked", "why"), UNFIT)
def test_what_can_not_be_had_together_is_refused_with_the_reason(asked: dict[str, object], why: str) -> None:
    with pytest.raises(SubletError, match=why) as no:
        check_options(request(asked))
    assert no.value.code is LocalCode.INVALID_ARGUMENT
    assert no.value.hint


@pytest.mark.parametrize(("asked", "offered"), FIT)
def test_what_can_be_had_is_offered_by_each_transport_that_carries_it(
    asked: dict[str, object], offered: tuple[str, ...] | None
) -> None:
    check_options(request(asked))
    assert offered_transports(request(asked)) == (offered or ("sshfs",))


@pytest.mark.parametrize("asked", [asked for asked, _ in UNFIT if "transport" in asked])
def test_what_a_transport_can_not_carry_is_not_offered_by_the_best_of_all(asked: dict[str, object]) -> None:
    wish = {name: value for name, value in asked.items() if name != "transport"}
    assert asked["transport"] not in offered_transports(request({**wish, "transport": "auto"}))
