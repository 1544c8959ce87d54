"""The foreign systems that a route can lead to: a new one is a line here, and its own file."""

from host.release import DISTRIBUTION
from uplink.foreign.balance import Receivers
from uplink.foreign.config import AmqpConfig, ForeignConfig, NatsConfig
from uplink.foreign.transport import Login, Transport, TransportDown


def transport_for(config: ForeignConfig, gateway_name: str, login: Login, receivers: Receivers) -> Transport:
    """Returns a connection that is yet to be made. Raises TransportDown: the client library is not installed."""
    try:
        if isinstance(config, NatsConfig):
            from uplink.foreign.nats.connection import Nats  # the libraries take memory, and may not be installed

            return Nats(config, gateway_name, login, receivers)
        if isinstance(config, AmqpConfig):
            from uplink.foreign.amqp.connection import Amqp

            return Amqp(config, gateway_name, login)
    except ModuleNotFoundError as error:
        extra = "nats" if isinstance(config, NatsConfig) else "amqp"
        wanted = f"{DISTRIBUTION}[gateway,{extra}]"
        raise TransportDown(f"{error}: this kind of route needs pip install '{wanted}'") from None
    raise TransportDown(f"route {config.name!r} is of no kind that is known")
