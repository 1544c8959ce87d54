"""Landing files in an object store: a real server of S3's interface, in a process of its own."""

from threading import Event

import pytest

from cloud import land
from cloud.landing.file import parse_stem
from cloud.landing.folder import LandingFolder, SyncFailed
from cloud.storage.objects import ObjectStorage
from cloud.storage.place import open_storage
from tests.cloud.landing.running_lander import RunningLander, publish, wait_until
from tests.cloud.messages import row
from tests.cloud.object_store import Server


def test_messages_land_in_an_object_store_and_numbers_go_on(broker: int, server: Server) -> None:
    for boot in range(2):
        running = RunningLander(broker, server.url("a/b"), "s3", topic_filter="s3/#")
        running.wait_for("connected")
        publish(broker, "s3/x", [b"%d" % number for number in range(1, 6)])
        wait_until(lambda boot=boot: len(server.landed("a/b")) == 5 * (boot + 1), "rows")  # type: ignore[misc]
        running.stop()
    assert [(one["seq"], one["payload"]) for one in server.landed("a/b")] == [
        (number, b"%d" % number) for _ in range(2) for number in range(1, 6)
    ]
    assert len({one["epoch"] for one in server.landed("a/b")}) == 2
    stems = [name.removesuffix(".json") for name in open_storage(server.url("a/b")).names() if name.endswith(".json")]
    numbers = sorted(parsed.number for parsed in map(parse_stem, stems) if parsed is not None)
    assert numbers == list(range(1, len(stems) + 1))
    assert not any("hunter2" in line or "endpoint" in line for line in running.lines)


def test_a_store_that_cannot_be_reached_keeps_messages_at_the_broker(broker: int, server: Server) -> None:
    """moto keeps its objects in memory, so the bucket is made anew behind the break."""
    running = RunningLander(broker, server.url("away"), "s3-away", topic_filter="away/#")
    running.wait_for("connected")
    server.process.stop()
    publish(broker, "away/x", [b"1", b"2"], hf_id="00000001/{}/garage")
    running.wait_for("cannot land in s3://lake/away: ")
    server.start()
    wait_until(lambda: len(server.landed("away")) == 2, "both messages")
    running.stop()
    assert [(one["origin"], one["payload"]) for one in server.landed("away")] == [("garage", b"1"), ("garage", b"2")]


def test_leftovers_are_removed_and_a_manifest_whose_upload_fails_may_count(server: Server) -> None:
    storage = ObjectStorage(server.url("torn"))
    first = LandingFolder(storage, "lander-1", 1)
    first.land([row(0, "lander-1")])
    storage.write("lander-1-00000001-00000002.parquet", b"PAR1")
    second = LandingFolder(storage, "lander-1", 2)
    assert second.leftovers == ["lander-1-00000001-00000002.parquet"]
    server.process.stop()
    with pytest.raises(OSError) as raised:  # noqa: PT011  # the store's library says it in its own words
        second.land([row(0, "lander-1")])
    assert not isinstance(raised.value, SyncFailed)  # not even the file is there
    assert second.last_number == 1


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("s3://key:hunter2@lake/a", "s3://lake/a: expected no keys in the URL"),
        ("s3://lake/a?access_key=k&secret_key=hunter2", "s3://lake/a: expected no keys in the URL"),
        ("http://lake/a", "http://lake/a: expected the URL of an object store"),
        ("s3:///a", "expected the URL of an object store"),
        ("s3://lake/a?nonsense=1", "nonsense"),
    ],
)
def test_a_bad_url_is_named_and_no_key_shown(url: str, said: str) -> None:
    with pytest.raises(ValueError, match=said) as raised:
        land("mqtt://127.0.0.1", url, Event())
    assert "hunter2" not in str(raised.value)
