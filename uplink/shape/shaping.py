"""All that a route's rules do."""

from collections.abc import Callable, Sequence

from gateway.routes import Message
from uplink.shape.config import ShapeConfig
from uplink.shape.rules import Rules
from uplink.shape.selector import Selector
from uplink.shape.shaper import Shaper


class Shaping:
    """A route's rules with what they remember.

    Args:
        configs: the rules in their order.
        gateway: the gateway's name.
        route: the route's name.

    ``leaves_out`` decides which messages are left out, each asked for once and in their order; it is None if all are
    sent. ``shape`` returns a message as the route sends it, or raises CannotShape.
    """

    def __init__(self, configs: Sequence[ShapeConfig], gateway: str, route: str) -> None:
        rules = Rules(configs, gateway, route)
        self.configs = tuple(configs)
        self.leaves_out: Callable[[Message], bool] | None = Selector(rules).leaves_out if rules.select else None
        self.shape = Shaper(rules).shape
