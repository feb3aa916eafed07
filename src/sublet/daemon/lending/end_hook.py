"""Tells the owner's own programs that a delegation is over: a command of ``config.json``, and a desktop notice.

The command is the owner's alone. Nothing of a peer's or of an MCP host's becomes a part of it: what is told goes to its
standard input, as one JSON object.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
from collections.abc import Mapping, Sequence

import anyio
import structlog

from sublet.daemon.api.delegation_views import DelegationView
from sublet.protocol.text import clean_line

MAX_WAITING = 200
"""Ends that may wait to be told; what comes beyond is only logged."""
HOOK_SECONDS = 30.0
_PASSED = ("PATH", "HOME", "LANG", "USER", "LOGNAME", "DISPLAY", "WAYLAND_DISPLAY", "XDG_RUNTIME_DIR",
           "DBUS_SESSION_BUS_ADDRESS")  # fmt: skip

log = structlog.get_logger(__name__)


class EndHook:
    """Runs the hooks, one delegation after the other.

    Args:
        on_end: program and arguments; empty for none.
        notify: whether ``notify-send`` is run as well, where it is there.
        environ: the daemon's environment, of which a hook gets a few names.
    """

    def __init__(self, on_end: Sequence[str], *, notify: bool, environ: Mapping[str, str] | None = None) -> None:
        self._on_end = tuple(on_end)
        self._notify = notify
        self._environ = os.environ if environ is None else environ
        self._waiting: asyncio.Queue[DelegationView | tuple[str, str]] = asyncio.Queue(MAX_WAITING)

    def tell(self, view: DelegationView) -> None:
        """Have the hooks run for a delegation that is over."""
        if not self._on_end and not self._notify:
            return
        try:
            self._waiting.put_nowait(view)
        except asyncio.QueueFull:
            log.warning("a hook was left out: too many are waiting", delegation_id=view.delegation_id)

    def note(self, title: str, text: str) -> None:
        """Show a person a title and a text, where desktop notices are wanted."""
        if not self._notify:
            return
        try:
            self._waiting.put_nowait((_plain(title, 64), _plain(text, 200)))
        except asyncio.QueueFull:
            log.warning("a notice was left out: too many are waiting", title=title)

    async def serve(self) -> None:
        """Run hooks until cancelled; the one that runs then is ended."""
        while True:
            told = await self._waiting.get()
            about: dict[str, str] = {}
            if not isinstance(told, tuple):
                about = {"SUBLET_DELEGATION_ID": told.delegation_id, "SUBLET_STATE": told.state.value}
                if self._on_end:
                    await self._run(self._on_end, about, told.model_dump_json().encode() + b"\n")
                told = notice(told)
            program = shutil.which("notify-send", path=self._environ.get("PATH")) if self._notify else None
            if program is not None:
                await self._run([program, "--app-name=sublet", "--", *told], about, b"")

    async def _run(self, argv: Sequence[str], about: Mapping[str, str], stdin: bytes) -> None:
        env = {name: self._environ[name] for name in _PASSED if name in self._environ}
        try:
            process = await asyncio.create_subprocess_exec(
                *argv,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.DEVNULL,
                stderr=asyncio.subprocess.DEVNULL,
                env={**env, **about},
                cwd="/",
                start_new_session=True,
            )
        except OSError as error:
            log.warning("the hook can't be started", program=argv[0], reason=error.strerror)
            return
        try:
            with anyio.move_on_after(HOOK_SECONDS) as limit:
                await process.communicate(stdin)
            if limit.cancelled_caught:
                log.warning("the hook was ended: it took too long", program=argv[0], seconds=HOOK_SECONDS)
            elif process.returncode:
                log.warning("the hook failed", program=argv[0], status=process.returncode)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            with anyio.CancelScope(shield=True):
                await process.wait()


def notice(view: DelegationView) -> tuple[str, str]:
    """Return title and text of a desktop notice, in words that can't steer anything."""
    return f"{clean_line(view.peer, 64)}: {view.state.value}", _plain(view.description, 100)


def _plain(text: str, limit: int) -> str:
    # Some desktops read a little markup in the text.
    return clean_line(text, limit).replace("&", "&amp;").replace("<", "&lt;")
