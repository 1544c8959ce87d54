"""What one reading of a line brings: all of it is written in one transaction, and answered when that is durable."""

import asyncio
from collections.abc import Callable
from typing import Any

from gateway.store.database import Work
from gateway.store.log import MessageLog

Answer = Callable[[], None]


class Turn:
    """Gathers work and its answers, turn by turn; answers come in the order in which they were added [section 4.6].

    Args:
        log: where the work is written.
        answered: called when the answers of a turn have been given.
        failed: called with a text when a turn could not be written: then nothing of it was, and it has no answers.
    """

    def __init__(self, log: MessageLog, answered: Callable[[], None], failed: Callable[[str], None]) -> None:
        self._log = log
        self._answered = answered
        self._failed = failed
        self._work: list[Work] = []
        self._answers: list[Answer] = []
        self._written: list[tuple[asyncio.Future[list[Any]] | None, list[Answer]]] = []

    def add(self, answer: Answer, *work: Work) -> None:
        """Adds work to this turn and what answers it; without work it is answered behind what came before it."""
        self._work += work
        self._answers.append(answer)

    def end(self) -> None:
        """Ends the turn: what it gathered is written."""
        if not self._answers:
            return
        answers, self._answers = self._answers, []
        work, self._work = self._work, []
        if not work:
            self._written.append((None, answers))
            self._answer()
            return
        future = self._log.submit(work)
        self._written.append((future, answers))
        future.add_done_callback(lambda _: self._answer())

    async def settle(self) -> None:
        """Ends the turn and waits until all turns are written, or could not be."""
        self.end()
        while self._written:
            await asyncio.wait([future for future, _ in self._written if future is not None])

    def _answer(self) -> None:
        while self._written and ((future := self._written[0][0]) is None or future.done()):
            _, answers = self._written.pop(0)
            if future is not None and (error := future.exception()):
                self._work, self._answers = [], []  # nothing overtakes what has to be sent again
                self._failed(f"the message store failed: {error}")
                continue
            for answer in answers:
                answer()
        self._answered()
