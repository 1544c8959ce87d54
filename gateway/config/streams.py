"""The keys of the configuration file for streams. The reference page is made of it."""

from collections.abc import Iterator
from typing import Annotated, Any

import msgspec

from gateway.config.errors import Checked
from gateway.config.kinds import Count, NonEmpty, WhenFull
from gateway.streams.names import BadStream, check_stream_name

FOLDER = "streams"
"""In the folder of the default stream's store, where streams without a ``path`` have theirs."""


class StreamConfig(Checked, forbid_unknown_fields=True, frozen=True):
    """A [stream](../how-to/streams.md): topics with a store, limits and access rules of their own. A gateway without
    such tables has the default stream alone, which `[store]` is for."""

    name: str
    """The stream's name: one level of a topic, of at most 128 bytes. `"default"` and `"any"` are reserved. Its topics
    are `$SYS/STREAM/NAME/TOPIC` in access rules and in `[[topic]]`."""

    path: NonEmpty | None = None
    """The folder of its store; without it `streams/NAME` in the folder of `[store]`. It is made if it is missing."""

    users: tuple[NonEmpty, ...] = ()
    """The users whose topics are in this stream where they name none. A user goes before the listener's `stream`."""

    commit_interval_ms: Annotated[int, msgspec.Meta(ge=0, le=10_000)] = 0
    """The shortest time between two commits of this stream, in milliseconds, as for `[store]`."""

    max_messages: Count | None = None
    """The most messages in its store, as for `[store]`."""

    max_bytes: Annotated[int, msgspec.Meta(ge=1_000_000)] = 4_000_000_000
    """The most bytes in use in its store's file, as for `[store]`."""

    when_full: WhenFull = "discard_old"
    """What happens to the next message of the stream when its store is full, as for `[store]`. With `"flow_control"` a
    client's later messages, of other streams too, wait behind one that waits, because acknowledgements are sent in the
    order of the messages. With `"reject_incoming"` they do not."""

    @classmethod
    def errors_in(cls, values: dict[str, Any]) -> Iterator[tuple[str, str]]:
        try:
            check_stream_name(values.get("name", "stream"))
        except BadStream as error:
            yield "name", str(error)
