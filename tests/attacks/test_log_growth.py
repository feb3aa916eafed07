"""A stranger that has a daemon write its log without end."""

from __future__ import annotations

import io
import logging
import subprocess
import sys
from pathlib import Path

from sublet.daemon.logs import log_limit
from sublet.daemon.logs.log_limit import LogLimit

WRITES = """
import logging, sys
from sublet.daemon.logs import log_file
from sublet.daemon.logs import log_limit
from sublet.daemon.logs.logging import configure_logging

log_file.MAX_LOG_BYTES = 100_000
log_limit.PER_MINUTE = int(sys.argv[3])
configure_logging(own_file=sys.argv[1])
print("this goes along", flush=True)
for number in range(int(sys.argv[2])):
    logging.getLogger("sublet").info("a stranger called, %d", number)
print("and so does this", flush=True)
"""


def written(path: Path, lines: int, to: Path | None = None, *, limit: int = 1_000_000) -> None:
    """Have a process write ``lines`` lines, as a daemon in the background does."""
    with (to or path).open("ab") as log:
        subprocess.run(
            [sys.executable, "-c", WRITES, str(path), str(lines), str(limit)], stdout=log, stderr=log, check=True
        )


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


def test_a_stranger_does_not_push_out_what_was_written_before(tmp_path: Path) -> None:
    path = tmp_path / "daemon.log"
    path.write_text("what happened before\n")
    written(path, 5_000, limit=20)
    assert path.read_text().startswith("what happened before\n")
    assert path.read_text().count("a stranger called") == 20


def test_what_is_left_out_is_counted_and_others_are_written() -> None:
    stream, now = io.StringIO(), [0.0]
    handler = logging.StreamHandler(stream)
    handler.addFilter(LogLimit(handler, lambda: now[0]))
    logger = logging.getLogger("sublet.test_log_growth")
    logger.setLevel(logging.INFO)
    logger.propagate = False
    logger.handlers[:] = [handler]

    def flood(times: int) -> None:
        for number in range(times):
            logger.info("word %d of a stranger", number)

    flood(100)
    logger.info("honest")
    now[0] = 61
    logger.info("later")
    flood(30)
    lines = stream.getvalue().splitlines()
    assert len([line for line in lines if "stranger" in line]) == 2 * log_limit.PER_MINUTE
    assert lines[20] == "honest"
    assert lines[21].startswith("80 more entries")
    assert lines[22] == "later"


def test_what_goes_on_for_long_is_counted_for_longer_each_time() -> None:
    stream, now = io.StringIO(), [0.0]
    handler = logging.StreamHandler(stream)
    handler.addFilter(LogLimit(handler, lambda: now[0]))
    logger = logging.getLogger("sublet.test_log_growth.long")
    logger.setLevel(logging.INFO)
    logger.propagate = False
    logger.handlers[:] = [handler]
    for second in range(24 * 3_600):
        now[0] = float(second)
        logger.info("junk of a peer, %d", second)
    lines = stream.getvalue().splitlines()
    assert len(lines) < 40 * (log_limit.PER_MINUTE + 1)
    assert sum("left out within 60 minutes" in line for line in lines) >= 20
    now[0] += 2 * log_limit.MAX_WINDOW_SECONDS
    logger.info("and once more")
    now[0] += 2 * log_limit.MAX_WINDOW_SECONDS
    logger.info("later")
    assert stream.getvalue().splitlines()[-2:] == ["and once more", "later"]


def test_one_cause_is_one_place_whichever_logger_speaks(tmp_path: Path) -> None:
    code = WRITES.replace(
        """logging.getLogger("sublet").info("a stranger called, %d", number)""",
        """structlog.get_logger(f"sublet.{number}").warning("a stranger called", number=number)""",
    ).replace("import logging, sys", "import structlog, sys")
    path = tmp_path / "daemon.log"
    with path.open("ab") as log:
        subprocess.run([sys.executable, "-c", code, str(path), "3000", "20"], stdout=log, stderr=log, check=True)
    assert path.read_text().count("a stranger called") == 20
