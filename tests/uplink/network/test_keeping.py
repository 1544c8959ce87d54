"""Gateways that are neighbours, and keep what is for the tables until receipts come down from one to the next."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from shutil import rmtree
from typing import Any

import pytest

from gateway.config.network import SelectConfig
from tests.gateway.support import until
from tests.support.scripted_broker import ScriptedBroker, scripted_broker
from tests.uplink.keeping_support import KEEPS, Clock, Job
from tests.uplink.network.sites import Site
from uplink.queue.keeping import Keeping
from wire.codec.packets import Subscribe
from wire.receipt import Settled


class Chain:
    """Gateway a, its neighbour m, and the broker behind m, at which the test is the job."""

    def __init__(self, folder: Path, central: ScriptedBroker, clock: Clock, **keys: Any) -> None:
        self.job = Job(central)
        self.clock = clock
        self.a, self.m = Site(folder, "a"), Site(folder, "m")
        self.a.dial(self.m.port, "m", **{**KEEPS, "statement_interval_s": 600, "filters": ("t",), **keys})
        self.m.dial(central.port, None, "central", is_link=False, **KEEPS, statement_interval_s=600)

    @property
    def sites(self) -> tuple[Site, Site]:
        return self.a, self.m

    def keeping(self, site: Site) -> Keeping:
        (keeping,) = [queue.keeping for queue in site.routes.queues()]
        assert keeping is not None
        return keeping

    def sent_again(self) -> list[int]:
        return [site.routes.states[0].unproven_sent for site in self.sites]

    def counts(self, numbers: range) -> list[int]:
        return [self.job.count(number) for number in numbers]

    async def publish(self, *numbers: int) -> None:
        """A device of a publishes messages, and all gateways hand them on."""
        device = await self.a.client("device")
        for number in numbers:
            await device.publish("t", b"%d" % number)
        await device.disconnect()
        await until(lambda: all(map(self.job.count, numbers)), "the messages have come")
        await self.acknowledged()

    async def acknowledged(self) -> None:
        for site in self.sites:
            await until(partial(self._is_acknowledged, site), "all is acknowledged")

    def _is_acknowledged(self, site: Site) -> bool:
        return self.keeping(site).acknowledged == site.broker.log.head

    async def look(self, *after_s: float) -> None:
        for one in after_s or (0,):
            self.clock.now_s += one
            for site in self.sites:
                await self.keeping(site).look()

    async def settle(self, *but: int) -> None:
        """The tables have what the broker got, but for these messages."""
        await self.job.settle(*but, told=map(self.keeping, self.sites))

    async def pass_over(self, *numbers: int, later: int) -> None:
        """Messages come, and long enough behind their acknowledgement a later one."""
        await self.publish(*numbers)
        await self.look(20, 100)
        await self.publish(later)
        await self.look(20)


@asynccontextmanager
async def chain(folder: Path, monkeypatch: pytest.MonkeyPatch, **keys: Any) -> AsyncIterator[Chain]:
    clock = Clock()
    monkeypatch.setattr("uplink.queue.keeping.monotonic", clock)
    async with scripted_broker() as central:
        one = Chain(folder, central, clock, **keys)
        async with one.a, one.m:
            await one.a.linked()
            await one.m.linked(one.a)
            yield one


async def test_the_gateway_before_the_loss_sends_again_and_what_its_neighbour_sends_again_it_knows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with chain(tmp_path, monkeypatch) as one:
        await one.pass_over(1, 2, 3, later=4)
        await one.settle(2)
        await one.look()
        await until(lambda: one.sent_again() == [1, 1], "both have sent it again")
        await one.publish(5)
        assert one.counts(range(1, 6)) == [1, 2, 1, 1, 1]
        await one.settle()
        await one.look()
        await one.look(*[100] * 10)
        assert one.counts(range(1, 6)) == [1, 2, 1, 1, 1]
        assert all(one.keeping(site).kept.position >= 4 for site in one.sites)


async def test_what_a_neighbour_has_lost_with_its_store_comes_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with chain(tmp_path, monkeypatch) as one:
        await one.pass_over(1, 2, later=3)
        await one.m.stop()
        rmtree(tmp_path / "m" / "store")
        await one.m.start()
        await one.a.linked()
        await one.m.linked(one.a)
        await one.publish(4)
        await one.settle(2)
        await one.look()
        await until(lambda: one.job.count(2) == 2, "it has come again")
        assert one.counts(range(1, 5)) == [1, 2, 1, 1]
        assert one.sent_again() == [1, 0]


async def test_a_receipt_that_came_while_the_link_was_down_is_heard_over_the_next_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with chain(tmp_path, monkeypatch) as one:
        await one.publish(1, 2)
        await one.a.stop()
        await one.job.give("x", [Settled(7, 9, [])], told=[one.keeping(one.m)])
        await one.a.start()
        await until(lambda: one.keeping(one.a).settled_up_to("x", 7, 1) == 9, "a has heard it")


async def test_what_clients_of_the_neighbour_want_is_not_kept_for_the_tables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with chain(tmp_path, monkeypatch) as one:
        reader = await one.m.client("reader", "news")
        await until(lambda: "news" in one.a.wanted_by_neighbours(), "it is wanted")
        device = await one.a.client("device")
        await device.publish("news", b"of a")
        assert (await reader.receive()).payload == b"of a"
        await one.acknowledged()
        await one.job.give("x", [Settled(7, 1, [])], told=map(one.keeping, one.sites))
        await one.look()
        assert one.keeping(one.a).kept.position == one.a.broker.log.head


async def test_what_a_condition_of_the_link_holds_back_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    odd = SelectConfig("t", "json IN (1, 3, 5)")
    async with chain(tmp_path, monkeypatch, outgoing=[odd]) as one:
        device = await one.a.client("held-back")
        await device.publish("t", b"2")
        await one.pass_over(1, 3, later=5)
        await one.settle()
        await one.look()
        await one.look(*[100] * 10)
        assert one.counts(range(1, 6)) == [1, 0, 1, 0, 1]
        assert one.keeping(one.a).kept.position >= 4
        assert one.sent_again() == [0, 0]


async def test_what_an_ordinary_broker_in_the_middle_of_a_star_has_lost_comes_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, a = Clock(), Site(tmp_path, "a")
    monkeypatch.setattr("uplink.queue.keeping.monotonic", clock)
    async with scripted_broker() as central:
        a.dial(central.port, None, filters=("t",), **KEEPS)
        job = Job(central)
        async with a:
            await a.linked()
            await a.client("reader", "#")  # what is asked for covers the receipts
            (queue,) = a.routes.queues()
            keeping, device = queue.keeping, await a.client("device")
            assert keeping is not None
            for number, waits_s in ((1, ()), (2, (20, 100)), (3, (20,))):
                await device.publish("t", b"%d" % number)
                await until(partial(job.count, number), "it has come")
                for one in waits_s:
                    clock.now_s += one
                    await keeping.look()
            for connection, lost in ((2, (2,)), (3, ())):
                central.drop_clients()
                await until(partial(_has_asked, central, connection), "it is back, and asks for receipts")
                await job.settle(*lost, told=[keeping])
                await keeping.look()
                await until(lambda: job.count(2) == 2, "it has come again")
            assert [job.count(number) for number in (1, 3)] == [1, 1]


def _has_asked(central: ScriptedBroker, times: int) -> bool:
    """Whether the gateway has subscribed so often to receipts."""
    asked = [one for one in central.subscribes if isinstance(one, Subscribe)]
    return sum(one.filters[0][0] == "hf/receipt/#" for one in asked) == times
