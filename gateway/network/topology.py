"""Link states: what the gateways of a network tell each other of their links, so that each one knows them all.

Each end of a link is told by its gateway, in a link state with a serial, to all gateways that links lead to: what is
news to a gateway goes on over all of its other links, also over links that are set aside. A link counts if both ends
tell of it alike. From the same links each gateway works out the same circles (see `circles`), whichever came first.

The other way would be for each gateway to announce itself with the path that the announcement took, and to look for
two paths to one gateway. But the gateways that find a circle have to agree on a link of it, and know only the paths
that they have heard: they need rounds of questions, and again after each change. Here one small algorithm does it, on
facts that all of them have. Link states are per link and not per gateway, so that a change of one link of a gateway
with a thousand takes some fifty bytes.

For the same link state the higher serial wins. A gateway that hears a link state of its own with a serial that is not
lower, and that it has not told, tells it anew with a higher one: so a serial need not outlive a restart. Of two that
differ and have the same serial, as after a restart, all gateways take the same one, until their gateway hears of it.

A link that is gone is told as such, since a link state that is merely missing could come back from elsewhere. Link
states of gateways that no link leads to any more, and of links that are gone, are forgotten when there is no room.

This module does no input and no output, and has no clock.

Source: RFC 2328 (OSPF), sections 12 and 13: link state database, self-originated link states, flooding.
"""

import zlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Annotated, NamedTuple

import msgspec

from gateway.config.kinds import NAME_BYTES_MAX
from gateway.config.network import ZONE_BYTES_MAX
from gateway.network.circles import Circle, Link, circles_at, closing_links, reachable
from gateway.network.zones import Zone

STATES_MAX = 10_000
"""The most link states that a gateway keeps: two for each link of the network. Further ones are not taken in."""
PAYLOAD_STATES_MAX = 1_000
PAYLOAD_BYTES_MAX = 1024 * 1024
"""The most bytes of a payload, before compression: ``PAYLOAD_STATES_MAX`` link states with the longest names."""
LINK_NAME_MAX = 256
SERIAL_MAX = 2**53 - 1
"""The highest serial of a link state: JSON's numbers are exact up to it [RFC 8259 section 6]."""
OWN_SERIAL_MAX = SERIAL_MAX // 2
"""The highest serial that a gateway accepts from others for a link state of its own: it answers with a higher one."""
REPEATS_MAX = 100
"""How often a gateway tells its link states anew without a change of its links. It is beyond this only if another
gateway has its name, and both of them would go on for ever."""

_Name = Annotated[str, msgspec.Meta(min_length=1, max_length=NAME_BYTES_MAX)]


class BadLinkStates(ValueError):
    """A payload has no link states that can be taken. The text says why."""


class LinkState(msgspec.Struct, array_like=True, frozen=True, forbid_unknown_fields=True, order=True):
    """What one end of a link says of it. ``other`` is the gateway at the other end, empty if the link is gone."""

    gateway: _Name
    link: Annotated[str, msgspec.Meta(min_length=1, max_length=LINK_NAME_MAX)]
    serial: Annotated[int, msgspec.Meta(ge=1, le=SERIAL_MAX)]
    other: Annotated[str, msgspec.Meta(max_length=NAME_BYTES_MAX)] = ""
    zone: Annotated[str, msgspec.Meta(max_length=ZONE_BYTES_MAX)] = ""
    is_one_hop: bool = False

    @property
    def is_gone(self) -> bool:
        return not self.other


class News(NamedTuple):
    """What a gateway tells when it has heard link states: ``passed_on`` over all links but the one that they came
    over, ``own`` over all links."""

    passed_on: list[LinkState]
    own: list[LinkState]


_Key = tuple[str, str]
_decoder = msgspec.json.Decoder(list[LinkState])


class LinkStates:
    """The link states of a network, as one gateway knows them.

    Args:
        own: the gateway's name.
    """

    def __init__(self, own: str) -> None:
        self._own = own
        self._states: dict[_Key, LinkState] = {}
        self._repeats = 0
        self._found: tuple[list[Link], set[Link]] | None = None

    @property
    def has_namesake(self) -> bool:
        """Whether another gateway of the network has this gateway's name."""
        return self._repeats >= REPEATS_MAX

    def link_up(self, link: str, other: str, zone: Zone) -> list[LinkState]:
        """A link of this gateway has come up. Returns what to tell over the others; over this one goes ``whole``."""
        return self._tell(LinkState(self._own, link, 1, other, zone.name, zone.is_one_hop))

    def link_down(self, link: str) -> list[LinkState]:
        """A link of this gateway has gone down. Returns what to tell over the others."""
        return self._tell(LinkState(self._own, link, 1)) if (self._own, link) in self._states else []

    def whole(self) -> list[LinkState]:
        """Returns all link states, for a neighbour whose link has come up."""
        return sorted(self._states.values())

    def heard(self, states: Iterable[LinkState]) -> News:
        """Takes in link states that a neighbour tells, and returns what is news to others.

        What cannot be true or has no room is left out: a neighbour passes on what it has heard from others.
        """
        newest: dict[_Key, LinkState] = {}
        for state in states:
            key = state.gateway, state.link
            known = newest.get(key) or self._states.get(key)
            if known is None or state > known:
                newest[key] = state
        newest = self._with_room(newest)
        news = News([], [])
        for key, state in newest.items():
            if state.gateway != self._own or (state.is_gone and key not in self._states):
                self._put(state)
                news.passed_on.append(state)
            elif self._repeats < REPEATS_MAX:
                known = self._states.get(key, LinkState(*key, 1))
                news.own.append(self._put(msgspec.structs.replace(known, serial=state.serial + 1)))
        self._repeats += bool(news.own)
        return news

    def set_aside(self) -> frozenset[str]:
        """Returns the names of this gateway's links that carry nothing, as they close circles."""
        _, closing = self._work_out()
        return frozenset(link.name for link in closing if self._own in (link.first, link.second))

    def circles(self) -> list[Circle]:
        """Returns the circle of each link that this gateway sets aside."""
        return circles_at(self._own, *self._work_out())

    def _tell(self, state: LinkState) -> list[LinkState]:
        """Tells a link state of this gateway with the next serial, unless it is told already."""
        known = self._states.get((state.gateway, state.link))
        if known is not None and _content(known) == _content(state):
            return []
        self._repeats = 0
        return [self._put(msgspec.structs.replace(state, serial=known.serial + 1) if known else state)]

    def _put(self, state: LinkState) -> LinkState:
        known = self._states.get((state.gateway, state.link))
        self._states[state.gateway, state.link] = state
        if known is None or _content(known) != _content(state):
            self._found = None
        return state

    def _work_out(self) -> tuple[list[Link], set[Link]]:
        """Returns all links, and the links among them that are set aside."""
        if self._found is None:
            links = list(self._links())
            self._found = links, closing_links(links)
        return self._found

    def _links(self) -> Iterator[Link]:
        """Yields the links that both ends tell of alike."""
        for state in self._states.values():
            end = self._states.get((state.other, state.link))
            if end and state.gateway <= state.other and _content(end) == (state.gateway, *_content(state)[1:]):
                yield Link(state.link, state.gateway, state.other, Zone(state.zone, state.is_one_hop))

    def _with_room(self, newest: dict[_Key, LinkState]) -> dict[_Key, LinkState]:
        """Returns those link states that can be true and that there is room for; forgets others to make room."""
        possible = {
            key: state for key, state in newest.items() if state.gateway != self._own or state.serial <= OWN_SERIAL_MAX
        }
        more = len(possible.keys() - self._states.keys())
        if len(self._states) + more <= STATES_MAX:
            return possible
        near = reachable(self._own, self._work_out()[0])
        kept = {
            key: state
            for key, state in self._states.items()
            if key in possible or state.gateway == self._own or (state.gateway in near and not state.is_gone)
        }
        if len(kept) + more > STATES_MAX:
            return {key: state for key, state in possible.items() if key in self._states}
        self._states, self._found = kept, None
        return possible


def encode(states: Sequence[LinkState]) -> Iterator[bytes]:
    """Yields the payloads that tell link states."""
    for start in range(0, len(states), PAYLOAD_STATES_MAX):
        yield zlib.compress(msgspec.json.encode(states[start : start + PAYLOAD_STATES_MAX]), 9)


def decode(payload: bytes) -> list[LinkState]:
    """Returns the link states of a payload. Raises BadLinkStates."""
    unpacker = zlib.decompressobj()
    try:
        text = unpacker.decompress(payload, PAYLOAD_BYTES_MAX)
        if not unpacker.eof or unpacker.unused_data:
            raise BadLinkStates(f"expected one whole stream of zlib with at most {PAYLOAD_BYTES_MAX} bytes")
        states = _decoder.decode(text)
    except (zlib.error, msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise BadLinkStates(str(error)) from None
    if len(states) > PAYLOAD_STATES_MAX:
        raise BadLinkStates(f"{len(states)} link states, expected {PAYLOAD_STATES_MAX} at most")
    return states


def _content(state: LinkState) -> tuple[str, str, bool]:
    return state.other, state.zone, state.is_one_hop
