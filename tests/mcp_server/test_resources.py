"""Delegations as resources, with update notifications on both protocol eras."""

from __future__ import annotations

from typing import Any, cast

import anyio
import pytest
from mcp import Client, MCPError
from mcp.client import IncomingMessage
from mcp.client.subscriptions import ResourceUpdated
from mcp.types import ResourceUpdatedNotification, TextResourceContents

from sublet.daemon.api.delegations import CreateDelegation
from sublet.daemon.config.paths import Home
from sublet.mcp_server.session import MAX_ROOTS, MAX_SUBSCRIPTIONS, HostSession, local_paths
from sublet.policy.decision import Subject
from support.fake_daemon_api import FakeDaemonApi
from support.fake_rooms import ROOM
from support.mcp_face import served, server_of

pytestmark = pytest.mark.anyio


async def a_delegation(api: FakeDaemonApi) -> str:
    request = CreateDelegation(workspace_dir="/srv/projects/app", peer="bob", prompt="Run the tests.")
    return (await api.create_delegation(request, Subject(kind="human"))).delegation_id


async def test_list_and_read(api: FakeDaemonApi, home: Home, mode: str) -> None:
    found = await a_delegation(api)
    async with served(api, home), Client(server_of(home), mode=mode) as client:
        assert client.server_capabilities.resources is not None
        assert client.server_capabilities.resources.subscribe
        listed, room = (await client.list_resources()).resources
        assert str(listed.uri) == f"sublet://delegations/{found}"
        assert str(room.uri) == f"sublet://rooms/{ROOM}"
        assert listed.title == "created: Run the tests."
        templates = (await client.list_resource_templates()).resource_templates
        assert [one.uri_template for one in templates] == ["sublet://delegations/{id}", "sublet://rooms/{id}"]
        (content,) = (await client.read_resource(listed.uri)).contents
        assert isinstance(content, TextResourceContents)
        assert "state: created" in content.text


@pytest.mark.parametrize(
    "uri", ["sublet://delegations/dlg_nope", "sublet://delegations/../x", "sublet://rooms/1", "file:///etc/passwd"]
)
async def test_unknown_resources_have_the_code_of_their_era(
    api: FakeDaemonApi, home: Home, mode: str, uri: str
) -> None:
    async with served(api, home), Client(server_of(home), mode=mode) as client:
        with pytest.raises(MCPError) as caught:
            await client.read_resource(uri)
    assert caught.value.code == {"auto": -32602, "legacy": -32002}[mode]
    assert caught.value.error.data == {"uri": uri}


async def test_what_can_t_be_read_is_not_listened_to(api: FakeDaemonApi, home: Home) -> None:
    mine = f"sublet://delegations/{await a_delegation(api)}"
    wanted = [mine, "sublet://delegations/dlg_nope", "sublet://rooms/1", "file:///etc/passwd"]
    async with (
        served(api, home),
        Client(server_of(home)) as client,
        client.listen(resource_subscriptions=wanted, tools_list_changed=True, resources_list_changed=True) as sub,
    ):
        assert [str(uri) for uri in sub.honored.resource_subscriptions or []] == [mine]
        assert not sub.honored.tools_list_changed
        assert not sub.honored.resources_list_changed


async def test_lists_of_one_page_have_no_cursor(api: FakeDaemonApi, home: Home, mode: str) -> None:
    async with served(api, home), Client(server_of(home), mode=mode) as client:
        for ask in (client.list_tools, client.list_resource_templates):
            with pytest.raises(MCPError) as caught:
                await ask(cursor="zz")
            assert caught.value.code == -32602


@pytest.mark.filterwarnings("ignore:resources/:mcp.shared.exceptions.MCPDeprecationWarning")
async def test_2025_subscribers_hear_of_their_delegation_only(api: FakeDaemonApi, home: Home) -> None:
    mine, other = await a_delegation(api), await a_delegation(api)
    heard: list[str] = []
    news = anyio.Event()

    async def on_message(message: IncomingMessage) -> None:
        if isinstance(message, ResourceUpdatedNotification):
            heard.append(str(message.params.uri))
            news.set()

    async with (
        served(api, home),
        Client(server_of(home), mode="legacy", message_handler=on_message) as client,
    ):
        await client.session.subscribe_resource(f"sublet://delegations/{mine}")
        with pytest.raises(MCPError):
            await client.session.subscribe_resource("sublet://delegations/dlg_nope")
        await api.output(other, "not for us")
        await api.output(mine, "for us")
        await news.wait()
        assert heard == [f"sublet://delegations/{mine}"]
        await client.session.unsubscribe_resource(f"sublet://delegations/{mine}")
        await api.output(mine, "no more")
        await client.list_tools()
        assert len(heard) == 1


async def test_2026_listeners_hear_of_their_delegation(api: FakeDaemonApi, home: Home) -> None:
    mine = await a_delegation(api)
    uri = f"sublet://delegations/{mine}"
    async with served(api, home), Client(server_of(home)) as client, client.listen(resource_subscriptions=[uri]) as sub:
        await api.finish(mine)
        assert await anext(sub) == ResourceUpdated(uri=uri)
        (content,) = (await client.read_resource(uri)).contents
        assert isinstance(content, TextResourceContents)
        assert "state: completed" in content.text


async def test_the_pump_survives_a_failing_daemon(
    api: FakeDaemonApi, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sublet.mcp_server import host

    monkeypatch.setattr(host, "PUMP_RETRY_SECONDS", 0.01)
    mine = await a_delegation(api)
    uri = f"sublet://delegations/{mine}"
    works, calls = api.events_since, 0

    async def once_broken(*args: Any, **options: Any) -> object:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise RuntimeError("for once")
        return await works(*args, **options)

    monkeypatch.setattr(api, "events_since", once_broken)
    async with served(api, home), Client(server_of(home)) as client, client.listen(resource_subscriptions=[uri]) as sub:
        await api.finish(mine)
        assert await anext(sub) == ResourceUpdated(uri=uri)
    assert calls > 1


def test_subscriptions_of_one_host_are_bounded() -> None:
    session, channel = HostSession(), cast(Any, None)
    assert all(session.subscribe(str(n), channel) for n in range(MAX_SUBSCRIPTIONS))
    assert not session.subscribe("one more", channel)
    assert session.subscribe("0", channel)


def test_only_local_absolute_file_roots_count() -> None:
    given = [
        "file:///home/me",
        "file://localhost/srv",
        "file://other.example/srv",
        "vscode-remote://ssh/home/me",
        "file:relative",
        "file:///a%00b",
        "https://example.org/home",
        "file:///with%20space",
    ]
    assert local_paths(given) == ("/home/me", "/srv", "/with space")
    assert len(local_paths(f"file:///{n}" for n in range(1000))) == MAX_ROOTS
