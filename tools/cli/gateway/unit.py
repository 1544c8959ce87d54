"""The gateway's systemd unit: as which user it runs the gateway, and which folders it lets it write.

https://www.freedesktop.org/software/systemd/man/latest/systemd.exec.html, at ``ProtectSystem=`` and ``ReadWritePaths=``
"""

import encodings.idna  # noqa: F401 - which sockets import later, when the unit's user may not read Python's files
import os
import pwd
import shlex
from collections.abc import Iterable, Iterator
from pathlib import Path

from gateway.config.connectors import TCP
from gateway.config.schema import GatewayConfig, SerialConfig, UnixConfig, store_of, stream_names

NAME = "holdfast-gateway.service"
FOLDER = Path("/etc/systemd/system")
"""For an administrator's units and drop-ins."""
PACKAGED = Path("/usr/lib/systemd/system")
DEFAULT = next((one for one in (FOLDER / NAME, PACKAGED / NAME) if one.is_file()), FOLDER / NAME)
SERIAL = Path("/usr/share/holdfast/serial.conf")
"""The drop-in for serial ports, where the Debian package has it."""
DROP_IN = "paths.conf"
WRITABLE = ("/dev", "/proc", "/sys", "/tmp", "/var/tmp")  # with ProtectSystem=strict and PrivateTmp=yes
HOMES = ("/home", "/root", "/run/user")
FOLDERS = {"StateDirectory": "/var/lib", "RuntimeDirectory": "/run", "CacheDirectory": "/var/cache"}


class Unit:
    """A unit's file with its drop-ins.

    Args:
        path: the file.

    Raises:
        OSError: it cannot be read.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._drop_ins = (FOLDER if path.parent == PACKAGED else path.parent) / f"{path.name}.d"
        drop_ins = sorted(self._drop_ins.glob("*.conf"))
        self._lines = [line.strip() for file in (path, *drop_ins) for line in file.read_text("utf-8").splitlines()]

    @property
    def user(self) -> str:
        """The user as which the gateway runs, "" for root."""
        return next(reversed(list(self._values("User"))), "")

    def become_user(self) -> None:
        """Makes this process one of the service's user, for good, if root runs it and there is such a user."""
        try:
            entry = pwd.getpwnam(self.user)
        except KeyError:
            return
        if os.geteuid() == 0 and entry.pw_uid:
            os.initgroups(entry.pw_name, entry.pw_gid)
            os.setgid(entry.pw_gid)
            os.setuid(entry.pw_uid)

    def missing(self, config: GatewayConfig) -> list[Path]:
        """Returns the folders of a configuration that the gateway must write and the unit does not let it write."""
        return [folder for folder in written_by(config) if not self._lets_write(folder)]

    def drop_in(self, folders: Iterable[Path]) -> str:
        """Returns the text of a drop-in that lets the gateway write folders, and waits for their disks."""
        paths = " ".join(_quoted(folder) for folder in folders)
        return f"[Unit]\nRequiresMountsFor={paths}\n\n[Service]\nReadWritePaths={paths}\n"

    def advice(self, folders: list[Path], file: Path) -> Iterator[str]:
        """Yields, a line each, why the gateway could not write these folders, and the commands that let it."""
        listed = ", ".join(map(str, folders))
        yield f"{self.path}: ProtectSystem=strict does not let the service write {listed}"
        for folder in folders:
            if _is_below(folder, HOMES):
                yield f"{folder}: ProtectHome=yes hides it from the service: choose a folder outside {', '.join(HOMES)}"
            elif not folder.exists():
                user = shlex.quote(self.user or "root")
                yield f"sudo install -d -m 700 -o {user} -g {user} {shlex.quote(str(folder))}"
        target = self._drop_ins / DROP_IN
        yield f"holdfast gateway check-config --drop-in {shlex.quote(str(file))} | sudo install -D /dev/stdin {target}"
        yield "sudo systemctl daemon-reload"

    def advice_on_ports(self, config: GatewayConfig) -> Iterator[str]:
        """Yields, a line each, why the gateway could not open a serial port, and the commands that let it."""
        is_private = next(reversed(list(self._values("PrivateDevices"))), "") in ("yes", "true")
        ports = [one for one in config.listener if isinstance(one, SerialConfig)]
        if is_private and (ports or not all(one.port.startswith(TCP) for one in config.connector)):
            yield f"{self.path}: PrivateDevices=yes hides serial ports from the service"
            source = SERIAL if SERIAL.is_file() else Path("packaging/systemd", SERIAL.name)
            yield f"sudo install -D -m 644 {source} {self._drop_ins / SERIAL.name}"
            yield "sudo systemctl daemon-reload"

    def _lets_write(self, folder: Path) -> bool:
        if next(reversed(list(self._values("ProtectSystem"))), "") != "strict":
            return True
        if next(reversed(list(self._values("ProtectHome"))), "") in ("yes", "true") and _is_below(folder, HOMES):
            return False
        named = [f"{top}/{name}" for key, top in FOLDERS.items() for name in self._values(key)]
        named += [path.lstrip("-+").replace("%%", "%") for path in self._values("ReadWritePaths")]
        return _is_below(folder, (*WRITABLE, *named))

    def _values(self, key: str) -> Iterator[str]:
        """Yields the values of a key, those in one line one after the other."""
        for line in self._lines:
            name, equals, value = line.partition("=")
            if equals and name.strip() == key:
                yield from shlex.split(value)


def written_by(config: GatewayConfig) -> list[Path]:
    """Returns the folders that a gateway writes: its stores, and the folders of its Unix sockets."""
    stores = [Path(store_of(config, name).path) for name in stream_names(config)]
    sockets = [Path(one.path).parent for one in config.listener if isinstance(one, UnixConfig)]
    folders = dict.fromkeys(folder.absolute() for folder in (*stores, *sockets))
    return [one for one in folders if not any(other in one.parents for other in folders)]


def _is_below(folder: Path, tops: Iterable[str]) -> bool:
    return any(folder.is_relative_to(top) for top in tops)


def _quoted(folder: Path) -> str:
    text = str(folder).replace("%", "%%")
    return f'"{text}"' if " " in text else text
