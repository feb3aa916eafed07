"""Which lines of a room are seen, at every width, and where the view stays."""

from __future__ import annotations

import pytest
from rich.cells import cell_len

from sublet.cli.chat.lines import Line, message_lines, wrapped
from sublet.cli.chat.timeline import MAX_KEPT, Timeline
from sublet.cli.rendering.entity_names import EntityNames
from sublet.daemon.api.room_messages import MessageView

ME, BOB = "@human:node-me", "@human:node-bob"
NAMES = EntityNames(ME, {"node-bob": "bob"})


def message(number: int, body: str | None = None, author: str = BOB, **more: object) -> MessageView:
    given = {
        "ref_id": f"01M8HGMYVBQHD2HCZFPH{number:06d}",
        "author": author,
        "body": f"message {number}" if body is None else body,
        "status": "active",
        "created_at": "2026-11-28T12:00:00Z",
    }
    return MessageView.model_validate({**given, **more})


def text(lines: list[Line]) -> str:
    return "\n".join("".join(piece for _, piece in line) for line in lines)


def filled(count: int) -> Timeline:
    timeline = Timeline(NAMES)
    timeline.show_page([message(number) for number in range(count)])
    return timeline


@pytest.mark.parametrize("width", [12, 20, 59, 60, 80, 200])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    odd = message(
        7,
        "a word\tand\n\n  " + "x" * 300 + " \N{PARTY POPPER}" * 40 + " 漢字" * 30,
        ext={"reply_to": {"ref_id": message(1).ref_id}, "media": {"filename": "f" * 300}},
        about={"reactions": {"\N{PARTY POPPER}": {"count": 2}}, "pinned": True},
        status="edited",
    )
    lines = message_lines(odd, NAMES, {message(1).ref_id: message(1)}, width)
    assert all(cell_len("".join(piece for _, piece in line)) <= max(width, 22) for line in lines)
    shown = text(lines)
    assert "edited" in shown
    assert "\t" not in shown


def test_what_others_write_can_not_steer_the_terminal() -> None:
    evil = "\x1b]0;title\x07\x1b[2Jhello\u202e\r\x9bworld\x00"
    one = message(
        1,
        evil,
        author=f"@{evil}:{evil}",
        ext={"channels": [evil], "media": {"filename": evil}, "thread": {"root": evil}},
        about={"redacted": {"reason": evil}, "reactions": {evil: {"count": 1}}},
    )
    shown = text(message_lines(one, NAMES, {}, 80))
    assert "hello" in shown
    assert not set(shown) & set("\x1b\x07\r\x9b\x00\u202e")


def test_a_message_says_who_and_what_became_of_it() -> None:
    assert "you" in text(message_lines(message(1, author=ME), NAMES, {}, 80))
    assert "bob" in text(message_lines(message(1), NAMES, {}, 80))
    gone = message(1, status="deleted_by_author")
    assert "(deleted)" in text(message_lines(gone.model_copy(update={"body": None}), NAMES, {}, 80))
    assert "0001" in text(message_lines(message(1), NAMES, {}, 80))


def test_the_end_is_seen_and_a_view_further_up_stays_where_it_is() -> None:
    timeline = filled(50)
    assert "message 49" in text(timeline.view(80, 10)[-1:])
    assert not timeline.scroll(-20, 80, 10)
    before = text(timeline.view(80, 10))
    assert "message 29" in before
    timeline.put([message(50), message(51)])
    assert text(timeline.view(80, 10)) == before
    timeline.put_older([message(number) for number in range(1000, 1005)])
    assert text(timeline.view(80, 10)) == before
    assert not timeline.follows
    timeline.scroll(1000, 80, 10)
    assert timeline.follows
    assert "message 51" in text(timeline.view(80, 10)[-1:])


def test_scrolling_up_ends_at_the_beginning_and_says_so() -> None:
    timeline = filled(50)
    assert timeline.scroll(-1000, 80, 10)
    assert "message 0" in text(timeline.view(80, 10))
    timeline.put_older([message(number) for number in range(1000, 1005)])
    assert not timeline.scroll(-1, 80, 10)


def test_a_few_messages_stand_at_the_bottom_and_can_not_be_scrolled_away() -> None:
    timeline = filled(2)
    for by in (-5, 5):
        timeline.scroll(by, 80, 10)
        lines = timeline.view(80, 10)
        assert len(lines) == 10
        assert "message 1" in text(lines[-1:])


def test_what_was_not_read_stands_below_a_line() -> None:
    timeline = filled(5)
    timeline.unread_after = message(2).ref_id
    shown = text(timeline.view(80, 10)).split("\n")
    unread = next(index for index, line in enumerate(shown) if " unread " in line)
    assert "message 2" in shown[unread - 1]
    assert "message 3" in shown[unread + 1]


def test_another_version_of_a_message_takes_its_place_in_answers_too() -> None:
    timeline = filled(2)
    timeline.put([message(2, ext={"reply_to": {"ref_id": message(1).ref_id}})])
    assert "answers bob: message 1" in text(timeline.view(80, 10))
    timeline.put([message(1, "it is otherwise")])
    assert "answers bob: it is otherwise" in text(timeline.view(80, 10))
    assert [one.ref_id for one in timeline.messages] == [message(number).ref_id for number in range(3)]


def test_after_a_long_absence_only_what_is_known_to_be_whole_is_shown() -> None:
    timeline = filled(3)
    timeline.show_page([message(number) for number in range(100, 103)])
    assert timeline.oldest == message(100).ref_id
    timeline.show_page([message(number) for number in range(102, 105)])
    assert timeline.oldest == message(100).ref_id
    assert timeline.newest == message(104).ref_id


def test_no_more_is_kept_than_a_bound() -> None:
    timeline = filled(1)
    timeline.put([message(number) for number in range(1, MAX_KEPT + 10)])
    assert len(timeline.messages) == MAX_KEPT
    assert timeline.newest == message(MAX_KEPT + 9).ref_id


def test_remarks_stand_where_they_were_made_and_go() -> None:
    timeline = filled(2)
    timeline.remark("our \x1b[31mwords")
    timeline.put([message(2)])
    shown = text(timeline.view(80, 10))
    assert shown.index("message 1") < shown.index("our words") < shown.index("message 2")
    timeline.clear_remarks()
    assert "our words" not in text(timeline.view(80, 10))


def test_wrapping_keeps_every_word() -> None:
    assert wrapped("one two three", 7) == ["one two", "three"]
    assert wrapped("", 7) == [""]
    assert wrapped("a\n\nb", 7) == ["a", "", "b"]
    assert "".join(wrapped("x" * 20, 7)) == "x" * 20
