"""docs/explanation/gateway.md leads through the files that a PUBLISH really runs through."""

import re
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

import pytest

from tests.gateway.steps import session_of
from tests.gateway.support import ROOT, connected, running, subscribed, until
from wire.codec.packets import MQTT_5, Puback, Publish

STEPS = re.findall(r"^\*\*\d+\. `([\w./]+)`", (ROOT / "docs/explanation/gateway.md").read_text(), re.MULTILINE)
OTHERS_MOST = 20  # files that are no step, the count of backlogs among them; lower it with each one not needed any more
ROUNDS = 5


@pytest.fixture
def entered() -> Iterator[set[str]]:
    """The files of the repository in which functions are called meanwhile, on threads that begin meanwhile as well."""
    files: set[str] = set()

    def note(frame: FrameType, event: str, _: object) -> None:
        files.add(frame.f_code.co_filename)

    threading.setprofile(note)
    sys.setprofile(note)
    yield files
    sys.setprofile(None)
    threading.setprofile(None)


async def test_a_publish_runs_through_each_file_of_the_page_and_few_others(tmp_path: Path, entered: set[str]) -> None:
    """From the publisher's line to the disk, back as a PUBACK, on to a subscriber, and until its PUBACK is handled."""
    rounds: list[set[str]] = []
    async with running(tmp_path) as broker:
        subscriber = await subscribed(broker, "subscriber", "readings/#")
        session = session_of(broker, "subscriber")
        publisher = await connected(broker, "publisher")
        for number in range(1, ROUNDS + 2):
            publish = Publish("readings/attic", b"21.5", 1, False, False, number, {}).encode(MQTT_5)
            puback = Puback(number).encode(MQTT_5)
            entered.clear()
            publisher.write(publish)
            assert await publisher.read(len(puback)) == puback
            assert await subscriber.read(len(publish)) == publish
            subscriber.write(puback)
            await until(lambda: not session.cursor.flight.positions(), "acknowledged")
            rounds.append({name for name in entered if name.startswith((f"{ROOT}/gateway/", f"{ROOT}/wire/"))})
    files = set.intersection(*rounds[1:])  # the first PUBLISH to a topic goes the slow way
    assert [step for step in STEPS if str(ROOT / step) not in files] == []
    others = sorted(files - {str(ROOT / step) for step in STEPS})
    assert len(others) <= OTHERS_MOST, others
