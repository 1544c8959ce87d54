"""What /healthz says, and whether readings are at risk: a problem; or an operator should just know it: a note."""

from datetime import timedelta
from pathlib import Path

from gateway.config.schema import QueueConfig, SerialConfig, TcpConfig, TlsConfig
from tests.gateway.support import Client, running, subscribed, tcp_port, until
from tests.support.scripted_broker import scripted_broker
from tests.uplink.support import route_config, serving
from tools.lab.testing.certificates import Authority
from tools.lab.testing.serial_line import SerialLine
from uplink.config.tls import RouteTlsConfig
from uplink.route import Route
from uplink.routes import Routes
from wire.codec.packets import Connack
from wire.reasons import NOT_AUTHORIZED


async def test_what_a_route_loses_to_its_own_limit_is_a_problem_until_an_operator_has_seen_it(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        route = Route(route_config(1, max_messages=3), "test-gateway", broker.log)
        publisher = await Client("publisher").connect(tcp_port(broker))
        for number in range(5):
            await publisher.publish("a", b"%d" % number)
        assert broker.overview.problems() == []
        await route.queue.watch.count()
        await publisher.publish("a", b"more")
    async with running(tmp_path) as broker:
        (problem,) = broker.overview.problems()
        assert "acknowledged messages were dropped since 2" in problem
        assert broker.overview.see_drops() == 1
        assert broker.overview.problems() == []


async def test_what_a_session_loses_to_its_queue_is_a_note(tmp_path: Path) -> None:
    async with running(tmp_path, queue=QueueConfig(max_messages=3)) as broker:
        client = await subscribed(broker, "away", "a", session_expiry_s=600)
        client.cut()
        publisher = await Client("publisher").connect(tcp_port(broker))
        for number in range(10):
            await publisher.publish("a", b"%d" % number)
        await until(lambda: broker.overview.notes(), "it is said")
        (note,) = broker.overview.notes()
        assert "messages beyond the limits of sessions ([queue], [[topic]]) were dropped" in note
        assert broker.overview.problems() == []


async def test_a_refused_login_of_a_route_is_a_problem_until_it_is_let_in_and_a_broker_that_is_away_is_none(
    tmp_path: Path,
) -> None:
    refusal = Connack(False, NOT_AUTHORIZED).encode()
    async with running(tmp_path) as broker:
        async with scripted_broker(mqtt_5_refusal=refusal) as central:
            route = Route(route_config(central.port), "test-gateway", broker.log)
            broker.overview.routes.append(route.queue.state)
            async with serving(route):
                await until(lambda: broker.overview.problems(), "it is said")
                assert broker.overview.problems() == ["route central: the server says: not authorized (0x87)"]
                central.mqtt_5_refusal = None
                await until(lambda: route.queue.state.connected, "it is let in")
                assert broker.overview.problems() == []
        async with serving(Route(route_config(1, name="away"), "test-gateway", broker.log, route.queue)):
            await until(lambda: "cannot connect" in route.queue.state.last_error, "the broker is away")
            assert broker.overview.problems() == []


async def test_a_serial_port_that_is_missing_is_a_note(tmp_path: Path) -> None:
    device = tmp_path / "ttyUSB0"
    async with running(tmp_path / "store", SerialConfig(device=str(device))) as broker:
        await until(lambda: broker.overview.notes(), "it is said")
        (note,) = broker.overview.notes()
        assert note.startswith(f"serial port {device}: ") and "No such file" in note
        cable = SerialLine()
        cable.open()
        device.symlink_to(cable.near)
        await until(lambda: not broker.overview.notes(), "it is there")
        cable.close()


async def test_a_listeners_certificate_is_told_when_it_nears_its_end_and_is_a_problem_behind_it(tmp_path: Path) -> None:
    """What counts is the certificate in use: a renewed file is used after SIGHUP."""
    authority = Authority(tmp_path / "certificates")
    near, past = timedelta(hours=1), timedelta(hours=-1)
    certificate, key = map(str, authority.sign("server", ["server"], life=near))
    listener = TcpConfig(port=0, tls=TlsConfig(certificate, key))
    async with running(tmp_path / "store", listener) as broker:
        (note,) = broker.overview.notes()
        assert f"{certificate}: out of date from 20" in note
        assert note.startswith(f"listener tcp with TLS 127.0.0.1:{tcp_port(broker)}: ")
        assert broker.overview.problems() == []
        authority.sign("server", ["server"], life=past)
        broker.reload()
        assert broker.overview.notes() == []
        (problem,) = broker.overview.problems()
        assert f"{certificate}: out of date since 20" in problem
        authority.sign("server", ["server"])
        assert broker.overview.problems() == [problem]
        broker.reload()
        assert (broker.overview.notes(), broker.overview.problems()) == ([], [])


async def test_a_certificate_that_a_route_shows_is_told_as_its_file_is_now(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "certificates")
    certificate, key = map(str, authority.sign("route", ["route"], life=timedelta(hours=-1)))
    async with running(tmp_path / "store") as broker:
        config = route_config(1, broker="mqtts://127.0.0.1:1", tls=RouteTlsConfig(None, certificate, key))
        routes = Routes([config], "test-gateway", broker.log, broker.services.endings, broker.services)
        broker.certificates.routes = routes.certificates
        (problem,) = broker.overview.problems()
        assert problem.startswith(f"route central: {certificate}: out of date since 20")
        authority.sign("route", ["route"])
        assert broker.overview.problems() == []
