from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sublet.daemon.net.base_url import check_url
from sublet.daemon.peering.pair_link import PairingLink, parse_link
from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.ids import fingerprint

KEY = fingerprint(b"k" * 32)
SHORT_KEY = KEY.removeprefix("SHA256:").replace("+", "-").replace("/", "_")
LINK = PairingLink("https://box.example:8642/", KEY, fingerprint(b"t"), "abcdefghijkl", "s" * 32, 1_800_000_000)


@pytest.mark.parametrize(
    ("given_url", "normal"),
    [
        ("http://127.0.0.1:8642", "http://127.0.0.1:8642/"),
        ("http://localhost/", "http://localhost:80/"),
        ("http://[::1]:9/", "http://[::1]:9/"),
        ("https://Box.Example", "https://box.example:443/"),
        ("https://192.0.2.1:8642/base/path/", "https://192.0.2.1:8642/base/path/"),
    ],
)
def test_addresses_in_their_normal_form(given_url: str, normal: str) -> None:
    assert check_url(given_url) == normal
    assert check_url(normal) == normal


@pytest.mark.parametrize(
    "url",
    [
        "",
        "http://",
        "ftp://box.example/",
        "file:///etc/passwd",
        "//box.example/",
        "box.example:8642",
        "http://192.0.2.1:8642/",
        "http://box.example/",
        "https://user@box.example/",
        "https://user:pw@box.example/",
        "https://box.example/?q",
        "https://box.example/#f",
        "https://box.example:0/",
        "https://box.example:65536/",
        "https://box.example:/",
        "https://box.example:-1/",
        "https://box.example:8 0/",
        "https://box.example/a b",
        "https://box.example/../x",
        "https://box.example//x",
        "https://box.example/%2e%2e/",
        "https://box.example\\@evil.example/",
        "https://box.exam\nple/",
        "https://box.example\t/",
        "https://\u200bbox.example/",
        "https://b\u00f6x.example/",
        "https://-box.example/",
        "https://box_.example/",
        "https://box..example/",
        "https://2130706433/",
        "https://127.1/",
        "https://0x7f.1/",
        "https://0/",
        "https://0.0.0.0/",
        "https://[::]/",
        "https://[fe80::1%25eth0]/",
        "https://[::1/",
        "https://::1/",
        "https://224.0.0.1/",
        "https://" + "a" * 64 + ".example/",
        "https://box.example/" + "a" * 2000,
    ],
)
def test_odd_addresses_are_refused(url: str) -> None:
    with pytest.raises(SubletError) as error:
        check_url(url)
    assert error.value.code is LocalCode.INVALID_ARGUMENT


def test_a_link_survives_its_written_form() -> None:
    for link in (LINK, PairingLink("http://[::1]:1/", KEY, None, "abcdefghijkl", "s" * 32, 1)):
        assert parse_link(str(link)) == link
        assert parse_link(f"  {link}\n") == link
    assert not set(str(LINK)) & set(" &;|<>*?$`'\"\\()!{}[]~")


@pytest.mark.parametrize(
    "change",
    [
        ("sublet+", "http+"),
        ("#1.", "#2."),
        ("#", "?"),
        ("https", "ftp"),
        (".abcdefghijkl.", ".short."),
        (".abcdefghijkl.", ".abcdefgh/jkl."),
        ("s" * 32, "s" * 65),
        (".1800000000", ".soon"),
        (".1800000000", ".-5"),
        (".1800000000", ".1800000000.1"),
        (SHORT_KEY, SHORT_KEY[1:]),
        (SHORT_KEY, SHORT_KEY[:-1] + "9"),
        (SHORT_KEY, SHORT_KEY[:-1] + "*"),
        ("box.example", "user@box.example"),
        ("box.example", "0.0.0.0"),
        (":8642", ":99999"),
    ],
)
def test_odd_links_are_refused(change: tuple[str, str]) -> None:
    changed = str(LINK).replace(*change, 1)
    assert changed != str(LINK)
    with pytest.raises(SubletError) as error:
        parse_link(changed)
    assert error.value.code is LocalCode.INVALID_ARGUMENT


def test_a_certificate_needs_tls() -> None:
    with pytest.raises(SubletError, match="without TLS"):
        parse_link(str(LINK).replace("https://box.example", "http://localhost"))


@given(st.text(max_size=200))
def test_no_text_does_anything_but_parse_or_be_refused(text: str) -> None:
    for candidate in (text, f"sublet+{text}", f"sublet+https://{text}#1.a.b.c.d.e", str(LINK) + text):
        # any other exception fails the test
        with suppress(SubletError):
            assert str(parse_link(candidate)).startswith("sublet+http")
