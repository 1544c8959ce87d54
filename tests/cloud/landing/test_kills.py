"""A lander that is killed at random moments: each message is in the landing files, and under one identity alone."""

import random
import sys
import time
from collections import defaultdict
from pathlib import Path

from tests.cloud.landing.running_lander import RunningLander, landed, publish, wait_until
from tools.lab.testing.mosquitto import mosquitto
from tools.lab.testing.process import Process

KILLS = 5
MESSAGES = 3000


def test_a_lander_killed_at_random_moments_loses_no_message_and_gives_each_one_identity(
    landing: Path, tmp_path: Path, seed: int
) -> None:
    """Half of the messages bring identities; equal payloads are not rare, as of switches."""
    dice = random.Random(seed)
    payloads = [dice.choice((b"on", b"off", b"%d" % number)) for number in range(MESSAGES)]
    with mosquitto(tmp_path) as port:
        argv = [sys.executable, "-m", "tools.cli.main", "lander", "run", "--volatile", "--landing", str(landing)]
        argv += ["--broker", f"mqtt://127.0.0.1:{port}", "--roll-seconds", "0.1"]
        for kill in range(KILLS):
            process = Process("lander", argv)
            process.start()
            process.says("connected")
            share = slice(kill * MESSAGES // KILLS, (kill + 1) * MESSAGES // KILLS)
            publish(port, "stock", payloads[share])
            publish(port, "ours", payloads[share], hf_id=f"{kill:08x}/{{}}/roof")
            process.says("landed")
            time.sleep(dice.random() * 0.15)  # the moment of the kill is random, and nothing waits for it
            process.kill()
        running = RunningLander(port, landing, "lander-1", group="lander")
        running.wait_for("connected")
        publish(port, "marker", [b"marker"], hf_id="ffffffff/{}/marker")
        wait_until(lambda: any(row["topic"] == "marker" for row in landed(landing)), "the marker")
        running.stop()
    found = defaultdict(set)
    for row in landed(landing):
        found[row["topic"]].add((row["origin"], row["epoch"], row["seq"], row["payload"]))
    assert len(found["ours"]) == MESSAGES
    of_start = defaultdict(list)
    for _, epoch, seq, _ in found["stock"]:
        of_start[epoch].append(seq)
    assert all(sorted(seqs) == list(range(1, len(seqs) + 1)) for seqs in of_start.values())
    assert sorted(payload for *_, payload in found["stock"]) == sorted(payloads)
