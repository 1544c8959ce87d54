"""What is known by topic name, in a memory that has an end whatever names clients make up."""

from typing import TypeVar

NAME_SIZE_MAX = 512  # characters, or bytes; a longer one is rare, and keeping many costs memory

Name = TypeVar("Name", str, bytes)
Answer = TypeVar("Answer")


def remember(known: dict[Name, Answer], name: Name, answer: Answer, most: int) -> None:
    """Keeps an answer, unless the name is long; where there are as many as that, all others are forgotten first."""
    if len(name) <= NAME_SIZE_MAX:
        if len(known) >= most:
            known.clear()
        known[name] = answer
