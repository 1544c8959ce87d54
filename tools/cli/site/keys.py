"""Private keys: EC P-256, which every TLS library of a microcontroller knows, as PEM or DER.

With a passphrase a key is encrypted as PKCS #8 by PBES2 with scrypt [RFC 8018, RFC 7914], which OpenSSL reads as well.
OpenSSL's own choice of 2,048 hashes would let a thief try a hundred thousand passphrases a second.
"""

import base64
import os

from cryptography.hazmat.primitives import padding, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.kdf.scrypt import Scrypt

from tools.cli.site.errors import SiteError

SCRYPT_COST, SCRYPT_BLOCK, SCRYPT_LANES = 2**14, 8, 5  # 16 MiB and some 100 ms for each passphrase that is tried
SALT_SIZE, IV_SIZE, AES_KEY_SIZE = 16, 16, 32  # bytes
ENCRYPTED = "ENCRYPTED PRIVATE KEY"
PBES2, SCRYPT, AES_256_CBC = (
    bytes.fromhex("2a864886f70d01050d"),  # 1.2.840.113549.1.5.13
    bytes.fromhex("2b06010401da47040b"),  # 1.3.6.1.4.1.11591.4.11
    bytes.fromhex("60864801650304012a"),  # 2.16.840.1.101.3.4.1.42
)
INTEGER, OCTET_STRING, OBJECT, SEQUENCE = 0x02, 0x04, 0x06, 0x30

Key = ec.EllipticCurvePrivateKey


def new_key() -> Key:
    """Returns a new private key of the curve P-256."""
    return ec.generate_private_key(ec.SECP256R1())


def key_pem(key: Key, passphrase: bytes | None = None) -> bytes:
    """Returns a key as PKCS #8 in PEM, encrypted if there is a passphrase."""
    if passphrase is None:
        return key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
    body = base64.encodebytes(_encrypted(key_der(key), passphrase)).decode()
    return f"-----BEGIN {ENCRYPTED}-----\n{body}-----END {ENCRYPTED}-----\n".encode()


def key_der(key: Key) -> bytes:
    """Returns a key as PKCS #8 in DER, not encrypted."""
    return key.private_bytes(
        serialization.Encoding.DER, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def is_encrypted(pem: bytes) -> bool:
    """Whether a key in PEM needs a passphrase."""
    return ENCRYPTED.encode() in pem


def read_key(pem: bytes, passphrase: bytes | None, file: str) -> Key:
    """Returns the key in a PEM file; ``file`` names it in an error.

    Raises:
        SiteError: it is no key of the curve P-256, or the passphrase is another one.
    """
    try:
        key = serialization.load_pem_private_key(pem, passphrase)
    except (ValueError, TypeError) as error:
        wrong = "the passphrase does not open it" if is_encrypted(pem) else "it cannot be read"
        raise SiteError(f"{file}: {wrong}, expected a private key in PEM") from error
    if not isinstance(key, ec.EllipticCurvePrivateKey) or not isinstance(key.curve, ec.SECP256R1):
        raise SiteError(f"{file}: expected a key of the curve P-256")
    return key


def _encrypted(der: bytes, passphrase: bytes) -> bytes:
    """Returns an EncryptedPrivateKeyInfo in DER [RFC 5958, section 3]."""
    salt, iv = os.urandom(SALT_SIZE), os.urandom(IV_SIZE)
    secret = Scrypt(salt, AES_KEY_SIZE, SCRYPT_COST, SCRYPT_BLOCK, SCRYPT_LANES).derive(passphrase)
    padder = padding.PKCS7(8 * IV_SIZE).padder()
    padded = padder.update(der) + padder.finalize()
    cipher = Cipher(algorithms.AES(secret), modes.CBC(iv)).encryptor()
    numbers = (_element(INTEGER, _number(one)) for one in (SCRYPT_COST, SCRYPT_BLOCK, SCRYPT_LANES))
    by_scrypt = _algorithm(SCRYPT, _element(SEQUENCE, _element(OCTET_STRING, salt) + b"".join(numbers)))
    by_aes = _algorithm(AES_256_CBC, _element(OCTET_STRING, iv))
    how = _algorithm(PBES2, _element(SEQUENCE, by_scrypt + by_aes))
    return _element(SEQUENCE, how + _element(OCTET_STRING, cipher.update(padded) + cipher.finalize()))


def _algorithm(name: bytes, parameters: bytes) -> bytes:
    return _element(SEQUENCE, _element(OBJECT, name) + parameters)


def _number(value: int) -> bytes:
    return value.to_bytes(value.bit_length() // 8 + 1, "big")


def _element(tag: int, content: bytes) -> bytes:
    """Returns an element of DER [X.690]."""
    size = len(content)
    if size < 0x80:
        return bytes((tag, size)) + content
    length = size.to_bytes((size.bit_length() + 7) // 8, "big")
    return bytes((tag, 0x80 | len(length))) + length + content
