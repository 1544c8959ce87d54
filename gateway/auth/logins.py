"""Logging in: passwords checked beside the event loop, a few at a time, and guessers made to wait."""

import asyncio
import os
from concurrent.futures import ThreadPoolExecutor

from gateway.accounts import Accounts
from gateway.failures import Failures, network_of
from gateway.password import PASSWORD_SIZE_MAX, hash_of_nobody, is_password, keep_memory_apart
from gateway.scram import ScramError, ScramExchange, ScramKeys
from wire.reasons import BAD_USER_NAME_OR_PASSWORD, CONNECTION_RATE_EXCEEDED, SERVER_BUSY, SUCCESS

WORKERS = 2  # each takes password.MEMORY_KIB while it hashes
WAITING_MAX = 256  # logins; a site that comes back after a power cut is more patient than memory is large
USER_FAILURES_MAX, USER_FORGET_S = 10, 10.0  # of one user from one address: then six a minute
ADDRESS_FAILURES_MAX, ADDRESS_FORGET_S = 100, 1.0  # of one address, whoever it says it is: then one a second


class Logins:
    """Decides who gets in.

    Who guesses waits by user *and* address: nobody can lock out a user elsewhere, and one device with a wrong
    password does not lock out its neighbours.

    Args:
        accounts: the accounts.
    """

    def __init__(self, accounts: Accounts) -> None:
        keep_memory_apart()
        self._accounts = accounts
        self._of_users = Failures(USER_FAILURES_MAX, USER_FORGET_S)
        self._of_addresses = Failures(ADDRESS_FAILURES_MAX, ADDRESS_FORGET_S)
        self._nobody = hash_of_nobody()
        self._scram_secret = os.urandom(32)
        self._threads = ThreadPoolExecutor(WORKERS, thread_name_prefix="login")
        self._turns = asyncio.Semaphore(WORKERS)
        self._waiting: set[asyncio.Task[int]] = set()

    async def check_password(self, host: str, user: str | None, password: bytes | None) -> int:
        """Returns the reason code of a login: success, bad user name or password, or one that says to wait.

        It takes the same time whether there is such a user or not. Of an account that is read anew meanwhile, the
        password of before counts no more.

        Args:
            host: where it comes from, an IP address without its port or a line's name.
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
        code = await asyncio.shield(check)  # who hangs up meanwhile has still had a thread, and failed or not
        return code if self._accounts.get(user) == account else BAD_USER_NAME_OR_PASSWORD

    async def _check(self, host: str, user: str, password: bytes) -> int:
        async with self._turns:
            if self.must_wait(host, user):  # by what came of those before it
                return CONNECTION_RATE_EXCEEDED
            account = self._accounts.get(user)
            password_hash = account.password_hash if account else self._nobody
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
        """Whether too many logins from here have failed to try another."""
        now_s = asyncio.get_running_loop().time()
        network = network_of(host)
        return self._of_users.too_many((network, user), now_s) or self._of_addresses.too_many((network,), now_s)

    def note_failure(self, host: str, user: str) -> None:
        now_s = asyncio.get_running_loop().time()
        network = network_of(host)
        self._of_users.note((network, user), now_s)
        self._of_addresses.note((network,), now_s)

    async def close(self) -> None:
        """Ends the threads; nobody logs in any more."""
        for check in self._waiting:
            check.cancel()
        await asyncio.get_running_loop().run_in_executor(None, self._threads.shutdown)


class ScramLogin:
    """One login by SCRAM; ``user`` is who it proves to be once ``finish`` has returned."""

    def __init__(self, logins: Logins, host: str, secret: bytes) -> None:
        self._logins = logins
        self._host = host
        self._keys: ScramKeys | None = None
        self._exchange = ScramExchange(logins.keys_of, secret)

    @property
    def user(self) -> str:
        return self._exchange.user

    def begin(self, data: bytes) -> bytes:
        """Takes the AUTHENTICATION_DATA of the CONNECT; returns that of our AUTH. Raises ScramError."""
        answer = self._exchange.begin(data)
        if self._logins.must_wait(self._host, self.user):
            raise ScramError("too many logins from there have failed")
        self._keys = self._logins.keys_of(self.user)
        return answer

    def finish(self, data: bytes) -> bytes:
        """Takes the AUTHENTICATION_DATA of the AUTH; returns that of the CONNACK. Raises ScramError."""
        try:
            if self._logins.must_wait(self._host, self.user):
                raise ScramError("too many logins from there have failed")
            if self._logins.keys_of(self.user) != self._keys:
                raise ScramError("its account was read anew meanwhile")
            return self._exchange.finish(data)
        except ScramError:
            self._logins.note_failure(self._host, self.user)
            raise
