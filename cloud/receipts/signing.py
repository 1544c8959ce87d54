"""The key that signs receipts: Ed25519 [RFC 8032], as PKCS #8 in PEM."""

from pathlib import Path

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)

from host.errors import ConfigError
from host.files import read_secret, write_new

_BYTES_MAX = 10_000


class SigningKey:
    """A key in a file, which only its owner can read.

    Attributes:
        public: the 32 bytes of the public key.
    """

    def __init__(self, key: Ed25519PrivateKey) -> None:
        self._key = key
        self.public = key.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)

    @staticmethod
    def create(file: Path) -> "SigningKey":
        """Makes a key, and writes it to a file that is not there yet. Raises OSError."""
        key = Ed25519PrivateKey.generate()
        write_new(file, key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
        return SigningKey(key)

    @staticmethod
    def read(file: Path) -> "SigningKey":
        """Reads the key in a file. Raises ConfigError: it cannot be used, or others may read or change it."""
        try:
            key = load_pem_private_key(read_secret(file, _BYTES_MAX), None)
        except (ValueError, TypeError):  # it is no PEM, or encrypted
            key = None
        if not isinstance(key, Ed25519PrivateKey):
            raise ConfigError(f"{file}: expected a private key of Ed25519 in PEM, not encrypted")
        return SigningKey(key)

    def sign(self, content: bytes) -> bytes:
        """Returns the signature of 64 bytes."""
        return self._key.sign(content)

    def has_signed(self, content: bytes, signature: bytes) -> bool:
        """Whether a signature is of this key and this content."""
        try:
            self._key.public_key().verify(signature, content)
        except InvalidSignature:
            return False
        return True
