"""The databases that faces keep in the state directory, beside the daemon's own."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from sublet.a2a_server.task_schema import SCHEMA, STORE_NAME
from sublet.daemon.federation import ledger_schema
from sublet.migrations.schema import Schema

FACE_STORES: Final[Mapping[str, Schema]] = MappingProxyType(
    {STORE_NAME: SCHEMA, ledger_schema.STORE_NAME: ledger_schema.SCHEMA}
)
"""By file name: what a start brings to this version, and ``doctor`` looks at."""
