"""The configuration as it holds: where each value comes from, and that no secret is shown."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sublet.daemon.api.configuration import ConfigEntry, Origin
from sublet.daemon.config.config_view import config_view
from sublet.daemon.config.daemon_config import DaemonConfig
from sublet.daemon.config.paths import Home, resolve_home


@pytest.fixture
def home(tmp_path: Path) -> Home:
    home = resolve_home({"SUBLET_HOME": str(tmp_path)})
    home.make()
    return home


def write(home: Home, value: object) -> None:
    Path(home.config_dir, "config.json").write_text(json.dumps(value))


def shown(home: Home, **options: Any) -> dict[str, ConfigEntry]:
    view = config_view(DaemonConfig(home=home, **options), running=False)
    assert len({one.name for one in view.values}) == len(view.values)
    return {one.name: one for one in view.values}


def origin(found: ConfigEntry) -> tuple[object, Origin, str | None]:
    return found.value, found.origin, found.source


def test_each_value_says_where_it_comes_from(home: Home) -> None:
    write(home, {"sftp": "127.0.0.1:1", "unsandboxed": False, "messaging": {"max_hops": 3}, "web": {"enabled": False}})
    found = shown(home, a2a="127.0.0.1:2", agent_file="/a.json", log_level="debug")
    assert origin(found["a2a"]) == ("127.0.0.1:2", Origin.OPTION, "--a2a")
    assert origin(found["agent_file"]) == ("/a.json", Origin.OPTION, "--agent")
    assert origin(found["log_level"]) == ("debug", Origin.OPTION, "--log-level")
    assert origin(found["sftp"]) == ("127.0.0.1:1", Origin.FILE, "config.json")
    assert origin(found["web"]) == ("off", Origin.FILE, "config.json")
    assert origin(found["unsandboxed"]) == (False, Origin.FILE, "config.json")
    assert origin(found["messaging.max_hops"]) == (3, Origin.FILE, "config.json")
    assert origin(found["messaging.relays"]) == ([], Origin.DEFAULT, None)
    assert origin(found["zenoh"]) == ("tls/127.0.0.1:7447", Origin.DERIVED, "a2a")
    assert origin(found["state_dir"]) == (home.state_dir, Origin.ENVIRONMENT, "SUBLET_HOME")
    assert origin(found["supervisor.classifier"]) == (None, Origin.DEFAULT, None)


def test_without_anything_all_are_defaults(home: Home) -> None:
    places = {"config_dir", "state_dir", "runtime_dir"}
    assert {one.origin for name, one in shown(home).items() if name not in places} == {Origin.DEFAULT}


def test_with_lan_the_addresses_follow_from_it(home: Home) -> None:
    found = shown(home, lan=True)
    assert origin(found["a2a"]) == ("0.0.0.0:8642", Origin.DERIVED, "--lan")
    assert origin(found["sftp"]) == ("0.0.0.0:8622", Origin.DERIVED, "a2a")
    assert origin(found["zenoh"]) == ("tls/0.0.0.0:7447", Origin.DERIVED, "a2a")


def test_every_field_of_the_file_is_shown(home: Home) -> None:
    fields = set(DaemonConfig(home=home).file.model_fields_set | set(type(DaemonConfig(home=home).file).model_fields))
    assert fields == {name.partition(".")[0] for name in shown(home)} - {"config_dir", "state_dir", "runtime_dir"}


def test_secrets_are_left_out(home: Home) -> None:
    classifier = {"endpoint": "https://me:s3cret@llm.example/v1?key=s3cret#s3cret", "model": "m"}
    write(home, {"hooks": {"on_end": ["/bin/tell", "--token", "s3cret"]}, "supervisor": {"classifier": classifier}})
    found = shown(home)
    assert "s3cret" not in json.dumps([one.model_dump(mode="json") for one in found.values()])
    assert found["hooks.on_end"].value == ["/bin/tell", "\N{HORIZONTAL ELLIPSIS}", "\N{HORIZONTAL ELLIPSIS}"]
    assert "llm.example" in str(found["supervisor.classifier.endpoint"].value)


def test_a_file_that_was_changed_since_is_named(home: Home) -> None:
    config = DaemonConfig(home=home)
    assert not config_view(config, running=True).stale
    write(home, {"log_level": "debug"})
    assert config_view(config, running=True).stale
    Path(home.config_dir, "config.json").write_text("{")
    view = config_view(config, running=True)
    assert view.problem is not None
    assert not view.stale
