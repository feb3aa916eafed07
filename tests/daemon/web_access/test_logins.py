"""One-time login links of the web page."""

from __future__ import annotations

import pytest

from sublet.daemon.api.web_logins import CreateWebLogin
from sublet.daemon.web_access.logins import MAX_LINKS, MAX_WRONG_SECRETS, UNKNOWN_PER_MINUTE, WebLogins
from sublet.daemon.web_access.service import WebService
from sublet.policy.decision import Kind, Subject
from sublet.protocol.errors import LocalCode, SubletError
from support.decisions import gatekeeper


class Clock:
    """Seconds that a test moves."""

    def __init__(self) -> None:
        self.now = 50.0

    def __call__(self) -> float:
        return self.now


class Journal:
    """Takes what was refused."""

    @property
    def events(self) -> Journal:
        return self

    async def append_event(self, *told: object, **more: object) -> None:
        """Take it."""


def refusal(logins: WebLogins, text: str) -> LocalCode:
    with pytest.raises(SubletError) as caught:
        logins.redeem(text)
    assert isinstance(caught.value.code, LocalCode)
    return caught.value.code


def test_a_link_is_good_once() -> None:
    logins = WebLogins()
    secret = logins.make(60)
    logins.redeem(secret)
    assert refusal(logins, secret) == LocalCode.TOKEN_INVALID


def test_a_link_is_good_for_its_time_only() -> None:
    clock = Clock()
    logins = WebLogins(clock)
    late, timely = logins.make(60), logins.make(61)
    clock.now += 60
    assert refusal(logins, late) == LocalCode.TOKEN_INVALID
    logins.redeem(timely)


@pytest.mark.parametrize(
    "wrong", ["", ".", "x", "x.y", "\ud800.x", "{id}", "{id}.", "{id}.x", "{secret}", "{text} ", "{text}x"]
)
def test_nothing_but_the_whole_secret_is_good(wrong: str) -> None:
    logins = WebLogins()
    text = logins.make(60)
    link_id, _, secret = text.partition(".")
    given = wrong.replace("{id}", link_id).replace("{secret}", secret).replace("{text}", text)
    assert refusal(logins, given) == LocalCode.TOKEN_INVALID
    logins.redeem(text)


def test_guessing_at_a_link_voids_it() -> None:
    logins = WebLogins()
    text = logins.make(60)
    for number in range(MAX_WRONG_SECRETS):
        assert refusal(logins, f"{text.partition('.')[0]}.{number}") == LocalCode.TOKEN_INVALID
    assert refusal(logins, text) == LocalCode.TOKEN_INVALID


def test_unknown_links_are_tried_so_often_and_no_more_and_keep_no_link_from_working() -> None:
    clock = Clock()
    logins = WebLogins(clock)
    text = logins.make(600)
    codes = [refusal(logins, f"guess{number}.x") for number in range(UNKNOWN_PER_MINUTE + 5)]
    assert codes == [LocalCode.TOKEN_INVALID] * UNKNOWN_PER_MINUTE + [LocalCode.UNAVAILABLE] * 5
    logins.redeem(text)
    clock.now += 60 / UNKNOWN_PER_MINUTE
    assert refusal(logins, "guess.x") == LocalCode.TOKEN_INVALID
    assert refusal(logins, "guess.x") == LocalCode.UNAVAILABLE


def test_one_link_too_many_voids_the_oldest() -> None:
    logins = WebLogins()
    made = [logins.make(60) for _ in range(MAX_LINKS + 1)]
    assert refusal(logins, made[0]) == LocalCode.TOKEN_INVALID
    for text in made[1:]:
        logins.redeem(text)


@pytest.mark.anyio
async def test_a_person_gets_a_link_and_its_secret_stays_behind_the_hash() -> None:
    logins = WebLogins()
    service = WebService(gatekeeper(Journal()), logins, lambda: "http://127.0.0.1:8640")  # type: ignore[arg-type]
    login = await service.create_web_login(CreateWebLogin(), Subject("human"))
    page, _, secret = login.url.partition("#login=")
    assert page == login.page == "http://127.0.0.1:8640/"
    assert secret not in repr(login)
    logins.redeem(secret)


@pytest.mark.anyio
@pytest.mark.parametrize("kind", ["agent", "mcp", "peer", "a2a"])
async def test_nobody_but_a_person_gets_a_link(kind: Kind) -> None:
    service = WebService(gatekeeper(Journal()), WebLogins(), lambda: "http://127.0.0.1:8640")  # type: ignore[arg-type]
    with pytest.raises(SubletError) as caught:
        await service.create_web_login(CreateWebLogin(), Subject(kind, "x"))
    assert caught.value.code == LocalCode.POLICY_DENIED


@pytest.mark.anyio
async def test_a_page_that_is_switched_off_has_no_links() -> None:
    service = WebService(gatekeeper(Journal()), WebLogins(), lambda: None)  # type: ignore[arg-type]
    with pytest.raises(SubletError, match="switched off"):
        await service.create_web_login(CreateWebLogin(), Subject("human"))
