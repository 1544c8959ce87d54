"""Client and server in conversation, then decoder and connections under noise: SEED BYTES."""

import sys

from tests.wire.connection.conversation import converse
from tools.lab.sim.virtual_line import Dice
from tools.lab.torture.wire import mqtt_noise

seed, noise_bytes = int(sys.argv[1]), int(sys.argv[2])
for run in range(4):
    converse(seed + run, 80, mqtt_noise.LEVELS[run % 2])
dice = Dice(seed)
fed = 0
while fed < noise_bytes:
    fed += mqtt_noise.check(dice)
print(fed)
