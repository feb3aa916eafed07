"""The commands of the written pages, run as they stand by two people at two machines, their output beside what is shown."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.namespaces import needs_root
from support.pages.fences import PAGES, ROOT, fences
from support.pages.stage import stage_of, staged

PLAYED = [page for page in PAGES if any(fence.is_run or fence.noted("output of") for fence in fences(page))]


@needs_root
@pytest.mark.timeout(600)
@pytest.mark.parametrize("page", PLAYED, ids=lambda page: page.name)
def test_the_commands_of_a_page_work_in_their_order(page: Path, tmp_path: Path) -> None:
    told = stage_of(page.relative_to(ROOT).as_posix())
    with staged(tmp_path) as stage:
        stage.prepare(told, "before")
        for number, fence in enumerate(fences(page), 1):
            stage.prepare(told, str(number))
            if fence.is_run:
                stage.play(fence, told)
            elif fence.noted("output of"):
                stage.compare(fence, told)
