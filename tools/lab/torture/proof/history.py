"""One random history of a deployment: devices that roam, gateways with routes, faults, and what landed in the end.

The gateways here are a model: they know of stores, routes, numbers and statements what docs/reference/route-numbers.md
promises, and share no code with the gateway. What a device was acknowledged is the oracle.
"""

import random
from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import count
from typing import NamedTuple

from cloud.landing.file import Link, Row
from wire.route_numbers import (
    STATEMENT_TYPE,
    DroppedRange,
    HandedOn,
    LeftOutRuns,
    Statement,
    encode_statement,
    statement_topic,
)
from wire.runs import runs_of

Stream = tuple[str, int]
"""An origin and its epoch."""
TOPICS = "abc"
LANDER = "lander-1"
TIME_MS = 1_760_000_000_000


class Message(NamedTuple):
    """A message in a store, with the route numbers that it has crossed."""

    origin: str
    epoch: int
    seq: int
    topic: str
    payload: bytes = b"1"
    via: tuple[Link, ...] = ()
    made_ms: int = TIME_MS

    @property
    def stream(self) -> Stream:
        return self.origin, self.epoch


class Faults(NamedTuple):
    """How likely each fault is: of a message at the next broker, at the gateway, of a step, and in what landed."""

    lost: float = 0.0
    expired: float = 0.0
    refused: float = 0.0
    evicted: float = 0.0
    counted_only: float = 0.0
    crashed: float = 0.0
    destroyed: float = 0.0
    unanswered: float = 0.0
    withheld: float = 0.0
    forgetful: float = 0.0

    @staticmethod
    def draw(dice: random.Random) -> "Faults":
        """Returns some faults, each rare or frequent, or none at all."""
        if dice.random() < 0.1:
            return Faults()
        return Faults(*(dice.choice((0, 0, 0.02, 0.1, 0.3)) for _ in Faults._fields))


class Lane:
    """The messages that wait for one lane of a route, and its numbers."""

    def __init__(self, epoch: int) -> None:
        self.waiting: list[Message] = []
        self.epoch = epoch
        self.last = self.said = self.statements = 0
        self.handed: dict[Stream, list[int]] = defaultdict(list)
        self.left_out: dict[Stream, list[int]] = defaultdict(list)
        self.dropped: list[DroppedRange] = []
        self.refused: dict[int, Message] = {}

    def begin(self, epoch: int) -> None:
        """Begins an epoch of the numbers: what no statement has said is not said any more."""
        self.epoch, self.statements, self.said = epoch, 0, self.last
        self.handed.clear()
        self.refused.clear()


class Route:
    """A route of a gateway, to the lander or to a next gateway."""

    def __init__(self, gateway: "Gateway", name: str, takes: str, dice: random.Random, calm: bool) -> None:
        self.gateway, self.name, self.takes = gateway, name, takes
        self.has_numbers = calm or dice.random() < 0.9
        self.states = self.has_numbers and (calm or dice.random() < 0.8)
        self.names_left_out = calm or dice.random() < 0.85
        self.statement_topic = statement_topic(gateway.name, name)
        self.next: Gateway | None = None
        self.lanes = [Lane(dice.getrandbits(32)) for _ in range(dice.choice((1, 1, 2)))]


class Gateway:
    """A gateway with a store. `stream` names its own messages in the ledger."""

    def __init__(self, name: str, epoch: int) -> None:
        self.name = name
        self.stream = name, epoch
        self.seqs = count(1)
        self.routes: list[Route] = []


class History:
    """A history that follows from its seed, with names that begin with `prefix`.

    `landed` are the messages that landed, `due` the seqs of each stream that were acknowledged and that the routes are
    to hand on. `is_calm`: nothing is lost, and all is stated. `forged` are the messages of clients within their rights
    that lie about others.
    """

    def __init__(self, seed: int, prefix: str) -> None:
        self._dice = dice = random.Random(seed)
        self._prefix = prefix
        self._every = dice.choice((1, 1, 1, 2, 3))
        self.selected = "".join(dice.sample(TOPICS, dice.randint(1, 3)))
        self._faults = Faults.draw(dice)
        self.is_calm = self._faults == Faults()
        self.landed: list[Row] = []
        self.forged: list[Row] = []
        self.due: dict[Stream, set[int]] = defaultdict(set)
        self._gateways = [self._gateway(place) for place in range(dice.choice((1, 1, 2, 2, 3)))]
        if dice.random() < 0.3:
            self._chain()
        self._clock = count(TIME_MS)
        self._devices = [self._device(place) for place in range(dice.randint(1, 3))]
        for _ in range(dice.randint(5, 30)):
            self._step()
        if self.is_calm or dice.random() < 0.5:
            self._drain()
        self._withhold()
        self._forge()

    @property
    def streams(self) -> set[Stream]:
        """The streams of which something landed or is due."""
        return self.due.keys() | {(row.origin, row.epoch) for row in self.landed}

    @property
    def lacking(self) -> int:
        """How many messages were acknowledged, are to be handed on, and did not land."""
        arrived = {(row.origin, row.epoch, row.seq) for row in self.landed}
        return sum((*stream, seq) not in arrived for stream, due in self.due.items() for seq in due)

    # The deployment

    def _gateway(self, place: int) -> Gateway:
        gateway = Gateway(f"{self._prefix}gateway-{place}", self._dice.getrandbits(32))
        self._give_routes(gateway, self.selected)
        return gateway

    def _give_routes(self, gateway: Gateway, selected: str) -> None:
        """Routes that take all selected topics between them, and none besides; one may take what another does."""
        cut = self._dice.randint(0, len(selected)) if self._dice.random() < 0.3 else len(selected)
        parts = [selected[:cut], selected[cut:]]
        if len(selected) > 1 and cut < len(selected) and self._dice.random() < 0.3:
            parts[1] = selected[cut - 1 :] if cut else selected
        gateway.routes = [
            Route(gateway, f"route-{place}", takes, self._dice, self.is_calm)
            for place, takes in enumerate(filter(None, parts))
        ]

    def _chain(self) -> None:
        """The gateways send to one more, which hands on what is selected; it may get more than that."""
        centre = self._gateway(9)
        for gateway in self._gateways:
            if self._dice.random() < 0.7:
                more = "".join(topic for topic in TOPICS if topic in self.selected or self._dice.random() < 0.5)
                gateway.routes = [Route(gateway, "up", more, self._dice, self.is_calm)]
                gateway.routes[0].next = centre
        self._gateways.append(centre)

    def _device(self, place: int) -> "Device":
        return Device(f"{self._prefix}device-{place}", self._dice.getrandbits(32), self._dice.choice(self._gateways))

    # What happens

    def _step(self) -> None:
        dice, faults = self._dice, self._faults
        for device in self._devices:
            if dice.random() < 0.6:
                self._publish(device, dice.randint(1, 6))
            if not self.is_calm and dice.random() < 0.15:
                device.gateway = dice.choice(self._gateways)
        for gateway in self._gateways:
            if dice.random() < faults.evicted:
                self._evict(gateway, dice.randint(1, 5))
            if dice.random() < faults.crashed:
                self._crash(gateway)
            if dice.random() < faults.destroyed:
                self._destroy(gateway)
            for route in gateway.routes:
                if dice.random() < 0.7:
                    self._send(route, dice.randint(1, 8))
                if dice.random() < 0.5:
                    self._state(route)
                if len(route.lanes) > 1 and dice.random() < 0.2:  # it connects: what waits becomes backfill
                    live, backfill = route.lanes
                    backfill.waiting += live.waiting
                    live.waiting = []

    def _publish(self, device: "Device", messages: int) -> None:
        made = [
            Message(device.origin, device.epoch, next(device.seqs), self._dice.choice(TOPICS)) for _ in range(messages)
        ]
        if self._dice.random() < 0.1:
            self._dice.shuffle(made)  # of a client that forwards what it collects
        for message in [*device.unanswered, *made]:
            self._accept(device.gateway, message)
        device.unanswered = [one for one in made if self._dice.random() < self._faults.unanswered]

    def _is_selected(self, message: Message) -> bool:
        return message.topic in self.selected and message.seq % self._every == 0

    def _accept(self, gateway: Gateway, message: Message) -> None:
        """Stores a message and acknowledges it."""
        if self._is_selected(message):
            self.due[message.stream].add(message.seq)
        for route in gateway.routes:
            route.lanes[0].waiting.append(message)

    def _send(self, route: Route, messages: int) -> None:
        """Has the lanes of a route come past some messages."""
        for lane in reversed(route.lanes):
            taken, lane.waiting = lane.waiting[:messages], lane.waiting[messages:]
            for message in taken:
                self._come_past(route, lane, message)

    def _come_past(self, route: Route, lane: Lane, message: Message) -> None:
        if not self._takes(route, message):
            if not any(self._takes(other, message) for other in route.gateway.routes):
                lane.left_out[message.stream].append(message.seq)
            return
        is_statement = message.topic not in TOPICS
        dice, faults = self._dice, self._faults
        lane.last += 1
        if not is_statement and dice.random() < faults.expired:
            self._note_dropped(route, lane, "expired", message)
        elif not is_statement and dice.random() < faults.refused:
            lane.refused[lane.last] = message
        else:
            lane.handed[message.stream].append(message.seq)
            if dice.random() >= faults.lost:
                self._arrive(route, lane, message, lane.last)

    def _takes(self, route: Route, message: Message) -> bool:
        if message.topic not in TOPICS:
            return message.origin != route.gateway.name or message.topic == route.statement_topic
        if message.topic not in route.takes:
            return False
        return route.next is not None or message.seq % self._every == 0

    def _arrive(self, route: Route, lane: Lane, message: Message, number: int) -> None:
        link = Link(lane.epoch, number, route.gateway.name, route.name)
        via = (*message.via, link) if route.has_numbers else message.via
        message = message._replace(via=via)
        if route.next is None:
            self.landed.append(_row(message))
        else:
            for further in route.next.routes:
                further.lanes[0].waiting.append(message)

    def _note_dropped(self, route: Route, lane: Lane, reason: str, message: Message) -> None:
        about = (message.origin, message.epoch, message.seq, message.seq)
        if self._dice.random() < self._faults.counted_only:
            about = ("", 0, 0, 0)
        lane.dropped.append(DroppedRange(reason, f"route/{route.name}", *about, 1))

    def _state(self, route: Route) -> None:
        """Makes a statement of each lane."""
        if not route.states:
            return
        for lane in route.lanes:
            is_live = lane is route.lanes[0]
            if not (lane.handed or lane.left_out or lane.dropped):
                continue
            backfill = len(route.lanes) > 1 and bool(route.lanes[1].waiting or route.lanes[1].handed)
            origins = [
                HandedOn(*stream, max(seqs), len(seqs), min(seqs), max(seqs)) for stream, seqs in lane.handed.items()
            ]
            left_out = [LeftOutRuns(*stream, runs_of(sorted({*seqs}))) for stream, seqs in lane.left_out.items()]
            lane.statements += 1
            said = Statement(
                *(route.gateway.name, route.name, lane.epoch, lane.statements, lane.said + 1, lane.last),
                *(origins, lane.dropped, runs_of(sorted(lane.refused)), backfill and is_live),
                left_out if route.names_left_out else [],
            )
            lane.said = lane.last
            lane.handed.clear()
            lane.left_out.clear()
            lane.dropped = []
            self._give_out(route, said)

    def _give_out(self, route: Route, said: Statement) -> None:
        """The statement is a message of the gateway, which its route hands on; other routes leave it out."""
        seq = next(route.gateway.seqs)
        payload, made_ms = encode_statement(said), next(self._clock)
        message = Message(*route.gateway.stream, seq, route.statement_topic, payload, made_ms=made_ms)
        self.due[message.stream].add(seq)
        for other in route.gateway.routes:
            other.lanes[0].waiting.append(message)

    # Faults

    def _evict(self, gateway: Gateway, messages: int) -> None:
        """The store is full: the oldest messages go, before some routes come to them."""
        for route in gateway.routes:
            for lane in reversed(route.lanes):
                gone, lane.waiting = lane.waiting[:messages], lane.waiting[messages:]
                for message in gone:
                    if self._takes(route, message):
                        self._note_dropped(route, lane, "evicted", message)

    def _crash(self, gateway: Gateway) -> None:
        for route in gateway.routes:
            for lane in route.lanes:
                if self._dice.random() < 0.5:
                    lane.begin(self._dice.getrandbits(32))
                if self._dice.random() < self._faults.forgetful:
                    lane.left_out.clear()

    def _destroy(self, gateway: Gateway) -> None:
        """The store is gone, with all that waits; a new one takes its place."""
        gateway.stream = gateway.name, self._dice.getrandbits(32)
        gateway.seqs = count(1)
        for route in gateway.routes:
            route.lanes = [Lane(self._dice.getrandbits(32)) for _ in route.lanes]

    def _drain(self) -> None:
        """All that waits goes, and is stated."""
        for _ in range(6):
            for gateway in self._gateways:
                for route in gateway.routes:
                    self._send(route, 10_000)
                    self._state(route)
                    self._send(route, 10_000)

    def _withhold(self) -> None:
        """Another lander still has some of the messages, and they come in any order."""
        if self._faults.withheld:
            self.landed = [one for one in self.landed if self._dice.random() >= self._faults.withheld / 3]
        if self._dice.random() < 0.5:
            self._dice.shuffle(self.landed)

    # Lies

    def _forge(self) -> None:
        """A client makes statements of a route of its own about others, with its own identities."""
        name = f"{self._prefix}evil"
        seqs = count(1)
        numbers = count(1)
        for _ in range(self._dice.randint(1, 3)):
            known = [*self.due]
            if not known:
                return
            stream = self._dice.choice(known)
            top = self._dice.choice((max(self.due[stream]), 10**6, 2**63 - 2))
            origins = [HandedOn(*stream, top, 1, 1, top), HandedOn(name, 7, 1, 1, 1, 1)]
            ranges = [DroppedRange(self._dice.choice(("selected", "expired")), "route/x", *stream, 1, top, top)]
            number = next(numbers)
            said = Statement(
                name, "x", 7, number, number, number, origins, ranges, [], self._dice.random() < 0.5,
                [LeftOutRuns(*stream, [(1, top)])],
            )  # fmt: skip
            link = Link(7, next(numbers), name, "x")
            topic = statement_topic(name, "x")
            self.forged.append(_row(Message(name, 7, next(seqs), topic, encode_statement(said), (link,))))


class Device:
    """A device that sends to one gateway at a time."""

    def __init__(self, origin: str, epoch: int, gateway: Gateway) -> None:
        self.origin, self.epoch, self.gateway = origin, epoch, gateway
        self.seqs = count(1)
        self.unanswered: list[Message] = []


def _row(message: Message) -> Row:
    content_type = None if message.topic in TOPICS else STATEMENT_TYPE
    return Row(
        *(
            message.origin,
            message.epoch,
            message.seq,
            message.made_ms,
            message.origin,
            TIME_MS,
            message.topic,
            1,
            False,
        ),
        *(content_type, message.payload, LANDER, message.via),
    )


def missing_of(histories: Iterable[History], gaps: dict[Stream, list[tuple[int, int]]]) -> Iterator[str]:
    """Yields a sentence for each stream that looks more complete than it is, by its gaps.

    What was acknowledged behind the last message that arrived may not be known yet: no message and no statement tells
    of it.
    """
    for history in histories:
        arrived: dict[Stream, set[int]] = defaultdict(set)
        for row in history.landed:
            arrived[row.origin, row.epoch].add(row.seq)
        for stream, due in history.due.items():
            known = max(arrived[stream], default=0)
            missing = [seq for seq in sorted(due - arrived[stream]) if seq < known]
            told = gaps.get(stream, [])
            hidden = [seq for seq in missing if not any(lo <= seq <= hi for lo, hi in told)]
            if hidden:
                yield f"{stream[0]} lacks {hidden[0]}, and the tables do not say so ({len(hidden)} such messages)"
