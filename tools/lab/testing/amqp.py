"""A blocking client of AMQP 1.0, by Apache Qpid Proton, which has to be compiled: import this where it is needed."""

from typing import Any

from proton import Terminus
from proton.reactor import LinkOption
from proton.utils import BlockingConnection

DEADLINE_S = 30


class Durable(LinkOption):
    """Asks for a queue that lasts over a restart of the broker, as a route does."""

    def apply(self, link: Any) -> None:
        (link.source if link.is_receiver else link.target).durability = Terminus.DELIVERIES


def connect(url: str, virtual_host: str = "/") -> BlockingConnection:
    """Connects to a RabbitMQ as `guest`. Raises proton.ProtonException."""
    login = url.replace("//", "//guest:guest@")
    host = f"vhost:{virtual_host}"
    return BlockingConnection(login, allowed_mechs="PLAIN", virtual_host=host, timeout=DEADLINE_S)
