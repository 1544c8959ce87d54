"""The serial link over bad lines, with cuts and restarts: SEED."""

import sys

from tests.wire.link.world import World

seed = int(sys.argv[1])
LINES: tuple = ({}, {"chunk": 1}, {"lose": 25}, {"corrupt": 1250}, {"latency_ms": 300})
for number, line in enumerate(LINES):
    world = World(seed + number, to_send=2000, **line)
    for _ in range(3):
        world.run(100 + world.dice.roll(400))
        if world.dice.roll(3) == 0:
            world.cut(world.dice.roll(1000))
        else:
            world.restart(world.dice.roll(2))
    world.mend()
    world.finish(60_000)
    world.check()
    print(number, world.now_ms, [len(side.streams) for side in world.ends])
