"""All multicast groups of a gateway."""

from collections.abc import Sequence

from gateway.auth.filters import holds, split
from gateway.config.multicast import MulticastConfig
from gateway.counters import MulticastState
from gateway.multicast.group import MulticastGroup
from gateway.network import Network
from gateway.network.zones import LOCAL
from gateway.store import MessageLog


class BadMulticast(Exception):
    """A SUBSCRIBE that asks for multicast and cannot have it; the text says why."""


class Multicast:
    """The multicast groups that are configured.

    Args:
        configs: their settings.
        log: the message log.
        network: told that what their filters match is wanted here.
    """

    def __init__(self, configs: Sequence[MulticastConfig], log: MessageLog, network: Network) -> None:
        self._configs = configs
        self._log = log
        self._network = network
        self._groups: list[MulticastGroup] = []

    def open(self) -> None:
        """Begins to send."""
        for config in self._configs:
            self._groups.append(MulticastGroup(config, self._log))
            for topic_filter in config.topics:
                self._network.want(topic_filter, LOCAL)

    async def close(self) -> None:
        """Sends what waits, and ends."""
        for group in self._groups:
            await group.close()
        self._groups.clear()

    def group_for(self, name: str, topic_filters: Sequence[str]) -> MulticastGroup:
        """Returns the group that has all that some topic filters match: the one of this name, "" for the first one.

        Raises BadMulticast.
        """
        named = [group for group in self._groups if name in ("", group.config.name)]
        if not named:
            raise BadMulticast(
                f"there is no multicast group {name!r} here" if name else "there are no multicast groups"
            )
        for group in named:
            if all(_has(group.config.topics, topic_filter) for topic_filter in topic_filters):
                return group
        which = f"the multicast group {name!r} does not have" if name else "no multicast group has"
        raise BadMulticast(f"{which} all that {', '.join(map(repr, topic_filters))[:200]} matches")

    def rotate(self) -> None:
        """The access rules may have changed: the receivers that may still have a key get the next one now."""
        for group in self._groups:
            group.rotate()

    def states(self) -> list[MulticastState]:
        """Returns how each group is doing."""
        return [group.state for group in self._groups]


def _has(topics: Sequence[str], topic_filter: str) -> bool:
    return any(holds(split(one), split(topic_filter)) for one in topics)
