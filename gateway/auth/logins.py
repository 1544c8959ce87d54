"""Logins: passwords are checked in threads, a few at a time, and repeated failures make a client wait."""

import asyncio
import os
from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor

from gateway.auth.accounts import PASSWORD_SIZE_MAX, Accounts, is_password, keep_memory_apart, unmatchable_hash
from gateway.auth.scram import ScramError, ScramExchange, ScramKeys
from gateway.port import network_of
from wire.reasons import BAD_USER_NAME_OR_PASSWORD, CONNECTION_RATE_EXCEEDED, SERVER_BUSY, SUCCESS

WORKERS = 2  # each takes ``accounts.MEMORY_KIB`` while it hashes
WAITING_MAX = 256  # logins; more are refused, and the devices of a site try again
USER_FAILURES_MAX, USER_FORGET_S = 10, 10.0  # of one user from one address: after that six a minute
ADDRESS_FAILURES_MAX, ADDRESS_FORGET_S = 100, 1.0  # of one address, for any user: after that one a second
SOURCES_MAX = 10_000


class Logins:
    """Checks the passwords and SCRAM proofs of clients.

    Failures count by user *and* address: a client cannot lock out a user at another address, and one device with a
    wrong password does not lock out the other users at its address.

    Args:
        accounts: the accounts.
    """

    def __init__(self, accounts: Accounts) -> None:
        keep_memory_apart()
        self._accounts = accounts
        self._of_users = LoginThrottle(USER_FAILURES_MAX, USER_FORGET_S)
        self._of_addresses = LoginThrottle(ADDRESS_FAILURES_MAX, ADDRESS_FORGET_S)
        self._unmatchable_hash = unmatchable_hash()
        self._scram_secret = os.urandom(32)
        self._threads = ThreadPoolExecutor(WORKERS, thread_name_prefix="login")
        self._turns = asyncio.Semaphore(WORKERS)
        self._waiting: set[asyncio.Task[int]] = set()

    async def check_password(self, host: str, user: str | None, password: bytes | None) -> int:
        """Returns the reason code of a login: success, bad user name or password, or one that tells it to wait.

        It takes the same time whether the user exists or not. If the account changes meanwhile, its earlier password is
        not accepted any more.

        Args:
            host: the client's address, an IP address without a port or the name of a serial line.
            user: the CONNECT's user name.
            password: the CONNECT's password.
        """
        if user is None or password is None or len(password) > PASSWORD_SIZE_MAX:
            return BAD_USER_NAME_OR_PASSWORD
        if len(self._waiting) >= WAITING_MAX:
            return SERVER_BUSY
        if self.must_wait(host, user):
            return CONNECTION_RATE_EXCEEDED
        account = self._accounts.get(user)
        check = asyncio.get_running_loop().create_task(self._check(host, user, password))
        self._waiting.add(check)
        check.add_done_callback(self._waiting.discard)
        code = await asyncio.shield(check)  # a check goes on after its client has gone, and may count as a failure
        return code if self._accounts.get(user) == account else BAD_USER_NAME_OR_PASSWORD

    async def _check(self, host: str, user: str, password: bytes) -> int:
        async with self._turns:
            if self.must_wait(host, user):  # the logins before it may have failed
                return CONNECTION_RATE_EXCEEDED
            account = self._accounts.get(user)
            password_hash = account.password_hash if account else self._unmatchable_hash
            loop = asyncio.get_running_loop()
            if await loop.run_in_executor(self._threads, is_password, password, password_hash):
                return SUCCESS
            self.note_failure(host, user)
            return BAD_USER_NAME_OR_PASSWORD

    def scram(self, host: str) -> "ScramLogin":
        """Begins a login by SCRAM."""
        return ScramLogin(self, host, self._scram_secret)

    def keys_of(self, user: str) -> ScramKeys | None:
        account = self._accounts.get(user)
        return account.scram if account else None

    def must_wait(self, host: str, user: str) -> bool:
        """Whether too many logins of this user or this address have failed to try another one."""
        now_s = asyncio.get_running_loop().time()
        network = network_of(host)
        return self._of_users.too_many((network, user), now_s) or self._of_addresses.too_many((network,), now_s)

    def note_failure(self, host: str, user: str) -> None:
        now_s = asyncio.get_running_loop().time()
        network = network_of(host)
        self._of_users.note((network, user), now_s)
        self._of_addresses.note((network,), now_s)

    async def close(self) -> None:
        """Ends the threads; no login is checked any more."""
        for check in self._waiting:
            check.cancel()
        await asyncio.get_running_loop().run_in_executor(None, self._threads.shutdown)


class ScramLogin:
    """One login by SCRAM; ``user`` is proved when ``finish`` has returned."""

    def __init__(self, logins: Logins, host: str, secret: bytes) -> None:
        self._logins = logins
        self._host = host
        self._keys: ScramKeys | None = None
        self._exchange = ScramExchange(logins.keys_of, secret)

    @property
    def user(self) -> str:
        return self._exchange.user

    def begin(self, data: bytes) -> bytes:
        """Takes the authentication data of the CONNECT; returns that of our AUTH. Raises ScramError."""
        answer = self._exchange.begin(data)
        if self._logins.must_wait(self._host, self.user):
            raise ScramError("too many logins from there have failed")
        self._keys = self._logins.keys_of(self.user)
        return answer

    def finish(self, data: bytes) -> bytes:
        """Takes the authentication data of the AUTH; returns that of the CONNACK. Raises ScramError."""
        try:
            if self._logins.must_wait(self._host, self.user):
                raise ScramError("too many logins from there have failed")
            if self._logins.keys_of(self.user) != self._keys:
                raise ScramError("its account was read anew meanwhile")
            return self._exchange.finish(data)
        except ScramError:
            self._logins.note_failure(self._host, self.user)
            raise


class LoginThrottle:
    """Counts failed logins by source; each count falls by one every ``forget_s`` seconds.

    Args:
        most: the count at which a source has to wait.
        forget_s: seconds after which one failure counts no more.
    """

    def __init__(self, most: int, forget_s: float) -> None:
        self._most = most
        self._forget_s = forget_s
        self._counts: OrderedDict[tuple[str, ...], tuple[float, float]] = OrderedDict()  # the count, and its time

    def too_many(self, source: tuple[str, ...], now_s: float) -> bool:
        return self._count(source, now_s) > self._most - 1

    def note(self, source: tuple[str, ...], now_s: float) -> None:
        """Counts a failure. The sources without a failure for longest are forgotten beyond SOURCES_MAX."""
        self._counts[source] = self._count(source, now_s) + 1, now_s
        self._counts.move_to_end(source)
        if len(self._counts) > SOURCES_MAX:
            self._counts.popitem(last=False)

    def _count(self, source: tuple[str, ...], now_s: float) -> float:
        count, since_s = self._counts.get(source, (0.0, now_s))
        return max(0.0, count - (now_s - since_s) / self._forget_s)
