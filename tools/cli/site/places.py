"""Where the files of a site are.

::

    site/
    ├── ledger.sqlite        what was given: no secret
    ├── authority.key        the site key
    ├── devices/NAME/        certificate.pem and key.pem, or password
    ├── gateways/NAME/       certificate.pem and key.pem
    └── gateway/             what each gateway of the site reads
        ├── authority.pem    client_ca
        ├── revoked.pem      client_crl
        ├── accounts         accounts
        └── access           acl
"""

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from host.files import sync_folder, write_new
from tools.cli.site.errors import SiteError
from tools.cli.site.given import AUTHORITY_FILE, CERTIFICATE_FILE, KEY_FILE, PASSWORD_FILE
from tools.cli.site.ledger import FILE, GATEWAY, PASSWORD, Line

PUBLIC_MODE, PUBLIC_FOLDER, PRIVATE_FOLDER = 0o644, 0o755, 0o700
MAKING = "making"


@dataclass(frozen=True)
class Places:
    """The paths in a site's folder."""

    folder: Path

    @property
    def is_site(self) -> bool:
        """Whether a site is there, even if a file of it is gone."""
        return any(path.is_file() for path in (self.authority, self.key, self.folder / FILE))

    @property
    def key(self) -> Path:
        return self.folder / "authority.key"

    @property
    def devices(self) -> Path:
        return self.folder / "devices"

    @property
    def gateways(self) -> Path:
        return self.folder / "gateways"

    @property
    def shared(self) -> Path:
        """The folder that each gateway of the site reads."""
        return self.folder / "gateway"

    @property
    def authority(self) -> Path:
        return self.shared / AUTHORITY_FILE

    @property
    def revoked(self) -> Path:
        return self.shared / "revoked.pem"

    @property
    def accounts(self) -> Path:
        return self.shared / "accounts"

    @property
    def access(self) -> Path:
        return self.shared / "access"

    def of(self, line: Line) -> Path:
        """Returns the folder of what a line of the ledger stands for."""
        return (self.gateways if line.kind == GATEWAY else self.devices) / line.name

    def has_files(self, line: Line) -> bool:
        """Whether all files of what a line of the ledger stands for are here."""
        names = (PASSWORD_FILE,) if line.kind == PASSWORD else (CERTIFICATE_FILE, KEY_FILE)
        return all((self.of(line) / name).is_file() for name in names)

    def check(self, *files: Path) -> None:
        """Raises SiteError for the first of these files of `shared` that is not there."""
        for path in files:
            if not path.is_file():
                raise SiteError(
                    f"{path}: it is not there; each gateway of the site has a copy of it, and so should your backup"
                )

    def made(self) -> list[Path]:
        """Returns the folders of all devices and gateways that are complete."""
        folders = [one for group in (self.devices, self.gateways) if group.is_dir() for one in group.iterdir()]
        return sorted(one for one in folders if one.is_dir() and not one.name.startswith("."))


def making_of(folder: Path) -> Path:
    """Returns where a folder lies until it is complete."""
    return folder.with_name(f".{folder.name}.{MAKING}")


def make_whole(folder: Path, files: Mapping[str, bytes]) -> None:
    """Makes a folder of secrets, which has its name only when all is in it and on disk. Raises OSError."""
    if not folder.parent.exists():  # some copies leave empty folders out
        folder.parent.mkdir(mode=PRIVATE_FOLDER)
        sync_folder(folder.parent.parent)
    making = making_of(folder)
    shutil.rmtree(making, ignore_errors=True)  # of a process that was killed
    making.mkdir(mode=PRIVATE_FOLDER)
    try:
        for name, content in files.items():
            write_new(making / name, content)
        sync_folder(making)
        making.rename(folder)
    except OSError:
        shutil.rmtree(making, ignore_errors=True)
        raise
    sync_folder(folder.parent)


def remove_whole(folder: Path) -> None:
    """Removes a folder of secrets, if it is there, and syncs that. Raises OSError."""
    making = making_of(folder)
    shutil.rmtree(making, ignore_errors=True)
    if folder.exists():
        folder.rename(making)  # a folder with its name is complete
        shutil.rmtree(making)
        sync_folder(folder.parent)
