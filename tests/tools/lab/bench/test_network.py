"""The benchmarks of networks: what they count is what there was."""

import asyncio
import itertools
import os
import random
import shutil
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.message import Message
from gateway.selectors import parse_selector
from tools.lab.bench.network import foreign, interest, multicast, rates, requests, streams
from tools.lab.bench.network.chain import Chain, leaves, node, over_mqtt, over_nats
from tools.lab.bench.network.nats_load import PONG, NatsCounter
from tools.lab.bench.network.tree import Tree, tree

needs_cores = pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="the benchmarks need two cores")
needs_nats = pytest.mark.skipif(shutil.which("nats-server") is None, reason="needs nats-server")


@pytest.fixture
def alone(tmp_path: Path) -> Iterator[Chain]:
    """A gateway that is all three of a chain."""
    with node(tmp_path, "M") as gateway:
        yield Chain(gateway, gateway, gateway)


@needs_cores
@pytest.mark.parametrize("qos", [0, 1])
def test_requests_and_first_messages_are_counted_at_a_gateway(alone: Chain, qos: int) -> None:
    answered, took_s = asyncio.run(requests.answered_over(alone, over_mqtt(qos), 50))
    assert answered == 50 and took_s > 0
    assert asyncio.run(requests.first_ms_over(alone, over_mqtt(qos), 20)) > 0


@needs_cores
@needs_nats
def test_requests_and_first_messages_are_counted_over_nats_leaves(tmp_path: Path) -> None:
    with leaves(tmp_path) as chain:
        answered, took_s = asyncio.run(requests.answered_over(chain, over_nats, 50))
        assert answered == 50 and took_s > 0
        assert asyncio.run(requests.first_ms_over(chain, over_nats, 20)) > 0


@needs_cores
@needs_nats
def test_a_leaf_node_tells_each_filter_in_somewhat_more_bytes_than_it_has(tmp_path: Path) -> None:
    filters = interest.filters_of_37(1000)
    assert {len(one) for one in filters} == {37} and len(set(filters)) == 1000
    assert 37 < asyncio.run(interest.bytes_from_leaf(tmp_path, filters)) / 1000 < 50


@needs_cores
@needs_nats
def test_routes_bridges_and_leaf_nodes_are_measured_in_turns(tmp_path: Path) -> None:
    with ExitStack() as stack:
        orders = rates.Orders("property")
        ways = [rates.by_route(stack, tmp_path / "route", orders), rates.by_bridge(stack, tmp_path / "bridge", orders)]
        found = rates.in_turns(0.8, *ways, rates.by_leaf(stack, tmp_path / "leaves"))
    assert len(found) == 3 and all(rate > 100 for rate in found)


@needs_cores
def test_streams_are_measured_and_one_that_is_stuck_stays_so(tmp_path: Path) -> None:
    found = list(streams.streams(tmp_path, 0.8))
    assert len(found) == 3 and all(figure.ours > 100 and (figure.theirs or 0) > 100 for figure in found)


@pytest.mark.parametrize("kind", ["property", "json"])
def test_of_ten_orders_one_passes_the_selector_and_all_are_as_long(kind: str) -> None:
    orders = [rates.Orders.order(kind, number) for number in range(1, 101)]
    selector = parse_selector(rates.SELECTORS[kind])
    passing = [selector.passes(Message(one.topic, one.payload, properties=one.properties or {})) for one in orders]
    assert passing == [number % 10 == 0 for number in range(1, 101)]
    assert len({len(one.payload) for one in orders}) == 1


@pytest.fixture(scope="module")
def counter() -> Iterator[NatsCounter]:
    """One that a server has let in."""
    with socket.create_server(("127.0.0.1", 0)) as server, ThreadPoolExecutor(1) as pool:
        connecting = pool.submit(NatsCounter, server.getsockname()[1], "a.b", 5)
        connection, _ = server.accept()
        with connection:
            connection.sendall(b"INFO {}\r\n" + PONG)
            counter = connecting.result()
            yield counter
            counter.close()


@given(
    st.lists(st.integers(1, 40), min_size=1), st.lists(st.sampled_from((b"MSG a.b 1 5\r\n", b"PING\r\n")), max_size=30)
)
def test_messages_of_nats_are_counted_however_they_are_cut(
    counter: NatsCounter, sizes: list[int], heads: list[bytes]
) -> None:
    data = b"".join(head + b"MSG a\r\n" if head.startswith(b"MSG") else head for head in heads)
    before, left = counter.received, b""
    for size in itertools.cycle(sizes):
        left, data = left + data[:size], data[size:]
        left = left[counter.take(left) :]
        if not data:
            break
    assert (counter.received - before, left) == (sum(head.startswith(b"MSG") for head in heads), b"")


def test_each_gateway_of_a_tree_hears_what_others_want_and_no_longer_what_none_wants(seed: int) -> None:
    network = Tree(40, random.Random(seed))
    network.want(7, "plant/1/state")
    network.settle()
    assert [network.heard(here) for here in range(40)] == [
        {"plant/1/state"} if here != 7 else set() for here in range(40)
    ]
    network.want(9, "plant/#")
    network.settle()
    assert all("plant/#" in network.heard(here) for here in range(40) if here != 9)
    network.want_no_more(9, "plant/#")
    network.want_no_more(7, "plant/1/state")
    network.settle()
    assert not any(network.heard(here) for here in range(40))


def test_one_change_takes_one_announcement_over_a_link() -> None:
    (figure,) = tree(60, changes=50)
    assert (figure.ours, figure.bar, figure.at_most) == (1, 1, True)


@needs_cores
def test_a_multicast_group_sends_to_fifty_receivers_and_hostile_datagrams_do_nothing(tmp_path: Path) -> None:
    figures = list(multicast.multicast(tmp_path / "multicast", 0.4, 5000))
    assert all(figure.ours > 0 for figure in figures[:4])
    assert [figure.holds for figure in figures[4:]] == [True, True]


def test_a_datagram_that_is_accepted_is_harm(monkeypatch: pytest.MonkeyPatch) -> None:
    assert multicast.hostile(1000)[0] == 0
    monkeypatch.setattr("wire.multicast.receiver.is_same", lambda one, other: True)
    assert multicast.hostile(1000)[0] > 0


@needs_nats
def test_an_export_to_jetstream_is_measured_beside_the_client_library(tmp_path: Path) -> None:
    rate, share = foreign.export(tmp_path / "nats", 300)
    assert rate.ours > 0 and rate.theirs and share.bar == 0.7
