"""Ten thousand devices whose broker comes back."""

from tools.bench.reconnect import DEVICES, peaks


def test_devices_do_not_all_return_in_the_same_second(seed: int) -> None:
    found = peaks(seed)
    assert found["fixed_peak_per_s"] == DEVICES
    assert found["peak_per_s"] < DEVICES / 10
    assert found["s_until_99_percent"] <= 30
