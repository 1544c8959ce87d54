"""The queries on the page about the store say of a gateway's store what they promise."""

import re
from pathlib import Path

from gateway.config.schema import QueueConfig
from tests.gateway.store.support import stored
from tests.gateway.support import ROOT, connected, running, subscribed, until
from wire.identity import IDENTITY_PROPERTY, encode_identity
from wire.properties import USER_PROPERTY

PAGE = ROOT / "docs/reference/store.md"


async def test_the_queries_find_what_a_full_queue_has_dropped(tmp_path: Path) -> None:
    how_much, latest, missing = re.findall(r"^```sql\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    async with running(tmp_path, queue=QueueConfig(max_messages=4)) as broker:
        subscriber = await subscribed(broker, "dashboard", "a")
        await subscriber.disconnect()
        publisher = await connected(broker, "garage")
        for seq in range(1, 13):
            await publisher.publish(
                "a", properties={USER_PROPERTY: [(IDENTITY_PROPERTY, encode_identity("garage", 7, seq))]}
            )
        cursor = broker.sessions.get("dashboard").cursor  # type: ignore[union-attr]
        await until(lambda: cursor.backlog and cursor.backlog.messages == 4, "the oldest were dropped")
    assert stored(tmp_path, how_much) == [("evicted", "session/dashboard", 8)]
    assert [row[1:] for row in stored(tmp_path, latest)] == [
        ("evicted", "session/dashboard", "garage", "garage", 1, 8, 8)
    ]
    assert stored(tmp_path, missing) == [("evicted", "session/dashboard", 3, 8)]
