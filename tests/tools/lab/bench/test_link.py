"""The serial link's measurements: what they say, and that the link meets its goals on a simulated line."""

from tools.lab.bench.link import real_link
from tools.lab.bench.link.command import BAUD, ERROR_RATES, RESYNC_MAX_MS, simulated
from tools.lab.micropython import MicroPython


def test_simulated_line_is_used_as_well_as_asked_for(seed: int) -> None:
    report = simulated(seed, size=300_000, runs=3)
    for name, (_, least) in ERROR_RATES.items():
        assert least <= report["share"][name] < 1
    assert max(report["resync_ms"].values()) <= RESYNC_MAX_MS
    assert report["erase"]["line_bytes_lost"] == report["erase"]["stream_bytes_lost"] == 0
    assert report["stall"]["stream_bytes_lost"] == report["stall"]["restarts"] == 0


async def test_nothing_is_lost_while_a_real_device_erases_its_flash(micropython: MicroPython, seed: int) -> None:
    found = await real_link.erase(micropython, seed, BAUD, size=8_000, erases=1)
    assert found["erases"] == 1
    assert found["line_bytes_lost"] == found["restarts"] == 0


async def test_host_process_that_stood_still_goes_on_with_the_same_stream(micropython: MicroPython, seed: int) -> None:
    assert (await real_link.stall(micropython, seed, BAUD, stall_s=1.0))["restarts"] == 0
