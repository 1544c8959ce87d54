"""Clients that name streams in each of the ways."""

from typing import Any, NamedTuple

from gateway.broker import Broker
from gateway.config.schema import TcpConfig
from gateway.config.streams import StreamConfig
from gateway.listeners.sockets import TcpListener
from tests.gateway.support import Client
from wire import properties as p
from wire.codec.packets import Publish, Suback, Unsuback

PLANT = StreamConfig("plant")


class Way(NamedTuple):
    """How a client writes the topic ``t`` of a stream, and how it gets messages to it."""

    stream: str
    topic: str = "t"
    named: str | None = None
    listener: int = 0


WAYS = {
    "names the default stream": Way("", named="default"),
    "names another stream": Way("plant", named="plant"),
    "writes a topic": Way(""),
    "writes a prefix": Way("plant", "$SYS/STREAM/plant/t"),
}
"""The kinds of publishers and subscribers in WebSphere MQ's table."""
IMPLIED = {
    "comes by the stream's listener": Way("plant", listener=1),
    "comes by the stream's listener and names the default stream": Way("", named="default", listener=1),
    "comes by the stream's listener and writes the default stream's prefix": Way(
        "", "$SYS/STREAM/default/t", listener=1
    ),
}


def listeners() -> list[TcpConfig]:
    """One of the default stream, and one of the stream ``plant``."""
    return [TcpConfig(port=0), TcpConfig(port=0, stream="plant")]


def port_of(broker: Broker, listener: int) -> int:
    """The TCP port of a listener."""
    return [one.port for one in broker.listeners.all if isinstance(one, TcpListener)][listener]


def naming(way: Way) -> dict[int, Any]:
    """The properties with which a packet names a stream."""
    return {} if way.named is None else {p.USER_PROPERTY: [("hf-stream", way.named)]}


async def client(broker: Broker, name: str, way: Way, **options: Any) -> Client:
    return await Client(name, **options).connect(port_of(broker, way.listener))


async def subscribe(one: Client, way: Way, *filters: str, qos: int = 1) -> list[int]:
    """Subscribes in this way; without filters to the way's topic."""
    one.protocol.subscribe([(topic_filter, qos) for topic_filter in filters or (way.topic,)], naming(way))
    one.flush()
    answer: Suback = await one.expect(Suback)
    return answer.reason_codes


async def unsubscribe(one: Client, way: Way) -> list[int]:
    one.protocol.unsubscribe([way.topic], naming(way))
    one.flush()
    answer: Unsuback = await one.expect(Unsuback)
    return answer.reason_codes


async def publish(one: Client, way: Way, payload: bytes, **options: Any) -> None:
    await one.publish(way.topic, payload, properties=naming(way), **options)


def named_in(packet: Publish) -> str | None:
    """The stream that a message's user property names."""
    return dict(packet.properties.get(p.USER_PROPERTY, ())).get("hf-stream")
