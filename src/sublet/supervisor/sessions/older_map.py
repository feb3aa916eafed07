"""Bindings out of the older map file ``iflow-session-map.json``, which is read once and never written (SuperAgent 4.2).

It has been in three forms, all of which are understood: an object of bindings below ``bindings``, keyed
``provider::agentId::fingerSessionId``; the same object without that wrapper; and a plain map of ``fingerSessionId`` to
the iFlow session, as text or as an object.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pydantic import ValidationError

from sublet.disk.plain_file import read_plain
from sublet.protocol.errors import LocalCode, SubletError
from sublet.supervisor.sessions.session_parts import AgentSessionBinding

OLDER_MAP_FILE: Final = "iflow-session-map.json"
MAX_MAP_BYTES: Final = 4 << 20
MAX_BINDINGS_READ: Final = 10_000
_AGENT: Final = "iflow-default"
_PROVIDER: Final = "iflow"


@dataclass(frozen=True, slots=True)
class OlderMap:
    """What the file says: its bindings, and how many of its entries are none."""

    bindings: tuple[AgentSessionBinding, ...]
    skipped: int


def read_older_map(path: Path, now: str) -> OlderMap | None:
    """Return the bindings in ``path``, or None where there is no such file. Blocks.

    Args:
        path: the file, which is left as it is.
        now: the time for entries without one.

    Raises:
        SubletError: ``INVALID_ARGUMENT`` where it can't be read or is no JSON object.
    """
    try:
        raw = read_plain(path, MAX_MAP_BYTES, follow=False)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _bad(path, f"it can't be opened: {error.strerror}") from None
    if len(raw) > MAX_MAP_BYTES:
        raise _bad(path, f"it is larger than {MAX_MAP_BYTES} bytes")
    try:
        document = json.loads(raw)
    except (ValueError, RecursionError):
        raise _bad(path, "it is not JSON") from None
    if not isinstance(document, dict):
        raise _bad(path, "it is no JSON object")
    entries = document["bindings"] if isinstance(document.get("bindings"), dict) else document
    found: dict[tuple[str, str], AgentSessionBinding] = {}
    skipped = 0
    for key, value in _entries(entries):
        try:
            binding = _binding(key, value, now)
        except (ValidationError, TypeError):
            skipped += 1
            continue
        found[binding.finger_session_id, binding.agent_id] = binding
    skipped += max(0, len(entries) - MAX_BINDINGS_READ)
    return OlderMap(tuple(found.values()), skipped)


def _entries(entries: Mapping[str, object]) -> Iterator[tuple[str, object]]:
    for number, (key, value) in enumerate(entries.items()):
        if number == MAX_BINDINGS_READ:
            return
        if key not in ("version", "updatedAt"):
            yield key, value


def _binding(key: str, value: object, now: str) -> AgentSessionBinding:
    """Return one entry as a binding.

    Raises:
        ValidationError: it is none, or its ids are not of a form that may name anything here.
    """
    provider, agent, session = _PROVIDER, _AGENT, key
    if key.count("::") == 2:
        provider, agent, session = key.split("::")
    fields: dict[str, object] = dict(value) if isinstance(value, dict) else {"iflowSessionId": value}
    return AgentSessionBinding.model_validate(
        {
            "fingerSessionId": fields.get("fingerSessionId", session),
            "agentId": fields.get("agentId", agent),
            "provider": fields.get("provider", provider),
            "providerSessionId": fields.get("providerSessionId", fields.get("iflowSessionId")),
            "updatedAt": fields.get("updatedAt", now),
        }
    )


def _bad(path: Path, why: str) -> SubletError:
    return SubletError(
        LocalCode.INVALID_ARGUMENT,
        f"the older session map {path} is not taken over: {why}",
        "Mend it or move it away.",
    )
