"""Names in the one form in which they are compared, so that a lookalike is never someone else (DESIGN 7)."""

from __future__ import annotations

import unicodedata
from typing import Final

# Letters of other scripts that look like a Latin one in most fonts, after case folding.
_LOOKALIKES: Final = str.maketrans(
    "аеіјорсухѕһԁԛԝӏ" + "αειονρτυχκ" + "ıɑɡ",  # noqa: RUF001 - these are meant
    "aeijopcyxshdqwl" + "aeiovptuxk" + "iag",
)


def canonical(name: str) -> str:
    """Return ``name`` compatibility-composed, case-folded, without invisible characters and lookalikes.

    An absolute path is returned as it is: to the file system, two spellings are two files.
    """
    if name.isascii():
        return name if name.startswith("/") else name.lower()
    if name.startswith("/"):
        return name
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", name).casefold())
    return "".join(c for c in folded if unicodedata.category(c) not in ("Cf", "Cc")).translate(_LOOKALIKES)
