"""What is wanted at this gateway, as a route asks its neighbour for it."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain

from gateway.links import Change, LinkSettings, Network, Side, changes_for
from gateway.routes import Copies
from uplink.config.route import RouteConfig
from uplink.proxy.cover import Cover
from uplink.proxy.requests import Requests
from uplink.proxy.session_filters import SessionFilters
from uplink.queue.heard import AskedFilters
from wire.topics import matches

AT_ONCE_GATEWAY, AT_ONCE_BROKER = 1000, 8
"""The most filters in one packet. AWS IoT takes eight."""


class AskedInterest:
    """Keeps the session that the neighbour has for the route subscribed to what is wanted here.

    Args:
        config: the route, with its neighbour.
        side: the side of the link.
        network: what is wanted here.
        noted: the filters for which an ordinary broker was asked.
        copies: the retained messages that came over the link.

    ``session`` has the filters of the session.
    """

    def __init__(
        self,
        config: RouteConfig,
        side: Side,
        network: Network,
        noted: AskedFilters,
        copies: Copies,
    ) -> None:
        assert config.neighbour is not None
        self.session = SessionFilters()
        self._always = dict.fromkeys(config.subscribe)
        self._is_at_broker = config.neighbour.name is None
        self._side = side
        self._network = network
        self._noted = noted
        self._copies = copies
        self._copies.told = self._told
        self._is_passive = copies.go_with_connection = config.neighbour.mode == "active-passive"
        self._cover: Cover | None = None
        self._requests: Requests | None = None

    @property
    def requests(self) -> Requests | None:
        """What asks the neighbour, None unless the connection stands."""
        return self._requests if self._requests is not None and self._requests.is_open else None

    @property
    def at_once(self) -> int:
        """The most filters in one packet."""
        return AT_ONCE_BROKER if self._is_at_broker else AT_ONCE_GATEWAY

    def open(self) -> None:
        """The route begins. In mode active-passive the connection of an earlier start has ended with that."""
        if self._is_passive:
            self._copies.clear()

    def say(self) -> tuple[int, int]:
        """Returns the sum of the session's filters for a CONNECT."""
        return self.session.say(self._wanted()).value

    def begin(self, requests: Requests, theirs: LinkSettings | None, noted: Iterable[str]) -> None:
        """A connection begins: asks for what the session lacks, and ends what is wanted no more. Raises LinkDown.

        Args:
            requests: asks the neighbour.
            theirs: the settings of the gateway at the other end, None for an ordinary broker.
            noted: the filters that the session of an ordinary broker may have.
        """
        wanted = self._wanted()
        if self._is_at_broker:
            self._cover = Cover(wanted)
            wanted = self._cover.filters
        is_known = self.session.begin(theirs, noted)
        self._requests = requests
        expected = self.session.expected
        lacking = [one for one in self._without_copies() if one in wanted and one in expected]
        added = sorted(one for one in wanted if one not in expected)  # the neighbour stores them faster in order
        # Where it is not known what the session has, it may have these too.
        self._ask(requests, added, [one for one in expected if one not in wanted], is_anew=self._is_passive)
        requests.subscribe(lacking, is_anew=True)
        self._copies.compare()
        if not is_known:
            requests.end_others()

    def end(self) -> None:
        """The connection has ended."""
        if self._requests is not None:
            self.session.end(self._requests.waiting)
            if self._is_passive:
                self._copies.clear()
        self._requests = None

    def tell(self, changes: Sequence[Change]) -> None:
        """Asks for what is newly wanted here, then ends what no longer is."""
        if (requests := self.requests) is None:
            return
        added, removed = [[one for one in some if one not in self._always] for some in changes_for(self._side, changes)]
        if self._cover is not None:
            added, removed = self._cover.change(added, removed)
        for topic_filter in removed:
            self.session.refused.pop(topic_filter, None)
        self._copies.tell(added, removed)
        expected = self.session.expected
        self._ask(requests, [one for one in added if one not in expected], [one for one in removed if one in expected])
        requests.flush()

    def _without_copies(self) -> list[str]:
        """Returns the filters of the session whose copies are gone, or may not be on their way."""
        return list(self.session.expected) if self._is_passive else self.session.in_doubt

    def _told(self, topic: str) -> Iterator[str]:
        """Yields the filters that the neighbour was told and that match a topic name."""
        if self._cover is not None:
            return self._cover.of(topic)
        always = (one for one in self._always if matches(one, topic))
        return chain(self._network.interest.told_of(topic, self._side), always)

    def _wanted(self) -> dict[str, None]:
        return self._always | dict.fromkeys(self._network.interest.told_to(self._side))

    def _ask(self, requests: Requests, added: Sequence[str], removed: Sequence[str], *, is_anew: bool = False) -> None:
        added = self.session.ask(added, removed)
        if self._is_at_broker:
            self._noted.add(added)
        requests.subscribe(added, is_anew=is_anew)
        requests.unsubscribe(removed)
