"""Every row of the golden packet tables."""

from tests.wire.golden import VERSIONS
from wire.codec.packets import Decoder, encode
from wire.errors import RemoteProtocolError

rows = [0, 0, 0]
for level, good, also_good, bad in VERSIONS:
    for name, packet, encoded in good:
        assert encode(packet, level) == encoded, name
    for name, packet, encoded in good + also_good:
        decoder = Decoder(level=level)
        for position in range(len(encoded)):
            assert decoder.next_packet() is None, name
            decoder.feed(encoded[position : position + 1])
        assert decoder.next_packet() == packet, name
    for name, reason_code, encoded in bad:
        decoder = Decoder(level=level)
        decoder.feed(encoded)
        found = None
        try:
            decoder.next_packet()
        except RemoteProtocolError as error:
            found = error.reason_code
        assert found == reason_code, (name, found)
    rows = [rows[0] + len(good), rows[1] + len(also_good), rows[2] + len(bad)]
print(*rows)
