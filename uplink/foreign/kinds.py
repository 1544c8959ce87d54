"""The foreign systems that a route can lead to: a new one is a line in each function, and its own folder."""

from host.release import DISTRIBUTION
from uplink.foreign.config import AmqpConfig, ForeignConfig, ImportingConfig, NatsConfig, SparkplugConfig
from uplink.foreign.form import Form, HeaderForm
from uplink.foreign.transport import Login, Transport, TransportDown


def form_for(config: ForeignConfig, gateway_name: str) -> Form:
    """Returns what makes the other system's parcels of messages, over all connections of a route."""
    if isinstance(config, SparkplugConfig):
        from uplink.foreign.sparkplug.edge_node import EdgeNode, escaped  # few gateways need it, and it takes memory

        return EdgeNode(config.group, config.edge_node or escaped(gateway_name), gateway_name, 1000 * config.silent_s)
    assert isinstance(config, ImportingConfig)
    return HeaderForm(
        config.names,
        config.receivers_by,
        with_headers=config.export_headers,
        with_properties=config.export_properties,
    )


def transport_for(config: ForeignConfig, gateway_name: str, login: Login, form: Form) -> Transport:
    """Returns a connection that is yet to be made. Raises TransportDown: the client library is not installed."""
    try:
        if isinstance(config, NatsConfig) and isinstance(form, HeaderForm):
            from uplink.foreign.nats.connection import Nats  # the libraries take memory, and may not be installed

            return Nats(config, gateway_name, login, form.receivers)
        if isinstance(config, AmqpConfig):
            from uplink.foreign.amqp.connection import Amqp

            return Amqp(config, gateway_name, login)
        if isinstance(config, SparkplugConfig):
            from uplink.foreign.sparkplug.connection import Sparkplug
            from uplink.foreign.sparkplug.edge_node import EdgeNode

            assert isinstance(form, EdgeNode)
            return Sparkplug(config, gateway_name, login, form)
    except ModuleNotFoundError as error:
        extra = "nats" if isinstance(config, NatsConfig) else "amqp"
        wanted = f"{DISTRIBUTION}[gateway,{extra}]"
        raise TransportDown(f"{error}: this kind of route needs pip install '{wanted}'") from None
    raise TransportDown(f"route {config.name!r} is of no kind that is known")
