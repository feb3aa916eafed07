"""Whoever waits for a mount is woken when it is made, and only then."""

from __future__ import annotations

import asyncio
import os
import subprocess
from pathlib import Path

import pytest

from sublet.workspace.mount.table import is_mounted, table_changes

pytestmark = pytest.mark.anyio
SECONDS = 20


@pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts")
async def test_a_change_of_the_table_wakes_who_waits(tmp_path: Path) -> None:
    async def until(mounted: bool, changed: asyncio.Event) -> None:
        async with asyncio.timeout(SECONDS):
            while is_mounted(tmp_path) is not mounted:
                await changed.wait()
                changed.clear()

    with table_changes() as changed:
        for _ in range(2):
            mounting = subprocess.Popen(["mount", "-t", "tmpfs", "none", str(tmp_path)])
            try:
                await until(True, changed)
            finally:
                mounting.wait()
                subprocess.run(["umount", str(tmp_path)], check=True)
            await until(False, changed)
