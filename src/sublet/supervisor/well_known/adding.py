"""Adds one of the well-known agents to an ``agent.json``, and leaves all that stands there as it is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

from sublet.disk.durable import write_durably
from sublet.disk.plain_file import read_plain
from sublet.protocol.canonical import JsonValue
from sublet.protocol.errors import LocalCode, SubletError
from sublet.supervisor.agent_config import DEFAULT_AGENT_FILE, MAX_AGENT_FILE_BYTES, AgentConfig, load_agents
from sublet.supervisor.well_known.catalogue import WELL_KNOWN

INDENT: Final = 2


def add_agent(path: Path, name: str, agent_id: str, *, default: bool) -> AgentConfig:
    """Add the agent that is known as ``name``, and return it. Where there is no file, what is offered without stays.

    Args:
        path: the ``agent.json``; it is replaced whole, or not at all.
        name: one of ``WELL_KNOWN``.
        agent_id: under which id it is offered.
        default: whether it is the one that is asked where none is named. In a new file it is in any case.

    Raises:
        SubletError: ``CONFLICT`` for an id that is taken; ``INVALID_ARGUMENT`` for an id that is none, or a file that
            does not load or is too large; ``UNAVAILABLE`` where it can't be written.
    """
    fresh = not path.exists()
    source = DEFAULT_AGENT_FILE if fresh else path
    taken = {one.id for one in load_agents(source)}  # what is broken is for its owner to mend first
    document = _read(source)
    listed = document.get("agents")
    known: list[JsonValue] = list(listed) if isinstance(listed, list) else [_without_schema(document)]
    added: dict[str, JsonValue] = {**_without_schema(_read(WELL_KNOWN[name])), "id": agent_id}
    if agent_id in taken:
        raise SubletError(
            LocalCode.CONFLICT,
            f"there is an agent {agent_id!r} in {path} already",
            "Give the new one another name by --id, or edit the file.",
        )
    agents = [added, *known] if default or fresh else [*known, added]
    schema = {"$schema": document["$schema"]} if "$schema" in document else {}
    text = json.dumps({**schema, "agents": agents}, indent=INDENT, ensure_ascii=False) + "\n"
    return _written(path, text.encode(), agent_id)


def _without_schema(document: dict[str, JsonValue]) -> dict[str, JsonValue]:
    return {key: value for key, value in document.items() if key != "$schema"}


def _written(path: Path, content: bytes, agent_id: str) -> AgentConfig:
    """Write the file where it would load, and return its agent of that id."""
    tried = path.with_name(f".{path.name}.new")
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_durably(tried, content)
        try:
            agents = load_agents(tried)
            write_durably(path, content)
        finally:
            tried.unlink(missing_ok=True)
    except OSError as error:
        raise SubletError(
            LocalCode.UNAVAILABLE,
            f"{path} can't be written: {error.strerror or error}",
            "Check its mode, and the disk.",
        ) from None
    return next(one for one in agents if one.id == agent_id)


def _read(path: Path) -> dict[str, JsonValue]:
    try:
        raw = read_plain(path, MAX_AGENT_FILE_BYTES)
        if len(raw) > MAX_AGENT_FILE_BYTES:
            raise SubletError(
                LocalCode.INVALID_ARGUMENT,
                f"{path} is larger than {MAX_AGENT_FILE_BYTES:,} bytes",
                "Take out of it what is no agent, or move it away and try again.",
            )
        found = json.loads(raw)
    except OSError as error:
        raise SubletError(LocalCode.UNAVAILABLE, f"{path} can't be read: {error.strerror}", "Check its mode.") from None
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise SubletError(
            LocalCode.INVALID_ARGUMENT, f"{path} is no JSON object", "Mend it, or move it away and try again."
        )
    return found
