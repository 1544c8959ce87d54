"""What is wanted at this gateway, as a route asks its neighbour for it."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain

from gateway.links import Change, LinkSettings, Network, Side, changes_for
from gateway.routes import Copies
from uplink.config.route import RECEIPTS, RouteConfig
from uplink.proxy.cover import Cover
from uplink.proxy.requests import Asked, Requests
from uplink.proxy.session_filters import SessionFilters
from uplink.queue.heard import NotedFilters
from wire.topics import matches

EVERYTHING = "#"
AT_ONCE_GATEWAY, AT_ONCE_BROKER = 1000, 8
"""The most filters in one packet. AWS IoT takes eight."""


class AskedInterest:
    """Keeps the session that the neighbour has for the route subscribed to what is wanted here.

    Args:
        config: the route, with its neighbour.
        side: the side of the link.
        network: what is wanted here.
        noted: the filters for which an ordinary broker was asked.
        ended: the filters that the neighbour was asked to end, without an answer.
        copies: the retained messages that came over the link.

    ``session`` has the filters of the session.
    """

    def __init__(
        self,
        config: RouteConfig,
        side: Side,
        network: Network,
        noted: NotedFilters,
        ended: NotedFilters,
        copies: Copies,
    ) -> None:
        assert config.neighbour is not None
        self.session = SessionFilters()
        self._always = dict.fromkeys(config.subscribed)
        self._keeps = config.keep is not None
        self._is_at_broker = config.neighbour.name is None
        self._side = side
        self._network = network
        self._noted = noted
        self._ended = ended
        self._ending: Counter[str] = Counter()  # requests without an answer over this connection, by their filters
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

    def begin(self, requests: Requests, theirs: LinkSettings | None, noted: Sequence[str]) -> None:
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
        self._ending.clear()
        had = dict.fromkeys([*self.session.expected, *noted]) if self._is_at_broker else self.session.expected
        anew = self._without_copies(wanted)
        if self._keeps:  # no neighbour keeps all receipts for a session that is away, and all are retained
            anew[RECEIPTS] = None
        # Where it is not known what the session has, it may have these too. The neighbour stores them faster in order.
        added = sorted(one for one in wanted if one not in self.session.expected and one not in anew)
        self._ask(requests, added, [one for one in had if one not in wanted], is_anew=self._is_passive)
        self._ask(requests, list(anew), (), is_anew=True)
        if not is_known:
            self._note_ending([EVERYTHING])
            requests.end_others()
        self._copies.compare()

    def note_answer(self, asked: Asked, granted: Sequence[str], refused: Mapping[str, str]) -> None:
        """The neighbour has granted some filters of a request; ``refused`` has the reasons for the others."""
        self.session.note_answer(asked, granted, refused)
        if not asked.is_subscribe:
            self._ending.subtract(asked.topic_filters)
            done = [one for one in asked.topic_filters if self._ending[one] <= 0]
            for topic_filter in done:
                del self._ending[topic_filter]
            self._ended.remove(done)

    def note_begun(self) -> None:
        """What ``begin`` has asked for is answered, so that nothing of an earlier connection is in doubt."""
        self._ended.remove([one for one in self._ended.filters if one not in self._ending])

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

    def _without_copies(self, wanted: dict[str, None]) -> dict[str, None]:
        """Returns the wanted filters whose copies are gone or may not be on their way, if the session has them."""
        doubted = [*self.session.in_doubt, *self._ended.filters]
        if self._is_passive or EVERYTHING in doubted:
            doubted = list(self.session.expected if self._is_passive else wanted)
        return {one: None for one in doubted if one in wanted}

    def _told(self, topic: str) -> Iterator[str]:
        """Yields the filters that the neighbour was told and that match a topic name."""
        if self._cover is not None:
            return self._cover.of(topic)
        always = (one for one in self._always if matches(one, topic))
        return chain(self._network.told_of(topic, self._side), always)

    def _wanted(self) -> dict[str, None]:
        return self._always | dict.fromkeys(self._network.interest.told_to(self._side))

    def _ask(self, requests: Requests, added: Sequence[str], removed: Sequence[str], *, is_anew: bool = False) -> None:
        added = self.session.ask(added, removed)
        if self._is_at_broker:
            self._noted.add(added, is_soon=True)
        self._note_ending(removed)
        requests.subscribe(added, is_anew=is_anew)
        requests.unsubscribe(removed)

    def _note_ending(self, topic_filters: Sequence[str]) -> None:
        """Filters are about to be ended. A sweep may remove their copies at once, as this is durable before it."""
        self._ending.update(topic_filters)
        if not self._is_passive:
            self._ended.add(topic_filters)
