"""Two paths to one gateway, against a walk that counts how often a message comes."""

import random

from gateway.network.circles import closing_links
from gateway.network.zones import Zone
from tests.gateway.network.test_circles import any_links, link, mesh, way_count
from tools.cli.network.paths import Paths


def test_two_paths_are_found_if_a_message_comes_twice_and_none_is_left_without_the_links_in_them(seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(500):
        links = any_links(chance, chance.randrange(1, 8), chance.randrange(14), zones=3)
        found = list(Paths(links, set()).two_paths())
        ends = {end for one in links for end in (one.first, one.second)}
        assert bool(found) == any(max(way_count(links, end).values()) > 1 for end in ends)
        closing = {one for two in found for one in two.closing}
        left = [one for one in links if one not in closing]
        assert all(max(way_count(left, end).values()) == 1 for end in ends)
        assert closing <= closing_links(links)


def test_each_of_two_paths_leads_from_the_same_gateway_to_the_same_one_by_other_links(seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(200):
        links = any_links(chance, chance.randrange(1, 8), chance.randrange(14), zones=3)
        for two in Paths(links, set()).two_paths():
            ends = set()
            for path in two.paths:
                here = two.start
                for one, there in path:
                    assert there == one.other(here)
                    here = there
                ends.add(here)
            assert len(ends) == 1 and two.paths[0] != two.paths[1]


def test_a_circle_through_an_ordinary_broker_is_found_though_it_knows_no_zone() -> None:
    zone = Zone("plant", True)
    links = [
        link("A-to-x", "A", "mqtt://x", zone),
        link("B-to-x", "B", "mqtt://x", zone),
        link("C-to-x", "C", "mqtt://x"),
    ]
    assert list(Paths(links, {"mqtt://x"}).two_paths()) == []
    assert Paths(links, {"mqtt://x"}).reached_from("A") == {"A", "B", "C", "mqtt://x"}
    (two,) = Paths([*links, link("B-to-C", "B", "C")], {"mqtt://x"}).two_paths()
    assert {one.name for path in two.paths for one, _ in path} == {"B-to-x", "C-to-x", "B-to-C"}


def test_a_message_crosses_one_link_of_a_one_hop_zone() -> None:
    chain = [one for one in mesh("z", "ABC") if one.name != "A-to-C-z"]
    assert Paths(chain, set()).reached_from("A") == {"A", "B"}
    assert Paths([*chain, link("C-to-D", "C", "D")], set()).reached_from("B") == {"A", "B", "C", "D"}
