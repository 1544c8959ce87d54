"""Every row of the golden packet table."""

from tests.golden_packets import ALSO_GOOD, BAD, GOOD
from wire.errors import RemoteProtocolError
from wire.packets import Decoder, encode

for name, packet, encoded in GOOD:
    assert encode(packet) == encoded, name
for name, packet, encoded in GOOD + ALSO_GOOD:
    decoder = Decoder()
    for position in range(len(encoded)):
        assert decoder.next_packet() is None, name
        decoder.feed(encoded[position : position + 1])
    assert decoder.next_packet() == packet, name
for name, reason_code, encoded in BAD:
    decoder = Decoder()
    decoder.feed(encoded)
    found = None
    try:
        decoder.next_packet()
    except RemoteProtocolError as error:
        found = error.reason_code
    assert found == reason_code, (name, found)
print(len(GOOD), len(ALSO_GOOD), len(BAD))
