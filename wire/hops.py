"""The gateways that have handed a message on, as MQTT 5 user properties.

`hf-hops` = "{epoch:08x}": the epoch of a gateway's store. Each route adds one to the messages that it hands on, and a
gateway stores no message again that has its own. In a CONNACK for a route it is the epoch of the gateway that answers.
"""

HOPS_PROPERTY = "hf-hops"
STORE_PROPERTY = "hf-store"
"""A property of a CONNACK: the epoch of the store, spelt like a hop. A client that finds another one than before knows
that the gateway has lost its store, or has a copy of it."""


def encode_hop(epoch: int) -> str:
    """Returns the value of `hf-hops` for a gateway, by its store's epoch."""
    return f"{epoch:08x}"
