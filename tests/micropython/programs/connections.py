"""Client and server in conversation, then decoder and connections under noise: SEED BYTES."""

import sys

from tests.wire.conversation import converse
from tests.wire.fuzz import check_connections, check_decoder
from tests.wire.link_world import Dice

seed, noise_bytes = int(sys.argv[1]), int(sys.argv[2])
for run in range(3):
    converse(seed + run, steps=80)
dice = Dice(seed)
fed = 0
while fed < noise_bytes:
    fed += check_decoder(dice) + check_connections(dice)
print(fed)
