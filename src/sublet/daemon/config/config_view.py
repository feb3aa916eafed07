"""The configuration as it holds, with where each value comes from (DESIGN 7). No secret is among what is told."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from pydantic import BaseModel

from sublet.daemon.api.configuration import ConfigEntry, ConfigView, Origin
from sublet.daemon.config.config_file import CONFIG_FILE, read_config
from sublet.daemon.config.daemon_config import WEB_OFF, DaemonConfig, Listen
from sublet.protocol.errors import SubletError

HIDDEN: Final = "…"
_AREAS: Final = ("retention", "hooks", "web", "supervisor", "messaging", "offices")
_OPTION_OF: Final = {"agent_file": "--agent"}


def config_view(config: DaemonConfig, *, running: bool) -> ConfigView:
    """Return what holds, and where it comes from. Blocks on the disk.

    Args:
        config: as it was read.
        running: whether a daemon runs with it; then it is told whether ``config.json`` says something else by now.
    """
    path = Path(config.home.config_dir) / CONFIG_FILE
    stale, problem = False, None
    if running:
        try:
            stale = read_config(path) != config.file
        except SubletError as error:
            problem = error.message
    return ConfigView(
        file=str(path),
        file_exists=path.is_file(),
        running=running,
        stale=stale,
        problem=problem,
        values=[*_places(config), *_ports(config), *_plain(config), *_areas(config)],
    )


def _places(config: DaemonConfig) -> Iterator[ConfigEntry]:
    home = config.home
    origin = Origin.ENVIRONMENT if home.root != home.config_dir else Origin.DEFAULT
    source = "SUBLET_HOME" if origin is Origin.ENVIRONMENT else None
    for name in ("config_dir", "state_dir", "runtime_dir"):
        yield ConfigEntry(name=name, value=getattr(home, name), origin=origin, source=source)


def _ports(config: DaemonConfig) -> Iterator[ConfigEntry]:
    yield _entry(config, "a2a", _address(config.a2a), derived="--lan" if "lan" in config.options else None)
    beside = "a2a" if config.sftp.host == config.a2a.host and (config.a2a.chosen or "lan" in config.options) else None
    yield _entry(config, "sftp", _address(config.sftp), derived=beside)
    yield _entry(config, "zenoh", f"tls/{_address(config.bus.listen)}", derived=beside and "a2a")
    web = WEB_OFF if config.web is None else _address(config.web)
    by_file = bool(config.file.web.model_fields_set)
    if "web" in config.options or not by_file:
        yield _entry(config, "web", web)
    else:
        yield ConfigEntry(name="web", value=web, origin=Origin.FILE, source=CONFIG_FILE)


def _plain(config: DaemonConfig) -> Iterator[ConfigEntry]:
    yield _entry(config, "public_url", _shown(config.public_url))
    yield _entry(config, "agent_file", _path(config.agent_file))
    yield _entry(config, "policy_file", _path(config.policy_file))
    yield _entry(config, "capability_dirs", [str(one) for one in config.capability_dirs])
    yield _entry(config, "mount_root", str(config.mount_root))
    yield _entry(config, "watch_files", config.watch_files)
    yield _entry(config, "unsandboxed", config.unsandboxed)
    yield _entry(config, "log_level", config.log_level)


def _areas(config: DaemonConfig) -> Iterator[ConfigEntry]:
    for area in _AREAS:
        if area != "web":  # told among the ports
            named = area in config.file.model_fields_set
            yield from _fields(area, getattr(config.file, area), named=named)


def _fields(prefix: str, found: BaseModel, *, named: bool) -> Iterator[ConfigEntry]:
    for field in type(found).model_fields:
        value, by_file = getattr(found, field), named and field in found.model_fields_set
        name = f"{prefix}.{field}"
        if isinstance(value, BaseModel):
            yield from _fields(name, value, named=by_file)
            continue
        origin = Origin.FILE if by_file else Origin.DEFAULT
        shown = _program(value) if name == "hooks.on_end" else _shown(value)
        yield ConfigEntry(name=name, value=shown, origin=origin, source=CONFIG_FILE if by_file else None)


def _entry(config: DaemonConfig, name: str, value: Any, *, derived: str | None = None) -> ConfigEntry:
    if name in config.options:
        option = _OPTION_OF.get(name, f"--{name.replace('_', '-')}")
        return ConfigEntry(name=name, value=value, origin=Origin.OPTION, source=option)
    if name in config.file.model_fields_set and getattr(config.file, name) is not None:
        return ConfigEntry(name=name, value=value, origin=Origin.FILE, source=CONFIG_FILE)
    if derived is not None:
        return ConfigEntry(name=name, value=value, origin=Origin.DERIVED, source=derived)
    return ConfigEntry(name=name, value=value, origin=Origin.DEFAULT, source=None)


def _address(listen: Listen) -> str:
    return f"[{listen.host}]:{listen.port}" if ":" in listen.host else f"{listen.host}:{listen.port}"


def _path(path: Path | None) -> str | None:
    return None if path is None else str(path)


def _program(argv: list[str]) -> Any:
    """Return a program with how many arguments it gets, since these may hold a token."""
    return [*argv[:1], *[HIDDEN] * (len(argv) - 1)]


def _shown(value: Any) -> Any:
    """Return a value without what may be secret in an address: user, password, and what is asked with."""
    if isinstance(value, list):
        return [_shown(one) for one in value]
    if not isinstance(value, str) or "://" not in value:
        return value
    parts = urlsplit(value)
    host = parts.netloc.rpartition("@")[2]
    return parts._replace(
        netloc=f"{HIDDEN}@{host}" if "@" in parts.netloc else host,
        query=HIDDEN if parts.query else "",
        fragment=HIDDEN if parts.fragment else "",
    ).geturl()
