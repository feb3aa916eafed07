"""The confined opener, by the name under which this package has always known it: see ``sublet.disk.openat2``."""

from sublet.disk.openat2 import (
    DIRECTORY_PATH,
    Opener,
    choose_opener,
    exchange,
    open_beneath,
    open_real,
    rename_noreplace,
    walk_beneath,
)

__all__ = [
    "DIRECTORY_PATH",
    "Opener",
    "choose_opener",
    "exchange",
    "open_beneath",
    "open_real",
    "rename_noreplace",
    "walk_beneath",
]
