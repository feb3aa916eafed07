"""What waits of peers, by number and by bytes."""

from __future__ import annotations

from sublet.messaging.byte_queue import ByteQueue


def test_so_many_and_of_so_many_bytes_wait_in_order() -> None:
    queue: ByteQueue[str] = ByteQueue(3, 100)
    assert queue.put("one", 60)
    assert not queue.put("too large", 41)
    assert queue.put("two", 40)
    assert not queue.put("no byte is left", 1)
    assert queue.put("three", 0)
    assert not queue.put("one too many", 0)
    assert [queue.take() for _ in range(4)] == ["one", "two", "three", None]
    assert queue.put("there is room again", 100)
    assert len(queue) == 1
