"""A route's rules, as they are applied, and which of them is for a topic name."""

from collections.abc import Sequence
from typing import NamedTuple

from gateway.routes import Selector, remember
from uplink.shape.config import HEARTBEAT_S, ShapeConfig
from uplink.shape.json_path import Path, parse_path
from uplink.shape.template import Template, parse_template
from wire.topics import matches

TOPICS_REMEMBERED = 10_000


class DeadBand(NamedTuple):
    """How much a number has to differ from the one that was sent last, or how late it has to be."""

    width: float
    path: Path
    heartbeat_ms: int


class Rule(NamedTuple):
    """One rule: how it selects messages, and how it changes the ones that are sent."""

    topic_filter: str
    template: Template | None
    max_qos: int
    clears_retain: bool
    where: Selector | None
    every: int
    dead_band: DeadBand | None

    @property
    def selects(self) -> bool:
        """Whether it leaves messages out."""
        return self.where is not None or self.every > 1 or self.dead_band is not None


class Rules:
    """The rules of one route.

    Args:
        configs: the rules in their order.
        gateway: the gateway's name.
        route: the route's name.
    """

    def __init__(self, configs: Sequence[ShapeConfig], gateway: str, route: str) -> None:
        self._rules = [_rule(config, gateway, route) for config in configs]
        self._known: dict[str, Rule | None] = {}

    @property
    def select(self) -> bool:
        """Whether one of them leaves messages out."""
        return any(rule.selects for rule in self._rules)

    def of(self, topic: str) -> Rule | None:
        """Returns the first rule that is for a topic name."""
        if topic in self._known:
            return self._known[topic]
        found = next((rule for rule in self._rules if matches(rule.topic_filter, topic)), None)
        remember(self._known, topic, found, TOPICS_REMEMBERED)
        return found


def _rule(config: ShapeConfig, gateway: str, route: str) -> Rule:
    band = None
    if config.dead_band is not None:
        heartbeat_ms = 1000 * (config.heartbeat_s or HEARTBEAT_S)
        band = DeadBand(config.dead_band, parse_path(config.field or "$"), heartbeat_ms)
    return Rule(
        config.filter,
        parse_template(config.topic).fill(gateway, route) if config.topic else None,
        config.max_qos,
        config.retain == "clear",
        Selector(config.where) if config.where else None,
        config.every or 1,
        band,
    )
