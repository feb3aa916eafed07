from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest

from sublet.daemon.config.config_file import DAY_SECONDS
from sublet.daemon.config.daemon_config import Bus, DaemonConfig, Listen
from sublet.daemon.config.paths import Home, resolve_home
from sublet.daemon.config.retention import Retention
from sublet.protocol.errors import LocalCode, SubletError


@pytest.fixture
def home(tmp_path: Path) -> Home:
    home = resolve_home({"SUBLET_HOME": str(tmp_path)})
    home.make()
    return home


def write(home: Home, value: object) -> None:
    Path(home.config_dir, "config.json").write_text(value if isinstance(value, str) else json.dumps(value))


def test_defaults_stay_on_this_machine(home: Home) -> None:
    config = DaemonConfig(home=home)
    assert config.a2a == Listen("127.0.0.1", 8642, chosen=False)
    assert config.sftp == Listen("127.0.0.1", 8622, chosen=False)
    assert config.web == Listen("127.0.0.1", 8640, chosen=False)
    assert config.bus == Bus(Listen("127.0.0.1", 7447, chosen=False))
    assert (config.public_url, config.agent_file, config.policy_file) == (None, None, None)
    assert config.mount_root == Path(home.state_dir) / "mounts"
    assert (config.unsandboxed, config.log_level) == (False, "info")


def test_files_are_served_where_peers_call(home: Home) -> None:
    assert DaemonConfig(home=home, a2a="0.0.0.0:8642").sftp == Listen("0.0.0.0", 8622, chosen=False)
    assert DaemonConfig(home=home, a2a="0.0.0.0:1", sftp="127.0.0.1:2").sftp == Listen("127.0.0.1", 2, chosen=True)
    write(home, {"a2a": "[::1]:1"})
    assert DaemonConfig(home=home).sftp == Listen("::1", 8622, chosen=False)


def test_options_come_before_the_file(home: Home) -> None:
    write(
        home,
        {
            "a2a": "0.0.0.0:1",
            "sftp": "[::1]:2",
            "agent_file": "mine.json",
            "mount_root": "/mnt/x",
            "unsandboxed": True,
            "log_level": "debug",
            "public_url": "https://box.example/base",
        },
    )
    Path(home.config_dir, "policy.json").write_text("{}")
    config = DaemonConfig(home=home, a2a="localhost:3", agent_file="/a.json")
    assert config.a2a == Listen("localhost", 3, chosen=True)
    assert config.sftp == Listen("::1", 2, chosen=True)
    assert config.agent_file == Path("/a.json")
    assert config.policy_file == Path(home.config_dir) / "policy.json"
    assert config.mount_root == Path("/mnt/x")
    assert config.unsandboxed
    assert config.public_url == "https://box.example:443/base/"
    config = DaemonConfig(home=home)
    assert (config.a2a.host, config.a2a.port) == ("0.0.0.0", 1)
    assert (config.sftp.host, config.sftp.port) == ("::1", 2)
    assert config.agent_file == Path(home.config_dir) / "mine.json"


def test_what_only_the_file_says_is_in_force(home: Home) -> None:
    write(
        home,
        {
            "zenoh": "tls/127.0.0.1:7001",
            "policy_file": "rules.json",
            "capability_dirs": ["tools"],
            "watch_files": False,
            "hooks": {"on_end": ["/bin/told"], "notify": True},
            "retention": {"max_age_days": 2, "max_bytes": 3, "pending_days": 4},
        },
    )
    config = DaemonConfig(home=home)
    assert config.bus == Bus(Listen("127.0.0.1", 7001, chosen=True))
    assert config.policy_file == Path(home.config_dir) / "rules.json"
    assert config.capability_dirs == (Path(home.config_dir) / "tools",)
    assert not config.watch_files
    assert (config.hooks.on_end, config.hooks.notify) == (["/bin/told"], True)
    assert config.retention == Retention(2 * DAY_SECONDS, 3, 4 * DAY_SECONDS)


@pytest.mark.parametrize(
    "text",
    [
        "[]",
        "{",
        '{"port": 1}',
        '{"a2a": 1}',
        '{"unsandboxed": "yes"}',
        '{"log_level": "loud"}',
        '{"web": {"port": 80}}',
        '{"web": {"host": "0.0.0.0"}}',
        "[" * 100_000,
    ],
)
def test_a_malformed_file_is_refused(home: Home, text: str) -> None:
    write(home, text)
    with pytest.raises(SubletError, match=r"config\.json") as refused:
        DaemonConfig(home=home)
    assert refused.value.code is LocalCode.INVALID_ARGUMENT


@pytest.mark.parametrize(
    "options",
    [
        {"a2a": "8642"},
        {"a2a": ":8642"},
        {"a2a": "host:65536"},
        {"a2a": "::1:80"},
        {"sftp": "ho st:80"},
        {"sftp": "host:80\n"},
        {"zenoh": "tcp/192.0.2.1:7447"},
        {"zenoh": "udp/127.0.0.1:7447"},
        {"zenoh": "tcp/127.0.0.1:7447?x=1"},
        {"public_url": "http://box.example/"},
        {"log_level": "loud"},
        *(
            {"web": text}
            for text in ("", "on", "80", "65536", "-1", "0.0.0.0:8640", "8640 ", "\u0663\u0663\u0663\u0663\u0663\u0663")
        ),
    ],
)
def test_malformed_options_are_refused(home: Home, options: dict[str, str]) -> None:
    with pytest.raises(SubletError) as refused:
        DaemonConfig(home=home, **options)  # type: ignore[arg-type]
    assert refused.value.code is LocalCode.INVALID_ARGUMENT


@pytest.mark.parametrize(
    ("file", "option", "found"),
    [
        ({"port": 9000}, None, Listen("127.0.0.1", 9000, chosen=True)),
        ({"port": 9000}, "0", Listen("127.0.0.1", 0, chosen=True)),
        ({"enabled": False}, None, None),
        ({"enabled": False}, "9001", Listen("127.0.0.1", 9001, chosen=True)),
        ({}, "off", None),
    ],
)
def test_the_web_page_is_on_loopback_or_off(
    home: Home, file: dict[str, object], option: str | None, found: Listen | None
) -> None:
    write(home, {"web": file})
    assert DaemonConfig(home=home, web=option).web == found


def test_an_encrypted_bus_may_leave_the_machine(home: Home) -> None:
    assert DaemonConfig(home=home, zenoh="tls/box.example:7448").bus == Bus(Listen("box.example", 7448, chosen=True))


def test_who_opens_a2a_to_other_machines_opens_files_and_bus_with_it_and_encrypts_them(home: Home) -> None:
    for config, host in (
        (DaemonConfig(home=home, lan=True), "0.0.0.0"),
        (DaemonConfig(home=home, a2a="192.0.2.1:8642"), "192.0.2.1"),
        (DaemonConfig(home=home, a2a="192.0.2.1:8642", lan=True), "192.0.2.1"),
    ):
        assert {config.a2a.host, config.sftp.host, config.bus.listen.host} == {host}
    config = DaemonConfig(home=home, lan=True, zenoh="tcp/127.0.0.1:7447")
    assert config.bus == Bus(Listen("127.0.0.1", 7447, chosen=True))


def test_the_relay_is_that_of_the_option_or_else_of_the_file(home: Home) -> None:
    authority, other = Path(home.config_dir) / "ca.pem", Path(home.config_dir) / "other.pem"
    write(home, {"messaging": {"relays": ["tls/relay.example:7448"], "relay_authority": "ca.pem"}})
    with pytest.raises(SubletError, match="is no file"):
        DaemonConfig(home=home)
    for file in (authority, other):
        file.touch()
    told = DaemonConfig(home=home).messaging
    assert (told.relays, told.relay_authority) == (["tls/relay.example:7448"], str(authority))
    chosen = DaemonConfig(home=home, relay="tls/127.0.0.1:7000", relay_ca=str(other))
    assert (chosen.messaging.relays, chosen.messaging.relay_authority) == (["tls/127.0.0.1:7000"], str(other))
    assert {"relay", "relay_ca"} <= chosen.options


@pytest.mark.parametrize(
    "relay", ["tcp/relay.example:7447", "tcp/127.0.0.1:7000", "tls/relay.example:0", "relay.example:7448", "tls/x"]
)
def test_what_is_no_relay_is_refused(home: Home, relay: str) -> None:
    with pytest.raises(SubletError, match="relay"):
        DaemonConfig(home=home, relay=relay)
    write(home, {"messaging": {"relays": [relay]}})
    with pytest.raises(SubletError, match="relays"):
        DaemonConfig(home=home)


def test_a_taken_default_gives_way_and_a_taken_choice_does_not() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert Listen("127.0.0.1", port, chosen=False).free_port() == 0
        with pytest.raises(SubletError, match=str(port)) as refused:
            Listen("127.0.0.1", port, chosen=True).free_port()
        assert refused.value.code is LocalCode.UNAVAILABLE
        with socket.socket() as spare:
            spare.bind(("127.0.0.1", 0))
            last = spare.getsockname()[1]
        assert Listen("127.0.0.1", port, chosen=False).free_port(last) == last
        assert Listen("127.0.0.1", 0, chosen=True).free_port(last) == last
        assert Listen("127.0.0.1", 0, chosen=True).free_port(port) == 0
    assert Listen("127.0.0.1", port, chosen=True).free_port() == port
    assert Listen("127.0.0.1", port, chosen=False).free_port(last) == port
    assert Listen("127.0.0.1", 0, chosen=True).free_port() == 0
    with pytest.raises(SubletError):
        Listen("192.0.2.1", 0, chosen=False).free_port()


@pytest.mark.parametrize(
    ("section", "place"),
    [
        ({"default_route": "Not An Agent"}, "supervisor.default_route"),
        ({"min_confidence": 2}, "supervisor.min_confidence"),
        ({"max_depth": 99}, "supervisor.max_depth"),
        ({"max_depth": "4"}, "supervisor.max_depth"),
        ({"lease_seconds": 0}, "supervisor.lease_seconds"),
        ({"colour": "red"}, "supervisor.colour"),
        ({"classifier": {"endpoint": "http://models.example/v1", "model": "m"}}, "supervisor.classifier.endpoint"),
        ({"classifier": {"endpoint": "ftp://x", "model": "m"}}, "supervisor.classifier.endpoint"),
        ({"classifier": {"endpoint": "https://models.example/v1"}}, "supervisor.classifier.model"),
    ],
)
def test_what_the_supervisor_can_not_keep_to_is_refused_with_its_place(
    home: Home, section: dict[str, object], place: str
) -> None:
    write(home, {"supervisor": section})
    with pytest.raises(SubletError, match=place.replace(".", r"\.")) as refused:
        DaemonConfig(home=home)
    assert refused.value.code is LocalCode.INVALID_ARGUMENT


def test_the_supervisor_is_configured_by_the_file(home: Home) -> None:
    classifier = {"endpoint": "http://127.0.0.1:1/v1", "model": "small", "api_key_env": "KEY"}
    write(home, {"supervisor": {"default_route": "ask_human", "max_depth": 0, "classifier": classifier}})
    chosen = DaemonConfig(home=home).supervisor
    assert (chosen.default_route, chosen.max_depth, chosen.hub, chosen.lease_seconds) == ("ask_human", 0, True, 600)
    assert chosen.classifier is not None
    assert chosen.classifier.model == "small"
