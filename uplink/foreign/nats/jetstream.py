"""JetStream's API, as far as a route asks it. An answer is looked at before anything goes by it.

Source: docs.nats.io, "JetStream wire API".
"""

from operator import index
from typing import Any, NamedTuple

from nats.aio.client import Client
from nats.js import JetStreamContext
from nats.js.api import AckPolicy, ConsumerConfig

from uplink.foreign.nats.client import readable


class StreamInfo(NamedTuple):
    """A stream: when it was made, as text, and the number of its last message."""

    created: str
    last_seq: int


class Progress(NamedTuple):
    """How far a consumer is: how many messages it has not acknowledged, and up to which number it has all of them."""

    waiting: int
    acknowledged_up_to: int


class JetStream:
    """JetStream over one connection. Its methods raise nats.errors.Error, and Unreadable for what cannot be read.

    Args:
        client: the connection.
    """

    def __init__(self, client: Client) -> None:
        self._context: JetStreamContext = client.jetstream()

    async def stream(self, name: str) -> StreamInfo:
        """Returns what a stream is now."""
        with readable(f"the answer about the stream {name!r}"):
            found = await self._context.stream_info(name)
            return StreamInfo(str(found.created), index(found.state.last_seq))

    async def progress(self, stream: str, consumer: str) -> Progress:
        """Returns how far a consumer of a stream is."""
        with readable(f"the answer about the consumer {consumer!r} of {stream!r}"):
            found = await self._context.consumer_info(stream, consumer)
            waiting = index(found.num_pending or 0) + index(found.num_ack_pending or 0)
            up_to = index(found.ack_floor.stream_seq) if found.ack_floor else 0
            if not waiting and found.delivered:
                up_to = max(up_to, index(found.delivered.stream_seq))
            return Progress(waiting, up_to)

    async def make_consumer(self, stream: str, name: str, subjects: str, ack_wait_s: float, most: int) -> None:
        """Makes a durable consumer that gets ``most`` messages at most before it has acknowledged one."""
        config = ConsumerConfig(
            durable_name=name,
            filter_subject=subjects,
            ack_policy=AckPolicy.EXPLICIT,
            ack_wait=ack_wait_s,
            max_ack_pending=most,
        )
        with readable(f"the answer about the new consumer {name!r} of {stream!r}"):
            await self._context.add_consumer(stream, config)

    async def pull(self, stream: str, consumer: str) -> Any:
        """Returns what fetches the messages of a consumer."""
        return await self._context.pull_subscribe_bind(consumer, stream)
