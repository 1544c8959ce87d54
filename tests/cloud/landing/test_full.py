"""A lander that is full reads no more, until it has landed. It must not wait for that with what makes room."""

from pathlib import Path

import pytest

from tests.cloud.landing.running_lander import RunningLander, landed, publish, wait_until
from tests.cloud.landing.script import Visit
from tests.cloud.landing.script import broker as scripted
from tools.lab.testing.mosquitto import RECOMMENDED, Mosquitto, recommended
from wire.bulk.batch_encoder import ColumnBatchEncoder
from wire.bulk.column_batch import CONTENT_TYPE as BATCH
from wire.properties import RECEIVE_MAXIMUM

ROOT = Path(__file__).parents[3]
MESSAGES_IN_BATCH = 20_000
BATCHES = 8  # a lander is full with five


def batches() -> list[bytes]:
    encoded = []
    for batch in range(BATCHES):
        encoder = ColumnBatchEncoder()
        for place in range(1, MESSAGES_IN_BATCH + 1):
            seq = batch * MESSAGES_IN_BATCH + place
            encoder.add("x", b"", 1, False, b"", "roof", 1, seq, 1_760_000_000_000, "gw")
        encoded.append(encoder.encode())
    return encoded


def test_the_page_for_mosquitto_says_what_the_tests_use() -> None:
    page = (ROOT / "docs/how-to/next-broker.md").read_text()
    assert f"```text\n{RECOMMENDED}```" in page


@pytest.mark.parametrize("inflight", [1000, 0])
def test_a_full_lander_that_loses_its_broker_lands_all_once_its_disk_has_room(
    landing: Path, tmp_path: Path, inflight: int
) -> None:
    """Each time the lander is full again, with what the broker sends again."""
    (tmp_path / "mosquitto").mkdir()
    broker = Mosquitto(tmp_path / "mosquitto", recommended(inflight))
    broker.start()
    running = RunningLander(broker.port, landing, "full", roll_s=3600)
    running.wait_for("connected")
    away = landing.with_name("away")
    landing.rename(away)
    publish(broker.port, "x", batches(), ContentType=BATCH)
    running.wait_for("cannot land")
    for loss in (1, 2):
        broker.stop()
        running.wait_for("lost", times=loss)
        broker.start()
        running.wait_for("cannot land", times=1 + loss)
    away.rename(landing)
    wait_until(lambda: len({row["seq"] for row in landed(landing)}) == BATCHES * MESSAGES_IN_BATCH, "all messages")
    running.stop()
    broker.stop()


def test_a_lander_says_how_many_messages_it_takes_at_once(landing: Path) -> None:
    announced = []

    def visited(visit: Visit) -> None:
        announced.append(visit.connect.properties.get(RECEIVE_MAXIMUM))

    with scripted(visited) as port:
        running = RunningLander(port, landing, "window")
    running.stop()
    assert announced == [65_534]
