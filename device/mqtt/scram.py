"""The client's part of SCRAM-SHA-256 (RFC 5802, RFC 7677): each end proves that it knows a password.

The keys of the proof are derived from the password by thousands of hashes, which take a microcontroller seconds to
minutes. So the device derives them in steps, and does its other work between the steps. It gives up the connection over
which the broker has sent salt and iteration count, and connects again with the keys. Once a login has proved the keys,
they are kept in a setting of the store (RFC 5802, section 3 allows that) until password, user, salt or count change. If
the broker sends another salt or count in the second connection, the attempt fails and the other brokers come first.
"""

import binascii
import hashlib
import os
import struct

from device.mqtt.settings import read_setting
from flash_store.errors import MessageTooLarge, StoreFull
from wire.errors import RemoteProtocolError
from wire.reasons import NOT_AUTHORIZED, PROTOCOL_ERROR

METHOD = "SCRAM-SHA-256"
ITERATIONS_MIN, ITERATIONS_MAX = 4096, 1_000_000  # the least by RFC 7677, section 4; the most that a device accepts
STEP = 100  # iterations in one turn of the device's loop: 50 to 100 ms on a microcontroller
BLOCK = 64  # bytes of a SHA-256 block
HEAD = "<I8sB"  # iterations, tag of user and password, bytes of salt; the salt, ClientKey and ServerKey follow


class Scram:
    """The login of one user at one broker; give `respond` to `wire.connection.authentication.ClientAuthentication`.

    Args:
        user: the user name.
        password: printable ASCII.
        log: the device's `flash_store.log.Log`.
        key: the key of the setting that keeps the derived keys.
        say: called with each line of text for the console and the log.
    """

    def __init__(self, user: str, password: str, log, key: str, say) -> None:
        self._user = user.replace("=", "=3D").replace(",", "=2C")
        self._password = password.encode()
        self._log = log
        self._key = key
        self._say = say
        self._tag = hmac(self._password, user.encode())[:8]
        self._kept = read_setting(log, key) or b""
        self._is_known = True  # False: the keys were derived, and no login has proved them yet
        self._derivation: list = []  # the one `Derivation` that is under way
        self._first = self._signature = b""
        self.is_proven = False  # whether the broker has proved that it knows the password

    def respond(self, data: bytes | None) -> bytes | None:
        """Returns the client's answer to the broker's authentication data; `data` None begins a login.

        Raises RemoteProtocolError if the broker does not prove itself, or if the keys must be derived first.
        """
        if data is None:
            self.is_proven = False
            self._signature = b""
            nonce = binascii.b2a_base64(os.urandom(18)).strip()
            self._first = b"n=" + self._user.encode() + b",r=" + nonce
            return b"n,," + self._first
        if self._signature:
            self._check(data)
            return None
        return self._prove(bytes(data))

    @property
    def is_deriving(self) -> bool:
        return bool(self._derivation)

    def derive(self) -> None:
        """Derives the keys by one more step."""
        if self._derivation[0].step(STEP):
            derivation = self._derivation.pop()
            salted = derivation.result.to_bytes(32, "big")
            keys = hmac(salted, b"Client Key") + hmac(salted, b"Server Key")
            head = struct.pack(HEAD, derivation.iterations, self._tag, len(derivation.salt))
            self._kept = head + derivation.salt + keys
            self._is_known = False

    def _prove(self, told: bytes) -> bytes:
        nonce, salt, iterations = self._read(told)
        client_key, server_key = self._keys(salt, iterations)
        final = b"c=biws,r=" + nonce
        said = self._first + b"," + told + b"," + final
        self._signature = hmac(server_key, said)
        signature = hmac(hashlib.sha256(client_key).digest(), said)
        proof = bytes([key ^ sign for key, sign in zip(client_key, signature)])
        return final + b",p=" + binascii.b2a_base64(proof).strip()

    def _read(self, told: bytes) -> tuple:
        """Returns nonce, salt and iterations from the server-first-message."""
        own = b"r=" + self._first.split(b",r=")[1]
        try:
            nonce, salt, iterations = told.split(b",")[:3]
            is_right = nonce.startswith(own) and len(nonce) > len(own)  # the broker appends its own nonce
            is_right = is_right and salt.startswith(b"s=") and iterations.startswith(b"i=")
            found = nonce[2:], binascii.a2b_base64(salt[2:]), int(iterations[2:])
        except ValueError:
            is_right = False
        if not is_right or not 0 < len(found[1]) < 256:
            raise RemoteProtocolError(PROTOCOL_ERROR, "the broker's message is none of SCRAM")
        if not ITERATIONS_MIN <= found[2] <= ITERATIONS_MAX:
            text = f"the broker asks for {found[2]} iterations, expected {ITERATIONS_MIN} to {ITERATIONS_MAX}"
            raise RemoteProtocolError(NOT_AUTHORIZED, text)
        return found

    def _keys(self, salt: bytes, iterations: int) -> tuple:
        kept = self._kept
        head = struct.pack(HEAD, iterations, self._tag, len(salt)) + salt
        if kept[: len(head)] == head and len(kept) == len(head) + 64:
            return kept[-64:-32], kept[-32:]
        if not self._is_known:
            self._is_known = True
            raise RemoteProtocolError(NOT_AUTHORIZED, "the broker tells another salt or count than the last time")
        self._derivation = [Derivation(self._password, salt, iterations)]
        text = f"{iterations} hashes make the keys of the password; it connects after that"
        self._say(text)
        raise RemoteProtocolError(NOT_AUTHORIZED, text)

    def _check(self, told: bytes) -> None:
        expected = b"v=" + binascii.b2a_base64(self._signature).strip()
        if bytes(told) != expected:
            raise RemoteProtocolError(NOT_AUTHORIZED, "the broker does not prove that it knows the password")
        self.is_proven = True
        if not self._is_known:
            self._is_known = True
            try:
                self._log.settings.set(self._key, self._kept)
            except (StoreFull, MessageTooLarge) as error:
                self._say(f"the keys of the password are kept until the next start alone: {error}")


class Derivation:
    """PBKDF2 with HMAC-SHA-256 (RFC 8018, section 5.2), for one block; `result` is an integer of 256 bits."""

    def __init__(self, password: bytes, salt: bytes, iterations: int) -> None:
        self.salt = salt
        self.iterations = iterations
        self._left = iterations - 1
        self._inner, self._outer = pads(password)
        self._last = hmac(password, salt + b"\x00\x00\x00\x01")
        self.result = int.from_bytes(self._last, "big")

    def step(self, most: int) -> bool:
        """Does up to `most` iterations; returns whether all are done."""
        count = min(most, self._left)
        inner, outer, last, result = self._inner, self._outer, self._last, self.result
        sha256 = hashlib.sha256
        for _ in range(count):
            digest = sha256(inner)
            digest.update(last)
            last = digest.digest()
            digest = sha256(outer)
            digest.update(last)
            last = digest.digest()
            result ^= int.from_bytes(last, "big")
        self._last, self.result = last, result
        self._left -= count
        return not self._left


def pads(key: bytes) -> tuple:
    """Returns the inner and the outer padding of an HMAC with this key (RFC 2104)."""
    if len(key) > BLOCK:
        key = hashlib.sha256(key).digest()
    key += bytes(BLOCK - len(key))
    return bytes([byte ^ 0x36 for byte in key]), bytes([byte ^ 0x5C for byte in key])


def hmac(key: bytes, text: bytes) -> bytes:
    """HMAC-SHA-256, which MicroPython's library lacks."""
    inner, outer = pads(key)
    return hashlib.sha256(outer + hashlib.sha256(inner + text).digest()).digest()
