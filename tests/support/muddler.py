"""A process on the bus that stands between peers whose publications go astray: some get lost, the rest come late,
in another order, and more than once.

``python -m support.muddler LISTEN SEED``: for each line on stdin it tells on stdout what it has done so far; a line
``empty`` has it publish first all that it still keeps back. TCP would hide all this below Zenoh.
"""

from __future__ import annotations

import json
import queue
import random
import subprocess
import sys
import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from sublet.messaging.backends.zenoh_network import Endpoints, ZenohNetwork
from sublet.messaging.ports.network import Priority, Qos, Sample

ASTRAY = "astray"
"""What publications go under that the muddler alone hears."""
LOST, AGAIN = 0.15, 0.4
KEPT_BACK = 24
"""Publications out of which the next one is drawn."""
QOS = Qos(Priority.DATA, droppable=False)


class AstrayNetwork(ZenohNetwork):
    """Publishes to the muddler alone what wildcards match; all else is as in ``ZenohNetwork``."""

    def publish(self, key: str, payload: bytes, attachment: bytes, qos: Qos, to: Collection[str] | None = None) -> None:
        super().publish(key if "@" in key else f"{ASTRAY}/{key}", payload, attachment, qos, to)


@dataclass
class Muddle:
    """What was done to publications."""

    heard: int = 0
    lost: int = 0
    published: int = 0
    overtaken: int = 0
    """How often something was published before what had come earlier."""


class Muddler:
    """Draws what to publish next."""

    def __init__(self, network: ZenohNetwork, seed: int) -> None:
        self._network = network
        self._random = random.Random(seed)
        self._kept: list[tuple[int, Sample]] = []
        self._last = 0
        self.done = Muddle()

    def take(self, sample: Sample) -> None:
        """Lose a publication, or keep it back once or more often."""
        self.done.heard += 1
        if self._random.random() < LOST:
            self.done.lost += 1
            return
        self._kept.append((self.done.heard, sample))
        while self._random.random() < AGAIN:
            self._kept.append((self.done.heard, sample))
        while len(self._kept) > KEPT_BACK:
            self.draw()

    def draw(self) -> None:
        """Publish one of those that are kept back."""
        number, sample = self._kept.pop(self._random.randrange(len(self._kept)))
        self.done.published += 1
        self.done.overtaken += number < self._last
        self._last = number
        self._network.publish(sample.key.removeprefix(f"{ASTRAY}/"), sample.payload, sample.attachment, QOS)

    def empty(self) -> None:
        """Publish all that is left."""
        while self._kept:
            self.draw()


def main(listen: str, seed: int) -> None:
    """Muddle until stdin ends."""
    network = ZenohNetwork(Endpoints((listen,)))
    todo: queue.SimpleQueue[Sample | str | None] = queue.SimpleQueue()
    network.subscribe(f"{ASTRAY}/**", todo.put)

    def read() -> None:
        for line in sys.stdin:
            todo.put(line.strip())
        todo.put(None)

    threading.Thread(target=read, daemon=True).start()
    print("ready", flush=True)
    muddler = Muddler(network, seed)
    while (item := todo.get()) is not None:
        if isinstance(item, Sample):
            muddler.take(item)
            continue
        if item == "empty":
            muddler.empty()
        print(json.dumps(asdict(muddler.done)), flush=True)
    network.close()


@contextmanager
def muddling(port: int, seed: int) -> Iterator[Callable[[str], Muddle]]:
    """Run a muddler in a process of its own; yields what gives it a line and returns what it has done so far."""
    command = [sys.executable, "-m", "support.muddler", f"tcp/127.0.0.1:{port}", str(seed)]
    tests = Path(__file__).parents[1]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=tests) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        asking, answering = process.stdin, process.stdout

        def ask(line: str) -> Muddle:
            asking.write(f"{line}\n")
            asking.flush()
            return Muddle(**json.loads(answering.readline()))

        try:
            assert answering.readline() == "ready\n"
            yield ask
        finally:
            process.kill()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
