"""By what connections and requests of strangers are counted."""

from __future__ import annotations

from sublet.protocol.sources import source_of


def test_addresses_are_counted_by_who_has_them() -> None:
    assert source_of("2001:db8::1") == source_of("2001:db8::ffff:2") == "2001:db8::/64"
    assert source_of("2001:db8:0:1::1") != source_of("2001:db8::1")
    assert source_of("::ffff:192.0.2.1") == source_of("192.0.2.1") == "192.0.2.1"
    assert source_of("fe80::1%eth0") == source_of("fe80::2")
    assert source_of("") == ""
