"""A password as the accounts file keeps it: an Argon2id hash [RFC 9106].

Argon2id and not scrypt, because at the same resistance it takes a tenth of the time, and its memory and its time are
chosen apart: 12 MiB, three passes. That is the line between what a guesser pays and what a small board bears when
every device logs in at once after a power cut.
"""

import base64
import ctypes
import os

from argon2.exceptions import InvalidHashError, VerificationError
from argon2.low_level import Type, hash_secret, verify_secret

MEMORY_KIB = 12 * 1024
PASSES = 3
SALT_SIZE, HASH_SIZE = 16, 32  # bytes
PASSWORD_SIZE_MAX = 1024  # bytes; nobody may make us keep or hash more
PREFIX = "$argon2id$"
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # of malloc.h


def hash_password(password: bytes) -> str:
    """Returns a new hash with its parameters and a salt of its own; blocks for some ten milliseconds."""
    salt = os.urandom(SALT_SIZE)
    return hash_secret(password, salt, PASSES, MEMORY_KIB, 1, HASH_SIZE, Type.ID).decode()


def hash_of_nobody() -> str:
    """Returns a hash that is no password's, at the price of any other to compare with."""
    salt, digest = (base64.b64encode(os.urandom(size)).decode().rstrip("=") for size in (SALT_SIZE, HASH_SIZE))
    return f"{PREFIX}v=19$m={MEMORY_KIB},t={PASSES},p=1${salt}${digest}"


def is_password(password: bytes, password_hash: str) -> bool:
    """Whether a hash is that of a password; blocks for some ten milliseconds, whatever the answer."""
    try:
        return verify_secret(password_hash.encode(), password, Type.ID)
    except (VerificationError, InvalidHashError):
        return False


def keep_memory_apart() -> None:
    """Has glibc give back what hashing frees; from some day on it would keep that much for each thread.

    Its thresholds for that grow with what a process frees. Here they stop growing at half of what a hash takes.
    """
    if mallopt := getattr(ctypes.CDLL(None), "mallopt", None):
        mallopt(M_MMAP_THRESHOLD, MEMORY_KIB * 1024 // 2)
        mallopt(M_TRIM_THRESHOLD, MEMORY_KIB * 1024)
