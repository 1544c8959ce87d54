"""What a site gives to boards, put into their configurations."""

import json
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeGuard

from cryptography import x509
from cryptography.hazmat.primitives import serialization

from device.config import Config
from host.credentials import Credentials
from host.files import read_file, read_secret
from tools.cli.board.content import CONFIG
from tools.cli.board.errors import Refused
from tools.cli.board.runs.order import Draft
from tools.cli.site.authority import common_name, read_certificate
from tools.cli.site.errors import SiteError
from tools.cli.site.given import ON_BOARD, Given
from tools.cli.site.giving import Wish
from tools.cli.site.keys import read_key
from tools.cli.site.ledger import CERTIFICATE, PASSWORD, Kind
from tools.cli.site.rules import Rights, watcher_of
from tools.cli.site.site import Site

PORTS = {CERTIFICATE: 8883, PASSWORD: 8884}  # as `holdfast site gateway` has them
LOGIN_KEYS = ("user", "password", "authentication")
PATIENCE_S = 15.0
PEM_BEGIN = b"-----BEGIN"


@dataclass(frozen=True)
class Provisioned:
    """What a board gets: its files, its checked configuration, and the login with which its reading is awaited."""

    files: dict[str, bytes]
    keys: Config
    login: Credentials
    listens_as: str
    claim: Callable[[str], None]
    patience_s: float


class Provision:
    """Gives boards what they need from a site. The methods raise Refused, HostError and OSError.

    Args:
        site: the open site.
        kind: what boards get that have nothing yet.
        reload: a command for the shell that has the site's gateways read their files again; "" for none.
    """

    def __init__(self, site: Site, kind: Kind, reload: str = "") -> None:
        self._site, self._kind, self._reload = site, kind, reload

    def check(self, draft: Draft) -> Config:
        """Checks a configuration and what its name was given, before anything is given. Raises Refused, HostError.

        Returns what the configuration will say, as far as that is known before.
        """
        given = self._site.find(draft.name) if draft.name else None
        self._check_own(draft)
        kind = given.line.kind if given is not None else self._kind
        names = ON_BOARD if kind == CERTIFICATE else {"ca": ON_BOARD["ca"], "user": "-", "password": "-"}
        keys = draft.checked(_merged(draft, {"kind": "tls", **names}, PORTS.get(kind, 0)))
        if given is not None:
            self._check_given(given)
        return keys

    def give(self, drafts: Sequence[Draft]) -> list[Provisioned]:
        """Gives all boards what they have not yet, all or none, and lets the gateways know."""
        wishes = []
        for draft in drafts:
            if self._site.find(draft.name) is None:
                keys = draft.checked(_merged(draft, {"kind": "tls", **ON_BOARD}, PORTS[CERTIFICATE]))
                status = keys.status.topic if keys.status else ""
                rights = Rights.of_device(keys.topic, status, keys.commands or "")
                wishes.append(Wish(draft.name, self._kind, rights=rights))
        if wishes:
            self._site.give_all(wishes)
            self._tell_gateways()
        return [self._provisioned(draft, bool(wishes)) for draft in drafts]

    def _tell_gateways(self) -> None:
        if not self._reload:
            return
        code = subprocess.run(self._reload, shell=True, stdin=subprocess.DEVNULL).returncode
        if code:
            raise Refused(f"--reload: the command ended with {code}; nothing was written to a board")

    def _provisioned(self, draft: Draft, is_new: bool) -> Provisioned:
        given = self._site.find(draft.name)
        if given is None:  # it was revoked in this moment
            raise Refused(f"{draft.name!r} has nothing of this site any more")
        self._check_given(given)
        keys = _merged(draft, given.port(), PORTS[given.line.kind])
        login = Credentials(None, None, given.authority, given.certificate, given.key)
        if given.has_password:
            login = Credentials(given.name, given.password, given.authority)
        content = json.dumps(keys, ensure_ascii=False).encode()
        return Provisioned(
            {**given.board_files(), CONFIG: content},
            draft.checked(keys),
            login,
            watcher_of(given.name),
            self._claim_of(given.name),
            PATIENCE_S if is_new else 0,
        )

    def _claim_of(self, name: str) -> Callable[[str], None]:
        def claim(number: str) -> None:
            try:
                self._site.hold(name, number)
            except SiteError as error:
                raise Refused(str(error)) from error

        return claim

    def _check_own(self, draft: Draft) -> None:
        """A configuration may have certificates of its own only if they are this site's."""
        for port in _ports(draft):
            if port.get("kind") == "tcp":
                raise Refused(f'{draft.path}: port.kind is "tcp", expected "tls" or none with --site')
            if login := [key for key in LOGIN_KEYS if key in port]:
                raise Refused(f"{draft.path}: port.{login[0]} is there, expected none: the login is the site's")
            if "ca" in port:
                path = draft.path.parent / str(port["ca"]).lstrip("/")
                if path.exists() and _der_of(path) != _der_of(self._site.places.authority):
                    raise Refused(f"{path}: the certificate of an authority that is not of this site")
            if "certificate" in port:
                path = draft.path.parent / str(port["certificate"]).lstrip("/")
                if path.exists():
                    self._check_certificate(x509.load_der_x509_certificate(_der_of(path)), path, draft.name)

    def _check_given(self, given: Given) -> None:
        if given.line.kind not in PORTS:
            raise Refused(f"{given.name!r} is a {given.line.kind} of this site, expected the name of a device")
        if given.has_password:
            return
        certificate = read_certificate(read_file(given.certificate), str(given.certificate))
        self._check_certificate(certificate, given.certificate, given.name)
        key = read_key(read_secret(given.key), None, str(given.key))
        if key.public_key() != certificate.public_key():
            raise Refused(f"{given.key}: not the key of {given.certificate}")
        if f"{certificate.serial_number:x}" != given.line.serial:
            raise Refused(f"{given.certificate}: another certificate than the ledger has for {given.name!r}")

    def _check_certificate(self, certificate: x509.Certificate, path: Path, name: str) -> None:
        if not self._site.authority.has_signed(certificate):
            raise Refused(
                f"{path}: a certificate that is not of this site: {_issuer(certificate)} has signed it, and not the "
                f"authority of {self._site.authority.site}"
            )
        if common_name(certificate) != name:
            raise Refused(f"{path}: the certificate of {common_name(certificate)!r}, expected that of {name!r}")
        if certificate.not_valid_after_utc < datetime.now(UTC):
            raise Refused(
                f"{path}: the certificate has ended on {certificate.not_valid_after_utc:%Y-%m-%d}; "
                f"`holdfast site revoke {name}`, and the board gets a new one"
            )


def _issuer(certificate: x509.Certificate) -> str:
    """Returns the name of the authority that has signed a certificate, as far as its certificate says one."""
    text = certificate.issuer.rfc4514_string()
    return repr(text) if text else "an authority without a name"


def _is_network(port: object) -> TypeGuard[dict[str, Any]]:
    """Whether a port of a configuration leads over a network."""
    return isinstance(port, dict) and port.get("kind") != "uart"


def _ports(draft: Draft) -> list[dict[str, Any]]:
    """The ports that lead over a network. Raises Refused: there are none."""
    port = draft.keys.get("port")
    ports = port if isinstance(port, list) else [port]
    found = [one for one in ports if _is_network(one)]
    if not found:
        raise Refused(f"{draft.path}: no port leads over a network, expected none of --site")
    return found


def _merged(draft: Draft, given: dict[str, str], number: int) -> dict[str, Any]:
    """The keys with what the site gives in each port that leads over a network."""
    port = draft.keys["port"]
    made = [
        {"port": number} | one | given if _is_network(one) else one
        for one in (port if isinstance(port, list) else [port])
    ]
    return {**draft.keys, "port": made if isinstance(port, list) else made[0]}


def _der_of(path: Path) -> bytes:
    content = read_file(path)
    if not content.startswith(PEM_BEGIN):
        try:
            x509.load_der_x509_certificate(content)
        except ValueError as error:
            raise Refused(f"{path}: expected a certificate in PEM or DER") from error
        return content
    return read_certificate(content, str(path)).public_bytes(serialization.Encoding.DER)
