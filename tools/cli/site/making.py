"""A new site: its authority, an empty list of revoked certificates, and a ledger without lines."""

import os
import re
import shutil
import stat
from datetime import UTC, datetime
from pathlib import Path

from device.clock import EARLIEST_UNIX_MS
from host.files import LOCK_FILE, locked, sync_folder, write_new
from tools.cli.site.authority import NAME_SIZE_MAX, Authority, make_authority
from tools.cli.site.errors import SiteError
from tools.cli.site.keys import key_pem, new_key
from tools.cli.site.ledger import make_ledger
from tools.cli.site.places import PRIVATE_FOLDER, PUBLIC_FOLDER, PUBLIC_MODE, Places, making_of
from tools.cli.site.rules import HEAD

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
SITE_NAME_MAX = NAME_SIZE_MAX - len(" 01234567")
AUTHORITY_DAYS = 7300
PASSPHRASE_SIZE_MIN = 8  # characters


def is_name(name: str, most: int = NAME_SIZE_MAX) -> bool:
    """Whether `check_name` takes a name."""
    return NAME.fullmatch(name) is not None and len(name) <= most


def check_name(name: str, most: int = NAME_SIZE_MAX) -> None:
    """Raises SiteError unless a device, a gateway or a site can have this name: it is a user, a client identifier, a
    level of topics and a folder.
    """
    if not is_name(name, most):
        raise SiteError(
            f"{name!r} cannot be a name: expected at most {most} letters, digits and -._ and a letter or digit first"
        )


def check_clock(now: datetime) -> None:
    """Raises SiteError if a clock was never set: what begins by it ends too early."""
    if now.timestamp() * 1000 < EARLIEST_UNIX_MS:
        raise SiteError(f"by this computer's clock it is {now:%Y-%m-%d}: set it first, as certificates begin by it")


def make_site(folder: Path, name: str, days: int = AUTHORITY_DAYS, passphrase: bytes | None = None) -> None:
    """Makes the folder of a new site; it has its name only when all is in it and on disk.

    Args:
        folder: is empty, or is not there.
        name: the site's name.
        days: how long its authority, and all that it signs, is valid at most.
        passphrase: encrypts the site key; None does not.

    Raises:
        SiteError: the folder is not empty, the clock was never set, or the name or the passphrase cannot be used.
        OSError: it cannot be written; then nothing is there.
    """
    check_name(name, SITE_NAME_MAX)
    check_clock(datetime.now(UTC))
    if passphrase is not None and len(passphrase) < PASSPHRASE_SIZE_MIN:
        raise SiteError(f"expected a passphrase of at least {PASSPHRASE_SIZE_MIN} characters")
    folder = folder.resolve()
    _check_free(folder)
    making = making_of(folder)
    making.mkdir(mode=PRIVATE_FOLDER, exist_ok=True)
    about = making.lstat()
    if not stat.S_ISDIR(about.st_mode) or about.st_uid != os.geteuid():
        raise SiteError(f"{making}: another user has made it; choose a folder in which others cannot write")
    with locked(making):
        try:
            _check_free(folder)  # another process may have made it meanwhile
            _clear(making)  # of a process that was killed
            _fill(Places(making), name, days, passphrase)
            os.chmod(making, PUBLIC_FOLDER)
            making.rename(folder)
        except (OSError, SiteError):
            shutil.rmtree(making, ignore_errors=True)
            raise
        sync_folder(folder.parent)


def _check_free(folder: Path) -> None:
    """Raises SiteError if something is in a folder."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        is_site = Places(folder).authority.exists()
        raise SiteError(f"{folder}: " + ("it is a site already" if is_site else "expected an empty folder, or none"))


def _clear(folder: Path) -> None:
    """Removes all from a folder but the file of its lock."""
    for one in folder.iterdir():
        if one.is_dir():
            shutil.rmtree(one)
        elif one.name != LOCK_FILE:
            one.unlink()


def _fill(places: Places, name: str, days: int, passphrase: bytes | None) -> None:
    for private in (places.devices, places.gateways, places.shared):
        private.mkdir(mode=PRIVATE_FOLDER)
    key = new_key()
    pem = make_authority(name, key, days, datetime.now(UTC))
    authority = Authority(pem, str(places.authority))
    write_new(places.key, key_pem(key, passphrase))
    write_new(places.authority, pem, PUBLIC_MODE)
    write_new(places.revoked, authority.sign_list(key, {}, 1), PUBLIC_MODE)
    write_new(places.access, HEAD.encode(), PUBLIC_MODE)
    write_new(places.accounts, b"")
    os.chmod(places.shared, PUBLIC_FOLDER)
    make_ledger(places.folder)
    for folder in (places.shared, places.folder):
        sync_folder(folder)
