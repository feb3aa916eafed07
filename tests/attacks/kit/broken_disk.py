"""A disk that fails where it is told to: any place of ours that opens or removes a name can be met by an error."""

from __future__ import annotations

import builtins
import errno
import io
import os
import re
import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any, Final
from unittest.mock import patch

from attacks.counting import place
from attacks.sites import kinds_of
from sublet.protocol.errors import SubletError

CALLS: Final = ((os, "open"), (os, "unlink"), (os, "remove"), (os, "rmdir"), (io, "open"), (builtins, "open"))
"""What opens or removes by a name; what pathlib, tempfile and shutil do ends in one of these."""
EACH_CALL: Final = ("disk.durable:_write",)
"""Places whose callers each have something of their own to do when it fails."""
_INNER: Final = re.compile(r"\.<(?:listcomp|genexpr|dictcomp|setcomp|lambda)>.*")

Work = Callable[[Path], Awaitable[object]]


class BrokenDisk:
    """Fails one call of one place while it is told to, and knows all places that it has met.

    Args:
        code: the error that it fails with.
    """

    def __init__(self, code: int = errno.EIO) -> None:
        self._code = code
        self.met: Counter[str] = Counter()
        self.failed: set[str] = set()
        self._target = ""
        self._after = 0

    @contextmanager
    def installed(self) -> Iterator[BrokenDisk]:
        """Look at every call while the block runs."""
        before = [(module, name, getattr(module, name)) for module, name in CALLS]
        for module, name, call in before:
            setattr(module, name, self._looking_at(call))
        try:
            # What is durable when is not looked at here, and to wait for it takes most of the time.
            with patch.object(os, "fsync", lambda _: None):
                yield self
        finally:
            for module, name, call in before:
                setattr(module, name, call)

    @contextmanager
    def failing(self, target: str, after: int = 0) -> Iterator[None]:
        """Fail one call of ``target`` while the block runs: the next one, but for ``after`` of them."""
        self._target, self._after = target, after
        try:
            yield
        finally:
            self._target = ""

    def _looking_at(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def looking(*arguments: Any, **more: Any) -> Any:
            caller = _ours(sys._getframe(1))
            if caller is not None:
                self.met[caller] += 1
                if caller == self._target:
                    self._after -= 1
                if caller == self._target and self._after < 0:
                    self._target = ""
                    self.failed.add(caller)
                    raise OSError(self._code, os.strerror(self._code))
            return call(*arguments, **more)

        return looking


def _ours(frame: FrameType | None) -> str | None:
    """Return the innermost function of ours, as ``attacks.sites`` names it."""
    while frame is not None:
        if (name := place(frame)) is not None:
            return _INNER.sub("", name)
        frame = frame.f_back
    return None


async def fail_each(work: Work, base: Path, packages: Sequence[str], code: int = errno.EIO) -> set[str]:
    """Do ``work``, then once more for each place of ``packages`` that it meets, which fails, and again each time.

    The first call of a place fails; of ``EACH_CALL`` every one in turn. A failure may surface as what callers expect,
    ``SubletError`` or ``OSError``, or as nothing. Afterwards ``work`` has to succeed in the very directory in which it
    failed before.

    Returns:
        the places that were failed.
    """
    disk = BrokenDisk(code)
    with disk.installed():
        await work(base)
        disk.met.clear()
        await work(base)
        wanted = {
            name: calls if name in EACH_CALL else 1
            for name, calls in sorted(disk.met.items())
            if name.startswith(tuple(packages)) and kinds_of(name) & {"open", "removal"}
        }
        for name, calls in wanted.items():
            for number in range(calls):
                with disk.failing(name, number), suppress(SubletError, OSError):
                    await work(base)
                try:
                    await work(base)
                except Exception as error:
                    error.add_note(f"it had failed in {name}, at call {number}")
                    raise
    assert disk.failed == set(wanted)
    return disk.failed
