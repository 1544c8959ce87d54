"""The topic name, QoS and RETAIN flag of the messages that a route sends."""

from typing import Any, NamedTuple

from gateway.routes import Message, remember
from uplink.shape.rules import TOPICS_REMEMBERED, Rules
from wire.properties import RESPONSE_TOPIC


class CannotShape(Exception):
    """No message of this topic name can be sent; the text says why."""


class _Shape(NamedTuple):
    """What the messages of one topic name become; ``problem`` says why they cannot be sent."""

    topic: str
    max_qos: int
    clears_retain: bool
    problem: str = ""


class Shaper:
    """Changes messages by a route's rules.

    Args:
        rules: the route's rules.
    """

    def __init__(self, rules: Rules) -> None:
        self._rules = rules
        self._known: dict[str, _Shape] = {}

    def shape(self, message: Message) -> Message:
        """Returns the message as the route sends it, with the same identity. Raises CannotShape.

        Its response topic is renamed by the rule that is for it, as the answer is published under the new names. One
        that cannot be rewritten stays as it is.
        """
        shape = self._known.get(message.topic) or self._shape(message.topic)
        if shape.problem:
            raise CannotShape(shape.problem)
        qos, retain = min(message.qos, shape.max_qos), message.retain and not shape.clears_retain
        properties = self._renamed(message.properties)
        if (shape.topic, qos, retain) == (message.topic, message.qos, message.retain) and not properties:
            return message
        return Message(
            shape.topic,
            message.payload,
            qos,
            retain,
            properties or message.properties,
            message.origin,
            message.epoch,
            message.seq,
            message.received_ms,
            message.received_by,
            message.publisher,
            message.expires_ms,
            message.position,
        )

    def _renamed(self, properties: dict[int, Any]) -> dict[int, Any] | None:
        """Returns properties with another response topic, None if they stay as they are."""
        response = properties.get(RESPONSE_TOPIC)
        if not response:
            return None
        renamed = (self._known.get(response) or self._shape(response)).topic
        return None if renamed == response else {**properties, RESPONSE_TOPIC: renamed}

    def _shape(self, topic: str) -> _Shape:
        rule = self._rules.of(topic)
        shape = _Shape(topic, 2, False)
        if rule is not None:
            shape = shape._replace(max_qos=rule.max_qos, clears_retain=rule.clears_retain)
            try:
                shape = shape._replace(topic=rule.template.name(topic) if rule.template else topic)
            except ValueError as error:
                shape = shape._replace(problem=f"its topic name cannot be rewritten: {error} [shape]")
        remember(self._known, topic, shape, TOPICS_REMEMBERED)
        return shape
