"""Whether a broker may have custody, tried with real brokers."""

import asyncio
import json
from pathlib import Path

from tests.support.result_shape import faults_of
from tests.support.scripted_broker import scripted_broker
from tests.tools.lab.check.test_broker import HOST, gateway, holdfast, mosquitto
from tools.lab.check.custody import FAIL, NOTE, OK, CustodyTrial, Finding
from tools.lab.check.subject import Address
from tools.lab.testing.mosquitto import Mosquitto
from tools.lab.testing.ports import free_port


def verdicts(findings: list[Finding]) -> dict[str, str]:
    return {one.what: one.verdict for one in findings}


def test_a_broker_whose_queue_ends_at_1000_messages_may_not_have_custody(tmp_path: Path) -> None:
    with mosquitto(tmp_path) as port:
        done = holdfast("check", "central", f"mqtt://{HOST}:{port}", "--messages", "1300", "--json")
    assert done.returncode == 1, done.stderr
    report = json.loads(done.stdout)
    assert faults_of(report, "check") == []
    (violation,) = report["violations"]
    assert violation.startswith("queue, reconnect: of 1300 messages that it acknowledged for a client that was away, ")
    assert 200 < report["lost"] <= 300
    (advice,) = [one["advice"] for one in report["findings"] if one["verdict"] == FAIL]
    assert "max_queued_messages 0" in advice


async def test_a_mosquitto_that_is_set_up_for_it_may(tmp_path: Path) -> None:
    broker = Mosquitto(tmp_path, "max_inflight_messages 500")
    broker.start()

    async def restart() -> None:
        await asyncio.to_thread(broker.stop)
        await asyncio.to_thread(broker.start)

    try:
        trial = CustodyTrial(Address(HOST, broker.port), 1200, restart)
        found = verdicts(await trial.run())
    finally:
        broker.stop()
    assert (trial.sent, trial.lost, trial.twice) == (2400, 0, 0)
    assert FAIL not in found.values()
    assert found["queue, restart"] == found["session over a restart"] == found["Receive Maximum"] == OK


async def test_one_without_persistence_loses_all_by_a_restart(tmp_path: Path) -> None:
    broker = Mosquitto(tmp_path, is_persistent=False)
    broker.start()

    async def restart() -> None:
        await asyncio.to_thread(broker.stop)
        await asyncio.to_thread(broker.start)

    try:
        trial = CustodyTrial(Address(HOST, broker.port), 20, restart)
        findings = await trial.run()
    finally:
        broker.stop()
    (failed,) = [one for one in findings if one.verdict == FAIL]
    assert (failed.what, trial.lost) == ("session over a restart", 20)
    assert "persistence true" in failed.advice
    assert verdicts(findings)["Receive Maximum"] == NOTE, "mosquitto takes 20 at once"


def test_our_gateway_may_and_says_that_a_message_has_no_subscriber(tmp_path: Path) -> None:
    with gateway(tmp_path) as port:
        done = holdfast("check", "central", f"mqtt://{HOST}:{port}", "--quick")
    assert done.returncode == 0, done.stdout
    lines = done.stdout.decode().splitlines()
    assert "ok    queue, reconnect: it kept all 1500 messages for a client that was away" in lines
    assert any(line.startswith("ok    message without a subscriber: it answers 0x10") for line in lines)
    assert "note  session over a restart: not tried" in lines
    assert lines[-1] == "this broker may have custody"


async def test_a_broker_that_only_takes_qos_0_acknowledges_nothing() -> None:
    async with scripted_broker(maximum_qos=0, retain_available=False, maximum_packet_size=5000) as broker:
        found = verdicts(await CustodyTrial(Address(HOST, broker.port), 10).run())
    assert found["Maximum QoS"] == FAIL
    assert found["retained messages"] == found["Maximum Packet Size"] == NOTE


def test_what_cannot_be_tried_is_said_in_a_line() -> None:
    for url, said in (
        (f"mqtt://{HOST}:{free_port()}", b": Connection refused"),
        ("http://broker", b"expected mqtt://"),
        ("ws://broker", b"expected mqtt://host:port or mqtts://host:port"),
        ("mqtts://broker --ca absent.pem", b"absent.pem: No such file or directory"),
    ):
        done = holdfast("check", "central", *url.split())
        assert (done.returncode, done.stdout, done.stderr.count(b"\n")) == (2, b"", 1)
        assert said in done.stderr
