"""Receipts go past a lander that takes all topics: each is acknowledged and none lands."""

from pathlib import Path

from tests.cloud.landing.running_lander import RunningLander, landed, publish, wait_until
from tools.lab.testing.mosquitto import mosquitto


def test_receipts_are_acknowledged_and_do_not_land(landing: Path, tmp_path: Path) -> None:
    """So the tables' own words make no batch: each batch would make receipts again."""
    with mosquitto(tmp_path) as port:
        lander = RunningLander(port, landing, "lander-1")
        lander.wait_for("connected")
        for number in range(3):
            publish(port, "hf/receipt/garage", [b"one by one"] * 3)
            publish(port, "hf/receipt/garage", [b"together"] * 200)
            publish(port, "hf/receipt", [b"landed"])
            publish(port, f"readings/{number}", [b"1"] * 100)
        publish(port, "hf/receipts", [b"another topic"])
        wait_until(lambda: len(landed(landing)) == 301, "all readings")
        lander.stop()
        again = RunningLander(port, landing, "lander-1")
        publish(port, "readings/last", [b"1"])
        wait_until(lambda: len(landed(landing)) == 302, "the last reading")
        again.stop()
    rows = landed(landing)
    assert not [row["topic"] for row in rows if row["topic"].startswith("hf/receipt/") or row["topic"] == "hf/receipt"]
    assert [row["seq"] for row in rows[:301]] == sorted(row["seq"] for row in rows[:301])
    assert {row["topic"] for row in rows} >= {"readings/2", "hf/receipts", "readings/last"}
