"""What is found in networks of gateways that their files describe, without a file on the disk."""

import pytest

from tests.tools.cli.network.networks import cities, gateway, ring, route, texts

LEAF = gateway("M")


@pytest.mark.parametrize(
    "files",
    [
        {"A": gateway("A", route("M", "M")), "M": gateway("M", route("B", "B")), "B": gateway("B")},
        {name: gateway(name, route("mosquitto", None)) for name in "ABC"},
        cities(east="ABC", west="CDE"),
        cities(east="ABC", west="CDE", south="EFG"),
    ],
    ids=["chain", "star on a broker", "two cities", "three cities"],
)
def test_nothing_is_found_in_a_network_that_is_right(files: dict[str, str]) -> None:
    assert texts(files) == []


def test_a_ring_has_two_paths_and_both_are_printed_with_the_link_that_is_set_aside() -> None:
    assert texts(ring("A", "B", "C")) == [
        "C.toml: route[0].neighbour: two paths from A to C: A -(C-to-a, zone default)- C, and "
        "A -(A-to-b, zone default)- B -(B-to-c, zone default)- C: take one of these links out; "
        "until then the gateways set C-to-a aside"
    ]


def test_each_link_too_many_is_found_once() -> None:
    names = "ABCDE"
    files = {one: gateway(one, *(route(other, other) for other in names if other < one)) for one in names}
    assert len(texts(files)) == 10 - 4


def test_cities_that_share_two_gateways_have_two_paths() -> None:
    (found,) = texts(cities(east="ABC", west="BCD"))
    assert "two paths from" in found and "zone west, one hop" in found
    assert found.endswith(
        "let the zones share one gateway, or take one out of zone west; until then the gateways set D-to-c aside"
    )


def test_a_link_beside_a_broker_that_joins_both_ends_already_is_found() -> None:
    files = {
        "A": gateway("A", route("mosquitto:1884", None), route("B", "B")),
        "B": gateway("B", route("mosquitto:1884", None)),
    }
    (found,) = texts(files)
    assert (
        "two paths from A to mqtt://mosquitto:1884: A -(A-to-mosquitto:1884, zone default)- mqtt://mosquitto" in found
    )
    assert found.endswith("gateways do not notice a circle through an ordinary broker")


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "[::1]:1884"])
def test_a_broker_on_a_gateways_own_machine_is_not_that_of_another_gateway(host: str) -> None:
    files = {"A": gateway("A", route(host, None), route("B", "B")), "B": gateway("B", route(host, None))}
    assert texts(files) == []


def test_a_gateway_that_dials_itself_is_found() -> None:
    (found,) = texts({"M": gateway("M", route("M", "M"))})
    assert "two paths from M to M: M, and M -(M-to-m, zone default)- M" in found


@pytest.mark.parametrize(
    ("key", "here", "there"),
    [("zone", "west", "default"), ("hops", "one", "multi"), ("mode", "active-passive", "active-active")],
)
def test_ends_of_a_link_that_differ_are_named_with_both_places(key: str, here: str, there: str) -> None:
    dialling = gateway("A", route("M", "M", f'{key} = "{here}"'))
    without = texts({"A": dialling, "M": LEAF})
    assert without == [
        f"A.toml: route[0].neighbour.{key}: {here!r}, but {there!r} in M.toml (no table [[neighbour]] for 'A'): "
        "make both the same"
    ]
    table = f'[[neighbour]]\nname = "B"\n[[neighbour]]\nname = "A"\n{key} = "{there}"'
    (found, _) = texts({"A": dialling, "M": gateway("M", table)})
    assert f"{there!r} in M.toml (neighbour[1].{key})" in found


def test_a_zone_that_is_one_hop_here_and_multi_hop_there_is_found() -> None:
    ends = '[[neighbour]]\nname = "B"\nhops = "one"'
    files = {
        "A": gateway("A", route("M", "M")),
        "B": gateway("B", route("M", "M", 'hops = "one"')),
        "M": gateway("M", ends),
    }
    assert texts(files) == [
        "B.toml: route[0].neighbour.hops: 'one' in zone 'default', but 'multi' in A.toml (route[0].neighbour.hops): "
        "give all links of the zone the same, or this link another zone"
    ]


def test_a_neighbour_without_a_file_is_a_warning_and_one_whose_file_has_another_name_is_a_fault() -> None:
    assert texts({"A": gateway("A", route("M", "M"))}) == [
        "A.toml: route[0].neighbour.name: 'M': none of these files is of a gateway with this name: check its file too"
    ]
    for files in (
        {"A": gateway("A", route("M", "M")), "m": gateway("plant")},
        {"A": gateway("A", route("M", "M")), "x": gateway("m")},
    ):
        (found,) = texts(files)
        assert "has the name" in found and "write that here, or there" in found


def test_a_name_that_is_nearly_that_of_a_gateway_is_named_beside_it() -> None:
    (found,) = texts({"A": gateway("A", route("hub", "munch")), "x": gateway("munich")})
    assert found.endswith("check its file too; or is 'munich' meant?")


def test_the_gateways_at_the_fallbacks_of_a_route_are_looked_at_too() -> None:
    keys = 'fallback_names = ["N", "O"]'
    dialling = gateway("A", route("M", "M", keys))
    table = '[[neighbour]]\nname = "A"\nmode = "active-passive"'
    assert texts({"A": dialling, "M": gateway("M"), "N": gateway("N", table)}) == [
        "A.toml: route[0].neighbour.fallback_names: 'O': none of these files is of a gateway with this name: "
        "check its file too",
        "A.toml: route[0].neighbour.mode: 'active-active', but 'active-passive' in N.toml (neighbour[0].mode): "
        "make both the same",
    ]


@pytest.mark.parametrize(
    ("listener", "port", "listens"),
    [
        ('kind = "tcp"\nport = 1884', 1883, "on 1884"),
        ('kind = "tcp"\nport = 1884', 1884, ""),
        ('kind = "tcp"\nport = 0', 1883, ""),
        ('kind = "unix"\npath = "s"', 1883, "on no TCP port"),
    ],
)
def test_a_route_to_a_port_on_which_its_neighbour_does_not_listen_is_a_warning(
    listener: str, port: int, listens: str
) -> None:
    files = {"A": gateway("A", route(f"M:{port}", "M")), "M": gateway("M", f"[[listener]]\n{listener}")}
    text = f"port {port}, but in M.toml the gateway listens {listens}: write that port here"
    said = f"A.toml: route[0].broker: {text}, unless a proxy between them changes it"
    assert texts(files) == ([said] if listens else [])


def test_a_table_for_a_neighbour_that_does_not_connect_is_found() -> None:
    table = '[[neighbour]]\nname = "A"'
    assert texts({"M": gateway("M", table), "A": gateway("A")}) == [
        "M.toml: neighbour[0].name: no route in A.toml names 'M': add one, or take this table out"
    ]
    assert "none of these files is of a gateway" in texts({"M": gateway("M", table)})[0]


def test_two_files_with_one_name_are_found() -> None:
    assert texts({"x": gateway("A"), "y": gateway("A")}) == [
        "y.toml: name: 'A' is the name in x.toml too: give one another name"
    ]


@pytest.mark.parametrize("neighbour", ["M", None])
def test_two_routes_of_a_gateway_to_one_neighbour_are_found_once(neighbour: str | None) -> None:
    second = route("m", neighbour).replace('name = "to-m"', 'name = "again"')
    assert texts({"A": gateway("A", route("M", neighbour), second), "M": LEAF}) == [
        f"A.toml: route[1].neighbour: leads to {neighbour or 'mqtt://m:1883'!r} as route[0] does, so that messages "
        "come twice: leave one of the two"
    ]


def test_a_route_that_receives_from_a_neighbours_broker_is_found() -> None:
    plain = '[[route]]\nname = "down"\nbroker = "mqtt://mosquitto:1883"\ndirection = "in"\nsubscribe = ["cmd/#"]'
    assert texts({"A": gateway("A", route("mosquitto", None), plain)}) == [
        "A.toml: route[1].subscribe: what matches comes over route[0] too, which leads to the same broker: "
        "leave one of the two"
    ]


def test_a_one_hop_zone_that_is_no_full_mesh_is_found() -> None:
    keys = 'hops = "one"'
    hub = gateway("M", *(f'[[neighbour]]\nname = "{name}"\n{keys}' for name in "AB"))
    files = {"M": hub, **{name: gateway(name, route("M", "M", keys)) for name in "AB"}}
    assert texts(files) == [
        "A.toml: route[0].neighbour.zone: zone 'default' has no link between A and B, so their messages never reach "
        'each other: add a route, or make the zone hops = "multi"'
    ]


def test_a_one_hop_zone_that_another_path_makes_whole_is_not_named() -> None:
    files = cities(east="ABC", west="BCD")
    assert [one for one in texts(files) if "no link between" in one] == []


def test_the_same_zone_at_places_without_a_link_between_them_is_right() -> None:
    assert texts({**cities(z="AB"), **cities(z="CD")}) == []


def test_filters_that_overlap_for_an_ordinary_broker_are_a_warning_with_what_becomes_of_them() -> None:
    summary = '[network]\nsummary = ["t/+", "+/x", "a/#", "a/b"]'
    assert texts({"A": gateway("A", summary, route("mosquitto", None))}) == [
        "A.toml: network.summary: '+/x', 'a/#', 'a/b', 't/+' match the same topic names, and mqtt://mosquitto:1883 may "
        "send a message for each filter: it is asked for '+/#' instead, which matches more. "
        "Write filters that do not overlap"
    ]
    assert texts({"A": gateway("A", summary, route("M", "M")), "M": LEAF}) == []


def test_a_filter_that_another_one_covers_is_no_collision() -> None:
    assert texts({"A": gateway("A", '[network]\nsummary = ["a/#", "a/b"]', route("mosquitto", None))}) == []


@pytest.mark.parametrize(
    ("limit", "table", "mode", "warned"),
    [
        ("", "", "active-active", True),
        ("", "", "active-passive", False),
        ("max_bytes = 1000", "", "active-active", False),
        ("", '[[topic]]\nfilter = "#"\nmax_messages = 10', "active-active", False),
        ("", '[[topic]]\nfilter = "orders/#"\nmax_messages = 10', "active-active", True),
    ],
)
def test_interest_that_is_kept_without_a_limit_is_a_warning(limit: str, table: str, mode: str, warned: bool) -> None:
    found = texts({"A": gateway("A", table, route("mosquitto", None, f'mode = "{mode}"', limit))})
    assert [one.partition(": while")[0] for one in found] == ["A.toml: route[0].max_messages"] * warned


def test_a_thousand_gateways_in_a_tree_are_right() -> None:
    files = {f"g{n}": gateway(f"g{n}", *([route(f"g{n // 2}", f"g{n // 2}")] if n > 1 else [])) for n in range(1, 1001)}
    assert texts(files) == []


STREAM = '[[stream]]\nname = "plant"'


def test_a_stream_that_is_missing_between_two_gateways_that_have_it_is_a_fault() -> None:
    files = {"A": gateway("A", route("M", "M"), STREAM), "M": gateway("M", route("B", "B")), "B": gateway("B", STREAM)}
    (found,) = texts(files)
    assert found == (
        "M.toml: stream: stream 'plant' is at 'A' and 'B', and the path A - M - B does not carry it: "
        'add [[stream]] with name = "plant", or streams = "any" to [network]'
    )
    for cure in (STREAM, '[network]\nstreams = "any"'):
        assert not texts(files | {"M": gateway("M", route("B", "B"), cure)})
    other = '[[stream]]\nname = "other"'
    chosen = {"A": gateway("A", route("B", "B", 'streams = ["other"]'), STREAM, other)}
    (found,) = texts(chosen | {"B": gateway("B", STREAM)})
    assert "a route on the path has `neighbour.streams` without it" in found


def test_a_stream_of_one_gateway_alone_and_one_of_gateways_that_are_not_linked_are_right() -> None:
    assert not texts({"A": gateway("A", route("B", "B"), STREAM), "B": gateway("B")})
    assert not texts({"A": gateway("A", STREAM), "B": gateway("B", STREAM)})
