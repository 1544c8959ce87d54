"""TLS on a listener: its certificate, the authorities of client certificates, and the user that such one names."""

import asyncio
import logging
import ssl
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

from gateway.auth.accounts import NAME_SIZE_MAX, RESERVED_NAMES
from gateway.config.schema import TlsConfig
from gateway.listeners.connection_limits import AcceptedConnection
from gateway.listeners.newest_lists import NewestLists
from gateway.log_fields import about
from gateway.port import Visitor, host_of, never
from host.der import RevocationList, certificate_of
from host.errors import ConfigError
from host.pem import UTC_FORM, load_authorities, load_own, load_revoked, validities, validities_of
from host.tls import choose

SUBJECT_ALTERNATIVE = {"dns": "DNS", "uri": "URI", "email": "email"}

logger = logging.getLogger(__name__)


class CertificateRefusedError(Exception):
    """A client's certificate names no user; the text says why."""


class _Handshake(ssl.SSLObject):
    """A connection's TLS. A certificate that Python cannot read fails like one that OpenSSL refuses.

    Otherwise asyncio, which asks for the certificate at the end of the handshake, would log a traceback.
    """

    def getpeercert(self, binary_form: bool = False) -> Any:
        try:
            return super().getpeercert(binary_form)
        except ValueError as error:  # a name in it is not UTF-8
            raise ssl.SSLError(ssl.SSL_ERROR_SSL, "its certificate cannot be read") from error


class Tls:
    """The TLS of one listener.

    Args:
        config: its files.
        newest: keeps which revocation lists are in use, if it is to be known at the next start.

    Raises:
        ConfigError: a file cannot be used; the text names it.

    ``validities`` are those of its certificate, and of its lists of revoked ones.
    """

    def __init__(self, config: TlsConfig, newest: NewestLists | None = None) -> None:
        self._config = config
        self._newest = newest
        self._lists: list[RevocationList] = []
        self.reload()

    def reload(self) -> None:
        """Reads the files again, for later connections. On ConfigError it goes on with those it has.

        A revocation list that is out of date does not take the place of one that is not: no client of its authority
        could connect any more. Nor does an older list: it would let in again clients that a later one keeps out.
        """
        context, lists = load_files(self._config)
        dated = validities(self._config.certificate)
        if self._config.client_crl is not None:
            _check_dates(self._config.client_crl, lists, self._lists)
            _check_numbers(self._config.client_crl, lists, self._lists)
            dated = dated + validities_of(self._config.client_crl, lists)
        self.context, self._lists, self.validities = context, lists, dated
        if self._newest is not None and lists:
            self._newest.note(lists)

    def watched(self, certificate: bytes | None) -> Callable[[], bool]:
        """Returns what says whether a client's certificate, in DER, is on a list that is in use at that moment.

        Raises CertificateRefusedError: it cannot be read.
        """
        if self._config.client_crl is None or certificate is None:
            return never
        try:
            read = certificate_of(certificate)
        except (ValueError, IndexError) as error:
            raise CertificateRefusedError("its certificate is not in DER") from error
        issuer, serial = read.issuer, read.serial
        return lambda: any(one.issuer == issuer and serial in one.serials for one in self._lists)

    def user_of(self, certificate: dict[str, Any] | None) -> str | None:
        """Returns the user that a client's certificate names, None without one.

        Args:
            certificate: the checked certificate, as ``ssl`` returns it.

        Raises:
            CertificateRefusedError: it names none, or several; or it is out of date.
        """
        if not certificate:
            return None
        if ssl.cert_time_to_seconds(certificate["notAfter"]) < time.time():  # a resumed session does not check that
            raise CertificateRefusedError(f"its certificate is out of date since {certificate['notAfter']}")
        if self._config.user_from == "common_name":
            pairs = [pair for names in certificate.get("subject", ()) for pair in names]
            wanted = "commonName"
        else:
            pairs = list(certificate.get("subjectAltName", ()))
            wanted = SUBJECT_ALTERNATIVE[self._config.user_from]
        users = {value for kind, value in pairs if kind == wanted}
        if len(users) != 1:
            raise CertificateRefusedError(f"its certificate has {len(users) or 'no'} names of the kind {wanted}")
        user = users.pop()
        if not user or not user.isprintable() or len(user) > NAME_SIZE_MAX or user in RESERVED_NAMES:
            raise CertificateRefusedError(f"its certificate's name {user[:NAME_SIZE_MAX]!r} cannot be a user's")
        return str(user)


def load_files(config: TlsConfig) -> tuple[ssl.SSLContext, list[RevocationList]]:
    """Returns the context of a TLS server, and the revocation lists by which it refuses clients. Raises ConfigError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.sslobject_class = _Handshake
    choose(context, config.minimum_version, config.ciphers)
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_CIPHER_SERVER_PREFERENCE
    load_own(context, config.certificate, config.key)
    lists = [] if config.client_ca is None else _trust(context, config.client_ca, config.client_crl)
    return context, lists


def _trust(context: ssl.SSLContext, authorities: str, revoked: str | None) -> list[RevocationList]:
    context.verify_mode = ssl.CERT_REQUIRED
    # A resumed session would bring a certificate that is not checked again.
    context.options |= ssl.OP_NO_TICKET
    context.num_tickets = 0
    load_authorities(context, authorities)
    return [] if revoked is None else load_revoked(context, revoked, authorities)


def _check_dates(path: str, lists: list[RevocationList], before: list[RevocationList]) -> None:
    """Raises ConfigError if a list is out of date, and the one that it would replace is not."""
    now = datetime.now(UTC)
    usable = {one.issuer for one in before} - {one.issuer for one in _ended(before, now)}
    for one in _ended(lists, now):
        if one.issuer in usable:
            raise ConfigError(
                f"{path}: a revocation list is out of date since {one.ends:{UTC_FORM}}, and would keep all clients of "
                "its authority out"
            )


def _check_numbers(path: str, lists: list[RevocationList], before: list[RevocationList]) -> None:
    """Raises ConfigError if a list is older than the one that it would replace, or another one of the same number.

    An authority whose files come from an old backup signs such lists. Of an issuer with several lists the numbers are
    not compared: each may be for a part of its certificates [RFC 5280, section 5.2.5].
    """
    used = _alone(before)
    for issuer, one in _alone(lists).items():
        in_use = used.get(issuer)
        if in_use is None or one.number is None or in_use.number is None or one.number > in_use.number:
            continue
        if one.number < in_use.number or one.serials != in_use.serials:
            raise ConfigError(
                f"{path}: a revocation list of the number {one.number}, and the one in use has the number "
                f"{in_use.number}; certificates on that one alone: {len(in_use.serials - one.serials)}. Are the "
                "authority's files from an old backup? Revoke those certificates again"
            )


def _alone(lists: list[RevocationList]) -> dict[bytes, RevocationList]:
    """Returns the lists of the issuers that have one, by issuer."""
    issuers = [one.issuer for one in lists]
    return {one.issuer: one for one in lists if issuers.count(one.issuer) == 1}


def _ended(lists: list[RevocationList], now: datetime) -> Iterator[RevocationList]:
    """Yields the lists that are out of date."""
    return (one for one in lists if one.ends is not None and one.ends < now)


class Visitors:
    """Identifies the clients of one listener.

    Args:
        tls: its TLS, if any.
        anonymous: whether clients without an account may log in here.
        is_realtime: whether it is a real-time listener.
    """

    def __init__(self, tls: Tls | None, anonymous: bool, is_realtime: bool) -> None:
        self._tls = tls
        self._anonymous = anonymous
        self._is_realtime = is_realtime

    def identify(self, accepted: AcceptedConnection, transport: asyncio.BaseTransport) -> Visitor | None:
        """Returns what is known of a client after the TLS handshake; None if its connection has to end."""
        host = host_of(accepted.peer)
        connection: ssl.SSLObject | None = transport.get_extra_info("ssl_object")
        if self._tls is None or connection is None:
            return Visitor(host, may_be_anonymous=self._anonymous, is_realtime=self._is_realtime)
        try:
            user = self._tls.user_of(connection.getpeercert())
            is_revoked = self._tls.watched(connection.getpeercert(binary_form=True))
            if is_revoked():  # since the handshake began
                raise CertificateRefusedError("its certificate is revoked")
        except CertificateRefusedError as error:
            logger.warning("connection refused", extra=about(peer=accepted.peer, reason=str(error)))
            return None
        cipher = (connection.cipher() or ("",))[0]
        return Visitor(host, user, self._anonymous, f"{connection.version()} {cipher}", self._is_realtime, is_revoked)
