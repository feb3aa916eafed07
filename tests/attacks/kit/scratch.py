"""What an agent with a shell can put in place of the files and directories that the daemon makes for its prompts."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from support.deep_tree import nest


@dataclass(frozen=True, slots=True)
class Obstacle:
    """A shell script that runs in the private directory; ``$VICTIM`` is a directory that the sandbox hides."""

    name: str
    script: str


OBSTACLES = (
    Obstacle("home is a link", 'rm -rf home; ln -s "$VICTIM" home'),
    Obstacle("home is a file", "rm -rf home; echo theirs > home"),
    Obstacle("home is a fifo", "rm -rf home; mkfifo home"),
    Obstacle("home is closed", "chmod 0 home"),
    Obstacle("home is gone", "rm -rf home tmp"),
    Obstacle("tmp is a link", 'rm -rf tmp; ln -s "$VICTIM" tmp'),
    Obstacle("git settings are a link", 'ln -sf "$VICTIM/kept" home/.gitconfig'),
    Obstacle("git settings are a dangling link", 'ln -sf "$VICTIM/authorized_keys" home/.gitconfig'),
    Obstacle("git settings are a fifo", "rm home/.gitconfig; mkfifo home/.gitconfig"),
    Obstacle("git settings are a directory", "rm home/.gitconfig; mkdir -p home/.gitconfig/a"),
    Obstacle("the prompt is a link", 'ln -sf "$VICTIM/kept" prompt.txt'),
    Obstacle("the prompt is a fifo", "rm prompt.txt; mkfifo prompt.txt"),
    Obstacle("the prompt is a directory", "rm prompt.txt; mkdir -p prompt.txt/a"),
    Obstacle(
        "the prompt is a socket",
        "rm prompt.txt; python3 -c 'import socket as s; s.socket(s.AF_UNIX).bind(\"prompt.txt\")'",
    ),
)


def in_place() -> Sequence[Callable[[Path, Path], object]]:
    """Return what puts something at a path: called with it and with a directory in which nothing may change."""
    return (
        lambda path, victim: path.symlink_to(victim),
        lambda path, victim: path.symlink_to(victim / "new"),
        lambda path, victim: os.mkfifo(path),
        lambda path, victim: path.write_bytes(b"theirs"),
        lambda path, victim: nest(path, 300),
        lambda path, victim: nest(path, 2, mode=0),
    )


def put(obstacle: Obstacle, victim: Path) -> str:
    """Return the prompt of a shell agent that puts ``obstacle`` in its private directory."""
    return f'set -e; VICTIM={shlex.quote(str(victim))}; cd "$HOME/.."; {obstacle.script}; cd "$SUBLET_WORKSPACE"'
