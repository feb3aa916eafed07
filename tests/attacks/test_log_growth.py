"""A stranger that has a daemon write its log without end."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

WRITES = """
import logging, sys
from sublet.daemon import log_file
from sublet.daemon.logging import configure_logging

log_file.MAX_LOG_BYTES = 100_000
configure_logging(own_file=sys.argv[1])
print("this goes along", flush=True)
for number in range(int(sys.argv[2])):
    logging.getLogger("sublet").info("a stranger called, %d", number)
print("and so does this", flush=True)
"""


def written(path: Path, lines: int, to: Path | None = None) -> None:
    """Have a process write ``lines`` lines, as a daemon in the background does."""
    with (to or path).open("ab") as log:
        subprocess.run([sys.executable, "-c", WRITES, str(path), str(lines)], stdout=log, stderr=log, check=True)


def test_the_log_of_a_daemon_in_the_background_is_bounded(tmp_path: Path) -> None:
    path = tmp_path / "daemon.log"
    written(path, 5_000)
    sizes = {found.name: found.stat().st_size for found in tmp_path.iterdir()}
    assert set(sizes) == {"daemon.log", "daemon.log.1"}
    assert max(sizes.values()) < 200_000
    assert all(found.stat().st_mode & 0o777 == 0o600 for found in (path,))
    assert "called, 4999" in path.read_text()
    assert path.read_text().rstrip().endswith("and so does this")


def test_a_log_that_leads_elsewhere_is_left_alone(tmp_path: Path) -> None:
    path, elsewhere = tmp_path / "daemon.log", tmp_path / "mine.txt"
    path.symlink_to(elsewhere)
    written(path, 5_000, to=elsewhere)
    assert {found.name for found in tmp_path.iterdir()} == {"daemon.log", "mine.txt"}
    assert elsewhere.stat().st_size > 400_000
