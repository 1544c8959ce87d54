"""A short digest of a message's content: it tells a message that came again from another one with the same identity."""

import hashlib
from collections.abc import Iterable

DIGEST_BYTES = 8
_hash = hashlib.blake2b


def content_digest(topic: str, payload: bytes) -> bytes:
    """Returns the digest of a message's topic name and payload, DIGEST_BYTES long.

    It is BLAKE2b [RFC 7693] over the topic as a PUBLISH has it, with its length in front [MQTT 5.0 section 1.5.4], and
    the payload behind it. So the topic `a` with the payload `bc` differs from `ab` with `c`. Two contents that differ
    have the same digest once in 2^64 times. A caller with little memory may keep the first bytes alone.

    Raises OverflowError for a topic of more than 65,535 bytes, which no PUBLISH can have.
    """
    name = topic.encode()
    return digests_of([len(name).to_bytes(2, "big") + name + payload])[0]


def digests_of(contents: Iterable[bytes]) -> list[bytes]:
    """Returns the digest of each message, from what `cut_contents` returns."""
    return [_hash(content, digest_size=DIGEST_BYTES).digest() for content in contents]
