"""What came of a run's messages, by their identities."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tools.lab.torture.network.plan import PASSIVE, Link
from tools.lab.torture.network.site import Gap, Network
from tools.lab.torture.network.subscriber import Came, Subscriber
from tools.lab.torture.outcome import Outcome, named
from tools.lab.torture.publisher import EPOCH, MARKERS, Publisher
from tools.lab.torture.uplink.run import overtaken


@dataclass(kw_only=True)
class NetworkOutcome(Outcome):
    """What came of the messages of all runs; `messages` had to come to a subscriber, added up over the subscribers.

    Attributes:
        untyped: how many did not come, where that is allowed, and no range says why.
        typed: how many did not come, where that is allowed, and a range says why.
        marked: how many came again, where that is allowed.
        rerouted: how many another one has overtaken because a circle has changed their way, which is allowed.
        foreign: how many came to a subscriber that should not have them.
    """

    untyped: int = 0
    typed: int = 0
    marked: int = 0
    rerouted: int = 0
    foreign: int = 0

    @property
    def holds(self) -> bool:
        return super().holds and not (self.untyped or self.foreign)


def judge(outcome: NetworkOutcome, site: Network, gaps: list[Gap]) -> list[str]:
    """Counts what came of a run's messages; returns a sentence for each thing that was not as promised."""
    found = list(site.violations)
    for gateway in site.gateways:
        found += gateway.complaints()
    for subscriber in site.subscribers:
        sources = site.sources(subscriber)
        names = {publisher.name for publisher in sources}
        strangers = [one for one in subscriber.came if one.origin not in names and not _is_marker(one)]
        outcome.foreign += len(strangers)
        if strangers:
            found.append(
                f"{len(strangers)} came to {subscriber.name} that were not for it, the first is {strangers[0]}"
            )
        for publisher in sources:
            found += _judge_one(outcome, site, subscriber, publisher, gaps)
    return found


def _judge_one(
    outcome: NetworkOutcome, site: Network, subscriber: Subscriber, publisher: Publisher, gaps: list[Gap]
) -> Iterator[str]:
    """Judges what one subscriber got of one publisher."""
    came = [one for one in subscriber.came if one.origin == publisher.name and not _is_marker(one)]
    numbers = [one.number for one in came]
    expected = expected_of(subscriber, publisher, numbers)
    missing = [number for number in expected if number not in set(numbers)]
    way = site.way(subscriber, publisher)
    typed = [number for number in missing if any(_explains(gap, publisher, number) for gap in gaps)]
    may_miss = _may_miss(way)
    lost = [] if may_miss else missing
    untyped = [number for number in missing if number not in typed] if may_miss else []
    allowed, twice = _again(site, subscriber, publisher, came)
    disorder = []
    if None not in way:  # mosquitto lets new messages overtake waiting ones
        disorder = overtaken(publisher, numbers)
    if site.has_changed_ways and way:
        outcome.rerouted += len(disorder)
        disorder = []
    wrong = [one for one in came if (one.epoch, one.topic) != (EPOCH, publisher.topic)]
    outcome.messages += len(expected)
    outcome.lost += len(lost)
    outcome.untyped += len(untyped)
    outcome.typed += len(typed) if may_miss else 0
    outcome.twice += len(twice)
    outcome.marked += len(allowed)
    outcome.disorder += len(disorder)
    outcome.foreign += len(wrong)
    where = f"{publisher.name} at {subscriber.name} ({_told_way(site, subscriber, publisher)})"
    kinds = {"lost": lost, "missing without a range": untyped, "twice": twice, "overtaken": disorder}
    kinds["changed"] = [one.number for one in wrong]
    yield from named(where, kinds)


def expected_of(subscriber: Subscriber, publisher: Publisher, came: list[int]) -> list[int]:
    """Returns the numbers of the messages that have to come: of one that is over those before the last one that came,
    as the others may have been under way."""
    first = subscriber.since.get(publisher.name)
    if first is None:
        return []
    last = max(came, default=0) if subscriber.is_over else publisher.count
    return [number for number in publisher.accepted if first <= number <= last]


def _again(
    site: Network, subscriber: Subscriber, publisher: Publisher, came: list[Came]
) -> tuple[list[int], list[int]]:
    """Returns the messages that came again: where that is allowed, and where it is not.

    At QoS 1 a message may come again to a subscriber if it says so, if the subscriber's gateway was killed, or if its
    publisher has sent it again. Over links none may.
    """
    allowed: list[int] = []
    twice: list[int] = []
    seen: Counter[int] = Counter()
    is_killed = site.gateways[subscriber.gateway].kills > 0
    for one in came:
        if seen[one.number]:
            is_repeated = one.number in publisher.repeated
            may = (is_repeated and publisher.qos == 1) or (
                min(subscriber.qos, publisher.qos) == 1 and (is_killed or one.is_dup)
            )
            (allowed if may else twice).append(one.number)
        seen[one.number] += 1
    return allowed, twice


def late(site: Network) -> bool:
    """Whether a message has not come that may still come."""
    return any(
        set(expected_of(one, publisher, numbers)) - set(numbers)
        for one in site.subscribers
        if not one.is_over
        for publisher in site.sources(one)
        if not _may_miss(site.way(one, publisher))
        for numbers in ([came.number for came in one.came if came.origin == publisher.name],)
    )


def _may_miss(way: Sequence[Link | None]) -> bool:
    """Whether a message may be missing, with a range that says why: a link of its way is active-passive."""
    return any(link is not None and link.mode == PASSIVE for link in way)


def _explains(gap: Gap, publisher: Publisher, number: int) -> bool:
    return gap.origin == publisher.name and gap.first <= number <= gap.last


def _is_marker(one: Came) -> bool:
    return one.topic.startswith(f"{MARKERS}/")


def _told_way(site: Network, subscriber: Subscriber, publisher: Publisher) -> str:
    links = [link.name if link else "broker" for link in site.way(subscriber, publisher)]
    kind = "durable" if subscriber.is_durable else "not durable"
    return ", ".join([f"QoS {publisher.qos} to {subscriber.qos}", kind, *links])
