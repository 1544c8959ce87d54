"""Makes orders from configurations: all are checked before a site gives anything, and before a board is touched."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TypeVar

from device.config import Config
from host.credentials import Credentials
from host.errors import HostError
from tools.cli.board.content import CONFIG, named_file, named_files
from tools.cli.board.errors import Refused
from tools.cli.board.login import device_gateway
from tools.cli.board.runs.order import Draft, Order, read_draft
from tools.cli.board.runs.provision import Provision
from tools.cli.board.settings import Settings
from tools.cli.failure import words_of
from tools.cli.fleet.table import Row

Given = TypeVar("Given")
Made = TypeVar("Made")


class Desk:
    """Makes orders.

    Args:
        settings: makes the settings of a board from what is its own.
        provision: what a site gives; None without a site.
        login: another login than the devices'.
        waits: whether first readings are awaited.
        check: raises Refused for a configuration, given its file and what it says, that boards like these cannot run.
    """

    def __init__(
        self,
        settings: "partial[Settings]",
        provision: Provision | None,
        login: Credentials | None,
        waits: bool,
        check: Callable[[Path, Config], object],
    ) -> None:
        self._settings, self._provision, self._login, self._waits = settings, provision, login, waits
        self._check = check

    def orders(self, drafts: Sequence[Draft], places: Sequence[str] = ("",)) -> list[Order]:
        """Checks all configurations, and then has the site give what it is to give.

        Args:
            places: where each is named, for errors.

        Raises:
            Refused: a configuration cannot be used. The text names each of them with its place, if it has one.
            HostError, OSError: the site, or one of its files, cannot be used.
        """
        if self._provision is None:
            made = _all(self._order, drafts, places)
            _check_keys(made, places)
            return made
        provision = self._provision
        _all(lambda draft: self._check(draft.path, provision.check(draft)), drafts, places)
        orders = []
        for draft, one in zip(drafts, provision.give(drafts), strict=True):
            gateway = device_gateway(draft.path, one.keys)
            login = self._login or one.login
            if login.ca is None:
                login = replace(login, ca=one.login.ca)
            settings = self._settings(
                config=draft.path,
                keys=one.keys,
                login=login,
                lends=self._lends(one.keys),
                given=one.files,
                claim=one.claim,
            )
            listens_as = None if self._login else one.listens_as
            server = gateway[0] if gateway is not None and self._waits else None
            orders.append(Order(settings, server, login, listens_as, one.patience_s))
        return orders

    def _order(self, draft: Draft) -> Order:
        keys = draft.checked()
        self._check(draft.path, keys)
        for name in named_files(keys):
            named_file(draft.path, name)
        own = device_gateway(draft.path, keys)
        if self._waits and own is None:
            raise Refused(f"{draft.path}: no port leads over a network, so no reading can be awaited: add --no-wait")
        login = self._login or (own[1] if own else Credentials())
        settings = self._settings(
            config=draft.path, keys=keys, login=login, lends=self._lends(keys), given={CONFIG: draft.content}
        )
        return Order(settings, own[0] if own and self._waits else None, login)

    def _lends(self, keys: Config) -> bool:
        return self._login is not None and self._login.user not in (None, keys.client_id)


def _check_keys(orders: Sequence[Order], places: Sequence[str]) -> None:
    """Raises Refused if two boards would get the same private key."""
    seen: dict[bytes, str] = {}
    for order, place in zip(orders, places, strict=True):
        for port in order.settings.keys.ports:
            if name := getattr(port, "key", None):
                key = named_file(order.settings.config, name.lstrip("/"))
                other = seen.setdefault(key, order.name)
                if other != order.name:
                    path = order.settings.config.parent / name.lstrip("/")
                    raise Refused(
                        f"{place}: {path} is the key of {other} too, expected a key for each board: --site gives them"
                    )


def drafts_of(rows: Sequence[Row], config: Path) -> list[Draft]:
    """Returns the configuration of each row: `NAME/device.json` in a folder, or one file in which `%u` is the name.

    Raises Refused: some cannot be used; the text names each with file and line.
    """

    def read(row: Row) -> Draft:
        is_folder = config.is_dir()
        draft = read_draft(config / row.name / CONFIG if is_folder else config, row.name)
        if draft.name != row.name:
            raise Refused(f'{draft.path}: client_id is "{draft.name}", expected "{row.name if is_folder else "%u"}"')
        return draft

    return _all(read, rows, [row.where for row in rows])


def _all(make: Callable[[Given], Made], items: Iterable[Given], places: Sequence[str]) -> list[Made]:
    """Calls a function for all, and raises Refused with the faults of all."""
    made, faults = [], []
    for item, place in zip(items, places, strict=True):
        try:
            made.append(make(item))
        except (Refused, HostError) as error:
            faults += [f"{place}: {line}" if place else line for line in words_of(error).splitlines()]
    if faults:
        raise Refused("\n".join(faults))
    return made
