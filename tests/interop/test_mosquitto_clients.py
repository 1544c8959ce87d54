"""mosquitto's command-line clients against our gateway."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gateway.broker import Broker
from tests.gateway.steps import with_publisher
from tests.gateway.store.support import stored
from tests.gateway.support import LONG_S, Client, connected, running, subscribed, tcp_port, until

Output = asyncio.StreamReader


async def publish(port: int, *arguments: str) -> tuple[int, str]:
    """Runs mosquitto_pub to its end; returns its exit code and its output."""
    process = await asyncio.create_subprocess_exec(
        "mosquitto_pub",
        *("-V", "5", "-p", str(port)),
        *arguments,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output, _ = await asyncio.wait_for(process.communicate(), LONG_S)
    assert process.returncode is not None
    return process.returncode, output.decode()


@contextlib.asynccontextmanager
async def subscriber(port: int, *arguments: str) -> AsyncIterator[Output]:
    """Runs mosquitto_sub, whose output comes without its log of the packets."""
    process = await asyncio.create_subprocess_exec(
        "mosquitto_sub", *("-V", "5", "-p", str(port)), *arguments, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    try:
        yield process.stdout
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


async def line(output: Output) -> str:
    return (await asyncio.wait_for(output.readline(), LONG_S)).decode().rstrip("\n")


def names(folder: Path) -> set[str]:
    return {consumer for (consumer,) in stored(folder, "SELECT consumer FROM cursor")}


async def test_mosquitto_sub_prints_what_mosquitto_pub_sends(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        port = tcp_port(broker)
        for qos in ("0", "1"):
            client_id = f"sub-{qos}"
            async with subscriber(port, "-i", client_id, "-t", "a/+", "-q", qos, "-F", "%t %q %r %p") as output:
                await until(lambda: has_subscriptions(broker.sessions.get(client_id)), "subscribed")  # noqa: B023
                for publish_qos in ("0", "1"):
                    code, said = await publish(port, "-t", "a/b", "-q", publish_qos, "-m", f"at {publish_qos}")
                    assert (code, said) == (0, "")
                    lower = min(qos, publish_qos)
                    assert await line(output) == f"a/b {lower} 0 at {publish_qos}"


def has_subscriptions(session: object) -> bool:
    return session is not None and bool(session.cursor.filters)  # type: ignore[attr-defined]


async def test_properties_come_out_as_mosquitto_pub_put_them_in(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        port = tcp_port(broker)
        form = "%C|%D|%E|%F|%P|%R|%p"
        async with subscriber(port, "-i", "sub", "-t", "a", "-q", "1", "-F", form) as output:
            await until(lambda: has_subscriptions(broker.sessions.get("sub")), "subscribed")
            properties = {
                "content-type": "text/plain",
                "correlation-data": "42",
                "message-expiry-interval": "600",
                "payload-format-indicator": "1",
                "response-topic": "answers",
            }
            options = [word for name, value in properties.items() for word in ("-D", "publish", name, value)]
            user = ["-D", "publish", "user-property", "b", "1", "-D", "publish", "user-property", "a", "2"]
            assert await publish(port, "-t", "a", "-q", "1", "-m", "payload", *options, *user) == (0, "")
            printed = await line(output)
            assert printed == "text/plain|42|600|1|b:1 a:2|answers|payload"


async def test_a_stored_session_of_mosquitto_sub_gets_what_it_missed_over_a_restart(tmp_path: Path) -> None:
    stored_session = ("-i", "sub", "-c", "-x", "4294967295", "-t", "a", "-q", "1")
    async with running(tmp_path) as broker:
        port = tcp_port(broker)
        async with subscriber(port, *stored_session):
            await until(lambda: has_subscriptions(broker.sessions.get("sub")), "subscribed")
        for number in range(20):
            assert await publish(port, "-t", "a", "-q", "1", "-m", str(number)) == (0, "")
    assert "session/sub" in names(tmp_path)
    async with running(tmp_path) as broker, subscriber(tcp_port(broker), *stored_session) as output:
        assert [await line(output) for _ in range(20)] == [str(number) for number in range(20)]


async def test_many_lines_of_one_mosquitto_pub_arrive_in_order(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        ours = await subscribed(broker, "ours", "a")
        process = await asyncio.create_subprocess_exec(
            *("mosquitto_pub", "-V", "5", "-p", str(tcp_port(broker)), "-t", "a", "-q", "1", "-l"),
            stdin=asyncio.subprocess.PIPE,
        )
        assert process.stdin is not None
        process.stdin.write("".join(f"{number}\n" for number in range(2000)).encode())
        process.stdin.close()
        for number in range(2000):
            assert (await ours.receive()).payload == b"%d" % number
        assert await asyncio.wait_for(process.wait(), LONG_S) == 0


async def test_a_shared_subscription_of_two_mosquitto_subs_delivers_each_once(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        port = tcp_port(broker)
        shared = ("-t", "$share/group/a", "-q", "1")
        async with subscriber(port, "-i", "one", *shared) as one, subscriber(port, "-i", "two", *shared) as two:
            for name in ("one", "two"):
                await until(lambda: (session := broker.sessions.get(name)) and session.shared, "subscribed")  # noqa: B023
            for number in range(20):
                await publish(port, "-t", "a", "-q", "1", "-m", str(number))
            received: list[str] = []
            tasks = [asyncio.create_task(collect(output, received)) for output in (one, two)]
            await until(lambda: len(received) == 20, "all of them")
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            assert sorted(map(int, received)) == list(range(20))


async def collect(output: Output, into: list[str]) -> None:
    while True:
        into.append(await line(output))


async def test_all_versions_and_all_qos(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        port = tcp_port(broker)
        for version in ("31", "311", "5"):
            client_id = f"sub-{version}"
            arguments = ("-V", version, "-i", client_id, "-t", "a", "-q", "2", "-F", "%q %p")
            async with subscriber(port, *arguments) as output:
                await until(lambda: has_subscriptions(broker.sessions.get(client_id)), "subscribed")  # noqa: B023
                for qos in ("0", "1", "2"):
                    for publisher in ("31", "311", "5"):
                        assert await publish(port, "-V", publisher, "-t", "a", "-q", qos, "-m", publisher) == (0, "")
                        assert await line(output) == f"{qos} {publisher}"


async def test_retained_messages_and_wills(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        port = tcp_port(broker)
        assert await publish(port, "-t", "a/kept", "-q", "1", "-r", "-m", "kept") == (0, "")
        async with subscriber(port, "-t", "a/#", "-q", "2", "-F", "%r %t %p") as output:
            assert await line(output) == "1 a/kept kept"
            will = ("--will-topic", "a/will", "--will-payload", "gone", "--will-qos", "2", "--will-retain")
            async with subscriber(port, "-i", "dying", "-t", "b", *will):
                await until(lambda: has_subscriptions(broker.sessions.get("dying")), "subscribed")
                broker.sessions.get("dying").connection.disconnect(0x98)  # type: ignore[union-attr]
                assert await line(output) == "0 a/will gone"
        async with subscriber(port, "-t", "a/will", "-F", "%r %p") as output:
            assert await line(output) == "1 gone"


@pytest.mark.parametrize("qos", [0, 1, 2])
async def test_mosquitto_sub_that_wants_retained_messages_only_gets_all_under_a_stream_of_others(
    tmp_path: Path, qos: int
) -> None:
    """With --retained-only it disconnects at the first message without RETAIN."""
    topics = sorted(f"a/{number}" for number in range(100))
    async with with_publisher(tmp_path) as (broker, publisher):
        for topic in topics:
            await publish_at(publisher, topic, qos, retain=True)
        await publisher.publish("b")  # with it, those of QoS 0 are stored
        async with streaming(broker, "a/live", qos):
            for version in ("mqttv311", "5"):
                arguments = ("--retained-only", "-V", version, "-t", "a/#", "-q", str(qos), "-F", "%r %t")
                async with subscriber(tcp_port(broker), *arguments) as output:
                    lines = (await asyncio.wait_for(output.read(), LONG_S)).decode().splitlines()
                assert sorted(lines) == [f"1 {topic}" for topic in topics]


async def publish_at(publisher: Client, topic: str, qos: int, *, retain: bool = False) -> None:
    if qos:
        await (publisher.publish if qos == 1 else publisher.publish_once)(topic, b"1", retain=retain)
    else:
        publisher.send(topic, b"1", qos=0, retain=retain)
        await asyncio.sleep(0)


@contextlib.asynccontextmanager
async def streaming(broker: Broker, topic: str, qos: int) -> AsyncIterator[None]:
    """Publishes to a topic all the time."""
    stream = await connected(broker, "stream")

    async def publish_on() -> None:
        while True:
            await publish_at(stream, topic, qos)

    task = asyncio.create_task(publish_on())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])
