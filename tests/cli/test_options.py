"""Values of options: read whole, or refused by name."""

from __future__ import annotations

import pytest
import typer
from typer.testing import CliRunner

from sublet.cli.app import app
from sublet.cli.options.values import address, byte_count, duration, whole_id


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("--ttl", "1\n"),
        ("--ttl", " 1"),
        ("--ttl", "\N{ARABIC-INDIC DIGIT ONE}"),
        ("--max-total-bytes", "1K\n"),
        ("--max-file-bytes", "1 K"),
        ("--max-total-bytes", "1.5G"),
        ("--max-file-bytes", "-1"),
        ("--max-files", "-1"),
    ],
)
def test_a_value_is_read_whole_or_not_at_all(option: str, value: str) -> None:
    done = CliRunner().invoke(app, ["delegate", "/tmp", "--to", "bob", "x", option, value])
    assert done.exit_code == 2
    assert option in done.output
    assert "Traceback" not in done.output


@pytest.mark.parametrize(
    ("text", "count"), [("0", 0), ("4096", 4096), ("64K", 65536), ("10mb", 10 << 20), ("2GiB", 2 << 30)]
)
def test_sizes_are_counted_in_powers_of_1024(text: str, count: int) -> None:
    assert byte_count(text) == count


def test_an_address_or_a_time_with_a_line_break_is_none() -> None:
    assert (duration("15m"), address("[::1]:0")) == (900, ("::1", 0))
    for read, text in ((duration, "15m\n"), (address, "127.0.0.1:0\n")):
        with pytest.raises(typer.BadParameter):
            read(text)


def test_an_id_is_known_by_its_beginning() -> None:
    known = ["apr_ab12", "apr_ac34"]
    for given, whole in (("last", "apr_ab12"), ("ac", "apr_ac34"), ("apr_ab", "apr_ab12"), ("apr_ac34", "apr_ac34")):
        assert whole_id(given, known) == whole
    # what fits nothing is left to the daemon, which says so
    assert (whole_id("x", known), whole_id("", known), whole_id("last", [])) == ("x", "", "last")
    with pytest.raises(typer.BadParameter, match="fits 2"):
        whole_id("apr_a", known)
