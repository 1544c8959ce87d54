import asyncio
import errno
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from gateway.store.group_commit import GroupCommit
from tests.gateway.support import until


class Medium:
    """What is durable; a commit of an item below zero fails, and each commit waits to be let through."""

    def __init__(self) -> None:
        self.groups: list[list[int]] = []
        self.let_through = threading.Semaphore(0)

    def commit(self, group: list[int]) -> list[int]:
        assert self.let_through.acquire(timeout=30)
        if min(group) < 0:
            raise OSError("the medium is full")
        self.groups.append(group)
        return [10 * item for item in group]


@asynccontextmanager
async def committing(medium: Medium) -> AsyncIterator[GroupCommit[int, int]]:
    commits: GroupCommit[int, int] = GroupCommit(medium.commit, lambda items, results: None)
    yield commits
    medium.let_through.release(10)
    await commits.close()


async def submit_in_two_groups(commits: GroupCommit[int, int], items: list[int]) -> list[asyncio.Future[int]]:
    first = commits.submit(items[0])
    await asyncio.sleep(0)
    await asyncio.sleep(0)  # the first is on its way to the medium now
    return [first, *map(commits.submit, items[1:])]


async def test_what_gathers_during_a_commit_goes_into_the_next_one() -> None:
    medium = Medium()
    async with committing(medium) as commits:
        futures = await submit_in_two_groups(commits, [1, 2, 3])
        medium.let_through.release(2)
        assert await asyncio.gather(*futures) == [10, 20, 30]
    assert medium.groups == [[1], [2, 3]]


async def test_nothing_overtakes_what_could_not_be_committed() -> None:
    medium = Medium()
    async with committing(medium) as commits:
        futures = await submit_in_two_groups(commits, [-1, 2, 3])
        medium.let_through.release(1)
        for future in futures:
            with pytest.raises(OSError, match="full"):
                await future
        later = commits.submit(4)
        medium.let_through.release(1)
        assert await later == 40
    assert medium.groups == [[4]]


async def test_what_comes_before_the_failure_is_heard_of_fails_too_and_what_comes_after_does_not() -> None:
    medium = Medium()
    async with committing(medium) as commits:
        later: list[asyncio.Future[int]] = []
        first = commits.submit(-1)
        first.add_done_callback(lambda _: later.append(commits.submit(3)))
        medium.let_through.release(1)
        while not first.done():
            await asyncio.sleep(0)
        behind = commits.submit(2)
        with pytest.raises(OSError, match="full"):
            await behind
        medium.let_through.release(1)
        assert await later[0] == 30
    assert medium.groups == [[3]]


async def test_an_error_over_the_news_of_a_commit_keeps_no_future_waiting() -> None:
    medium = Medium()

    def fail(items: list[int], results: list[int]) -> None:
        raise ValueError(f"{items} are no news")

    failures: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: failures.append(context["exception"]))
    commits: GroupCommit[int, int] = GroupCommit(medium.commit, fail)
    medium.let_through.release(2)
    assert await commits.submit(1) == 10
    assert await commits.submit(2) == 20
    await commits.close()
    assert len(failures) == 2


async def test_a_task_that_waits_for_a_commit_goes_on_before_the_work_behind_the_commit() -> None:
    medium = Medium()
    told = threading.Event()
    tidied: list[bool] = []
    commits: GroupCommit[int, int] = GroupCommit(
        medium.commit, lambda items, results: None, tidy=lambda: tidied.append(told.wait(timeout=30))
    )
    medium.let_through.release(1)
    assert await commits.submit(1) == 10
    told.set()
    await commits.close()
    assert tidied == [True]


async def test_what_fails_behind_a_commit_fails_no_other() -> None:
    medium = Medium()

    def fail() -> None:
        raise RuntimeError("no thread can be started")

    commits: GroupCommit[int, int] = GroupCommit(medium.commit, lambda items, results: None, tidy=fail)
    medium.let_through.release(2)
    assert await commits.submit(1) == 10
    assert await commits.submit(2) == 20
    await commits.close()


async def test_what_fails_behind_each_commit_is_said_in_one_line_until_it_has_worked(
    caplog: pytest.LogCaptureFixture,
) -> None:
    full = OSError(errno.ENOSPC, "No space left on device")
    outcomes = iter([full, full, None, full, full])

    def tidy() -> None:
        if error := next(outcomes):
            raise error

    medium = Medium()
    commits: GroupCommit[int, int] = GroupCommit(medium.commit, lambda items, results: None, tidy=tidy)
    medium.let_through.release(5)
    for item in range(5):
        await commits.submit(item)
    await commits.close()
    said = [record for record in caplog.records if record.name == "gateway.store.group_commit"]  # asyncio says more
    assert [record.exc_info for record in said] == [None] * 2
    assert all("No space left on device" in record.getMessage() for record in said)


@pytest.mark.parametrize("item", [1, -1])
async def test_a_commit_that_takes_long_gets_the_interpreter_sooner(monkeypatch: pytest.MonkeyPatch, item: int) -> None:
    """Else a busy event loop keeps the interpreter from it: others waited for an acknowledgement for 9 s."""
    monkeypatch.setattr("gateway.store.group_commit.LONG_S", 0.01)
    medium, before_s = Medium(), sys.getswitchinterval()
    async with committing(medium) as commits:
        future = commits.submit(item)
        await until(lambda: sys.getswitchinterval() < before_s, "it is hurried")
        medium.let_through.release(1)
        await asyncio.wait([future])
        await until(lambda: sys.getswitchinterval() == before_s, "it is over")
        future.exception()


async def test_owners_hear_of_a_commit_in_the_turn_of_the_loop_in_which_it_is_handed_back() -> None:
    medium = Medium()
    heard: list[object] = []

    def note_next_turn(items: list[int], results: list[int]) -> None:
        asyncio.get_running_loop().call_soon(heard.append, "the next turn")

    commits: GroupCommit[int, int] = GroupCommit(medium.commit, note_next_turn)
    for item in (1, 2):
        commits.hand_in(item, lambda result, error: heard.append((result, error)))
    medium.let_through.release(1)
    await until(lambda: "the next turn" in heard, "it is over")
    await commits.close()
    assert heard == [(10, None), (20, None), "the next turn"]


@pytest.mark.parametrize("item", [1, -1])
async def test_an_owner_that_fails_keeps_no_other_owner_waiting(item: int) -> None:
    medium = Medium()
    failures: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: failures.append(context["exception"]))

    def fail(result: object, error: Exception | None) -> None:
        raise ValueError("this owner fails")

    async with committing(medium) as commits:
        commits.hand_in(item, fail)
        other = commits.submit(2)
        medium.let_through.release(1)
        (outcome,) = await asyncio.gather(other, return_exceptions=True)
    assert outcome == 20 if item > 0 else isinstance(outcome, OSError)
    assert [str(one) for one in failures] == ["this owner fails"]
