"""What an attack needs: its configuration and its access rules."""

from collections.abc import Awaitable, Callable
from typing import NamedTuple

EVERYTHING = "allow * publish,subscribe #\nallow - identify *\nallow - neighbour *\n"


class Peer(NamedTuple):
    """An attack. ``config`` has the tables of the gateway's configuration, with ``{other}`` for the attack's port;
    ``rules`` are its access rules, "" for none.
    """

    attack: Callable[[int, int], Awaitable[None]]
    config: str = ""
    rules: str = ""
