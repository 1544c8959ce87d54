"""What a cursor needs of the message log. ``gateway.store.log.MessageLog`` is one."""

from typing import Protocol, TypeVar

from gateway.message import Message
from gateway.store.consumers.audience import Audience, Subscriber
from gateway.store.consumers.tally import Tally
from gateway.store.tables.cursors import Place
from gateway.store.tables.drops import Epoch
from gateway.store.tables.log_rows import LogRow

Consumer = TypeVar("Consumer", bound=Subscriber)


class LogReader(Protocol[Consumer]):
    """The log as its consumers see it: they read messages, and report how far they have got.

    ``head`` is the position of the newest message, ``gone`` the last position that no consumer gets any more, and
    ``audience`` holds the subscriptions of all cursors. ``new_tally`` makes what counts the
    messages that wait for a new cursor.
    """

    @property
    def head(self) -> int: ...

    @property
    def gone(self) -> int: ...

    @property
    def audience(self) -> Audience[Consumer]: ...

    def new_tally(self, always_counts: bool) -> Tally: ...

    async def read(self, after: int, limit: int) -> list[tuple[int, Message]]: ...

    async def read_rows(self, after: int) -> list[LogRow]: ...

    def rows_in_memory(self, after: int) -> list[LogRow]: ...

    def count_behind(self, position: int) -> int: ...

    def passed(self, consumer: str) -> set[int]: ...

    def saved_position(self, place: str) -> int: ...

    def attach(self, cursor: Consumer) -> Place: ...

    def detach(self, cursor: Consumer) -> None: ...

    def changed(self) -> None: ...

    def drop(self, reason: str, consumer: str, message: Message) -> None: ...

    def leave_out(self, consumer: str, found: dict[Epoch, list[int]]) -> None: ...

    def forget(self, consumer: str) -> None: ...
