"""What gateways tell each other of their links, in networks without lines, and payloads that are wrong."""

import random
import time
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.network import topology
from gateway.network.circles import Circle, Link
from gateway.network.topology import BadLinkStates, LinkState, LinkStates, decode, encode
from gateway.network.zones import Zone
from tests.gateway.network.flooding import Flooding
from tests.gateway.network.test_circles import any_links, link, mesh

MULTI = Zone()

TEXTS = st.text(max_size=5)
STATES = st.builds(
    LinkState,
    st.sampled_from("ABC"),
    st.sampled_from(["one", "two"]),
    st.integers(1, 5),
    st.sampled_from(["", "A", "B", "C"]),
    st.sampled_from(["", "x"]),
    st.booleans(),
)


def named(links: list[Link]) -> list[Link]:
    """The links with a name of its own for each."""
    return [one._replace(name=f"{number:03}") for number, one in enumerate(links)]


def test_all_gateways_set_aside_the_same_links_after_cuts_and_restarts(seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(300):
        links = named(any_links(chance, chance.randrange(2, 9), chance.randrange(1, 16), zones=3))
        network = Flooding(links, chance)
        for _ in range(3):
            for _ in range(30):
                name = chance.choice(sorted(network.links))
                match chance.randrange(8):
                    case 0:
                        network.restart(chance.choice(sorted(network.states)))
                    case 1 if network.unnoticed:
                        network.notice(*chance.choice(sorted(network.unnoticed)))
                    case 2 | 3:
                        (network.cut if name in network.up else network.connect)(name)
                    case _ if waiting := network.waiting():
                        network.deliver(chance.choice(waiting))
            network.settle()
            network.check()


def test_a_link_that_was_set_aside_comes_back_when_the_circle_is_open_and_goes_when_it_closes() -> None:
    links = [link("1", "A", "B"), link("2", "B", "C"), link("3", "C", "A")]
    network = Flooding(links, random.Random(0))
    for name in "312":
        network.connect(name)
    network.settle()
    assert [states.set_aside() for states in network.states.values()] == [{"3"}, set(), {"3"}]
    assert network.states["A"].circles() == [Circle(("A", "B", "C", "A"), ("1", "2", "3"))]
    network.cut("1")
    network.settle()
    assert [states.set_aside() for states in network.states.values()] == [set(), set(), set()]
    network.connect("1")
    network.settle()
    network.check()


def test_a_change_crosses_each_link_of_a_thousand_gateways_once_and_takes_few_bytes(seed: int) -> None:
    chance = random.Random(seed)
    links = [link(f"gateway-{one}-up", f"gateway-{one}", f"gateway-{chance.randrange(one)}") for one in range(1, 1000)]
    network = Flooding(links, chance)
    network.begin()
    changed = f"gateway-{chance.randrange(500, 1000)}-up"
    network.cut(changed)
    network.settle()
    assert network.payloads == 998  # each end tells of it on its own side: once over each link that is left
    assert network.bytes <= 60 * network.payloads
    gateway = network.states["gateway-0"]
    began = time.process_time()
    gateway.link_up("one-more", "gateway-1", MULTI)
    assert gateway.set_aside() == set()
    assert time.process_time() - began < 1
    assert sum(map(len, encode(gateway.whole()))) <= 10 * 2 * 999


def test_one_change_of_a_gateway_with_a_thousand_links_takes_as_few_bytes() -> None:
    hub = LinkStates("hub")
    for number in range(1000):
        hub.link_up(f"spoke-{number}-to-hub", f"spoke-{number}", MULTI)
    (payload,) = encode(hub.link_down("spoke-500-to-hub"))
    assert len(payload) <= 60


def test_a_gateway_that_has_lost_its_serials_is_believed_after_its_restart() -> None:
    network = Flooding([link("1", "A", "B"), link("2", "B", "C")], random.Random(0))
    for _ in range(5):
        network.connect("1")
        network.settle()
        network.cut("1")
        network.settle()
    network.connect("2")
    network.connect("1")
    network.settle()
    network.restart("A")
    network.settle()
    (state,) = [one for one in network.states["C"].whole() if one.gateway == "A"]
    assert state.other == "B"


def test_a_link_counts_only_if_both_ends_tell_of_the_same_zone() -> None:
    for zone, is_one_hop, expected in (("default", False, {"two"}), ("other", False, set()), ("default", True, set())):
        states = LinkStates("A")
        states.link_up("one", "B", MULTI)
        states.link_up("two", "B", MULTI)
        states.heard([LinkState("B", "one", 1, "A", "default"), LinkState("B", "two", 1, "A", zone, is_one_hop)])
        assert states.set_aside() == expected


def test_a_link_that_is_up_already_is_no_news_and_neither_is_one_that_was_never_up() -> None:
    states = LinkStates("A")
    assert states.link_up("one", "B", MULTI) == [LinkState("A", "one", 1, "B", "default")]
    assert states.link_up("one", "B", MULTI) == []
    assert states.link_down("two") == []
    assert states.link_down("one") == [LinkState("A", "one", 2)]
    assert states.link_down("one") == []


def test_two_gateways_of_one_name_tell_of_it_and_do_not_contradict_each_other_for_ever() -> None:
    one, other = LinkStates("A"), LinkStates("A")
    told = one.link_up("one", "B", MULTI)
    rounds = 0
    while told:
        one, other = other, one
        told = one.heard(told).own
        rounds += 1
    assert rounds <= 2 * topology.REPEATS_MAX + 1
    assert other.has_namesake or one.has_namesake


def test_gateways_that_no_link_leads_to_make_room_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topology, "STATES_MAX", 4)
    states = LinkStates("A")
    states.link_up("one", "B", MULTI)
    states.heard([LinkState("B", "one", 1, "A", "default"), LinkState("C", "two", 1, "D"), LinkState("D", "two", 1)])
    near = [LinkState("B", "three", 1, "E", "default"), LinkState("E", "three", 1, "B", "default")]
    assert states.heard(near).passed_on == near
    assert {state.gateway for state in states.whole()} == {"A", "B", "E"}
    before = states.whole()
    assert states.heard([LinkState("E", "one more", 1, "F")]) == ([], [])
    assert states.whole() == before


@given(st.lists(st.lists(STATES, max_size=6), max_size=6), st.randoms(use_true_random=False))
def test_any_states_in_any_order_end_in_the_same_knowledge(told: list[list[LinkState]], chance: random.Random) -> None:
    known = []
    for _ in range(2):
        states = LinkStates("other")
        for some in chance.sample(told, len(told)):
            states.heard(chance.sample(some, len(some)))
        known.append((states.whole(), states.set_aside()))
    assert known[0] == known[1]


@given(st.lists(STATES, max_size=6), st.binary(max_size=40), st.integers(0, 200), st.integers(0, 255))
def test_a_corrupt_payload_is_refused_and_changes_nothing(
    told: list[LinkState], more: bytes, place: int, value: int
) -> None:
    payload = next(encode(told), zlib.compress(b"[]"))
    text = zlib.decompress(payload)
    states = LinkStates("A")
    states.link_up("one", "B", MULTI)
    states.heard(told)
    for corrupt in (
        payload[: place % len(payload)] + bytes([value]) + payload[place % len(payload) + 1 :] + more,
        zlib.compress(text[: place % len(text)] + bytes([value]) + text[place % len(text) + 1 :]),
        zlib.compress(more),
        more,
    ):
        before, error = states.whole(), ""
        try:
            states.heard(decode(corrupt))
        except BadLinkStates as refused:
            error = str(refused) or "no text"
        assert error != "no text" and (not error or states.whole() == before)
        assert states.set_aside() == {circle.links[-1] for circle in states.circles()}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b"", "Input data was truncated"),
        (b"{}", "Expected `array`, got `object`"),
        (b'[["A"]]', "at least length 3, got 1"),
        (b'[["", "l", 1]]', "length >= 1"),
        (b'[["A", "l", 0]]', "`int` >= 1"),
        (b'[["A", "l", 9007199254740992]]', "`int` <= 9007199254740991"),
        (b'[["A", "l", 1, "B", "z", 1]]', "Expected `bool`, got `int`"),
        (b'[["A", "l", 1, "B", "z", true, 7]]', "at most length 6"),
        (b'[["' + b"A" * 129 + b'", "l", 1]]', "length <= 128"),
        (b'[["\xff", "l", 1]]', "utf-8"),
        (b"[" + b",".join([b'["A", "l", 1]'] * 1001) + b"]", "1001 link states, expected 1000 at most"),
        (b" " * (topology.PAYLOAD_BYTES_MAX + 1), "expected one whole stream of zlib with at most 1048576 bytes"),
    ],
)
def test_what_is_no_payload_of_link_states_is_refused_in_words(text: bytes, expected: str) -> None:
    with pytest.raises(BadLinkStates) as caught:
        decode(zlib.compress(text))
    assert expected in str(caught.value)


def test_a_link_state_of_its_own_that_a_gateway_could_not_exceed_is_left_out_and_others_are_taken() -> None:
    states = LinkStates("A")
    other = LinkState("B", "two", 1, "C", "default")
    assert states.heard([LinkState("A", "one", topology.SERIAL_MAX, "B"), other]).passed_on == [other]
    assert states.whole() == [other]


def test_many_link_states_go_in_several_payloads() -> None:
    told = [LinkState("A", f"link-{number}", 1, f"B-{number}", "default") for number in range(2500)]
    payloads = list(encode(told))
    assert [len(decode(payload)) for payload in payloads] == [1000, 1000, 500]
    assert [state for payload in payloads for state in decode(payload)] == told


def test_cities_whose_zones_overlap_at_two_gateways_set_the_same_links_aside_at_both_ends(seed: int) -> None:
    network = Flooding([*mesh("east", "ABC"), *mesh("west", "BCDE")], random.Random(seed))
    for name in network.links:
        network.connect(name)
    network.settle()
    network.check()
    assert network.states["C"].set_aside() == {"B-to-C-west", "C-to-D-west", "C-to-E-west"}
