"""The terminal of a chat: messages between two lines, and where one types. Alone in using prompt_toolkit."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Any, Final

from prompt_toolkit.application import Application
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.history import InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings
from prompt_toolkit.layout import HSplit, Layout, Window
from prompt_toolkit.layout.controls import BufferControl, FormattedTextControl
from prompt_toolkit.layout.dimension import Dimension
from prompt_toolkit.layout.processors import BeforeInput
from prompt_toolkit.styles import Style
from rich.cells import cell_len

from sublet import deadlines
from sublet.cli.chat.doing import do
from sublet.cli.chat.lines import Line, fitted, tag_of
from sublet.cli.chat.talk import Talk
from sublet.cli.rendering.rooms import room_name
from sublet.protocol.errors import SubletError
from sublet.protocol.text import clean_line

MAX_INPUT_LINES: Final = 8
PROMPT: Final = "> "
MAX_NAMES: Final = 4
LEAVE_SECONDS: Final = 3.0
"""Whoever leaves waits no longer for a daemon that does not answer."""
PAUSE_SECONDS: Final = 4.0
"""Whoever has typed nothing for so long is not writing any more; longer than it takes until it is told again."""
STYLE: Final = {
    "time": "ansibrightblack",
    "tag": "ansibrightblack",
    "name": "bold ansicyan",
    "own": "bold ansigreen",
    "note": "ansibrightblack",
    "rule": "ansibrightblack",
    "unread": "bold ansired",
    "remark": "italic ansiyellow",
    "bar": "reverse",
    "problem": "bold reverse",
}


class ChatScreen:
    """A chat in a terminal.

    Args:
        talk: the room.
        streams: input and output of prompt_toolkit, the terminal's own by default.
    """

    def __init__(self, talk: Talk, **streams: Any) -> None:
        self._talk = talk
        self._problem = ""
        self._busy: set[asyncio.Task[None]] = set()
        self._group: asyncio.TaskGroup | None = None
        self._failure: Exception | None = None
        self._pause: asyncio.TimerHandle | None = None
        self._input = Buffer(multiline=True, history=InMemoryHistory(), on_text_changed=lambda _: self._typing())
        above = Window(FormattedTextControl(self._above), height=1)
        body = Window(FormattedTextControl(self._body), height=lambda: Dimension.exact(self._body_height()))
        below = Window(FormattedTextControl(self._below), height=1)
        control = BufferControl(self._input, input_processors=[BeforeInput(PROMPT)])
        typed = Window(control, height=lambda: Dimension.exact(self._input_height()), wrap_lines=True)
        self.app: Application[None] = Application(
            layout=Layout(HSplit([above, body, below, typed]), focused_element=typed),
            key_bindings=self._keys(),
            style=Style.from_dict(STYLE),
            full_screen=True,
            **streams,
        )

    async def run(self) -> None:
        """Show the room until its reader leaves.

        Raises:
            SubletError: the room can't be read any more.
        """
        self._put(await self._talk.draft())
        async with asyncio.TaskGroup() as group:
            self._group = group
            self._begin(self._follow)
            try:
                await self._kept(self._shown)
            finally:
                self._group = None
                if self._pause is not None:
                    self._pause.cancel()
                for task in self._busy:
                    task.cancel()
        if self._failure is not None:
            raise self._failure

    async def _shown(self) -> None:
        await self.app.run_async()
        await self._leave()

    async def _kept(self, work: Callable[[], Awaitable[None]]) -> None:
        """Do it; its failure is raised when the reader has left, and not before."""
        try:
            await work()
        except Exception as error:
            self._failure = self._failure or error

    async def _leave(self) -> None:
        """Keep what was not sent, where there is somebody to keep it."""
        with suppress(SubletError, TimeoutError):
            async with deadlines.timeout(LEAVE_SECONDS):
                await self._talk.tell_typing(False)
                await self._talk.keep_draft(self._input.text)

    def changed(self) -> None:
        """Draw again."""
        self.app.invalidate()

    async def _follow(self) -> None:
        try:
            await self._talk.follow()
        except Exception:
            self.app.exit()
            raise

    # What is seen

    def _size(self) -> tuple[int, int]:
        size = self.app.output.get_size()
        return max(size.columns, 1), max(size.rows, 1)

    def _input_height(self) -> int:
        columns, rows = self._size()
        lines = self._input.text.split("\n")
        count = sum((cell_len(line) + len(PROMPT)) // columns + 1 for line in lines)
        return max(1, min(count, MAX_INPUT_LINES, rows - 3))

    def _body_height(self) -> int:
        return max(1, self._size()[1] - 2 - self._input_height())

    def _body(self) -> StyleAndTextTuples:
        lines = self._talk.timeline.view(self._size()[0], self._body_height())
        return _joined(lines)

    def _above(self) -> StyleAndTextTuples:
        room = self._talk.room
        columns = self._size()[0]
        people = f"{len(room.roles)} members" if len(room.roles) != 1 else "only you"
        if here := self._talk.here:
            people += f" | here: {', '.join(here[:MAX_NAMES])}" + (", …" if len(here) > MAX_NAMES else "")
        knocking = f" | {len(room.knocks)} at the door: /who" if room.knocks else ""
        text = f" {room_name(room.name, self._talk.names)} | {people}{knocking} | /help"
        return [("class:bar", fitted(text, columns))]

    def _below(self) -> StyleAndTextTuples:
        columns = self._size()[0]
        talk = self._talk
        if talk.away:
            return [("class:problem", fitted(f" {talk.away}", columns))]
        if self._problem:
            return [("class:problem", fitted(f" {self._problem}", columns))]
        typing = talk.typing
        text = f" {', '.join(typing[:MAX_NAMES])} writing" if typing else ""
        if talk.aim is not None:
            what = "answering" if talk.aim.kind == "reply" else "editing"
            text = f" {what} {tag_of(talk.aim.ref_id)}, Esc stops that"
        elif not talk.timeline.follows:
            text = " further up; End goes to the end"
        return [("class:bar", fitted(text, columns))]

    # What keys do

    def _keys(self) -> KeyBindings:
        keys = KeyBindings()

        def on(handler: Any, *names: str, **options: Any) -> None:
            keys.add(*names, **options)(handler)

        on(lambda event: self._accept(), "enter")
        on(lambda event: self._input.insert_text("\n"), "escape", "enter")
        on(lambda event: self._input.insert_text("\n"), "c-j")
        on(lambda event: self.app.exit(), "c-c")
        on(lambda event: self._end_of_input(), "c-d")
        on(lambda event: self._escape(), "escape")
        on(lambda event: self._scroll(-self._body_height() + 1), "pageup")
        on(lambda event: self._scroll(self._body_height() - 1), "pagedown")
        on(lambda event: self._scroll(-1), "c-up")
        on(lambda event: self._scroll(1), "c-down")
        on(lambda event: self._end_key(), "end")
        on(lambda event: self.app.renderer.clear(), "c-l")
        return keys

    def _accept(self) -> None:
        typed = self._input.text
        self._input.append_to_history()
        self._empty()
        self._problem = ""
        self._begin(partial(self._do, typed))

    def _begin(self, work: Callable[[], Awaitable[None]]) -> None:
        if self._group is None:
            return
        task = self._group.create_task(self._kept(work))
        self._busy.add(task)
        task.add_done_callback(self._busy.discard)

    def _empty(self) -> None:
        """Take away what is typed; of that ``reset`` tells nobody."""
        self._input.reset()
        self._typing()

    def _typing(self) -> None:
        """Tell that something is being written, and in a while that it is no longer, unless it goes on."""
        if self._pause is not None:
            self._pause.cancel()
            self._pause = None
        text = self._input.text
        typing = bool(text) and not text.startswith("/")
        self._begin(partial(self._tell_typing, typing))
        if typing and self._group is not None:
            later = partial(self._begin, partial(self._tell_typing, False))
            self._pause = asyncio.get_running_loop().call_later(PAUSE_SECONDS, later)

    async def _tell_typing(self, typing: bool) -> None:
        with suppress(SubletError):  # only told in passing
            await self._talk.tell_typing(typing)

    async def _do(self, typed: str) -> None:
        aim = self._talk.aim
        try:
            done = await do(self._talk, typed)
        except SubletError as error:
            self._talk.aim = aim
            self._problem = clean_line(f"{error.message}. {error.hint or ''}", 300)
            if not self._input.text and not typed.startswith("/"):  # words are back where they were typed
                self._put(typed)
        else:
            if done.put is not None and not self._input.text:
                self._put(done.put)
            if done.quit:
                self.app.exit()
        self.app.invalidate()

    def _put(self, text: str) -> None:
        self._input.insert_text(text)

    def _end_of_input(self) -> None:
        if self._input.text:
            self._input.delete()
        else:
            self.app.exit()

    def _escape(self) -> None:
        if self._talk.aim is not None and self._talk.aim.kind == "edit":
            self._empty()
        self._talk.aim = None
        self._problem = ""

    def _end_key(self) -> None:
        if self._input.text and not self._input.document.is_cursor_at_the_end_of_line:
            self._input.cursor_position += self._input.document.get_end_of_line_position()
        else:
            self._talk.timeline.to_end()

    def _scroll(self, by: int) -> None:
        columns = self._size()[0]
        if self._talk.timeline.scroll(by, columns, self._body_height()):
            self._begin(self._older)

    async def _older(self) -> None:
        try:
            await self._talk.older()
        except SubletError as error:
            self._problem = clean_line(error.message, 300)
            self.app.invalidate()


def _joined(lines: list[Line]) -> StyleAndTextTuples:
    pieces: StyleAndTextTuples = []
    for index, line in enumerate(lines):
        if index:
            pieces.append(("", "\n"))
        pieces += line
    return pieces
