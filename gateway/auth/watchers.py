"""Visitors of the status page: users with a checked password or certificate, and with a rule that lets them watch."""

import hashlib
import os
from collections import OrderedDict
from typing import NamedTuple

from gateway.auth.accounts import Account, Accounts
from gateway.auth.logins import Logins
from gateway.auth.permissions import Access
from gateway.port import Visitor
from wire.reasons import BAD_USER_NAME_OR_PASSWORD, SUCCESS, describe

CHECKED_MAX = 64  # passwords that were right lately; a browser sends its own with each request


class Watcher(NamedTuple):
    """A visitor that may look: its user, None without one, and the account, None where a certificate names the user."""

    user: str | None
    account: Account | None = None


class WatcherRefused(Exception):
    """A visitor may not look, for now or at all; the text says why.

    ``is_asked_to_log_in``: a password may change that. ``may_retry``: too many passwords are being checked, or were
    wrong.
    """

    def __init__(self, text: str, *, is_asked_to_log_in: bool = False, may_retry: bool = False) -> None:
        super().__init__(text)
        self.is_asked_to_log_in = is_asked_to_log_in
        self.may_retry = may_retry


class Watchers:
    """Admits the visitors of the status page, by the accounts, rules and limits on guesses that count for clients.

    Args:
        access: the access rules.
        accounts: the accounts, None without any.
        logins: checks their passwords.
    """

    def __init__(self, access: Access, accounts: Accounts | None, logins: Logins | None) -> None:
        self._access = access
        self._accounts = accounts
        self._logins = logins
        self._key = os.urandom(32)
        self._checked: OrderedDict[bytes, Account] = OrderedDict()

    async def admit(self, visitor: Visitor, user: str | None, password: bytes | None) -> Watcher:
        """Returns the watcher that a visitor is. Raises WatcherRefused.

        Args:
            visitor: what the listener knows.
            user, password: what the request has, None without a login.
        """
        if visitor.certificate_user is not None:
            watcher = Watcher(visitor.certificate_user)
        elif self._logins is None or user is None or password is None:
            watcher = Watcher(None)
            if not (visitor.may_be_anonymous and self.may_look(watcher)):
                raise WatcherRefused("log in with an account of the gateway", is_asked_to_log_in=True)
        else:
            watcher = Watcher(user, await self._account_of(visitor.host, user, password))
        if not self.may_look(watcher):
            raise WatcherRefused("no access rule lets this user watch")
        return watcher

    def may_look(self, watcher: Watcher) -> bool:
        """Whether a watcher may look now: the rules and its account may have changed since it was admitted."""
        user, account = watcher
        if account is not None and (self._accounts is None or self._accounts.get(account.name) != account):
            return False
        if user is None and self._logins is None and self._access.rules is None:
            return True
        return self._access.may_watch(user)

    async def _account_of(self, host: str, user: str, password: bytes) -> Account:
        """Checks a password, once for all requests with it: a hash costs a Raspberry Pi a tenth of a second."""
        assert self._accounts is not None and self._logins is not None
        digest = hashlib.blake2b(user.encode() + b"\0" + password, key=self._key).digest()
        account = self._accounts.get(user)
        if account is None or self._checked.get(digest) != account:
            code = await self._logins.check_password(host, user, password)
            if code != SUCCESS:
                is_wrong = code == BAD_USER_NAME_OR_PASSWORD
                raise WatcherRefused(describe(code), is_asked_to_log_in=is_wrong, may_retry=not is_wrong)
            assert account is not None  # it has not changed while the password was checked
            self._checked[digest] = account
            if len(self._checked) > CHECKED_MAX:
                self._checked.popitem(last=False)
        return account
