"""What routes keep until receipts in a chain with rules, with a backlog on a stick, and over a gateway's new name."""

from functools import partial
from pathlib import Path

import pytest

from gateway.broker import Broker
from tests.gateway.support import connected, tcp_port
from tests.gateway.support import running as running_broker
from tests.support.scripted_broker import scripted_broker
from tests.uplink.inbound_support import route_of
from tests.uplink.keeping_support import KEEPS, Clock, Job
from tests.uplink.network.sites import Site
from tests.uplink.support import serving, until
from uplink.carry import Imports
from uplink.carry.export import export_backlog
from uplink.queue.keeping import Keeping
from uplink.route import Route
from uplink.shape import ShapeConfig

OUT = {**KEEPS, "subscribe": (), "direction": "out"}
RULES = "allow * publish,subscribe #\nallow * identify *\n"


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr("uplink.queue.keeping.monotonic", clock)
    return clock


def keeping_of(route: Route) -> Keeping:
    assert route.queue.keeping is not None
    return route.queue.keeping


async def publish(broker: Broker, *numbers: int) -> None:
    device = await connected(broker, "device")
    for number in numbers:
        await device.publish("t", b"%d" % number)
    await device.disconnect()


async def look(clock: Clock, *routes: Route, after_s: tuple[float, ...] = (0,)) -> None:
    for one in after_s:
        clock.now_s += one
        for route in routes:
            await keeping_of(route).look()


def is_acknowledged(keeping: Keeping, broker: Broker) -> bool:
    return keeping.acknowledged == broker.log.head


async def test_what_the_second_gateway_leaves_out_goes_again_from_neither_and_is_settled_by_its_statement(
    tmp_path: Path, clock: Clock
) -> None:
    rules = tmp_path / "rules"
    rules.write_text(RULES)
    odd = (ShapeConfig(filter="t", where="json IN (1, 3, 5)"),)
    async with (
        scripted_broker() as central,
        running_broker(tmp_path / "mid", acl=str(rules)) as mid,
        running_broker(tmp_path / "edge") as edge,
    ):
        job = Job(central)
        upper = route_of(mid, central.port, "mid", statement_interval_s=1, shape=odd, **OUT)
        lower = route_of(edge, tcp_port(mid), "edge", statement_interval_s=600, **OUT)
        both = [keeping_of(upper), keeping_of(lower)]
        async with serving(upper), serving(lower):
            await until(lambda: upper.queue.state.connected and lower.queue.state.connected)
            await publish(edge, 1, 2, 3, 4)
            await until(lambda: any(b'"2,4"' in one.payload for one in job.received()))
            await look(clock, upper, lower, after_s=(20, 100))
            await publish(edge, 5)
            await until(lambda: job.count(5) > 0)
            await look(clock, upper, lower, after_s=(20,))
            await job.settle(told=both)
            await look(clock, upper, lower, after_s=(0, *[100] * 10))
            assert [job.count(number) for number in range(1, 6)] == [1, 0, 1, 0, 1]
            assert [route.queue.state.unproven_sent for route in (upper, lower)] == [0, 0]
            assert all(one.kept.position >= 4 for one in both)


@pytest.mark.parametrize("is_lost", [False, True], ids=["imported", "lost"])
async def test_a_backlog_on_a_stick_is_kept_until_its_receipt_and_goes_over_the_line_only_if_the_tables_pass_over_it(
    tmp_path: Path, clock: Clock, *, is_lost: bool
) -> None:
    stick = tmp_path / "stick"
    async with (
        scripted_broker() as central,
        running_broker(tmp_path / "edge") as edge,
        running_broker(tmp_path / "other") as other,
    ):
        job = Job(central)
        route = route_of(edge, central.port, statement_interval_s=600, **OUT)
        await publish(edge, 1, 2, 3)
        assert await export_backlog(route.queue, edge.log, "edge", stick) == 3
        if not is_lost:
            far = route_of(other, central.port, "other", statement_interval_s=600, name="far")
            assert await Imports(other.log.folder, other.log, lambda one: [one], lambda _: True).import_file(stick) == 3
            async with serving(far):
                await until(lambda: all(map(job.count, (1, 2, 3))))
        async with serving(route):
            await until(lambda: route.queue.state.connected)
            await look(clock, route, after_s=(20, 100))
            await publish(edge, 4)
            await until(partial(is_acknowledged, keeping_of(route), edge))
            await look(clock, route, after_s=(20,))
            assert keeping_of(route).kept.position == 0
            await job.settle(told=[keeping_of(route)])
            await look(clock, route)
            await until(lambda: all(map(job.count, (1, 2, 3, 4))))
            await job.settle(told=[keeping_of(route)])
            await look(clock, route, after_s=(0, *[100] * 10))
            assert [job.count(number) for number in range(1, 5)] == [1, 1, 1, 1]
            assert route.queue.state.unproven_sent == (3 if is_lost else 0)
            assert keeping_of(route).kept.position >= 3


async def test_a_gateway_with_a_new_name_goes_on_keeping_what_it_took_under_the_former_one(
    tmp_path: Path, clock: Clock
) -> None:
    async with scripted_broker() as central:
        job = Job(central)
        for name, numbers in (("a", (1, 2, 3)), ("b", (4,))):
            if name == "b":
                (tmp_path / "a").rename(tmp_path / "b")
            site = Site(tmp_path, name)
            site.dial(central.port, None, "central", is_link=False, **KEEPS, statement_interval_s=600)
            async with site:
                await site.linked()
                (queue,) = site.routes.queues()
                keeping = queue.keeping
                assert keeping is not None
                for after_s in (20, 100):
                    clock.now_s += after_s
                    await keeping.look()
                await publish(site.broker, *numbers)
                await until(partial(is_acknowledged, keeping, site.broker))
                clock.now_s += 20
                await keeping.look()
                if name == "b":
                    await job.settle(2, told=[keeping])
                    await keeping.look()
                    await until(lambda: job.count(2) == 2)
        assert [job.count(number) for number in range(1, 5)] == [1, 2, 1, 1]
