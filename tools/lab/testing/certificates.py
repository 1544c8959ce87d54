"""Certificates for tests, as PEM files: an authority, the certificates that it signs, and its revocation list."""

import datetime
import ipaddress
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

LIFE = datetime.timedelta(days=1)


class Authority:
    """A certificate authority whose files lie in a folder; ``path`` is its own certificate.

    Args:
        folder: where they lie.
        name: its name, and its certificate's file.
        issuer: the authority that signs its certificate; None is itself.
    """

    def __init__(self, folder: Path, name: str = "authority", issuer: "Authority | None" = None) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self._certificates: dict[str, x509.Certificate] = {}
        basic = x509.BasicConstraints(ca=True, path_length=None)
        signer = issuer or self
        builder = signer._builder(self._name, self._key).add_extension(basic, critical=True)
        usage = x509.KeyUsage(False, False, False, False, False, True, True, False, False)
        builder = builder.add_extension(usage, critical=True)
        signer._certificates[name] = certificate = builder.sign(signer._key, hashes.SHA256())
        self.path = self._write(f"{name}.pem", certificate)

    def server(self, name: str = "server") -> tuple[Path, Path]:
        """Makes the certificate of a server on this machine; returns its file and its key's."""
        addresses = [x509.IPAddress(ipaddress.ip_address(host)) for host in ("127.0.0.1", "::1")]
        return self.sign(name, [name], [x509.DNSName("localhost"), *addresses])

    def sign(
        self,
        file: str,
        common_names: list[str],
        others: list[x509.GeneralName] | None = None,
        extension: x509.ExtensionType | None = None,
        life: datetime.timedelta = LIFE,
    ) -> tuple[Path, Path]:
        """Makes a certificate with these names, which ends after ``life``; returns its file and its key's."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name) for name in common_names])
        builder = self._builder(subject, key, life)
        if others:
            builder = builder.add_extension(x509.SubjectAlternativeName(others), critical=False)
        if extension is not None:
            builder = builder.add_extension(extension, critical=False)
        self._certificates[file] = certificate = builder.sign(self._key, hashes.SHA256())
        key_path = self._folder / f"{file}.key"
        key_path.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
        )
        return self._write(f"{file}.pem", certificate), key_path

    def revoke(self, *files: str, life: datetime.timedelta = LIFE) -> Path:
        """Writes the list of what is revoked: these. It counts until ``life`` from now, which may be past."""
        now = datetime.datetime.now(datetime.UTC)
        builder = x509.CertificateRevocationListBuilder().issuer_name(self._name)
        builder = builder.last_update(now - LIFE).next_update(now + life)
        signed_by = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        builder = builder.add_extension(signed_by, critical=False)
        for file in files:
            revoked = x509.RevokedCertificateBuilder().serial_number(self._certificates[file].serial_number)
            builder = builder.add_revoked_certificate(revoked.revocation_date(now - LIFE).build())
        path = self._folder / "revoked.pem"
        path.write_bytes(builder.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))
        return path

    def _builder(
        self, subject: x509.Name, key: ec.EllipticCurvePrivateKey, life: datetime.timedelta = LIFE
    ) -> x509.CertificateBuilder:
        now = datetime.datetime.now(datetime.UTC)
        builder = x509.CertificateBuilder().subject_name(subject).issuer_name(self._name).public_key(key.public_key())
        builder = builder.serial_number(x509.random_serial_number())
        builder = builder.not_valid_before(now - LIFE).not_valid_after(now + life)
        known_by = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
        signed_by = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        return builder.add_extension(known_by, critical=False).add_extension(signed_by, critical=False)

    def _write(self, name: str, certificate: x509.Certificate) -> Path:
        path = self._folder / name
        path.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        return path
