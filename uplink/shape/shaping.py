"""All that a route's rules do."""

import contextlib
from collections.abc import Callable, Sequence

from gateway.routes import Message
from uplink.shape.config import ShapeConfig
from uplink.shape.rules import Rules
from uplink.shape.selector import Selector
from uplink.shape.shaper import CannotShape, Shaper


class Shaping:
    """A route's rules with what they remember.

    Args:
        configs: the rules in their order.
        gateway: the gateway's name.
        route: the route's name.
        exempt: the topic of messages that go as they are.

    ``leaves_out`` decides which messages are left out, each asked for once and in their order; it is None if all are
    sent.
    """

    def __init__(self, configs: Sequence[ShapeConfig], gateway: str, route: str, exempt: str = "") -> None:
        rules = Rules(configs, gateway, route)
        self.configs = tuple(configs)
        self._exempt = exempt
        self._selects = Selector(rules).leaves_out if rules.select else _nothing
        self.leaves_out: Callable[[Message], bool] | None = self._leaves_out if rules.select else None
        self._shaper = Shaper(rules)

    def _leaves_out(self, message: Message) -> bool:
        return message.topic != self._exempt and self._selects(message)

    def shape(self, message: Message) -> Message:
        """Returns a message as the route sends it. Raises CannotShape."""
        return self._shaper.shape(message) if self.configs and message.topic != self._exempt else message

    def shape_retained(self, message: Message) -> Message | None:
        """Returns a retained message as the route sends it, None if it does not go, or is not retained there."""
        with contextlib.suppress(CannotShape):
            shaped = None if self.leaves_out and self.leaves_out(message) else self.shape(message)
            return shaped if shaped and shaped.retain else None
        return None


def _nothing(_: Message) -> bool:
    return False
