"""Which links are set aside, against models that look for the circles themselves."""

import random
from collections.abc import Iterable

import pytest

from gateway.network.circles import Circle, Link, circles_at, closing_links, reachable
from gateway.network.zones import LOCAL, Side, Zone

MULTI = Zone()


def link(name: str, one: str, other: str, zone: Zone = MULTI) -> Link:
    return Link(name, min(one, other), max(one, other), zone)


def mesh(zone: str, gateways: Iterable[str]) -> list[Link]:
    """A one-hop zone with a link between any two gateways."""
    names = sorted(gateways)
    return [link(f"{a}-to-{b}-{zone}", a, b, Zone(zone, True)) for a in names for b in names if a < b]


def any_links(chance: random.Random, gateways: int, links: int, zones: int) -> list[Link]:
    """Links between any gateways, parallel ones and those of a gateway to itself too."""
    found = []
    for number in range(links):
        zone = Zone(f"z{chance.randrange(zones)}", True) if zones and chance.random() < 0.5 else MULTI
        one, other = (f"g{chance.randrange(gateways)}" for _ in range(2))
        found.append(link(f"l{number}" if chance.random() < 0.9 else "same", one, other, zone))
    return list(set(found))


def way_count(links: list[Link], start: str) -> dict[str, int]:
    """How often a message of one gateway comes to each gateway, as the gateways pass it on, up to twice."""
    at: dict[str, list[Link]] = {}
    for one in links:
        for gateway in {one.first, one.second}:
            at.setdefault(gateway, []).append(one)
    count = {start: 1}
    waiting: list[tuple[str, Side]] = [(start, LOCAL)]
    for gateway, side in waiting:
        for one in at.get(gateway, ()):
            if one.zone.side(one.name) != side:
                there = one.other(gateway)
                count[there] = count.get(there, 0) + 1
                if count[there] <= 2:
                    waiting.append((there, one.zone.side(one.name)))
    return count


def check_is_a_tree(links: list[Link], aside: set[Link]) -> None:
    """The links that are left lead as far as all of them, and no message comes twice."""
    left = [one for one in links if one not in aside]
    for gateway in {end for one in links for end in (one.first, one.second)}:
        assert reachable(gateway, left) == reachable(gateway, links)
        assert set(way_count(left, gateway).values()) == {1}


def test_a_multi_hop_link_is_set_aside_if_links_with_lesser_names_join_its_ends(seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(300):
        links = any_links(chance, chance.randrange(1, 12), chance.randrange(20), zones=0)
        aside = closing_links(chance.sample(links, len(links)))
        for one in links:
            lesser = [other for other in links if other < one]
            assert (one in aside) == (one.second in reachable(one.first, lesser))


def test_any_network_becomes_a_tree_that_leads_as_far_and_takes_no_message_twice(seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(500):
        links = any_links(chance, chance.randrange(1, 9), chance.randrange(25), zones=3)
        aside = closing_links(links)
        check_is_a_tree(links, aside)
        assert closing_links(chance.sample(links, len(links))) == aside


def test_in_full_meshes_a_gateway_leaves_a_zone_if_earlier_gateways_and_zones_join_it_already(seed: int) -> None:
    """The model: zones are nodes too, and of the places of gateways in zones the last one of each circle goes."""
    chance = random.Random(seed)
    for _ in range(300):
        gateways = [f"g{number}" for number in range(8)]
        zones = {f"z{number}": sorted(chance.sample(gateways, chance.randrange(2, 5))) for number in range(4)}
        links = [one for zone, members in zones.items() for one in mesh(zone, members)]
        places = [link(f"{zone} {member}", f"zone {zone}", member) for zone in zones for member in zones[zone]]
        left = closing_links(places)  # of a network of multi-hop links, which another model checks
        names = {one.name for one in left}
        expected = {one for one in links for end in (one.first, one.second) if f"{one.zone.name} {end}" in names}
        assert closing_links(links) == expected
        check_is_a_tree(links, expected)


def test_zones_that_overlap_at_one_gateway_form_no_circle() -> None:
    assert closing_links([*mesh("east", "ABC"), *mesh("west", "CDE")]) == set()


def test_of_zones_that_overlap_at_two_gateways_the_second_one_leaves_the_second_zone() -> None:
    west = mesh("west", "BCDE")
    assert closing_links([*mesh("east", "ABC"), *west]) == {one for one in west if "C" in (one.first, one.second)}


def test_a_multi_hop_link_is_set_aside_rather_than_a_place_in_a_zone() -> None:
    around = [link("a-first-name", "A", "D"), link("another", "D", "C")]
    assert closing_links([*around, *mesh("zone", "ABC")]) == {around[1]}


def test_a_gateway_between_two_parts_of_a_zone_that_is_no_full_mesh_cuts_none_off() -> None:
    """P has a link to H alone, and H and G are joined by another zone: H keeps its link to P."""
    first = mesh("first", "GH")
    second = [one for one in mesh("second", "GHP") if one.name != "G-to-P-second"]
    assert [one.name for one in closing_links([*first, *second])] == ["G-to-H-second"]


@pytest.mark.parametrize("zone", [MULTI, Zone("mesh", True)])
def test_of_parallel_links_the_one_with_the_least_name_stays(zone: Zone) -> None:
    links = [link(name, "A", "B", zone) for name in ("A-to-B", "B-to-A", "A-again")]
    assert {one.name for one in closing_links(links)} == {"A-to-B", "B-to-A"}


@pytest.mark.parametrize("zone", [MULTI, Zone("mesh", True)])
def test_a_link_of_a_gateway_to_itself_is_set_aside(zone: Zone) -> None:
    itself = link("A-to-A", "A", "A", zone)
    assert closing_links([itself]) == {itself}
    assert circles_at("A", [itself], {itself}) == [Circle(("A", "A"), ("A-to-A",))]


def test_a_circle_is_told_once_around_from_each_end_of_the_link_that_is_set_aside() -> None:
    links = [link("1", "A", "B"), link("2", "B", "C"), link("3", "C", "D"), link("4", "D", "A"), link("5", "D", "E")]
    aside = closing_links(links)
    (circle,) = circles_at("A", links, aside)
    assert str(circle) == "4 is set aside, as it closes the circle A -(1)- B -(2)- C -(3)- D -(4)- A"
    assert circles_at("D", links, aside) == [Circle(("D", "C", "B", "A", "D"), ("3", "2", "1", "4"))]
    assert circles_at("B", links, aside) == []
