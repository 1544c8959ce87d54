"""A site's authority: its own certificate, the certificates that it signs, and its list of revoked ones [RFC 5280].

Everything that it signs begins when its own certificate begins, and the list ends when that ends. So no clock for which
the authority is valid takes a certificate or the list for not yet valid, and the list is never out of date before the
authority is: a list that nothing renews would keep a whole fleet out.
"""

import ipaddress
import re
import secrets
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from tools.cli.site.errors import SiteError
from tools.cli.site.keys import Key

DAY = timedelta(days=1)
BEFORE = DAY  # how long before the moment at which it is made an authority is valid: other clocks may be slow
SERIAL_BITS = 127  # positive, and at most 20 bytes [RFC 5280, 4.1.2.2]
LATEST = datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)
CLIENT, SERVER = ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH
HOST = re.compile(r"(?!-)[A-Za-z0-9_-]{1,63}(?<!-)(\.(?!-)[A-Za-z0-9_-]{1,63}(?<!-))*")
HOST_SIZE_MAX = 253  # characters [RFC 1123, 2.1; RFC 1035, 2.3.4]
NAME_SIZE_MAX = 64  # characters of a common name [RFC 5280, appendix A]


class RevokedList(NamedTuple):
    """A revocation list: its number, and when each serial number was revoked."""

    number: int
    revoked: dict[int, datetime]


def new_serial() -> int:
    """Returns a random serial number, above 0."""
    return secrets.randbits(SERIAL_BITS) | 1 << SERIAL_BITS - 1


def make_authority(site: str, key: Key, days: int, now: datetime) -> bytes:
    """Returns the certificate of a new authority, in PEM.

    Args:
        site: the site's name. A random part is behind it, so that each authority has a name of its own.
        key: its key.
        days: how long it is valid from now on.
        now: the time.
    """
    name = _name(f"{site} {secrets.token_hex(4)}")
    usage = x509.KeyUsage(False, False, False, False, False, True, True, False, False)
    begins = now.replace(microsecond=0) - BEFORE
    builder = _builder(name, name, key.public_key(), key.public_key(), new_serial())
    builder = builder.not_valid_before(begins).not_valid_after(_days_after(now, days))
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    return _pem(builder.add_extension(usage, critical=True).sign(key, hashes.SHA256()))


class Authority:
    """The authority as others know it: without its key.

    Args:
        pem: its certificate.
        file: names it in an error.

    Raises:
        SiteError: it is no certificate of an authority.
    """

    def __init__(self, pem: bytes, file: str) -> None:
        self._certificate = read_certificate(pem, file)
        self.ends = self._certificate.not_valid_after_utc
        """When it ends, and with it all that it has signed."""
        self._begins = self._certificate.not_valid_before_utc
        self.serial = self._certificate.serial_number
        try:
            self._certificate.extensions.get_extension_for_class(x509.BasicConstraints)
        except x509.ExtensionNotFound as error:
            raise SiteError(f"{file}: expected the certificate of an authority") from error

    @property
    def site(self) -> str:
        """The site's name."""
        return common_name(self._certificate).rpartition(" ")[0]

    def is_of(self, key: Key) -> bool:
        """Whether a key is the authority's."""
        return key.public_key() == self._certificate.public_key()

    def check_clock(self, now: datetime) -> None:
        """Raises SiteError if a certificate that is signed now would be valid at no time, or the clock is wrong."""
        if now >= self.ends:
            raise SiteError(
                f"by this computer's clock the site's authority has ended on {self.ends:%Y-%m-%d}: make a new site, "
                "and give everything anew from it"
            )
        if now < self._begins:
            raise SiteError(
                f"by this computer's clock it is {now:%Y-%m-%d}, before the site's authority begins "
                f"({self._begins:%Y-%m-%d}): set the clock"
            )

    def has_signed(self, certificate: x509.Certificate) -> bool:
        """Whether a certificate is of this site."""
        try:
            certificate.verify_directly_issued_by(self._certificate)
        except (ValueError, TypeError, InvalidSignature):
            return False
        return True

    def end_of(self, days: int, now: datetime) -> datetime:
        """Returns when a certificate ends that is to be valid for `days`: with the authority at the latest."""
        return min(_days_after(now, days), self.ends)

    def sign_device(
        self, key: Key, name: str, public_key: ec.EllipticCurvePublicKey, serial: int, ends: datetime
    ) -> bytes:
        """Returns the certificate of a device, in PEM: its common name is the user at a gateway.

        A device cannot serve with it: its extended key usage is that of a client.
        """
        return self._sign(key, name, public_key, serial, ends, CLIENT, [])

    def sign_gateway(
        self,
        key: Key,
        name: str,
        hosts: Sequence[str],
        public_key: ec.EllipticCurvePublicKey,
        serial: int,
        ends: datetime,
    ) -> bytes:
        """Returns the certificate of a gateway under these host names and IP addresses, in PEM.

        A gateway cannot log in at another with it: its extended key usage is that of a server.
        """
        return self._sign(key, name, public_key, serial, ends, SERVER, [_host(one) for one in hosts])

    def sign_list(self, key: Key, revoked: Mapping[int, datetime], number: int) -> bytes:
        """Returns the list of revoked certificates, in PEM."""
        builder = x509.CertificateRevocationListBuilder().issuer_name(self._certificate.subject)
        builder = builder.last_update(self._certificate.not_valid_before_utc).next_update(self.ends)
        for serial, when in revoked.items():
            one = x509.RevokedCertificateBuilder().serial_number(serial).revocation_date(when.replace(microsecond=0))
            builder = builder.add_revoked_certificate(one.build())
        signed_by = x509.AuthorityKeyIdentifier.from_issuer_public_key(key.public_key())
        builder = builder.add_extension(signed_by, critical=False).add_extension(x509.CRLNumber(number), critical=False)
        return builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)

    def read_list(self, pem: bytes, file: str) -> RevokedList:
        """Returns what is in a revocation list. Raises SiteError: it cannot be read, or is of another authority."""
        try:
            found = x509.load_pem_x509_crl(pem)
        except ValueError as error:
            raise SiteError(f"{file}: expected a revocation list in PEM") from error
        public_key = self._certificate.public_key()
        assert isinstance(public_key, ec.EllipticCurvePublicKey)
        if not found.is_signature_valid(public_key):
            raise SiteError(f"{file}: a revocation list that is not of this site")
        number = found.extensions.get_extension_for_class(x509.CRLNumber).value.crl_number
        return RevokedList(number, {one.serial_number: one.revocation_date_utc for one in found})

    def _sign(
        self,
        key: Key,
        name: str,
        public_key: ec.EllipticCurvePublicKey,
        serial: int,
        ends: datetime,
        use: x509.ObjectIdentifier,
        hosts: list[x509.GeneralName],
    ) -> bytes:
        builder = _builder(_name(name), self._certificate.subject, public_key, key.public_key(), serial)
        builder = builder.not_valid_before(self._certificate.not_valid_before_utc).not_valid_after(ends)
        usage = x509.KeyUsage(True, False, False, False, False, False, False, False, False)
        builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        builder = builder.add_extension(usage, critical=True)
        builder = builder.add_extension(x509.ExtendedKeyUsage([use]), critical=False)
        if hosts:
            builder = builder.add_extension(x509.SubjectAlternativeName(hosts), critical=False)
        return _pem(builder.sign(key, hashes.SHA256()))


def read_certificate(pem: bytes, file: str) -> x509.Certificate:
    """Returns the certificate in a PEM file. Raises SiteError: there is none."""
    try:
        return x509.load_pem_x509_certificate(pem)
    except ValueError as error:
        raise SiteError(f"{file}: expected a certificate in PEM") from error


def common_name(certificate: x509.Certificate) -> str:
    """Returns the name in a certificate, "" if it has none or several."""
    names = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    return str(names[0].value) if len(names) == 1 else ""


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    public_key: ec.EllipticCurvePublicKey,
    issuer_key: ec.EllipticCurvePublicKey,
    serial: int,
) -> x509.CertificateBuilder:
    builder = x509.CertificateBuilder().subject_name(subject).issuer_name(issuer).public_key(public_key)
    known_by = x509.SubjectKeyIdentifier.from_public_key(public_key)
    signed_by = x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key)
    builder = builder.serial_number(serial).add_extension(known_by, critical=False)
    return builder.add_extension(signed_by, critical=False)


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def is_host(host: str) -> bool:
    """Whether a certificate can name this host: an IP address, or a host name, also one that begins with ``*.``."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return len(host) <= HOST_SIZE_MAX and HOST.fullmatch(host.removeprefix("*.")) is not None
    return True


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _days_after(now: datetime, days: int) -> datetime:
    try:
        return min(now.replace(microsecond=0) + days * DAY, LATEST)
    except OverflowError:
        return LATEST


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)
