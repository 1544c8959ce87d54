"""What ends a process before it has done all that it is to do, wherever its files lie."""

import os
from pathlib import Path
from typing import Protocol
from urllib.parse import parse_qs, urlsplit
from urllib.request import urlopen

from cloud.storage.place import is_url
from tools.lab.torture.cloud.cut import Cutter, kill_this_process
from tools.lab.torture.cloud.line import CONTROL


class AnyCutter(Protocol):
    """Ends this process, before it has done all that it is to do."""

    def begin(self, at: int | None) -> None:
        """Counts from 0. The process ends at `at`."""

    def cut(self) -> None:
        """Ends the process."""

    def spare(self) -> int:
        """Lets the process live: it has done all that it was to do. Returns how many operations or requests it made."""


class RequestCutter:
    """Has the line end this process at one of its requests to an object store. It is used as a Cutter is."""

    def __init__(self, place: str) -> None:
        """place: the URL of a part of the store, whose endpoint is the line."""
        (endpoint,) = parse_qs(urlsplit(place).query)["endpoint_override"]
        self._line = f"http://{endpoint}{CONTROL}"

    def begin(self, at: int | None) -> None:
        """Counts from 0. The process is killed at request `at`."""
        cut = "" if at is None else f"&at={at}"
        urlopen(f"{self._line}begin?pid={os.getpid()}{cut}").close()

    def cut(self) -> None:
        """Ends the process. What it has asked of the store is on its way."""
        kill_this_process()

    def spare(self) -> int:
        """Lets the process live: it has done all that it was to do. Returns how many requests went over the line."""
        with urlopen(f"{self._line}spare") as answer:
            return int(answer.read())


def open_cutter(place: str, left: Path) -> AnyCutter:
    """Returns what ends this process before one of its operations on files of a folder, or at one of its requests to
    the store behind a URL. left: the file that says what a power cut may undo."""
    return RequestCutter(place) if is_url(place) else Cutter(Path(place), left)
