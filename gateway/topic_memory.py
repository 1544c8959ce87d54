"""Answers remembered by topic name, in bounded memory whatever names the clients use."""

from typing import TypeVar

NAME_SIZE_MAX = 512  # characters, or bytes; a longer one is rare, and keeping many costs memory

Name = TypeVar("Name", str, bytes)
Answer = TypeVar("Answer")


def remember(known: dict[Name, Answer], name: Name, answer: Answer, most: int) -> None:
    """Remembers the answer for a name, unless the name is long; forgets all others when ``most`` are known."""
    if len(name) <= NAME_SIZE_MAX:
        if len(known) >= most:
            known.clear()
        known[name] = answer
