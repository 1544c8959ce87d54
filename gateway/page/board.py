"""The newest snapshot as HTML, with what has changed since each earlier one: all viewers get the same bytes."""

import json
import os

from gateway.page.sections import SECTIONS
from gateway.page.snapshot import Snapshot
from gateway.page.times import clock_of

KEPT_MOST = 8  # events of one snapshot
DIGITS_MOST = 9  # of the number of a snapshot


class Board:
    """The sections of the page as they are now, each with the number of the snapshot in which it last changed."""

    def __init__(self) -> None:
        self._life = os.urandom(4).hex()  # a viewer may come back to a gateway that has started again
        self._number = 0
        self._sections: dict[str, tuple[str, int]] = {}
        self._made_s: dict[str, float] = {}
        self._at = ""
        self._news: dict[str, bytes] = {}  # by what the viewer has

    @property
    def version(self) -> str:
        """Names the newest snapshot."""
        return f"{self._life}-{self._number}"

    @property
    def at(self) -> str:
        """The time of the newest snapshot in UTC, as in "2026-11-27 23:42:05"."""
        return self._at

    def update(self, snapshot: Snapshot) -> None:
        """Takes a new snapshot."""
        self._number += 1
        self._at = clock_of(1000 * snapshot.at_s)
        self._news.clear()
        for name, (section, stays_s) in SECTIONS.items():
            if 0 <= snapshot.at_s - self._made_s.get(name, 0.0) < stays_s:
                continue
            html = section(snapshot)
            self._made_s[name] = snapshot.at_s
            if name not in self._sections or self._sections[name][0] != html:
                self._sections[name] = html, self._number

    def html(self) -> dict[str, str]:
        """Returns all sections by their ids."""
        return {name: html for name, (html, _) in self._sections.items()}

    def news(self, since: str) -> bytes:
        """Returns the event for a viewer that has an earlier version: the sections that have changed.

        A viewer with a version that is not known gets all of them.
        """
        found = self._news.get(since)
        if found is None:
            life, _, number = since.partition("-")
            is_known = life == self._life and number.isascii() and number.isdigit() and len(number) <= DIGITS_MOST
            had = int(number) if is_known else -1
            changed = {name: html for name, (html, at) in self._sections.items() if at > had}
            data = json.dumps({"at": self._at, "sections": changed}, ensure_ascii=False)
            found = f"id: {self.version}\ndata: {data}\n\n".encode()
            self._news = {**self._news, since: found} if len(self._news) < KEPT_MOST else {since: found}
        return found
