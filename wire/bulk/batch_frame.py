"""The frame around a column batch: its version, and the body as zstd has compressed it."""

import sys

from wire.errors import WireError

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

MAGIC = b"hfb"
VERSION = 1
MESSAGES_MAX = 65_535
SIZE_MAX = 16 << 20
"""Bytes of a batch without compression, and bytes of topic names, properties and payloads of all its messages."""

FRAME_AT = len(MAGIC) + 1
FRAME_MAGIC = b"\x28\xb5\x2f\xfd"
CHECKSUM_FLAG = 0x04  # in the byte behind it (RFC 8878, section 3.1.1.1.1)
SMALL = 64 << 10  # bytes; a smaller batch left because it was old enough, so there is time to look for more repetitions
LEVEL_OF_SMALL, LEVEL = 6, 1

DICTIONARY = (
    b"\xa3\x20\x64boot\x02bup\x1a\x00\x00pressure\x01chPa\x02\xc4\x82 \x19\xa3\x00hhumidity\x01c%RH\x02\xc4\x82!\x19"
    b"\xa3\x00ktemperature\x01cCel\x02\xc4\x82!\x19"
    b"\x03\x00\x10application/json\x03\x00\x16application/senml+cbor\x03\x00\x16application/senml+json"
    b"telemetry/gateway-1device-"
    b'},{"n":"battery","u":"V","v":3.},{"n":"load","v":0.},{"n":"memory","u":"%","v":},{"n":"pressure","u":"hPa","v":10'
    b'},{"n":"humidity","u":"%RH","v":5}][{"bn":"device-:","bt":17,"boot":,"up":0,"n":"temperature","u":"Cel","v":2'
)
"""What zstd may refer to before the first byte of version 1: texts that are usual in readings. It never changes."""

_DICTIONARY = zstd.ZstdDict(DICTIONARY, is_raw=True)
_PARAMETER = zstd.CompressionParameter
_COMPRESSORS: dict[int, list[zstd.ZstdCompressor]] = {LEVEL_OF_SMALL: [], LEVEL: []}  # each is in no other thread's use
_WINDOW: dict[int, int] = {zstd.DecompressionParameter.window_log_max: SIZE_MAX.bit_length() - 1}


class MalformedBatch(WireError):
    """A payload is not a batch that this version reads; the text says what is wrong, and in which column."""


def decompress(payload: bytes) -> bytes:
    """Returns the body. Raises MalformedBatch."""
    if payload[: len(MAGIC)] != MAGIC:
        raise MalformedBatch("it does not begin with the letters hfb")
    version, frame = payload[FRAME_AT - 1 : FRAME_AT], payload[FRAME_AT:]
    if version != bytes((VERSION,)):
        raise MalformedBatch(f"version {version.hex() or 'missing'}, this decoder reads {VERSION:02x}")
    if frame[:4] != FRAME_MAGIC or not frame[4:5] or not frame[4] & CHECKSUM_FLAG:
        raise MalformedBatch("there is no zstd frame with a checksum behind the version")
    try:
        size = zstd.get_frame_info(frame).decompressed_size
        if size is None or size > SIZE_MAX:
            raise MalformedBatch(f"the zstd frame states {size} bytes, expected {SIZE_MAX} at most")
        decompressor = zstd.ZstdDecompressor(zstd_dict=_DICTIONARY, options=_WINDOW)
        body = decompressor.decompress(frame, max_length=size + 1)
    except zstd.ZstdError as error:
        raise MalformedBatch(f"the zstd frame is corrupt: {error}") from None
    if not decompressor.eof or decompressor.unused_data or len(body) != size:
        raise MalformedBatch("the zstd frame is cut off, or there are bytes behind it")
    return body


def compress(body: bytes) -> bytes:
    """Returns the payload. A compressor takes long to make, so each is used for many frames."""
    level = LEVEL_OF_SMALL if len(body) < SMALL else LEVEL
    spare = _COMPRESSORS[level]
    try:
        compressor = spare.pop()
    except IndexError:
        options: dict[int, int] = {_PARAMETER.compression_level: level, _PARAMETER.checksum_flag: 1}
        compressor = zstd.ZstdCompressor(options=options, zstd_dict=_DICTIONARY)
    compressor.set_pledged_input_size(len(body))
    frame = compressor.compress(body, compressor.FLUSH_FRAME)
    spare.append(compressor)
    return MAGIC + bytes((VERSION,)) + frame
