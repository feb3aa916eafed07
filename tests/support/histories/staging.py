"""The stages of histories: all in this process, or real daemons in network namespaces."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from support.histories.in_process import in_process
from support.histories.stage import Stage
from support.histories.steps import History


@asynccontextmanager
async def in_this_process(base: Path, history: History) -> AsyncIterator[Stage]:
    """Run whole messaging services in this process; see ``InProcess``."""
    async with in_process(base, history.daemons, disks=_fills(history)) as stage:
        yield stage


@asynccontextmanager
async def in_processes(base: Path, history: History) -> AsyncIterator[Stage]:
    """Run real daemons, each in a network namespace of its own; see ``InNamespaces``."""
    from support.histories.in_namespaces import in_namespaces

    async with in_namespaces(base, history.daemons, disks=_fills(history)) as stage:
        yield stage


def _fills(history: History) -> bool:
    return any(step.do == "fill" for step in history.steps)
