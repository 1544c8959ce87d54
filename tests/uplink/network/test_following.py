"""A gateway follows a long announcement of one that it dials step by step; a kill between two steps loses nothing."""

import asyncio
from pathlib import Path

import pytest

from gateway.links import BadAnnouncement, Mark, Network
from gateway.network.announcements import Announcer
from gateway.network.interest import LOCAL, Interest
from gateway.store import MessageLog
from tests.gateway.store.support import leave_as_killed, opened
from tests.gateway.support import until
from uplink.config.queue import QueueNeighbour, QueueSettings
from uplink.queue import link
from uplink.queue.route_queue import RouteQueue

THERE = "link", "there"
FILTERS = [f"plant/{number}" for number in range(300)]


class Other:
    """The gateway that announces what is wanted there."""

    def __init__(self) -> None:
        self.interest = Interest()
        self.announcer = Announcer(self.interest, b"the book")

    def news(self, queue: RouteQueue) -> bytes:
        """Returns what a route's end has not heard, in one payload."""
        mark = next((one for one in (Mark(), self.announcer.mark()) if one.encode() == queue.link.interest.mark), None)
        assert mark is not None
        (payload,) = self.announcer.news(THERE, mark)
        return payload

    def want(self, *topic_filters: str) -> None:
        for one in topic_filters:
            self.announcer.note(self.interest.want(one, LOCAL))


def queue_of(log: MessageLog) -> RouteQueue:
    settings = QueueSettings(broker="mqtt://there", sent=(), neighbour=QueueNeighbour(THERE, True, False))
    return RouteQueue("there", log, "here", settings, Network("here"))


def follow(queue: RouteQueue, payload: bytes) -> asyncio.Task[None]:
    rest = queue.link.hear(payload, queue.lanes.cursors, None)
    assert rest is not None
    return asyncio.get_running_loop().create_task(rest)


async def test_a_kill_while_an_announcement_is_followed_leaves_a_gateway_that_asks_for_all_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(link, "WRITTEN_AT_ONCE", 50)
    before, after = tmp_path / "before", tmp_path / "after"
    other = Other()
    other.want(*FILTERS)
    async with opened(before) as log:
        queue = queue_of(log)
        following = follow(queue, other.news(queue))
        await until(lambda: len(queue.link.interest.subscriptions) >= 150, "half of it is followed")
        leave_as_killed(before, after)
        await following
        assert queue.link.interest.mark == other.announcer.mark().encode()
        assert sorted(queue.link.interest.subscriptions) == sorted(FILTERS)
    async with opened(after) as log:
        queue = queue_of(log)
        assert 0 < len(queue.link.interest.subscriptions) < len(FILTERS)
        assert queue.link.interest.mark == Mark().encode()
        await follow(queue, other.news(queue))
        assert sorted(queue.link.interest.subscriptions) == sorted(FILTERS)
        assert set(queue.lanes.live.filters) >= set(FILTERS)
    async with opened(after) as log:
        queue = queue_of(log)
        assert queue.link.interest.mark == other.announcer.mark().encode()
        assert sorted(queue.link.interest.subscriptions) == sorted(FILTERS)


async def test_a_long_announcement_that_does_not_follow_from_the_one_before_changes_nothing(tmp_path: Path) -> None:
    other = Other()
    other.want(*FILTERS)
    async with opened(tmp_path) as log:
        queue = queue_of(log)
        await follow(queue, other.news(queue))
        mark = other.announcer.mark()
        other.announcer.note([change for one in FILTERS for change in other.interest.want_no_more(one, LOCAL)])
        (changes,) = other.announcer.news(THERE, mark)
        await follow(queue, changes)
        assert not queue.link.interest.subscriptions
        with pytest.raises(BadAnnouncement, match="does not follow"):
            await follow(queue, changes)
        assert not queue.link.interest.subscriptions
