"""Logging in: right and wrong passwords, floods of them, and guessers."""

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from gateway.auth.accounts import Accounts, hash_password, is_password, make_account, save_account, unmatchable_hash
from gateway.auth.logins import SOURCES_MAX, WAITING_MAX, WORKERS, Logins, LoginThrottle
from gateway.auth.scram import ScramError
from gateway.port import network_of
from tests.gateway.support import ROOT
from wire.reasons import BAD_USER_NAME_OR_PASSWORD, CONNECTION_RATE_EXCEEDED, SERVER_BUSY, SUCCESS

HERE, ELSEWHERE = "192.0.2.1", "192.0.2.2"


def accounts_of(folder: Path) -> Accounts:
    for name in ("alice", "bob"):
        save_account(folder / "accounts", make_account(name, b"pencil", with_scram=False))
    return Accounts(folder / "accounts")


@asynccontextmanager
async def logins_of(folder: Path, accounts: Accounts | None = None) -> AsyncIterator[Logins]:
    """Alice and Bob may log in, unless there are other accounts."""
    logins = Logins(accounts or accounts_of(folder))
    try:
        yield logins
    finally:
        await logins.close()


async def test_only_the_right_password_of_a_user_lets_in(tmp_path: Path) -> None:
    async with logins_of(tmp_path) as logins:
        assert await logins.check_password(HERE, "alice", b"pencil") == SUCCESS
        assert await logins.check_password(HERE, "alice", b"pencils") == BAD_USER_NAME_OR_PASSWORD
        assert await logins.check_password(HERE, "unknown", b"pencil") == BAD_USER_NAME_OR_PASSWORD
        assert await logins.check_password(HERE, "Alice", b"pencil") == BAD_USER_NAME_OR_PASSWORD


@pytest.mark.parametrize(("user", "password"), [(None, b"pencil"), ("alice", None), ("alice", b"x" * 1025)])
async def test_half_a_login_or_a_huge_one_is_refused(tmp_path: Path, user: str | None, password: bytes | None) -> None:
    async with logins_of(tmp_path) as logins:
        assert await logins.check_password(HERE, user, password) == BAD_USER_NAME_OR_PASSWORD


def test_an_unknown_user_costs_as_much_to_compare_as_a_known_one() -> None:
    """The time is that of the hash, so its parameters are compared instead of times."""
    unknown, known = unmatchable_hash(), hash_password(b"pencil")
    assert unknown.split("$")[:4] == known.split("$")[:4] == ["", "argon2id", "v=19", "m=12288,t=3,p=1"]
    assert len(unknown) == len(known)
    assert not is_password(b"pencil", unknown)


async def test_a_guesser_waits_but_neither_its_neighbours_nor_the_user_elsewhere(tmp_path: Path) -> None:
    async with logins_of(tmp_path) as logins:
        answers = [await logins.check_password(HERE, "alice", b"wrong") for _ in range(12)]
        assert answers == [BAD_USER_NAME_OR_PASSWORD] * 10 + [CONNECTION_RATE_EXCEEDED] * 2
        assert await logins.check_password(HERE, "alice", b"pencil") == CONNECTION_RATE_EXCEEDED
        assert await logins.check_password(HERE, "bob", b"pencil") == SUCCESS
        assert await logins.check_password(ELSEWHERE, "alice", b"pencil") == SUCCESS


async def test_a_guesser_that_sends_all_guesses_at_once_gets_no_more_answers(tmp_path: Path) -> None:
    async with logins_of(tmp_path) as logins:
        answers = await asyncio.gather(*(logins.check_password(HERE, "alice", b"wrong") for _ in range(100)))
    assert answers.count(BAD_USER_NAME_OR_PASSWORD) <= 10 + WORKERS
    assert set(answers) == {BAD_USER_NAME_OR_PASSWORD, CONNECTION_RATE_EXCEEDED}


async def test_a_guesser_of_users_waits_as_well(tmp_path: Path) -> None:
    async with logins_of(tmp_path) as logins:
        answers = await asyncio.gather(*(logins.check_password(HERE, f"user-{n}", b"pencil") for n in range(200)))
    assert answers[:100] == [BAD_USER_NAME_OR_PASSWORD] * 100
    assert set(answers) == {BAD_USER_NAME_OR_PASSWORD, CONNECTION_RATE_EXCEEDED}


async def test_of_a_flood_from_everywhere_only_so_many_wait(tmp_path: Path) -> None:
    async with logins_of(tmp_path) as logins:
        hosts = [f"192.0.{number // 250}.{number % 250}" for number in range(WAITING_MAX + 500)]
        flood = [asyncio.create_task(logins.check_password(host, "alice", b"wrong")) for host in hosts]
        assert [await task for task in flood[WAITING_MAX:]] == [SERVER_BUSY] * 500
        assert await flood[0] == BAD_USER_NAME_OR_PASSWORD
        for task in flood:
            task.cancel()


async def test_a_client_that_hangs_up_while_it_waits_has_still_failed(tmp_path: Path) -> None:
    async with logins_of(tmp_path) as logins:
        tries = [asyncio.create_task(logins.check_password(HERE, "alice", b"wrong")) for _ in range(30)]
        await asyncio.sleep(0)
        for one in tries:
            one.cancel()
        await asyncio.wait(tries)
        # It waits for its turn behind them.
        last = asyncio.create_task(logins.check_password(HERE, "alice", b"pencil"))
        assert await last == CONNECTION_RATE_EXCEEDED


async def test_a_changed_password_counts_at_once(tmp_path: Path) -> None:
    accounts = accounts_of(tmp_path)
    async with logins_of(tmp_path, accounts) as logins:
        save_account(tmp_path / "accounts", make_account("alice", b"brush", with_scram=False))
        assert accounts.reload() == {"alice"}
        assert await logins.check_password(HERE, "alice", b"pencil") == BAD_USER_NAME_OR_PASSWORD
        assert await logins.check_password(HERE, "alice", b"brush") == SUCCESS


@pytest.mark.parametrize("turns", [0, 1, 5])
async def test_a_password_that_is_changed_while_it_is_looked_at_is_refused(tmp_path: Path, turns: int) -> None:
    accounts = accounts_of(tmp_path)
    async with logins_of(tmp_path, accounts) as logins:
        login = asyncio.create_task(logins.check_password(HERE, "alice", b"pencil"))
        await asyncio.sleep(0)
        for _ in range(turns):
            await asyncio.sleep(0)
        save_account(tmp_path / "accounts", make_account("alice", b"brush", with_scram=False))
        accounts.reload()
        assert await login == BAD_USER_NAME_OR_PASSWORD
        save_account(tmp_path / "accounts", make_account("bob", b"brush", with_scram=False))
        login = asyncio.create_task(logins.check_password(HERE, "alice", b"brush"))
        await asyncio.sleep(0)
        accounts.reload()
        assert await login == SUCCESS  # another user's


async def test_guesses_by_scram_count_like_any_others(tmp_path: Path) -> None:
    async with logins_of(tmp_path) as logins:
        for _ in range(10):
            login = logins.scram(HERE)
            login.begin(b"n,,n=alice,r=abc")
            with pytest.raises(ScramError):
                login.finish(b"c=biws,r=abc,p=AAAA")
        with pytest.raises(ScramError, match="too many"):
            logins.scram(HERE).begin(b"n,,n=alice,r=abc")
        assert await logins.check_password(HERE, "alice", b"pencil") == CONNECTION_RATE_EXCEEDED


def test_the_memory_of_hashing_goes_back_to_the_system() -> None:
    program = """if True:
        from concurrent.futures import ThreadPoolExecutor
        from gateway.auth.accounts import hash_password, is_password, keep_memory_apart
        def resident():
            return int(open("/proc/self/statm").read().split()[1]) * 4096
        keep_memory_apart()
        one = hash_password(b"pencil")
        before = resident()
        with ThreadPoolExecutor(2) as threads:
            assert all(threads.map(lambda _: is_password(b"pencil", one), range(10)))
            print(resident() - before)"""
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 4 * 1024 * 1024


def test_failures_are_forgotten_one_after_the_other() -> None:
    failures = LoginThrottle(2, 10.0)
    source = ("192.0.2.1",)
    failures.note(source, 0.0)
    assert not failures.too_many(source, 0.0)
    failures.note(source, 0.0)
    assert failures.too_many(source, 9.0)
    assert not failures.too_many(source, 10.0)
    failures.note(source, 10.0)
    assert failures.too_many(source, 10.0)
    assert not failures.too_many(source, 30.0)


def test_a_million_addresses_do_not_take_the_memory() -> None:
    failures = LoginThrottle(1, 10.0)
    for number in range(SOURCES_MAX + 5):
        failures.note((str(number),), 0.0)
    assert not failures.too_many(("4",), 0.0)
    assert failures.too_many(("5",), 0.0)


@pytest.mark.parametrize(
    ("host", "network"),
    [
        ("192.0.2.1", "192.0.2.1"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("/dev/ttyUSB0", "/dev/ttyUSB0"),
    ],
)
def test_one_person_counts_as_one_address(host: str, network: str) -> None:
    assert network_of(host) == network
